"""What a cluster has: its partitions, their GPUs and limits, as sinfo of SLURM 20.11 and newer lists them."""

import re
from dataclasses import dataclass

from meddpm.slurm import command
from meddpm.slurm.command import NoCluster
from meddpm.words import printable

# Name (with a star: the default), availability, state, CPUs and MB a node, time limit, GRES, features.
FORMAT = "%P|%a|%T|%c|%m|%l|%G|%f"
# Nodes in these states take no new job.
UNUSABLE = {"down", "drained", "draining", "fail", "failing", "future", "inval", "unknown", "error"}
NOT_RESPONDING = "*"
# What sinfo adds to a state: power saving, maintenance, a reboot.
STATE_MARKS = "*~#!%$@^-+"
# What sinfo writes for nothing.
NOTHING = {"", "(null)", "n/a"}
# Longer numbers are none of a cluster's.
DIGITS = 9


@dataclass(frozen=True)
class NodeKind:
    """Nodes of a partition that are alike: their GPUs (type: how many), features, CPUs, MB, and whether one is up."""

    gpus: dict[str, int]
    features: frozenset[str]
    cpus: int
    mem: int
    usable: bool


@dataclass(frozen=True)
class Partition:
    """A partition. `up`: it takes jobs and not all of its nodes are down.

    `gpus` is type of GPU to the most on one node, "" for GPUs without a type; `cpus` and `mem` (MB) are the most on one
    node, 0: not known; `runtime` is in minutes, None: no limit. What belongs together on one node is in `nodes`.
    """

    name: str
    default: bool
    up: bool
    gpus: dict[str, int]
    features: frozenset[str]
    cpus: int
    mem: int
    runtime: int | None
    nodes: tuple[NodeKind, ...] = ()


def partitions() -> dict[str, Partition] | None:
    """The partitions by name, in sinfo's order. None where sinfo is not there or does not answer."""
    try:
        return query()
    except NoCluster:
        return None


def query() -> dict[str, Partition]:
    """The partitions by name, in sinfo's order. Raises NoCluster, which says why, where there are none."""
    # --exact: nodes that differ get rows of their own, not one row of "32+" CPUs.
    printed = printable(command.run("sinfo", "--noheader", "--exact", "--noconvert", "--format", FORMAT), keep="\n")
    rows: dict[str, list[list[str]]] = {}
    for line in printed.split("\n"):
        fields = [field.strip() for field in line.split("|", FORMAT.count("|"))]
        name = fields[0].rstrip("*")
        if name and len(fields) == FORMAT.count("|") + 1:
            rows.setdefault(name, []).append(fields)
    if not rows:
        raise NoCluster("sinfo: lists no partition; is this user allowed to use the cluster?")
    return {name: _partition(name, of_it) for name, of_it in rows.items()}


def _partition(name: str, rows: list[list[str]]) -> Partition:
    """The partition of these rows of sinfo, one for each kind of node and state."""
    first, available, _, _, _, limit, _, _ = rows[0]
    # A partition without nodes has a row too.
    nodes = tuple(_nodes(*row[2:5], *row[6:]) for row in rows if row[2].lower() not in NOTHING or _number(row[3]))
    return Partition(
        name=name,
        default=first.endswith("*"),
        up=available == "up" and any(kind.usable for kind in nodes),
        gpus={model: max(kind.gpus.get(model, 0) for kind in nodes) for each in nodes for model in each.gpus},
        features=frozenset().union(*(kind.features for kind in nodes)),
        cpus=max((kind.cpus for kind in nodes), default=0),
        mem=max((kind.mem for kind in nodes), default=0),
        runtime=_minutes(limit),
        nodes=nodes,
    )


def _nodes(state: str, cpus: str, mem: str, gres: str, features: str) -> NodeKind:
    """The nodes of one row of sinfo."""
    usable = state.rstrip(STATE_MARKS).lower() not in UNUSABLE and NOT_RESPONDING not in state
    has = frozenset(part.strip() for part in features.split(",")) - NOTHING
    return NodeKind(_gpus(gres), has, _number(cpus), _number(mem), usable)


def _gpus(gres: str) -> dict[str, int]:
    """Type and number of the GPUs in a GRES as gpu:a100:4(S:0-1),nvme:1; other GRES (mps, shard) are left out."""
    found: dict[str, int] = {}
    # What stands in brackets (sockets, indices) may have commas.
    for entry in re.sub(r"\([^)]*\)", "", gres).split(","):
        name, *rest = entry.strip().split(":")
        rest = [part for part in rest if part and part != "no_consume"]
        if name == "gpu":
            # A number that is none of a cluster's still says that there are some.
            count = _known_number(rest.pop(), 1) if rest and re.fullmatch(r"[0-9]+", rest[-1]) else 1
            model = rest[0] if rest else ""
            if count:
                found[model] = found.get(model, 0) + count
    return found


def _number(text: str) -> int:
    """The number that a text begins with: sinfo of a site's wrapper may write 32+. 0 where there is none."""
    found = re.match(r"[0-9]+", text)
    return _known_number(found[0], 0) if found else 0


def _known_number(digits: str, otherwise: int) -> int:
    return int(digits) if len(digits) <= DIGITS else otherwise


def _minutes(limit: str) -> int | None:
    """Whole minutes of a limit as 2-00:00:00, 1:00:00 or 30:00; None for infinite and what is no limit."""
    found = re.fullmatch(r"(?:([0-9]+)-)?(?:([0-9]+):)?([0-9]+):([0-9]+)", limit)
    if not found or any(len(part or "") > DIGITS for part in found.groups()):
        return None
    days, hours, minutes, _ = (int(part or 0) for part in found.groups())
    return (days * 24 + hours) * 60 + minutes
