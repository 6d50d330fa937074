"""From the files of torch.save to safetensors and back, bit by bit the same.

A checkpoint {step, model, ema} becomes safetensors with the weights of `ema` (else `model`, else the top) and the
schedule's buffers under the network's own keys, as `meddpm.model.weights` loads them. Everything else goes under the
prefix `checkpoint.`, and the outline of the whole into the metadata, so that it comes back as it was.

Weights with a card become a checkpoint {step, model, ema, card} as the original code has them: `model` and `ema` are
the weights, behind `denoise_fn.` and the buffers of the schedule. Converted back, such a one is weights and card again.
"""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from meddpm.config import ModelConfig, UserError, to_mapping
from meddpm.diffusion.schedule import cosine_schedule
from meddpm.model import weights
from meddpm.model.formats import architecture, fit, header, keys, stored, torch_file
from meddpm.model.formats import card as cards
from meddpm.model.formats.packing import Place, pack, unpack
from meddpm.model.presets import PRESETS
from meddpm.status import first_line

OUTLINE = "checkpoint"
"""Key of the outline in the metadata."""

MOST_STEPS = 1_000_000
"""A card that says more diffusion steps than this is not believed."""


@dataclass(frozen=True)
class Converted:
    """What was written, for a message."""

    kept: str
    preset: str | None


def convert(source: Path | str, target: Path | str, force: bool = False) -> Converted:
    """Write the weights at `source` to `target` in the other format, which the suffix of `target` names.

    A file at `target` is replaced with `force` alone. Raises UserError, in one line, if `source` cannot be read, or
    cannot become a file of that format, or `target` cannot be written.
    """
    source, target = Path(source), Path(target)
    to_safetensors = _wants_safetensors(target)
    kind = header.kind(source)
    _check_target(source, target, force)
    if (kind == header.SAFETENSORS) == to_safetensors:
        raise UserError(f"{source}: is a file of {kind} already; copy it, or give a target of the other format")
    file = stored.read(source)
    with _in_one_line(source, target):
        return _to_safetensors(source, target, file) if to_safetensors else _to_torch(source, target, file)


def halve(source: Path | str, target: Path | str, force: bool = False) -> Converted:
    """Write the weights at `source` to `target` (.safetensors) in fp16, half the size; this rounds them.

    The buffers of the schedule stay as they are. The card, made as by `convert` where there is none, gets
    "stored": "fp16". Raises UserError as `convert` does, where the schedule is not ours, and where a weight is beyond
    the range of fp16.
    """
    source, target = Path(source), Path(target)
    if not _wants_safetensors(target):
        raise UserError(f"{target}: weights in fp16 are written as .safetensors")
    header.kind(source)
    _check_target(source, target, force)
    file = stored.read(source)
    fault = file.schedule_fault()
    if fault:
        raise UserError(f"{source}: {fault}")
    preset = fit.fitting(file.shapes)
    with _in_one_line(source, target):
        halves = {key: value.half() if value.is_floating_point() else value for key, value in file.weights.items()}
        for key, value in halves.items():
            if not torch.isfinite(value).all():
                raise UserError(f"{source}: {keys.shown(key)} has values that fp16 cannot hold; keep the file as it is")
        # The schedule is not rounded: it would no longer be the one that the weights were trained with.
        weights.save(target, halves | file.buffers, {**_card_of(file, preset), "stored": "fp16"})
    return Converted("weights in fp16 and card", preset)


@contextmanager
def _in_one_line(source: Path, target: Path) -> Iterator[None]:
    """Turn what the writers raise into UserError."""
    try:
        yield
    except OSError as error:
        raise UserError(f"{target}: cannot be written ({first_line(error)}); mend that or give another path") from None
    # The formats know neither every type nor every name: float4, complex128, half a character.
    except (KeyError, RuntimeError, UnicodeError, SafetensorError) as error:
        raise UserError(f"{source}: holds what {target.name} cannot ({first_line(error)}); leave that out") from None


def _wants_safetensors(target: Path) -> bool:
    if target.suffix not in (".safetensors", ".pt", ".pth"):
        raise UserError(f"{target}: no format has the suffix {target.suffix!r}; use .safetensors, .pt or .pth")
    return target.suffix == ".safetensors"


def _check_target(source: Path, target: Path, force: bool) -> None:
    # The methods of Path would raise where a folder may not be entered or a name is too long.
    if os.path.isdir(target):
        raise UserError(f"{target}: is a folder; give the path of a file")
    if os.path.exists(target) and os.path.samefile(target, source):
        raise UserError(f"{target}: is the file to convert; give another path")
    if os.path.exists(target) and not force:
        raise UserError(f"{target}: is there already; give another path, or --force to replace it")


# --- torch.save -> safetensors ---


