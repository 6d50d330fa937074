"""From the path of a dataset to its cases: which layout it has, what is there, and what belongs to no case."""

import os
import stat
from collections.abc import Sequence
from pathlib import Path

from meddpm.config import UserError
from meddpm.data.layouts import CaseFiles, Found, listed
from meddpm.data.layouts.drafts import Draft, judge
from meddpm.data.layouts.names import require_images, shown, some
from meddpm.data.layouts.parts import Part
from meddpm.data.layouts.table import LAYOUTS
from meddpm.data.layouts.walk import Leaf, Tree, walk
from meddpm.words import counted

AUTO, LISTED = "auto", "tsv"
NAMES = (*LAYOUTS, LISTED)


def find(path: Path, layout: str, images: tuple[str, ...] | None) -> Found:
    """As `meddpm.data.layouts.find`."""
    if layout not in (AUTO, *NAMES):
        raise UserError(f"layout {shown(layout)}: there is no such layout; take {AUTO}, {', '.join(NAMES)}.")
    if _is_folder(path):
        if layout == LISTED:
            raise UserError(f"{shown(path)}: is a folder; layout {LISTED} takes the path of the .tsv itself.")
        return _in_folder(path, layout, images)
    if path.suffix.lower() != ".tsv" or not path.is_file():
        csv = path.suffix.lower() == ".csv"
        mend = "save it with tabs as .tsv" if csv else "name the folder of the dataset, or a .tsv"
        raise UserError(f"{shown(path)}: is no folder and no .tsv that lists files; {mend}.")
    if layout not in (AUTO, LISTED):
        raise UserError(f"{shown(path)}: is a file; layout {layout} takes a folder, a .tsv has layout {LISTED}.")
    drafts = listed.read(path, images)
    return Found(LISTED, path.parent, judge(drafts), _of_images(path, drafts))


def _is_folder(path: Path) -> bool:
    try:
        return stat.S_ISDIR(os.stat(path).st_mode)
    except FileNotFoundError:
        raise UserError(f"{shown(path)}: there is no such folder or file; check the path.") from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise UserError(f"{shown(path)}: cannot be looked at ({reason}); check the path and its mode.") from None


def _in_folder(root: Path, layout: str, images: tuple[str, ...] | None) -> Found:
    tree = walk(root)
    name = _layout(root, tree) if layout == AUTO else layout
    chosen = LAYOUTS[name]
    parts = chosen.parts(tree.leaves)
    if not parts:
        raise _no_case(root, tree, {name: chosen.example})
    require_images(f"{shown(root)}: layout {name}", images, chosen.known(parts))
    drafts = chosen.group(parts, images or chosen.images, chosen.labels, root)
    if not drafts:
        raise _no_case(root, tree, {name: chosen.example})
    seen = chosen.seen(parts)
    warnings = [*_of_images(root, drafts, seen), *_of_rest(root, tree.leaves, parts)]
    # What is in a closed folder is not known: it may be a case, or the images of all. No case has an id with a slash.
    closed = [CaseFiles(f"{shown(folder)}/", {}, None, [reason]) for folder, reason in sorted(tree.closed.items())]
    return Found(name, root, [*judge(drafts), *closed], warnings)


def _layout(root: Path, tree: Tree) -> str:
    """The one layout that fits."""
    fitting = [name for name, layout in LAYOUTS.items() if layout.fits(layout.parts(tree.leaves))]
    if not fitting:
        raise _no_case(root, tree, {name: layout.example for name, layout in LAYOUTS.items()})
    if len(fitting) > 1:
        names = ", ".join(fitting)
        raise UserError(f"{shown(root)}: fits the layouts {names}; set `layout`, or name the folder of one of them.")
    return fitting[0]


def _no_case(root: Path, tree: Tree, examples: dict[str, str]) -> UserError:
    looked = " or ".join(f"{example} ({name})" for name, example in examples.items())
    files = [str(path.relative_to(root)) for path in [*(leaf.path for leaf in tree.leaves), *tree.others]]
    there = f"found {some(files)}" if files else "found no file"
    closed = f" ({counted(len(tree.closed), 'folder')} could not be entered)" if tree.closed else ""
    lists = [str(path) for path in tree.others if path.suffix.lower() == ".tsv"]
    mend = f"name the list itself ({some(lists)})" if lists else "name the files so, or list them in a .tsv"
    return UserError(f"{shown(root)}: has no case: looked for {looked}, {there}{closed}; {mend}.")


def _of_images(path: Path, drafts: list[Draft], seen: Sequence[str] = ()) -> list[str]:
    """A warning about cases that are a label map alone, where the dataset has images, or other ones are `seen`."""
    alone = sorted(draft.id for draft in drafts if draft.labels and not draft.has_image)
    if alone and any(draft.has_image for draft in drafts):
        return [f"{shown(path)}: {len(alone)} of {len(drafts)} cases have no image: only for sampling ({some(alone)})."]
    if alone and seen:
        return [
            f"{shown(path)}: no case has an image: only for sampling; `images` can name {', '.join(map(shown, seen))}."
        ]
    return []


def _of_rest(root: Path, leaves: list[Leaf], parts: list[Part]) -> list[str]:
    """A warning about volumes that belong to no case."""
    used = {part.path for part in parts}
    rest = [str(leaf.path.relative_to(root)) for leaf in leaves if leaf.path not in used]
    return [f"{shown(root)}: {counted(len(rest), 'volume')} of no case: {some(rest)}."] if rest else []
