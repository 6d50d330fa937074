"""What torch.save can hold, as safetensors can: flat tensors by name, and an outline (JSON) of how they lie.

    {"step": 5, "ema": {"a": tensor}}  <->  {"ema.a": tensor}, {"dict": [["step", {"value": 5}], ["ema", ...]]}

An outline is one of {"tensor": name}, {"value": number, text, true, false or null}, {"dict": [[key, outline], ...]},
{"list": [outline, ...]} and {"tuple": [outline, ...]}.
"""

from collections.abc import Callable, Mapping
from typing import Any

from torch import Tensor

from meddpm.model.formats.keys import shown
from meddpm.model.formats.torch_file import DEEPEST

Place = tuple[Any, ...]
Outline = dict[str, Any]


def pack(content: Any, name: Callable[[Place], str]) -> tuple[dict[str, Tensor], Outline]:
    """The tensors in `content`, each named by `name` from the keys that lead to it, and the outline of the rest.

    Raises ValueError, in words for a message, where something is neither a tensor nor a plain value.
    """
    tensors: dict[str, Tensor] = {}

    def outline(value: Any, place: Place) -> Outline:
        if isinstance(value, Tensor):
            chosen = name(place)
            while chosen in tensors:  # "a.b" and "c" lead to the same name as "a" and "b.c"
                chosen += "_"
            tensors[chosen] = value
            return {"tensor": chosen}
        if isinstance(value, dict) and len(place) < DEEPEST and all(_is_plain(key) for key in value):
            return {"dict": [[key, outline(item, (*place, key))] for key, item in value.items()]}
        if isinstance(value, list | tuple) and len(place) < DEEPEST:
            items = [outline(item, (*place, index)) for index, item in enumerate(value)]
            return {"tuple" if isinstance(value, tuple) else "list": items}
        if _is_plain(value):
            return {"value": value}
        where = shown(".".join(map(str, place)))
        raise ValueError(f"{where} is a {type(value).__name__}, which safetensors cannot hold")

    return tensors, outline(content, ())


def unpack(outline: Any, tensors: Mapping[str, Tensor]) -> Any:
    """What `pack` was given. Raises ValueError if the outline is damaged or names a tensor that is not there."""
    match outline:
        case {"tensor": str(name)} if name in tensors:
            return tensors[name]
        case {"value": value} if _is_plain(value):
            return value
        case {"dict": [*rows]} if all(isinstance(row, list) and len(row) == 2 and _is_plain(row[0]) for row in rows):
            return {key: unpack(item, tensors) for key, item in rows}
        case {"list": [*items]}:
            return [unpack(item, tensors) for item in items]
        case {"tuple": [*items]}:
            return tuple(unpack(item, tensors) for item in items)
    raise ValueError("its outline is damaged")


def _is_plain(value: Any) -> bool:
    return value is None or type(value) in (bool, int, float, str)
