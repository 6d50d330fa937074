"""How a job is called."""

from collections.abc import Mapping


def name(rule: str, wildcards: Mapping[str, str]) -> str:
    """How a job is called: sample mini a100 fp16 ddim50."""
    return " ".join([rule, *wildcards.values()])
