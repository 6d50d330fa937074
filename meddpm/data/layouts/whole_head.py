"""Med-DDPM's folders mask/ and image/: which image is of which mask."""

import dataclasses
import re
from collections import defaultdict
from pathlib import Path

from meddpm.data.layouts.drafts import Draft
from meddpm.data.layouts.parts import Part, by_id


def group(parts: list[Part], images: tuple[str, ...], labels: tuple[str, ...], root: Path) -> list[Draft]:
    """A case for each mask, with the image of its name, else with that which has the same numbers in its name.

    mask_003 and img_3 are one case; p_2 and p_2_T1 are not, as the second has two numbers: which of them counts is not
    for a guess. The numbers must tell one mask of the folder from all others, and that mask must have no image of its
    name. An image that is of no mask is a case without a label map.
    """
    masks = {(part.where, part.id) for part in parts if part.key in labels}
    taken = {(part.where, part.id) for part in parts if part.key not in labels} & masks
    numbered: dict[tuple[str, tuple[int, ...]], list[str]] = defaultdict(list)
    for where, name in masks:
        numbered[where, _numbers(name)].append(name)

    def of_mask(part: Part) -> Part:
        numbers = _numbers(part.id)
        fitting = numbered.get((part.where, numbers), [])
        if not numbers or (part.where, part.id) in masks or len(fitting) != 1 or (part.where, fitting[0]) in taken:
            return part
        return dataclasses.replace(part, id=fitting[0])

    return by_id([part if part.key in labels else of_mask(part) for part in parts], images, labels, root)


def _numbers(name: str) -> tuple[int, ...]:
    """The numbers in a name, in their order."""
    return tuple(int(digits) for digits in re.findall(r"[0-9]+", name))
