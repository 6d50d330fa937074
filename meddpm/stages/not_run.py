"""Write the files of cells that do not run: their rows say why."""

import json
from pathlib import Path
from typing import Any

from meddpm import tables
from meddpm.config import BASELINE
from meddpm.files import write_csv
from meddpm.stages import sample
from meddpm.stages.profile import NO_KERNEL


def run(cells: str) -> None:
    """Write the files of each of `cells`, a JSON list of {stage, settings, files, cells, status, reason}.

    `settings` are those of the stage's job; `files` are its outputs, in their order; `cells` are, for the evaluation of
    a model, the cells that it would have compared.
    """
    for cell in json.loads(cells):
        values = json.loads(cell["settings"])
        why = {"status": cell["status"], "reason": cell["reason"]}
        target, *environment = map(Path, cell["files"])
        if cell["stage"] == "sample":
            write_csv(target, sample.COLUMNS, [why])
        else:
            table, rows = ROWS[cell["stage"]](values, cell["cells"])
            tables.write(table, [row | why for row in rows], target)
        for path in environment:
            tables.write("environment", [], path)


def _bench(values: dict[str, Any], _: Any) -> tuple[str, list[tables.Row]]:
    cell = {key: values[key] for key in ("model", "gpu", "variant", "phase")}
    return "timing", [{**cell, "solver": solver} for solver in list(values["solvers"]) or [None]]


def _profile(values: dict[str, Any], _: Any) -> tuple[str, list[tables.Row]]:
    cell = {key: values[key] for key in ("model", "gpu", "variant", "phase")}
    return "kernels", [{**cell, **NO_KERNEL, "profiler": "torch"}]


def _evaluate(values: dict[str, Any], cells: list[dict[str, str]]) -> tuple[str, list[tables.Row]]:
    return "quality", [{**cell, "reference": BASELINE, "metric": "ssim", "region": "whole"} for cell in cells]


ROWS = {"bench": _bench, "profile": _profile, "evaluate": _evaluate}
