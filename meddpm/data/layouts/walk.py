"""Every volume below a folder, by its name."""

import os
from dataclasses import dataclass, field
from pathlib import Path

from meddpm.config import UserError
from meddpm.data.layouts.names import shown

EXTENSIONS = (".nii.gz", ".hdr.gz", ".img.gz", ".nii", ".hdr", ".img")
# A folder of file systems that none but root may enter.
LOST = "lost+found"
_HEADERS, _VOXELS = (".hdr", ".hdr.gz"), (".img", ".img.gz")


@dataclass(frozen=True)
class Leaf:
    """A volume by its name, which may be a link to nothing or a folder too: to refuse those is for who reads it.

    `name` is its path below the root, parted by /, without the extension. A pair is its header.
    """

    name: str
    path: Path


@dataclass(frozen=True)
class Tree:
    """The volumes below a folder, the paths of the other files, and why a folder may not be entered, by its path."""

    leaves: list[Leaf] = field(default_factory=list)
    others: list[Path] = field(default_factory=list)
    closed: dict[str, str] = field(default_factory=dict)


def walk(root: Path) -> Tree:
    """The files below the folder `root`, at any depth. Hidden ones are left out; links to folders are followed.

    A folder is read once, whatever links lead to it. Raises UserError where `root` may not be entered.
    """
    tree = Tree()
    waiting: list[tuple[Path, str]] = [(root, "")]
    seen: set[tuple[int, int]] = set()
    while waiting:
        folder, prefix = waiting.pop()
        try:
            status = os.stat(os.path.join(folder, "."))  # the dot: a folder that is listed may still not be entered
            names = sorted(name for name in os.listdir(folder) if not name.startswith(".") and name != LOST)
        except OSError as error:
            denied = isinstance(error, PermissionError)
            mend = "allow it (chmod u+rx), or take it away" if denied else "look at its disk"
            reason = f"{shown(folder)}: cannot be entered ({error.strerror}); {mend}."
            if not prefix:
                raise UserError(reason) from None
            tree.closed[prefix.rstrip("/")] = reason
            continue
        identity = (status.st_dev, status.st_ino)
        if identity in seen:  # a link to a folder that was read under another name
            continue
        seen.add(identity)
        folders = _sort(folder, prefix, names, tree)
        waiting += [(folder / name, f"{prefix}{name}/") for name in reversed(folders)]
    return tree


def _sort(folder: Path, prefix: str, names: list[str], tree: Tree) -> list[str]:
    """Put the volumes and other files of one folder into `tree`; return its folders."""
    split = [split_extension(name) for name in names]
    headers = {stem for stem, extension in split if extension in _HEADERS}
    folders = []
    for name, (stem, extension) in zip(names, split, strict=True):
        if extension in _VOXELS and stem in headers:
            continue
        if extension:
            tree.leaves.append(Leaf(prefix + stem, folder / name))
        elif os.path.isdir(folder / name):
            folders.append(name)
        else:
            tree.others.append(folder / name)
    return folders


def split_extension(name: str) -> tuple[str, str]:
    """The stem of a file's name, and its extension in lower case; "" where it is not that of a volume."""
    extension = next((each for each in EXTENSIONS if name.lower().endswith(each)), "")
    return name[: len(name) - len(extension)], extension
