"""Hold what the paper claims against the tables."""

from collections.abc import Mapping
from pathlib import Path

import yaml

from meddpm import tables
from meddpm.claims import rules, verdicts
from meddpm.stages.job import Job

TABLES = ("timing", "kernels", "counters", "quality", "environment")


def run(settings: str, inputs: Mapping[str, Path | str], run_config: Path | str, target: Path | str) -> None:
    """Write the table of claims from those in `inputs`, by name, and the merged configuration."""
    Job.parse("claims", settings)
    write(inputs, run_config, target)


def write(inputs: Mapping[str, Path | str], run_config: Path | str, target: Path | str) -> None:
    """The same without settings, for tables that were joined."""
    read = {name: tables.read(name, inputs[name]) for name in TABLES}
    config = yaml.safe_load(Path(run_config).read_text(encoding="utf-8")) or {}
    tables.write("claims", verdicts.rows(rules.load(), read, config), target)
