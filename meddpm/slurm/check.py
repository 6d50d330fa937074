"""What a study asks of a cluster against what the cluster has: what is not there, or is smaller, with the mend."""

from collections.abc import Iterable
from dataclasses import dataclass

from meddpm.config import ClusterConfig, RequestConfig
from meddpm.slurm.request import (
    feature_names,
    gpu_key,
    gpu_type,
    has_features,
    matching_nodes,
    names_gpu,
    partition_names,
)
from meddpm.slurm.site import NodeKind, Partition
from meddpm.study import Study
from meddpm.validation import closest

STAGES = "cluster.stages"


@dataclass(frozen=True)
class CheckedRow:
    """A row of `gpus`, or `STAGES`: its partition, what else it asks for, and what is wrong, a line each."""

    name: str
    partition: str
    asks: str
    findings: tuple[str, ...]


def check(study: Study, partitions: dict[str, Partition]) -> list[CheckedRow]:
    """The rows of `gpus` that are for a cluster (a partition, the device cuda, or a GPU), and `cluster.stages`."""
    rows = [
        _checked(name, f"gpus.{name}", request, study.asks_for_gpu(name), study.gpus[name].device, partitions)
        for name, request in study.requests.items()
        if request.partition or study.gpus[name].device == "cuda" or names_gpu(request)
    ]
    stages = (study.cluster or ClusterConfig()).stages
    return [*rows, _checked("stages", STAGES, stages, False, "cpu", partitions)]


def _checked(
    name: str, where: str, request: RequestConfig, gpu: bool, device: str, partitions: dict[str, Partition]
) -> CheckedRow:
    named = partition_names(request, partitions)
    shown = request.partition or (f"{named[0]} (default)" if named else "none")
    found = _findings(where, request, gpu, named, partitions)
    idle = gpu and device == "cpu"
    if found and idle:
        found.append(
            f"{where}.{gpu_key(request)}: asks for a GPU, which device: cpu does not use; leave it out for none"
        )
    return CheckedRow(name, shown, _asks(request, gpu, idle), tuple(found))


def _asks(request: RequestConfig, gpu: bool, idle: bool) -> str:
    """What is asked for beside the partition, in words. `idle`: the GPU is for a row on the CPU."""
    unused = " (device: cpu does not use it)" if idle else ""
    device = [f"GPU {request.gres or gpu_type(request) or 'of any type'}{unused}"] if gpu else []
    beside = [f"constraint {request.constraint}"] if request.constraint else []
    beside += [f"qos {request.qos}"] if request.qos else []
    beside += [request.slurm_extra] if request.slurm_extra else []
    return ", ".join([*device, f"{request.cpus} CPUs", f"{request.mem} MB", f"{request.runtime} min", *beside])


def _findings(
    where: str, request: RequestConfig, gpu: bool, named: list[str], partitions: dict[str, Partition]
) -> list[str]:
    if not named:
        return [f"{where}.partition: none, and the cluster has no default; right would be one of {_list(partitions)}"]
    # sbatch refuses the whole list where one of it is not there.
    unknown = [
        f"{where}.partition: this cluster has no partition {name}; {closest(name, list(partitions))}"
        for name in named
        if name not in partitions
    ]
    found = [_in_partition(where, request, gpu, partitions[name], partitions) for name in named if name in partitions]
    # Of several, the job runs in one that can take it.
    return unknown + ([] if [] in found else [finding for each in found for finding in each])


def _in_partition(
    where: str, request: RequestConfig, gpu: bool, room: Partition, partitions: dict[str, Partition]
) -> list[str]:
    model = gpu_type(request) if gpu else ""
    found = [] if room.up else [_down(where, gpu, model, room, partitions)]
    if gpu:
        found += _gpu(where, request, model, room, partitions)
    found += _features(where, request, gpu, room, partitions)
    nodes = matching_nodes(request, gpu, room)
    for key, asked, has, unit in (
        ("cpus", request.cpus, [node.cpus for node in nodes] or [room.cpus], ""),
        ("mem", request.mem, [node.mem for node in nodes] or [room.mem], " MB"),
    ):
        most = max(has)
        # 0: the cluster does not say of a node how much it has.
        if 0 not in has and asked > most:
            which = f"a node of {room.name}{f' with {_a(model)}' if gpu and model in room.gpus else ''}"
            found.append(f"{where}.{key}: {asked}{unit} is more than {which} has; right would be {most} or less")
    if room.runtime == 0:
        found.append(f"{where}.partition: {room.name} gives a job less than a minute; right would be another one")
    elif room.runtime is not None and request.runtime > room.runtime:
        found.append(
            f"{where}.runtime: {request.runtime} min is more than {room.name} allows; "
            f"right would be {room.runtime} or less"
        )
    return found


