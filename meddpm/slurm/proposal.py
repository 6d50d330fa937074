"""A first slurm/site.yaml for a cluster: a row for each kind of GPU that it has, and where the other stages run."""

import math
import re
from dataclasses import dataclass

import yaml

from meddpm.config import ClusterConfig, RequestConfig, UserError
from meddpm.slurm import gpu_names
from meddpm.slurm.gpu_names import GpuName
from meddpm.slurm.request import PER_NODE, check_request
from meddpm.slurm.site import NodeKind, Partition
from meddpm.words import one_line

# Minutes that are proposed where a partition gives as much.
RUNTIME = 720
# What the schema takes for a partition (but a comma, which makes two of it), a type and the name of a row.
PARTITION = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.+-]*")
TYPE = re.compile(r"[A-Za-z0-9_.]+")
TYPE_PER_NODE = re.compile(r"[A-Za-z0-9_.-]+")
ROW = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}")
# Features without a letter of the language of constraints, which cannot be quoted there.
FEATURE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")
UNKNOWN = "GPU"
# The row of config.yaml, over which this file is laid.
TAKEN = "local"
# RealMemory of a node where the site has set none: sbatch gives no more, and holds no job to it.
NOT_COUNTED = 1

# The comments of slurm/site.yaml.
HEAD = """\
# slurm/site.yaml, as `sinfo` lists this cluster. A row's cpus and mem are one GPU's share of its node.
# The one file that a site edits: how your cluster is asked for the GPUs that the study runs on.
# Look what your cluster has, compare and get this file proposed: python -m meddpm slurm check

"""
KEYS = """\
# The study runs on each row that has a partition and asks for a GPU, unless its own file picks rows by study.gpus.
# A row whose partition or type of GPU your cluster lacks becomes `unavailable` rows of the tables.
gpus:
  # For each: device (cuda or cpu) and device_name, a regular expression that the device's own name must match: a job
  # on another device fails. How it is asked for:
  #   partition    as `sinfo` lists it
  #   gpu_model    asks by --gpus=MODEL:1; without it by --gpus=1
  #   gres         asks by --gres in its place, as gpu:a100:1, where the site rejects --gpus
  #                (a row with device: cpu asks for a GPU only where it has one of these two keys)
  #   constraint, qos, account, slurm_extra    as sbatch takes them; slurm_extra is one text of further options
  #   cpus, mem (MB, or 64G), runtime (minutes, or 12h, 2d)    of one job; mem and runtime grow with each retry
"""
CLUSTER = """\
cluster:
  # Charged for every job whose row names none. Leave it out where your user has one account.
  # account: my_project
  # Jobs that need no GPU: preparation, evaluation, report, archive.
{stages}
  # Stages whose jobs get their node alone, GPUs of others included: steadier times, longer queues. As [bench].
  exclusive: []
  # So long before its time limit a job is told to save what it has; the next try goes on from there.
  warning_s: {warning_s}
"""


@dataclass(frozen=True)
class _Kind:
    """GPUs that one row is for: their type, or "" and a guess by the feature of their nodes or by the partition."""

    type: str
    feature: str | None = None
    name: GpuName | None = None

    @property
    def constraint(self) -> str | None:
        """The feature, where it can be asked for."""
        return self.feature if self.feature and FEATURE.fullmatch(self.feature) else None


def propose(partitions: dict[str, Partition]) -> str:
    """The YAML of a slurm/site.yaml that fits these partitions, with comments; it loads when laid over config.yaml."""
    # One that gives a job less than a minute is of no use.
    rooms = [room for room in partitions.values() if PARTITION.fullmatch(room.name) and room.runtime != 0]
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
    any_up = any(_is_up(room, nodes) for room, nodes in chosen.values())
    lines = []
    for kind, (room, nodes) in chosen.items():
        row = _row(names[kind], kind, room, nodes)
        if not _is_up(room, nodes):
            # It would be picked, and its jobs would wait.
            row = ["  # Its nodes are down now:", *([f"  # {line[2:]}" for line in row] if any_up else row)]
        lines += row
    gpus = KEYS + "".join(f"{line}\n" for line in lines) if chosen else "# This cluster lists no GPU.\n"
    return f"{HEAD}{gpus}\n{_cluster(rooms)}"


