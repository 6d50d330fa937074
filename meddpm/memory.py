"""How much memory this process may still take."""

import os
from collections.abc import Iterator
from pathlib import Path

# Folder, limit, use and the reclaimable part of memory.stat, of the second and of the first kind of control groups.
UNIFIED = ("sys/fs/cgroup", "memory.max", "memory.current", "inactive_file")
LEGACY = ("sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")


def available(root: Path | str = "/") -> int:
    """Bytes that are left to this process: those of the machine, or of its control groups where they have fewer.

    A control group is what limits a container or a job of a scheduler; those that it lies in count too. Pages of files
    that the system would give up count as free in both. `root` is where /proc and /sys lie.
    """
    root = Path(root)
    return max(0, min([_of_machine(root), *_of_groups(root)]))


def _of_machine(root: Path) -> int:
    values = _values(root / "proc/meminfo")
    if "MemAvailable" in values:
        return values["MemAvailable"] * 1024
    return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def _of_groups(root: Path) -> Iterator[int]:
    """What is left in each group with a limit, from the one of this process outwards."""
    for line in _text(root / "proc/self/cgroup").splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers and "memory" not in controllers.split(","):
            continue
        folder, limit, use, reclaimable = LEGACY if controllers else UNIFIED
        # Inside a container the path may be the one outside, of which only the top is seen here.
        group = Path(path.strip("/"))
        for place in (root / folder / each for each in (group, *group.parents)):
            most, used = _text(place / limit).strip(), _text(place / use).strip()
            if most.isdigit() and used.isdigit():
                yield int(most) - int(used) + _values(place / "memory.stat").get(reclaimable, 0)


def _values(path: Path) -> dict[str, int]:
    """The numbers of a file with a name and a number on each line."""
    parts = (line.replace(":", " ").split() for line in _text(path).splitlines())
    return {words[0]: int(words[1]) for words in parts if len(words) > 1 and words[1].isdigit()}


def _text(path: Path) -> str:
    """What stands in a file of the system, nothing where it is not there or not for this process."""
    try:
        return path.read_text(encoding="utf-8")
    except OSError:
        return ""
