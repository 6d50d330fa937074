"""Med-DDPM's folders mask/ and image/: which image is of which mask."""

import dataclasses
import re
from collections import defaultdict
from pathlib import Path

from meddpm.data.layouts.drafts import Draft
from meddpm.data.layouts.parts import Part, by_id


def group(parts: list[Part], images: tuple[str, ...], labels: tuple[str, ...], root: Path) -> list[Draft]:
    """A case for each mask, with the image of its name, else with that of the last number in its name.

    A number counts where it tells one mask of the folder from all others, and that mask has no image of its name. An
    image that is of no mask is a case without a label map.
    """
    masks = {(part.where, part.id) for part in parts if part.key in labels}
    alike = {(part.where, part.id) for part in parts if part.key not in labels} & masks
    numbered: dict[tuple[str, str], list[str]] = defaultdict(list)
    for where, name in masks:
        numbered[where, _number(name)].append(name)

    def of_mask(part: Part) -> Part:
        number = _number(part.id)
        fitting = numbered.get((part.where, number), [])
        if part.key in labels or not number or len(fitting) != 1 or (part.where, fitting[0]) in alike:
            return part
        return dataclasses.replace(part, id=fitting[0])

    return by_id([of_mask(part) for part in parts], images, labels, root)


def _number(name: str) -> str:
    """The last number in a name, without leading zeros; "" where there is none."""
    found = re.search(r"([0-9]+)[^0-9]*$", name)
    return (found[1].lstrip("0") or "0") if found else ""
