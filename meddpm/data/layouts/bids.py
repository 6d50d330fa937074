"""BIDS: images and label maps of one subject, paired by the entities in their names.

Source: the Brain Imaging Data Structure 1.10 (entities, suffixes, derivatives), and what fMRIPrep writes: label maps of
several kinds for each image, and copies of all in other spaces.
"""

from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path

from meddpm.data.layouts.drafts import Draft
from meddpm.data.layouts.names import shown, some
from meddpm.data.layouts.parts import Part, new_draft

# What tells the cases of a subject apart, and what tells the copies of a case apart.
_IDENTITY = ("ses", "acq", "run")
_GRID = ("space", "cohort", "res")
# The key of label maps, which no image has.
_LABEL = ""

Entities = dict[str, str]


@dataclass
class _Case:
    """A case that grows: what its files say of it, and all that may be its images (by name) or label map."""

    identity: Entities
    files: dict[str, list[Part]] = field(default_factory=dict)


def group(parts: list[Part], images: tuple[str, ...], labels: tuple[str, ...], root: Path) -> list[Draft]:
    """A case for each session, acquisition and run of each subject that has one of `images` or a label map.

    Files belong together where these entities agree, as far as both name them; of several cases that a file could be
    of, those that differ least. Of the copies of a case in several spaces one is taken, the one with the most files,
    then the shortest names. Of several files for one image or label map it is the one nearest to the case, a label map
    of the better kind, then the one with the fewest entities.
    """
    drafts = []
    subjects: dict[str, list[Part]] = defaultdict(list)
    for part in parts:
        subjects[_entities(part)["sub"]].append(part)
    for subject, own in subjects.items():
        for case in _cases(own, images, labels):
            chosen = _chosen(case, labels)
            names = {"sub": subject, **{key: case.identity[key] for key in _IDENTITY if key in case.identity}}
            first = next(iter(chosen.values()))[0]
            draft = new_draft("_".join("-".join(pair) for pair in names.items()), first.path.parent, images)
            apart = [part for name, found in case.files.items() if name not in chosen for part in found]
            if apart:
                draft.faults.append(_spaces_apart(draft, first, apart))
            draft.labels = [part.path for part in chosen.pop(_LABEL, [])]
            draft.images |= {name: [part.path for part in files] for name, files in chosen.items()}
            drafts.append(draft)
    return drafts


def _spaces_apart(draft: Draft, first: Part, apart: list[Part]) -> str:
    case, files = f"{draft.where}: {shown(draft.id)}", some([str(part.path) for part in apart])
    return f"{case} has {shown(first.path.name)} in another space than {files}; bring all to one space."


def _cases(parts: list[Part], images: tuple[str, ...], labels: tuple[str, ...]) -> list[_Case]:
    """The cases of one subject: those of the first image, then what the others and the label maps add."""
    cases: list[_Case] = []
    for name in (*images, _LABEL):
        keys = labels if name == _LABEL else (name.lower(),)
        by_identity: dict[tuple, list[Part]] = defaultdict(list)
        for part in parts:
            if part.key in keys:
                by_identity[tuple(_only(_entities(part), _IDENTITY).items())].append(part)
        before = list(cases)
        for identity, files in sorted(by_identity.items()):
            for case in _nearest(dict(identity), before) or [_added(dict(identity), cases)]:
                case.files.setdefault(name, []).extend(files)
        for case in before:
            for part in case.files.get(name, []):
                case.identity = _only(_entities(part), _IDENTITY) | case.identity
    return cases


def _nearest(identity: Entities, cases: list[_Case]) -> list[_Case]:
    fitting = [case for case in cases if _agree(identity, case.identity)]
    least = min((_apart(identity, case.identity) for case in fitting), default=0)
    return [case for case in fitting if _apart(identity, case.identity) == least]


def _added(identity: Entities, cases: list[_Case]) -> _Case:
    cases.append(_Case(identity))
    return cases[-1]


def _chosen(case: _Case, labels: tuple[str, ...]) -> dict[str, list[Part]]:
    """The file of each image and of the label map in one space; several where nothing tells which it is."""
    files = [part for parts in case.files.values() for part in parts]
    grids = {tuple(_only(_entities(part), _GRID).items()) for part in files}
    choices = [_in_grid(case, dict(grid), labels) for grid in sorted(grids)]

    def rank(choice: dict[str, list[Part]]) -> tuple[int, int]:
        return -len(choice), sum(len(_entities(parts[0])) for parts in choice.values())

    best = min(map(rank, choices))
    equal = [choice for choice in choices if rank(choice) == best]
    return {name: list(dict.fromkeys(part for choice in equal for part in choice.get(name, []))) for name in equal[0]}


def _in_grid(case: _Case, grid: Entities, labels: tuple[str, ...]) -> dict[str, list[Part]]:
    """The best files in one space; one that names no space can be of any."""

    def rank(part: Part) -> tuple[int, int, int, int]:
        own = _entities(part)
        kind = labels.index(part.key) if part.key in labels else 0
        return _apart(_only(own, _IDENTITY), case.identity), _apart(_only(own, _GRID), grid), kind, len(own)

    chosen = {}
    for name, parts in case.files.items():
        fitting = [part for part in parts if _only(_entities(part), _GRID).items() <= grid.items()]
        best = min(map(rank, fitting), default=None)
        if fitting:
            chosen[name] = [part for part in fitting if rank(part) == best]
    return chosen


def _entities(part: Part) -> Entities:
    """The entities of a file's name, as {"sub": "01", "run": "1"}."""
    pairs = (pair.split("-", 1) for pair in part.id.split("_"))
    return {key.lower(): value for key, value in pairs}


def _only(entities: Entities, keys: tuple[str, ...]) -> Entities:
    return {key: entities[key] for key in keys if key in entities}


def _agree(one: Entities, other: Entities) -> bool:
    """Whether two have the same value of all that both name."""
    return all(one[key] == other[key] for key in one.keys() & other.keys())


def _apart(one: Entities, other: Entities) -> int:
    """How many entities only one of two names."""
    return len(one.keys() ^ other.keys())
