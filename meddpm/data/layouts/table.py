"""The layouts of folders, one row each: how files are named, and which of them are one case.

Sources: the whole-head and BraTS folders that Med-DDPM's authors share (arXiv 2305.18453); the BraTS challenges of
2017 to 2021 and of 2023 on (synapse.org); the Brain Imaging Data Structure 1.10 and its derivatives.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from meddpm.data.layouts import bids, whole_head
from meddpm.data.layouts.drafts import Draft
from meddpm.data.layouts.parts import Part, by_id
from meddpm.data.layouts.walk import Leaf

Group = Callable[[list[Part], tuple[str, ...], tuple[str, ...], Path], list[Draft]]


@dataclass(frozen=True)
class Layout:
    """How one layout names its files.

    `images` are its images in the model's order, `labels` the label maps, the better kind first; `example` is what it
    looks like. `pattern` fits the whole name of a file below the root, without its extension, in any case: group
    `where` is the folder that the case lies in, `part` the image or label map, `id` the case. `open`: there are other
    images than `images`, as many as there are parts, but for `neither`. `group` makes cases of the files.
    """

    images: tuple[str, ...]
    labels: tuple[str, ...]
    example: str
    pattern: str
    group: Group = by_id
    open: bool = False
    neither: tuple[str, ...] = ()

    def parts(self, leaves: list[Leaf]) -> list[Part]:
        """The files of this layout among `leaves`."""
        matches = ((leaf, re.fullmatch(self.pattern, leaf.name, re.IGNORECASE | re.DOTALL)) for leaf in leaves)
        return [Part(leaf.path, found["where"] or "", found["id"], found["part"]) for leaf, found in matches if found]

    def fits(self, parts: list[Part]) -> bool:
        """Whether files that are named so are likely to be of this layout: a label map, or half of the images."""
        seen = {part.key for part in parts}
        images = sum(name.lower() in seen for name in self.images)
        return not seen.isdisjoint(self.labels) or 2 * images >= len(self.images)

    def seen(self, parts: list[Part]) -> list[str]:
        """The names of the images that there are, as the files have them."""
        other = {*self.labels, *self.neither}
        return sorted({part.name for part in parts if part.key not in other})

    def known(self, parts: list[Part]) -> list[str]:
        """The names of the images that can be asked for."""
        return self.seen(parts) if self.open else list(self.images)


# Folders whose files are of another layout, whatever their names.
_ELSEWHERE = r"(?!(?:.*/)?(?:mask|image|anat|t1|t1ce|t2|flair|seg)/[^/]+$)"

LAYOUTS: dict[str, Layout] = {
    "med_ddpm_whole_head": Layout(
        images=("image",),
        labels=("mask",),
        example="mask/sample_3.nii.gz with image/sample_3.nii.gz",
        pattern=r"(?:(?P<where>.+)/)?(?P<part>mask|image)/(?P<id>[^/]+)",
        group=whole_head.group,
    ),
    "med_ddpm_brats": Layout(
        images=("t1", "t1ce", "t2", "flair"),
        labels=("seg",),
        example="t1/ID_t1.nii.gz with t1ce/, t2/, flair/ and seg/",
        pattern=r"(?:(?P<where>.+)/)?(?P<part>t1|t1ce|t2|flair|seg)/(?P<id>[^/]+)_(?P=part)",
    ),
    "brats2021": Layout(
        images=("t1", "t1ce", "t2", "flair"),
        labels=("seg",),
        example="ID/ID_t1.nii.gz with _t1ce, _t2, _flair and _seg",
        pattern=_ELSEWHERE + r"(?:(?P<where>.+)/)?(?P<id>[^/]+)_(?P<part>t1|t1ce|t2|flair|seg)",
    ),
    "brats2023": Layout(
        images=("t1n", "t1c", "t2w", "t2f"),
        labels=("seg",),
        example="ID/ID-t1n.nii.gz with -t1c, -t2w, -t2f and -seg",
        pattern=_ELSEWHERE + r"(?:(?P<where>.+)/)?(?P<id>[^/]+)-(?P<part>t1n|t1c|t2w|t2f|seg)",
    ),
    "bids": Layout(
        images=("T1w",),
        labels=("dseg", "mask"),
        example="sub-01/anat/sub-01_T1w.nii.gz with _dseg or _mask",
        pattern=r"(?:(?P<where>(?:.+/)?anat)/)?(?P<id>sub-[^/_]+(?:_[^/_-]+-[^/_]+)*)_(?P<part>[^/_-]+)",
        group=bids.group,
        open=True,
        neither=("probseg",),
    ),
}
