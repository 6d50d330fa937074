"""What is wrong with a case as its names give it: too few files, too many, or an id that cannot be one."""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from meddpm.data.layouts import CaseFiles
from meddpm.data.layouts.names import ID_PATTERN, shown, some

# A longer id makes file names that a system may refuse.
LONGEST_ID = 100


@dataclass
class Draft:
    """A case before it is judged.

    `images` has every file found for each image that is asked for, in their order; `labels` every label map. `where` is
    the folder or line that messages begin with; `line` is true of a line in a list.
    """

    id: str
    where: str
    images: dict[str, list[Path]]
    labels: list[Path] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    line: bool = False

    @property
    def place(self) -> str:
        """Where this case alone is: two cases can lie in one folder."""
        files = [*self.labels, *(path for paths in self.images.values() for path in paths)]
        return self.where if self.line or not files else shown(files[0])

    @property
    def has_image(self) -> bool:
        """Whether any of its images has a file."""
        return any(self.images.values())


def judge(drafts: list[Draft]) -> list[CaseFiles]:
    """The cases of `drafts` with their faults, in the order of their ids, which are made unique and printable."""
    same: dict[str, list[Draft]] = defaultdict(list)
    for draft in drafts:
        same[draft.id.casefold()].append(draft)
    taken = {shown(draft.id).casefold() for draft in drafts}
    seen: set[str] = set()
    cases = []
    for draft in drafts:
        others = [other for other in same[draft.id.casefold()] if other is not draft]
        faults = [*(draft.faults or _of_files(draft)), *_of_id(draft, others)]
        images = {name: paths[0] for name, paths in draft.images.items() if paths}
        unique = _unique(shown(draft.id), seen, taken)
        seen.add(unique)
        cases.append(CaseFiles(unique, images, draft.labels[0] if draft.labels else None, faults))
    return sorted(cases, key=lambda case: case.id)


def _of_files(draft: Draft) -> Iterator[str]:
    case = f"{draft.where}: {shown(draft.id)}"
    if not draft.labels:
        yield f"{case} has no label map; add it, or take the case away."
    missing = [name for name, paths in draft.images.items() if not paths]
    # A label map without any image is a condition to sample from.
    if missing and draft.has_image:
        yield f"{case} lacks {', '.join(missing)}; add the files, or name under `images` those that all cases have."
    files = [*draft.labels, *(path for paths in draft.images.values() for path in paths)]
    if len(set(files)) < len(files):
        yield f"{case} has one file for two things; name another."
    if any(not _is_text(path) for path in files):
        yield f"{case} has a file or folder whose name is no UTF-8 text; rename it."
    for name, paths in {"the label map": draft.labels, **draft.images}.items():
        if len(paths) > 1:
            yield f"{case} has {_count(len(paths))} files for {name}: {_listed(paths)}; keep one."


def _of_id(draft: Draft, others: list[Draft]) -> Iterator[str]:
    mend = "change the id" if draft.line else "rename the files, or give an id in a .tsv that lists them"
    if not ID_PATTERN.fullmatch(draft.id) or len(draft.id) > LONGEST_ID:
        allowed = f"letters of A to Z, digits, dots, dashes and underscores, {LONGEST_ID} at most"
        yield f"{draft.place}: the id '{shown(draft.id)}' is not of {allowed}; {mend}."
    if others:
        ids = {other.id for other in others} - {draft.id}
        spelling = f" (as {shown(min(ids))})" if ids else ""
        places = some([other.place for other in others])
        either = "change one" if draft.line else "rename one, or name a folder that has one of them"
        yield f"{draft.place}: the id '{shown(draft.id)}' stands also at {places}{spelling}; {either}."


def _is_text(path: Path) -> bool:
    """Whether a path can be written into a table: names on disk are bytes."""
    try:
        str(path).encode()
    except UnicodeEncodeError:
        return False
    return True


def _unique(name: str, seen: set[str], taken: set[str]) -> str:
    """`name`, or with a number behind it where another case has it already."""
    number, unique = 2, name
    while unique in seen or (unique != name and unique.casefold() in taken):
        number, unique = number + 1, f"{name}-{number}"
    return unique


def _count(number: int) -> str:
    return "two" if number == 2 else str(number)


def _listed(paths: list[Path]) -> str:
    return " and ".join(filter(None, [", ".join(map(shown, paths[:-1])), shown(paths[-1])]))
