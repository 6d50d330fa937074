"""The card of weights: a JSON object in which their writer says what they are. Imports no torch.

The train stage writes the model's configuration ("preset"), the training steps ("steps"), the data and more.
"""

import json
from typing import Any

from meddpm.config import ModelConfig, UserError, from_mapping, to_mapping
from meddpm.model import presets

Card = dict[str, Any]

FOUND_BY_SHAPES = {"preset_found_by": "shapes"}
"""In a card that a conversion made: its preset is the one whose shapes fit, and nobody said what it was trained for."""

# The volume's size is no part of the weights: the network takes any.
NOT_OF_THE_WEIGHTS = {"size"}


def parse(text: str | None, where: str) -> Card:
    """The card from its JSON text; empty where there is none. Raises UserError, beginning with `where`, if broken."""
    if text is None:
        return {}
    try:
        card = json.loads(text)
    except (ValueError, RecursionError):
        card = None
    if not isinstance(card, dict):
        raise UserError(f"{where}: its card is no JSON object; fetch or train the weights again")
    return card


def configuration(card: Card) -> ModelConfig | None:
    """The model that the weights were trained for; None where the card does not say it or says nothing possible."""
    said = card.get("preset")
    if not isinstance(said, dict) or not all(_is_of_its_type(name, value) for name, value in said.items()):
        return None
    try:
        model = from_mapping(ModelConfig, said)
        presets.check(model, "preset")
    except (UserError, TypeError, ValueError, ArithmeticError):
        return None
    return model


def disagreements(card: Card, model: ModelConfig) -> list[str]:
    """Where a card speaks of another model than `model`, in words; a field that it does not name agrees."""
    said, wanted = card.get("preset"), to_mapping(model)
    if not isinstance(said, dict) or FOUND_BY_SHAPES.items() <= card.items():
        return []
    return [
        f"{name} {json.dumps(said[name])[:60]}, not {json.dumps(value)}"
        for name, value in wanted.items()
        if name in said and name not in NOT_OF_THE_WEIGHTS and _plain(name, said[name]) != _plain(name, value)
    ]


def _is_of_its_type(name: str, value: Any) -> bool:
    """Whether a field of a preset, as JSON gives it, holds the numbers or the text that it should."""
    if name == "prediction":
        return isinstance(value, str)
    kinds = (int, float) if name == "condition_range" else (int,)
    return all(type(item) in kinds for item in (value if isinstance(value, list) else [value]))


def _plain(name: str, value: Any) -> Any:
    # Which levels attend is a set; the order of the labels is that of the channels.
    return sorted(value, key=str) if name == "attention_factors" and isinstance(value, list) else value
