"""The configuration of what was joined: what the names of all parts mean, and where a name means two things."""

import dataclasses
import json
from collections.abc import Sequence
from typing import Any

import yaml

from meddpm.config import GpuConfig, SolverConfig, UserError, VariantConfig
from meddpm.merging.cells import Contradiction
from meddpm.merging.parts import Part
from meddpm.model.presets import PRESETS
from meddpm.words import one_line

DEFAULTS = {"variants": VariantConfig(), "solvers": SolverConfig(), "gpus": GpuConfig()}
# A name that two parts have must mean one thing. Where a GPU is found on a cluster is no part of what it is.
ONE_MEANING = ("models", "gpus", "variants", "solvers")
# What a model does not say, the train stage makes it.
TRAINED = {"weights": "train", "training_dataset": None}


def join(parts: Sequence[Part]) -> tuple[str | None, list[Contradiction]]:
    """run_config.yaml of all parts that have one, as text, None where none has; and names that mean different things.

    Of models, GPUs, variants and solvers it has those of all parts, and the study picks what one of them picks. Of
    datasets and of the other sections it has what all parts agree on.
    """
    having = [(part, part.config) for part in parts if part.config is not None]
    contradictions: list[Contradiction] = []
    joined: dict[str, Any] = {}
    for section in dict.fromkeys(name for _, config in having for name in config):
        values = [config[section] for _, config in having if section in config]
        for part, config in having:
            if section in (*ONE_MEANING, "study") and not isinstance(config.get(section) or {}, dict):
                raise _malformed(part, section)
        if section in ONE_MEANING:
            joined[section], differing = _definitions(section, having)
            contradictions += differing
        elif section == "study":
            joined[section] = _picked([value or {} for value in values])
        elif section == "datasets" and all(isinstance(value, dict) for value in values):
            rows = {name: [value[name] for value in values if name in value] for value in values for name in value}
            joined[section] = {name: found[0] for name, found in rows.items() if _agree(found)}
        elif len(values) == len(having) and _agree(values):
            joined[section] = values[0]
    text = yaml.safe_dump(joined, sort_keys=False) if having else None
    return text, contradictions


def _agree(values: list[Any]) -> bool:
    return all(value == values[0] for value in values)


def _picked(studies: list[dict[str, Any]]) -> dict[str, Any]:
    """What one of the studies, at least, picks."""
    picked: dict[str, Any] = {}
    for key in dict.fromkeys(key for study in studies for key in study):
        values = [study[key] for study in studies if key in study]
        if all(isinstance(value, list) for value in values):
            picked[key] = list({repr(name): name for value in values for name in value}.values())
        elif _agree(values):
            picked[key] = values[0]
    return picked


def _definitions(section: str, having: list[tuple[Part, dict[str, Any]]]) -> tuple[dict[str, Any], list[Contradiction]]:
    """The rows of a section of all parts, each as the first part has it, and the names that mean different things."""
    rows: dict[str, Any] = {}
    first: dict[str, tuple[str, dict[str, Any]]] = {}
    differing = []
    for part, config in having:
        for name, row in (config.get(section) or {}).items():
            if not isinstance(row or {}, dict):
                raise _malformed(part, f"{section}.{name}")
            meaning = _meaning(section, row or {})
            rows.setdefault(name, row)
            where, other = first.setdefault(name, (part.name, meaning))
            key = next((key for key in {**other, **meaning} if other.get(key) != meaning.get(key)), None)
            if key is not None:
                one, two = (one_line(json.dumps(each.get(key), ensure_ascii=False), 60) for each in (other, meaning))
                what = f"{section}.{name} of run_config.yaml: {key} is {one} in {where} and {two} in {part.name}"
                mend = "leave one of the folders out, or run one of them with another name for it"
                differing.append(Contradiction(one_line(what, 1000), mend))
    return rows, differing


def _meaning(section: str, row: dict[str, Any]) -> dict[str, Any]:
    """A row with all that it leaves out."""
    if section == "models":
        preset = PRESETS.get(str(row.get("preset")))
        known = dataclasses.asdict(preset) if preset else {}
        own = {key: value for key, value in row.items() if not (preset and key == "preset")}
        full = {**known, **TRAINED, **own}
        full["training_dataset"] = full["training_dataset"] or full.get("dataset")
    else:
        defaults = dataclasses.asdict(DEFAULTS[section])
        full = {**defaults, **{key: value for key, value in row.items() if section != "gpus" or key in defaults}}
    return json.loads(json.dumps(full, default=str))


def _malformed(part: Part, key: str) -> UserError:
    return UserError(f"{part.name}: {one_line(key)} of its run_config.yaml is no mapping; write that file anew")
