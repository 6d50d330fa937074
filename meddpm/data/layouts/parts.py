"""Files as a layout's pattern reads their names, and cases of the files that have one id in one folder."""

from dataclasses import dataclass
from pathlib import Path

from meddpm.data.layouts.drafts import Draft
from meddpm.data.layouts.names import shown


@dataclass(frozen=True)
class Part:
    """One file of a case: the folder `where` below the root that the case lies in, its id, and what the file is."""

    path: Path
    where: str
    id: str
    name: str

    @property
    def key(self) -> str:
        """What the file is, as names are compared: in lower case."""
        return self.name.lower()


def by_id(parts: list[Part], images: tuple[str, ...], labels: tuple[str, ...], root: Path) -> list[Draft]:
    """A case for each id in each folder: the files of `images`, in their order, and those of `labels`."""
    drafts: dict[tuple[str, str], Draft] = {}
    for part in parts:
        draft = drafts.setdefault((part.where, part.id), new_draft(part.id, root / part.where, images))
        if part.key in labels:
            draft.labels.append(part.path)
        elif part.key in draft.images:
            draft.images[part.key].append(part.path)
    return list(drafts.values())


def new_draft(name: str, folder: Path, images: tuple[str, ...]) -> Draft:
    """A case of no files yet."""
    return Draft(name, shown(folder), {image: [] for image in images})
