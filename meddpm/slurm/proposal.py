"""A first slurm/site.yaml for a cluster: a row for each kind of GPU that it has, and where the other stages run."""

import math
import re
from dataclasses import dataclass

import yaml

from meddpm.config import RequestConfig
from meddpm.slurm import gpu_names
from meddpm.slurm.gpu_names import GpuName
from meddpm.slurm.request import PER_NODE
from meddpm.slurm.site import NodeKind, Partition

# Minutes that are proposed where a partition gives as much.
RUNTIME = 720
# What the schema takes for a partition, a type and the name of a row.
PARTITION = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.,+-]*")
TYPE = re.compile(r"[A-Za-z0-9_.]+")
TYPE_PER_NODE = re.compile(r"[A-Za-z0-9_.-]+")
UNKNOWN = "GPU"


@dataclass(frozen=True)
class _Kind:
    """GPUs that one row is for: their type, or "" and a guess by the feature of their nodes or by the partition."""

    type: str
    feature: str | None = None
    name: GpuName | None = None


def propose(partitions: dict[str, Partition]) -> str:
    """The YAML of a slurm/site.yaml that fits these partitions, with comments; it loads when laid over config.yaml."""
    rooms = [room for room in partitions.values() if PARTITION.fullmatch(room.name)]
    places: dict[_Kind, list[tuple[Partition, list[NodeKind]]]] = {}
    for room in rooms:
        kinds: dict[_Kind, list[NodeKind]] = {}
        for node in room.nodes:
            for model in node.gpus:
                kinds.setdefault(_kind(model, node, room), []).append(node)
        for kind, nodes in kinds.items():
            places.setdefault(kind, []).append((room, nodes))
    chosen = {kind: min(each, key=_rank) for kind, each in places.items()}
    names = _names(list(chosen))
    up = [names[kind] for kind, (room, nodes) in chosen.items() if _is_up(room, nodes)]
    lines = ["# slurm/site.yaml, as `sinfo` lists this cluster. A row's cpus and mem are one GPU's share of its node."]
    if chosen:
        lines += ["study:", f"  gpus: {_flow(up or list(names.values()))}", "", "gpus:"]
    else:
        lines += ["# It lists no GPU."]
    for kind, (room, nodes) in chosen.items():
        lines += _row(names[kind], kind, room, nodes)
    return "\n".join([*lines, "", *_cluster(rooms)]) + "\n"


def _kind(model: str, node: NodeKind, room: Partition) -> _Kind:
    if model:
        return _Kind(model, None, gpu_names.known(model))
    features = {feature: gpu_names.known(feature) for feature in sorted(node.features)}
    telling = {feature: name for feature, name in features.items() if name}
    if len({name.row for name in telling.values()}) == 1:
        feature = min(telling, key=len)
        return _Kind("", feature, telling[feature])
    return _Kind("", None, gpu_names.known(room.name))


def _is_up(room: Partition, nodes: list[NodeKind]) -> bool:
    return room.up and any(node.usable for node in nodes)


def _rank(place: tuple[Partition, list[NodeKind]]) -> tuple[bool, float, int, bool]:
    """What comes first: up, a long enough limit, few other GPUs, the default."""
    room, nodes = place
    return not _is_up(room, nodes), -min(room.runtime or math.inf, RUNTIME), len(room.gpus), not room.default


def _names(kinds: list[_Kind]) -> dict[_Kind, str]:
    """A name for each row; where two types are the same GPU, the type itself for the second."""
    names: dict[_Kind, str] = {}
    for kind in kinds:
        plain = re.sub(r"[^A-Za-z0-9_.-]+", "_", kind.type or kind.feature or UNKNOWN).lstrip("_.-")[:90] or UNKNOWN
        name = kind.name.row if kind.name else plain
        for number in range(len(kinds) + 1):
            if name not in names.values():
                break
            name = plain if number == 0 else f"{plain}_{number + 1}"
        names[kind] = name
    return names


def _row(name: str, kind: _Kind, room: Partition, nodes: list[NodeKind]) -> list[str]:
    lines = [f"  {_scalar(name)}:", "    device: cuda"]
    if kind.name:
        lines += [f"    device_name: {_scalar(kind.name.pattern)}"]
    else:
        lines += ["    # device_name: a pattern for the name that nvidia-smi -L gives; without it any GPU will do"]
    lines += [f"    partition: {_scalar(room.name)}"]
    if TYPE.fullmatch(kind.type):
        other = f"gres: gpu:{kind.type}:1"
        lines += [f"    gpu_model: {_scalar(kind.type)}  # or {other}, where the site rejects --gpus"]
    elif TYPE_PER_NODE.fullmatch(kind.type):
        lines += [f"    slurm_extra: {_scalar(f'{PER_NODE}={kind.type}:1')}"]
    elif kind.type:
        lines += [f"    # its type, {kind.type}, cannot be asked for by name"]
    if kind.feature:
        lines += [f"    constraint: {_scalar(kind.feature)}"]
    if not _is_up(room, nodes):
        lines += ["    # its nodes are down now"]
    share = [(node.cpus // sum(node.gpus.values()), node.mem // sum(node.gpus.values())) for node in nodes]
    cpus, mem = (max(1, min(each)) for each in zip(*share, strict=True))
    return [*lines, f"    cpus: {cpus}", f"    mem: {mem}", f"    runtime: {_runtime(room, RUNTIME)}"]


def _cluster(rooms: list[Partition]) -> list[str]:
    """Where the stages without a GPU run: a partition without GPUs, the default if it is one."""
    usable = [room for room in rooms if room.up] or rooms
    if not usable:
        return []
    without = [room for room in usable if not room.gpus] or usable
    room = min(without, key=lambda each: (not each.default, -(each.runtime or math.inf)))
    usual = RequestConfig()
    return [
        "cluster:",
        "  # account: your_project",
        "  stages:",
        f"    partition: {_scalar(room.name)}",
        f"    cpus: {max(1, min(usual.cpus, room.cpus))}",
        f"    mem: {max(1, min(usual.mem, room.mem))}",
        f"    runtime: {_runtime(room, usual.runtime)}",
    ]


def _runtime(room: Partition, most: int) -> int:
    return max(1, min(most, most if room.runtime is None else room.runtime))


def _scalar(text: str) -> str:
    """A text as YAML has it: with quotes where it would be read as something else."""
    return _flow([text])[1:-1]


def _flow(texts: list[str]) -> str:
    return yaml.safe_dump(texts, default_flow_style=True, width=math.inf, allow_unicode=True).strip()
