"""Which files are a case: the layouts that datasets come in, found by names alone; no file is opened."""

from dataclasses import dataclass, field
from pathlib import Path

from meddpm.data.layouts.names import below


@dataclass(frozen=True)
class CaseFiles:
    """One case as its file names give it.

    `images` are the paths of its images by name, in the order that they are taken in, empty where there is a label map
    alone; `label` is the path of the label map, None where there is none. `faults` are what names alone show to be
    wrong, one line each: the file or case, the fault, the mend. A case with faults cannot be used.
    """

    id: str
    images: dict[str, Path]
    label: Path | None
    faults: list[str] = field(default_factory=list)

    @property
    def paths(self) -> dict[str, Path]:
        """Each file by what it is: "label", where there is one, then the images."""
        return ({"label": self.label} if self.label else {}) | self.images

    def names(self, root: Path) -> dict[str, str]:
        """The same, each as its path below `root`."""
        return {name: below(path, root) for name, path in self.paths.items()}


@dataclass(frozen=True)
class Found:
    """A dataset as its names give it: its layout, the folder that its files lie below, its cases in the order of their
    ids, and warnings about files that belong to no case, one line each.
    """

    layout: str
    root: Path
    cases: list[CaseFiles]
    warnings: list[str] = field(default_factory=list)


def find(path: Path | str, layout: str = "auto", images: tuple[str, ...] | None = None) -> Found:
    """The cases below the folder, or listed in the TSV, `path`.

    `layout` is auto or a name of `meddpm.data.layouts.finding.NAMES`, and then the only one that is tried. `images` are
    the images of a case that are taken, in this order; None: those of the layout. Faults of one case are in its
    `faults`. Raises UserError where there is no dataset: the path is missing, no folder and no TSV, or may not be read;
    it has no case, or the cases of several layouts; or the layout has not one of `images`.
    """
    from meddpm.data.layouts import finding

    return finding.find(Path(path), layout, tuple(images) if images else None)
