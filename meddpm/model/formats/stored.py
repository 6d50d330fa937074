"""What a file of weights holds, whichever of its formats it has: the network's weights, buffers, card and the rest.

Two formats are read, told apart by their content: safetensors, and the files of torch.save, among them the published
checkpoints of Med-DDPM, {step, model, ema} with the keys of the schedule's buffers and the network's behind
`denoise_fn.`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from meddpm.config import UserError
from meddpm.diffusion.schedule import cosine_betas
from meddpm.model.formats import card as cards
from meddpm.model.formats import header, keys, torch_file
from meddpm.model.formats.header import Shapes
from meddpm.status import first_line

SECTIONS = ("ema", "model")
"""Where a checkpoint has its weights, the better ones first: sampling uses the moving average."""

BETAS_TOLERANCE = 1e-3
"""Half precision rounds the last beta, 0.999, by 2e-4. Another schedule is off by far more."""


@dataclass(frozen=True)
class Stored:
    """One file. `weights` and `buffers` have bare keys, and the types of the file."""

    kind: str
    section: str | None
    """The entry of the checkpoint that the weights are from; None where they lie at the top."""
    weights: dict[str, Tensor]
    buffers: dict[str, Tensor]
    card: cards.Card | None
    """None where the file has none."""
    content: Any
    """All that torch.save wrote; None for safetensors."""

    @property
    def shapes(self) -> Shapes:
        """Key and shape of every weight."""
        return {key: tuple(tensor.shape) for key, tensor in self.weights.items()}

    @property
    def steps(self) -> int | None:
        """Diffusion steps of the schedule in the file; None if it holds none."""
        betas = self.buffers.get("betas")
        return None if betas is None else betas.numel()

    def schedule_fault(self, steps: int | None = None) -> str | None:
        """Why the schedule in the file is not ours, of `steps` steps where given; None if it is, or if there is none.

        The published buffers are those of meddpm.diffusion.schedule; weights trained with others cannot be sampled.
        """
        betas = self.buffers.get("betas")
        if betas is None:
            return None
        if steps is not None and betas.numel() != steps:
            return (
                f"its schedule has {betas.numel()} diffusion steps, and the model {steps}; "
                f"set steps: {betas.numel()} in the model's row of config.yaml"
            )
        try:
            theirs = betas.detach().reshape(-1).double().numpy()
        except NotImplementedError:  # of a type that torch can only store, such as float4
            return f"its betas are of type {betas.dtype}, which cannot be read; use weights with others"
        difference = np.abs(theirs - cosine_betas(betas.numel())).max(initial=0)
        # Written so that NaN is a fault too.
        if not difference <= BETAS_TOLERANCE:
            return (
                f"its betas are not the cosine schedule of Med-DDPM (they differ by up to {difference:.2g}); "
                "use weights that were trained with that schedule"
            )
        return None

    def value_fault(self) -> str | None:
        """Which weights are no finite numbers of float32, in words; None if all are."""
        wrong = [key for key, tensor in self.weights.items() if not _is_finite(tensor)]
        if not wrong:
            return None
        more = ", ..." if len(wrong) > 1 else ""
        return (
            f"{len(wrong)} of {len(self.weights)} weights hold NaN, infinity or no floating-point numbers "
            f"({keys.shown(wrong[0])}{more}); the training that made them failed: use other weights"
        )


def read(path: Path | str) -> Stored:
    """Read a file of weights, in the types that it has. Raises UserError, in one line, if it cannot be read as such."""
    kind = header.kind(path)
    if kind == header.SAFETENSORS:
        return _read_safetensors(path)
    content = torch_file.read(path, kind)
    section, state = section_of(content, path)
    weights, buffers = _sorted(path, state)
    card = _card_text(content, path)
    return Stored(
        kind,
        section,
        {key: state[name] for key, name in weights.items()},
        {key: state[name] for key, name in buffers.items()},
        None if card is None else cards.parse(card, str(path)),
        content,
    )


def read_card(path: Path | str) -> cards.Card:
    """The card of a file, empty where it has none. Raises UserError if the file cannot be read."""
    if header.kind(path) == header.SAFETENSORS:
        return cards.parse(header.read(path).metadata.get("card"), str(path))
    return read(path).card or {}


def section_of(content: Any, path: Path | str) -> tuple[str | None, Mapping[str, Tensor]]:
    """The state dict in what torch.save wrote, and the name of the entry it lies in: `ema`, else `model`, else the top.

    Raises UserError if there is none.
    """
    if not isinstance(content, Mapping):
        raise UserError(f"{path}: is no checkpoint: it holds a {type(content).__name__}, not weights by their names")
    section = next((name for name in SECTIONS if isinstance(content.get(name), Mapping) and content[name]), None)
    state = content[section] if section else content
    if not state:
        raise UserError(f"{path}: is no checkpoint: it holds nothing; fetch or train the weights again")
    for key, value in state.items():
        if not isinstance(key, str) or not isinstance(value, Tensor):
            name = keys.shown(f"{section}.{key}" if section else str(key))
            raise UserError(
                f"{path}: is no checkpoint: {name} is of type {type(value).__name__}, not a tensor; "
                "right would be a state dict, or {step, model, ema}"
            )
    return section, state


def _card_text(content: Mapping[str, Any], path: Path | str) -> str | None:
    card = content.get("card")
    if card is None or isinstance(card, str | Tensor):
        return card if isinstance(card, str) else None
    raise UserError(f"{path}: its card is a {type(card).__name__}; right would be a JSON text")


def _read_safetensors(path: Path | str) -> Stored:
    described = header.read(path)
    weights, buffers = _sorted(path, described.shapes)
    try:
        with safe_open(path, framework="pt", device="cpu") as stored:
            tensors = {name: stored.get_tensor(name) for name in [*weights.values(), *buffers.values()]}
    except (OSError, SafetensorError) as error:
        raise UserError(f"{path}: not a readable safetensors file ({first_line(error)}); fetch it again") from None
    text = described.metadata.get("card")
    return Stored(
        header.SAFETENSORS,
        None,
        {key: tensors[name] for key, name in weights.items()},
        {key: tensors[name] for key, name in buffers.items()},
        None if text is None else cards.parse(text, str(path)),
        None,
    )


def _sorted(path: Path | str, names: Mapping[str, Any]) -> tuple[dict[str, str], dict[str, str]]:
    try:
        return keys.sort(names)
    except ValueError as error:
        raise UserError(f"{path}: {error}; right would be each weight once") from None


def _is_finite(tensor: Tensor) -> bool:
    try:
        # As float32, because the network's weights are.
        return tensor.is_floating_point() and bool(torch.isfinite(tensor.float()).all())
    except NotImplementedError:  # of a type that torch can only store, such as float4
        return False
