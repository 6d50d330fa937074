"""Reads a report of Nsight Compute (.ncu-rep) with NVIDIA's Python package `ncu_report`, which is not always there."""

import importlib
import math
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from meddpm.config import UserError
from meddpm.profiling.readers.ncu_files import (
    BLOCK,
    DEVICE,
    GRID,
    Launch,
    Rule,
    base_unit,
    is_packed,
    kernel_name,
    launch_text,
    opened,
    reading,
    rule,
)
from meddpm.words import one_line

KINDS = {"OK": "INF", "NONE": "INF", "OPTIMIZATION": "OPT", "WARNING": "WRN"}


def launches(path: Path, wanted: frozenset[str] | None = None) -> Iterator[Launch]:
    """The launches of a report, in its order, with the metrics that are `wanted` (None: all).

    Raises UserError where the package is missing or the report holds no launch.
    """
    try:
        library = importlib.import_module("ncu_report")
    except ImportError as error:
        # Another system than the package was built for says more than that it is not there.
        why = "" if isinstance(error, ModuleNotFoundError) else f" ({one_line(str(error), 100)})"
        raise UserError(
            f"{path}: a report needs the package ncu_report{why}; run `pip install ncu-report`, or export CSV with "
            f"`ncu --import {path.name} --csv --page raw`"
        ) from None
    with reading(path):
        if not is_packed(path):
            yield from _of_report(path, path, library, wanted)
            return
        # The package reads files by their names alone.
        with tempfile.TemporaryDirectory(prefix="meddpm-ncu-") as folder:
            report = Path(folder) / "report.ncu-rep"
            with opened(path) as stream, open(report, "wb") as target:
                shutil.copyfileobj(stream, target, 1 << 20)
            yield from _of_report(path, report, library, wanted)


def _of_report(path: Path, report: Path, library: Any, wanted: frozenset[str] | None) -> Iterator[Launch]:
    try:
        context = library.load_report(str(report))
    except Exception as error:  # the package documents no exceptions
        raise UserError(f"{path}: the report cannot be loaded: {one_line(str(error), 150)}; profile again") from None
    number = 0
    # Whatever the file is, the package loads it without complaint; what it does not understand has no ranges.
    for place in range(context.num_ranges()):
        actions = context.range_by_idx(place)
        for index in range(actions.num_actions()):
            yield _launch(number, actions.action_by_idx(index), library, wanted)
            number += 1
    if not number:
        raise UserError(f"{path}: no launch in it: no report of Nsight Compute, or one cut short; profile again")


def _launch(number: int, action: Any, library: Any, wanted: frozenset[str] | None) -> Launch:
    metrics: dict[str, float] = {}
    units: dict[str, str] = {}
    names = action.metric_names()
    for name in names if wanted is None else [name for name in names if name in wanted]:
        metric = action.metric_by_name(name)
        value = metric.value() if metric is not None and metric.has_value() else None
        if isinstance(value, int | float) and math.isfinite(value):
            unit, power = base_unit(_text(metric.unit()))
            metrics[name] = float(value) * 10.0**power if power else float(value)
            if unit:
                units[name] = unit
    device = action.metric_by_name(DEVICE) if DEVICE in names else None
    return Launch(
        number,
        kernel_name(_text(action.name(action.NameBase_MANGLED)) or _text(action.name()) or "?"),
        launch_text((metrics.get(name) for name in GRID), (metrics.get(name) for name in BLOCK)),
        one_line(_text(device.as_string())) or None if device is not None else None,
        _range(action),
        metrics,
        units,
        _rules(action, library) if wanted is None else (),
    )


def _range(action: Any) -> str | None:
    """The innermost push/pop range; of several domains that of the last one."""
    state = action.nvtx_state()
    if state is None:
        return None
    stacks = [state.domain_by_id(number).push_pop_ranges() for number in state.domains()]
    names = [name for stack in stacks for name in map(_text, stack) if name.strip()]
    return one_line(names[-1]) if names else None


def _rules(action: Any, library: Any) -> tuple[Rule, ...]:
    """What the rules advise; the package that came with Nsight Compute before 2025 does not tell."""
    results = getattr(action, "rule_results", None)
    kinds = {int(kind): kind.name for kind in library.MsgType} if results else {}
    found = []
    for result in results() if results else ():
        if not result.has_rule_message():
            continue
        said = result.rule_message()
        scope, speedup = "", None
        if result.has_speedup_estimation():
            estimate = result.speedup_estimation()
            scope = library.SpeedupType(estimate["type"]).name.lower()
            speedup = float(estimate["speedup"])
        kind = KINDS.get(kinds.get(int(said["type"]), ""), "")
        name = _text(result.rule_identifier()) or _text(result.name())
        advice = rule(name, kind, _text(said["message"]) or _text(said["title"]), scope, speedup)
        if advice:
            found.append(advice)
    return tuple(found)


def _text(value: Any) -> str:
    """A text of the package, which is None where the report is damaged."""
    return value if isinstance(value, str) else ""