def _down(where: str, gpu: bool, model: str, room: Partition, partitions: dict[str, Partition]) -> str:
    others = [each.name for each in partitions.values() if each.up and (not gpu or _has(each, model))]
    mend = f"right would be {_list(others)}, or to wait" if others else "wait, or ask the site"
    return f"{where}.partition: {room.name} takes no jobs now, or all of its nodes are down; {mend}"


def _gpu(
    where: str, request: RequestConfig, model: str, room: Partition, partitions: dict[str, Partition]
) -> list[str]:
    """Whether the GPU that is asked for is in the partition, and on a node that is up."""
    having = [each.name for each in partitions.values() if _has(each, model)]
    if not room.gpus:
        mend = f"right would be {_list(having)}" if having else "no partition of this cluster has what is asked for"
        return [f"{where}.partition: {room.name} has no GPU; {mend}"]
    if not _has(room, model):
        return [f"{where}.{gpu_key(request)}: {room.name} has no GPU {model}; {_other_type(model, room, having)}"]
    nodes = [node for node in room.nodes if _on_node(model, node)]
    if room.up and nodes and not any(node.usable for node in nodes):
        others = [name for name in having if name != room.name]
        mend = f"right would be {_list(others)}, or to wait" if others else "wait, or ask the site"
        return [f"{where}.partition: all nodes of {room.name} with {_a(model)} are down; {mend}"]
    return []


def _other_type(model: str, room: Partition, having: list[str]) -> str:
    """The mend where the partition `room` has other GPUs than `model`, and those `having` it may be some."""
    types = [each for each in room.gpus if each]
    same = [each for each in types if each.lower() == model.lower()]
    if same:
        return f"right would be {same[0]}, in these letters"
    if having:
        return f"right would be one of its own, or the partition {_list(having)}"
    if not types:
        return "its GPUs have no type: ask for any, by gpu_model: null or gres: gpu:1"
    return closest(model, types)


def _features(
    where: str, request: RequestConfig, gpu: bool, room: Partition, partitions: dict[str, Partition]
) -> list[str]:
    names = feature_names(request.constraint)
    anywhere = frozenset().union(*(each.features for each in partitions.values()))
    # In an "or" one of them will do, but sbatch refuses a name that no node of the cluster has.
    fits_one = has_features(request.constraint, room.features)
    missing = [name for name in names if name not in (anywhere if fits_one else room.features)]
    known = sorted(room.features)
    mend = "its nodes have no features: leave it out"
    found = [
        f"{where}.constraint: no node of {room.name} has the feature {name}; {closest(name, known) if known else mend}"
        for name in missing
    ]
    model = gpu_type(request) if gpu else ""
    if not found and names and gpu and _has(room, model) and not _on_one_node(request, model, room):
        theirs = sorted(set().union(*(node.features for node in room.nodes if _on_node(model, node))))
        mend = f"right would be of {_list(theirs)}" if theirs else "they have no features: leave it out"
        found.append(f"{where}.constraint: no node of {room.name} with {_a(model)} is {request.constraint}; {mend}")
    return found


def _on_one_node(request: RequestConfig, model: str, room: Partition) -> bool:
    """Whether a node has both the GPU and the features; true where the nodes are not known."""
    both = [node for node in room.nodes if _on_node(model, node) and has_features(request.constraint, node.features)]
    return bool(both) or not room.nodes


def _on_node(model: str, node: NodeKind) -> bool:
    return model in node.gpus if model else bool(node.gpus)


def _has(room: Partition, model: str) -> bool:
    return model in room.gpus if model else bool(room.gpus)


def _a(model: str) -> str:
    return f"a GPU {model}" if model else "a GPU"


def _list(names: Iterable[str]) -> str:
    return ", ".join(names)