def _to_safetensors(source: Path, target: Path, file: stored.Stored) -> Converted:
    if _is_ours(file):
        weights.save(target, file.weights, file.card or {})
        return Converted("weights and card", fit.fitting(file.shapes))
    chosen = () if file.section is None else (file.section,)

    def name(place: Place) -> str:
        if place[:-1] == chosen:
            return keys.bare(place[-1])
        return keys.REST_PREFIX + ".".join(map(str, place))

    try:
        tensors, outline = pack(file.content, name)
    except ValueError as error:
        raise UserError(f"{source}: {error}; save it again without that") from None
    preset = fit.fitting(file.shapes)
    weights.save(target, tensors, _card_of(file, preset), texts={OUTLINE: json.dumps(outline)})
    return Converted(_top_level(file.section, file.content), preset)


def _card_of(file: stored.Stored, preset: str | None) -> cards.Card:
    """The card that the checkpoint has, else what its shapes and its schedule say."""
    if file.card is not None:
        return file.card
    if preset is None:
        return {}
    card: cards.Card = {"preset": to_mapping(PRESETS[preset]), **cards.FOUND_BY_SHAPES}
    if file.steps:
        card["preset"]["steps"] = file.steps
    if file.content is not None and type(file.content.get("step")) is int:
        card["steps"] = file.content["step"]
    return card


def _top_level(section: str | None, content: dict[str, Any]) -> str:
    """The entries of a checkpoint, in words."""
    return "weights" if section is None else ", ".join(keys.shown(str(key)) for key in content)


def _is_ours(file: stored.Stored) -> bool:
    """Whether a checkpoint is, bit by bit, what `_to_torch` makes of its weights and its card."""
    if file.card is None or file.section is None or json.dumps(file.card, sort_keys=True) != file.content["card"]:
        return False
    steps = _steps(file)
    return steps is not None and _same(_checkpoint(file.weights, file.card, steps, {}), file.content)


def _same(one: Any, other: Any) -> bool:
    """Whether two contents are equal to the last bit; the order of keys apart."""
    if isinstance(one, Tensor) and isinstance(other, Tensor):
        alike = one.dtype == other.dtype and one.shape == other.shape
        return alike and torch.equal(_bytes(one), _bytes(other))
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_same(value, other[key]) for key, value in one.items())
    return type(one) is type(other) and one == other


def _bytes(tensor: Tensor) -> Tensor:
    return tensor.detach().contiguous().reshape(-1).view(torch.uint8)


# --- safetensors -> torch.save ---


def _to_torch(source: Path, target: Path, file: stored.Stored) -> Converted:
    text = header.read(source).metadata.get(OUTLINE)
    if text is None:
        steps = file.steps or _steps(file)
        if steps is None:
            raise UserError(
                f"{source}: its number of diffusion steps is not known: its card does not say them and it "
                "fits no preset; write it again with meddpm.model.weights.save and a card"
            )
        content = _checkpoint(_in_order(file), file.card or {}, steps, file.buffers)
        kept = _top_level("ema", content)
    else:
        try:
            content = unpack(json.loads(text), load_file(source))
        except (ValueError, RecursionError):
            raise UserError(f"{source}: the outline of its checkpoint is damaged; convert it again") from None
        kept = _top_level(stored.section_of(content, source)[0], content)
    torch_file.write(target, content)
    return Converted(kept, fit.fitting(file.shapes))


def _steps(file: stored.Stored) -> int | None:
    """The model's diffusion steps: of the card, else of the preset whose shapes fit."""
    model = _configuration(file)
    return None if model is None or model.steps > MOST_STEPS else model.steps


def _configuration(file: stored.Stored) -> ModelConfig | None:
    """The model of the card, if its network is that of the file, else the preset whose shapes fit."""
    said = cards.configuration(file.card or {})
    if said and not architecture.disagreements(file.shapes, said):
        return said
    preset = fit.fitting(file.shapes)
    return PRESETS[preset] if preset else None


def _in_order(file: stored.Stored) -> dict[str, Tensor]:
    """The weights in the network's order, where it is known: safetensors sorts them by name."""
    model = _configuration(file)
    wanted = fit.shapes(model) if model else {}
    return {key: file.weights[key] for key in wanted if key in file.weights} | file.weights


def _checkpoint(state: dict[str, Tensor], card: cards.Card, steps: int, buffers: dict[str, Tensor]) -> dict[str, Any]:
    """{step, model, ema, card} as the original code has it: buffers first, then the network's keys with the prefix."""
    schedule = vars(cosine_schedule(steps))
    entries = {name: buffers.get(name, schedule[name]) for name in keys.SCHEDULE_BUFFERS}
    entries |= {keys.NETWORK_PREFIX + key: tensor for key, tensor in state.items()}
    done = card.get("steps")
    return {
        "step": done if type(done) is int else 0,
        "model": entries,
        "ema": dict(entries),
        "card": json.dumps(card, sort_keys=True),
    }
