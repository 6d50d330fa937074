"""What there is to know of a file of weights, and whether it fits a preset."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from meddpm.config import ConfigError
from meddpm.files import sha256
from meddpm.model.formats import architecture, fit, header, stored
from meddpm.model.formats import card as cards
from meddpm.model.formats.conversion import OUTLINE
from meddpm.model.formats.header import Shapes
from meddpm.model.presets import PRESETS
from meddpm.validation import closest


@dataclass(frozen=True)
class Inspection:
    """The facts of one file."""

    kind: str
    size: int
    """Bytes."""
    sha256: str
    entries: tuple[str, ...]
    """The entries of a checkpoint, also of one that was converted; none in a file of weights alone."""
    section: str | None
    """The entry that the weights are read from."""
    step: int | None
    """Training steps, as the checkpoint or the card says."""
    shapes: Shapes
    types: dict[str, str]
    """Type of each weight in the file, such as float32."""
    diffusion_steps: int | None
    card: cards.Card | None
    preset: str | None
    """The preset that fits, key by key."""
    faults: tuple[str, ...]
    """Why a job would refuse it, whatever its model."""


def inspect(path: Path | str) -> Inspection:
    """Read a file of weights. Raises UserError if it cannot be read."""
    file = stored.read(path)
    entries, section = _entries(path, file)
    step = entries.get("step", (file.card or {}).get("steps"))
    return Inspection(
        kind=file.kind,
        size=Path(path).stat().st_size,
        sha256=sha256(path),
        entries=tuple(map(str, entries)),
        section=section,
        step=step if type(step) is int else None,
        shapes=file.shapes,
        types={key: str(tensor.dtype).removeprefix("torch.") for key, tensor in file.weights.items()},
        diffusion_steps=file.steps,
        card=file.card,
        preset=fit.fitting(file.shapes),
        faults=tuple(fault for fault in (file.schedule_fault(), file.value_fault()) if fault),
    )


def misfits(facts: Inspection, preset: str) -> list[str]:
    """Why the weights do not fit the preset of this name, a line each; none if they do.

    Raises ConfigError if there is no such preset.
    """
    if preset not in PRESETS:
        raise ConfigError(f"{preset} is no preset; {closest(preset, list(PRESETS))}")
    model = PRESETS[preset]
    different = fit.differences(facts.shapes, fit.shapes(model))
    lines = architecture.disagreements(facts.shapes, model) + different if different else []
    lines += [f"its card says {words}" for words in cards.disagreements(facts.card or {}, model)]
    if facts.diffusion_steps not in (None, model.steps):
        lines.append(f"its schedule has {facts.diffusion_steps} diffusion steps, not {model.steps}")
    return [*lines, *facts.faults]


def _entries(path: Path | str, file: stored.Stored) -> tuple[dict[str, Any], str | None]:
    """The entries of a checkpoint, their values where these are plain, and which one the weights are from."""
    if file.content is not None:
        return (dict(file.content) if file.section else {}), file.section
    # Of a checkpoint that was converted to safetensors, the outline names them.
    try:
        rows = json.loads(header.read(path).metadata.get(OUTLINE, "{}"))["dict"]
        entries = {str(key): item.get("value") for key, item in rows}
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return {}, None
    section = next((name for name in stored.SECTIONS if name in entries), None)
    return (entries if section else {}), section
