"""The kernel taxonomy: what a kernel does and in which precision, told from its name alone.

The rules are data, in taxonomy.yaml beside this file.
"""

import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import yaml

OTHER = "other"


@dataclass(frozen=True)
class Category:
    """One category: its name, what belongs to it, and whether its kernels compute (only those have a precision)."""

    name: str
    description: str
    arithmetic: bool


@dataclass(frozen=True)
class Taxonomy:
    """Categories in the order of the file, and the ordered rules for category and precision."""

    categories: dict[str, Category]
    rules: tuple[tuple[re.Pattern[str], str], ...]
    precisions: tuple[tuple[re.Pattern[str], str | None], ...]


@cache
def taxonomy() -> Taxonomy:
    """Read taxonomy.yaml. Raises ValueError where a rule names a category that the file does not list."""
    path = Path(__file__).with_name("taxonomy.yaml")
    content = yaml.safe_load(path.read_text(encoding="utf-8"))
    categories = {entry["name"]: Category(**entry) for entry in content["categories"]}
    for rule in content["rules"]:
        if rule["category"] not in categories:
            raise ValueError(f"{path.name}: the rule {rule['pattern']!r} has the unknown category {rule['category']!r}")
    return Taxonomy(
        categories,
        tuple((re.compile(rule["pattern"], re.IGNORECASE), rule["category"]) for rule in content["rules"]),
        tuple((re.compile(rule["pattern"], re.IGNORECASE), rule["precision"]) for rule in content["precisions"]),
    )


def categories() -> tuple[str, ...]:
    """The names of all categories, in the order in which tables and figures show them; "other" is the last."""
    return tuple(taxonomy().categories)


@cache
def classify(name: str) -> tuple[str, str | None]:
    """Category and precision of the kernel or operator called `name`.

    The category is "other" where no rule knows the name. The precision is "fp32", "tf32", "bf16", "fp16", "fp8" or
    "fp64": that of the multiplications where the name tells it (cuDNN, cuBLAS, CUTLASS), else the narrowest
    floating-point type among the template arguments. It is None where the name does not tell, or nothing is computed.
    """
    known = taxonomy()
    category = next((category for pattern, category in known.rules if pattern.search(name)), OTHER)
    if not known.categories[category].arithmetic:
        return category, None
    return category, next((precision for pattern, precision in known.precisions if pattern.search(name)), None)