def _kind(model: str, node: NodeKind, room: Partition) -> _Kind:
    if model:
        return _Kind(model, None, gpu_names.known(model))
    features = {feature: gpu_names.known(feature) for feature in sorted(node.features)}
    telling = {feature: name for feature, name in features.items() if name}
    if len({name.row for name in telling.values()}) == 1:
        feature = min(telling, key=lambda each: (not FEATURE.fullmatch(each), len(each)))
        return _Kind("", feature, telling[feature])
    return _Kind("", None, gpu_names.known(room.name))


def _is_up(room: Partition, nodes: list[NodeKind]) -> bool:
    return room.up and any(node.usable for node in nodes)


def _rank(place: tuple[Partition, list[NodeKind]]) -> tuple[bool, float, int, bool]:
    """What comes first: up, a long enough limit, few other GPUs, the default."""
    room, nodes = place
    return not _is_up(room, nodes), -_runtime(room, RUNTIME), len(room.gpus), not room.default


def _names(kinds: list[_Kind]) -> dict[_Kind, str]:
    """A name for each row; where two types are the same GPU, the type itself for the second."""
    names: dict[_Kind, str] = {}
    for kind in kinds:
        plain = re.sub(r"[^A-Za-z0-9_.-]+", "_", kind.type or kind.feature or UNKNOWN).lstrip("_.-")[:90] or UNKNOWN
        name = kind.name.row if kind.name and ROW.fullmatch(kind.name.row) else plain
        for number in range(len(kinds) + 2):
            if name not in names.values() and name != TAKEN:
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
    elif _per_node(kind.type):
        lines += [f"    slurm_extra: {_scalar(_per_node(kind.type))}"]
    elif kind.type:
        lines += [f"    # its type, {one_line(kind.type)}, cannot be asked for by name"]
    if kind.constraint:
        lines += [f"    constraint: {_scalar(kind.constraint)}"]
    elif kind.feature:
        lines += [f"    # its feature, {one_line(kind.feature)}, cannot be asked for by a constraint"]
    usual = RequestConfig()
    cpus = _share([(node.cpus, node) for node in nodes], usual.cpus)
    mem = _share([(node.mem, node) for node in nodes], usual.mem)
    lines += [f"    cpus: {cpus}", f"    mem: {mem}" + ("  # memory is not counted here" if mem == NOT_COUNTED else "")]
    return [*lines, f"    runtime: {_runtime(room, RUNTIME)}"]


def _per_node(model: str) -> str | None:
    """The option for a type that gpu_model does not take; None where this does not either."""
    if not TYPE_PER_NODE.fullmatch(model):
        return None
    option = f"{PER_NODE}={model}:1"
    try:
        check_request(RequestConfig(slurm_extra=option), "")
    except UserError:
        return None
    return option


def _share(has: list[tuple[int, NodeKind]], usual: int) -> int:
    """What one GPU of a node has of it, the least of all nodes; `usual` where no node says how much it has."""
    known = [max(1, amount // sum(node.gpus.values())) for amount, node in has if amount]
    return min(known, default=usual)


def _cluster(rooms: list[Partition]) -> str:
    """Where the stages without a GPU run: a partition without GPUs, the default if it is one."""
    usable = [room for room in rooms if room.up] or rooms
    without = [room for room in usable if not room.gpus] or usable
    usual = RequestConfig()
    asked = {"cpus": usual.cpus, "mem": usual.mem, "runtime": usual.runtime}
    lines = ["    # partition: none of this cluster's can be named here"]
    if without:
        room = min(without, key=lambda each: (not each.default, -math.inf if each.runtime is None else -each.runtime))
        lines = [f"    partition: {_scalar(room.name)}"]
        asked = {
            "cpus": min(usual.cpus, room.cpus or usual.cpus),
            "mem": min(usual.mem, room.mem or usual.mem),
            "runtime": _runtime(room, usual.runtime),
        }
    lines = ["  stages:", *lines, *(f"    {key}: {value}" for key, value in asked.items())]
    return CLUSTER.format(stages="\n".join(lines), warning_s=ClusterConfig().warning_s)


def _runtime(room: Partition, most: int) -> int:
    return most if room.runtime is None else min(most, room.runtime)


def _scalar(text: str) -> str:
    """A text as YAML has it: with quotes where it would be read as something else."""
    return _flow([text])[1:-1]


def _flow(texts: list[str]) -> str:
    return yaml.safe_dump(texts, default_flow_style=True, width=math.inf, allow_unicode=True).strip()
