"""What a job asks of the cluster, as the resources that the executor plugin for SLURM turns into options of sbatch.

The plugin pastes `slurm_extra` into a shell command as it is, so what a shell or the plugin would trip over is refused.
"""

import re
import shlex
from collections.abc import Mapping

from meddpm.config import ClusterConfig, RequestConfig, UserError
from meddpm.slurm.site import NodeKind, Partition
from meddpm.words import one_line, printable

NAMES = (
    *("slurm_partition", "slurm_account", "gpu", "gpu_model", "gres", "constraint", "qos", "slurm_extra"),
    *("runtime", "mem_mb", "cpus_per_task"),
)
# What a shell obeys, in quotes too.
SHELL = ";&|<>()$`"
# Options of sbatch that Snakemake or a key of the row sets: the letter, and the key ("": Snakemake).
MANAGED = {
    "job-name": ("J", ""),
    "output": ("o", ""),
    "error": ("e", ""),
    "parsable": ("", ""),
    "export": ("", ""),
    "comment": ("", ""),
    "workdir": ("", ""),
    "chdir": ("D", ""),
    "wrap": ("", ""),
    "array": ("a", ""),
    "wait": ("W", ""),
    "test-only": ("", ""),
    "clusters": ("M", ""),
    "nodes": ("N", ""),
    "ntasks": ("n", ""),
    "ntasks-per-gpu": ("", ""),
    "partition": ("p", "partition"),
    "account": ("A", "account"),
    "constraint": ("C", "constraint"),
    "qos": ("q", "qos"),
    "mem": ("", "mem"),
    "mem-per-cpu": ("", "mem"),
    "mem-per-gpu": ("", "mem"),
    "cpus-per-task": ("c", "cpus"),
    "cpus-per-gpu": ("", "cpus"),
    "time": ("t", "runtime"),
    "gres": ("", "gres"),
    "gpus": ("G", "gpu_model"),
    "gpus-per-node": ("", "gpu_model"),
    "gpus-per-task": ("", "gpu_model"),
    "gpus-per-socket": ("", "gpu_model"),
    "tres-per-task": ("", "gpu_model"),
}
# The plugin refuses these anywhere in the text, also in the name of a node.
SEEN_BY_PLUGIN = re.compile(r"-J|-[oeDApnctCN](?=\s)")
# The one way to ask for a type of GPU that the plugin cannot spell, as nvidia_a100-sxm4-80gb.
PER_NODE = "--gpus-per-node"
OF_ANY_TYPE = ""
# Types of GPU that a reason lists at most.
LISTED = 10


def resources(
    request: RequestConfig,
    *,
    gpu: bool,
    attempt: int,
    cluster: ClusterConfig,
    stage: str,
    limits: dict[str, Partition] | None,
) -> dict[str, str | int | None]:
    """The resources `NAMES` of one job of `stage`. None: not asked for. With `gpu` exactly one GPU, else none.

    `attempt` counts from 1: memory and time grow with it as far as `limits`, the partitions of the cluster by name,
    give them (None: not known), and are never less than those of the row. Raises UserError as `check_request` does.
    """
    check_request(request, f"the request of {stage}", gpu=gpu)
    rooms = [limits[name] for name in partition_names(request, limits) if name in limits] if limits else []
    largest = [max((node.mem for node in matching_nodes(request, gpu, room)), default=room.mem) for room in rooms]
    runtime = _grown(request.runtime, attempt, [room.runtime for room in rooms if room.runtime is not None])
    extra = _words(request.slurm_extra)
    if stage in cluster.exclusive and not _has(extra, "--exclusive"):
        extra.append("--exclusive")
    # A job that is hardly longer than its warning would be told to stop as soon as it has begun.
    if cluster.warning_s and not _has(extra, "--signal") and runtime * 60 > 2 * cluster.warning_s:
        # Without "B:" SLURM sends it to all processes of the job's steps, where the work is, not to the batch shell.
        extra.append(f"--signal=TERM@{cluster.warning_s}")
    # By --gpus, as the plugin writes it, only where nothing else asks for the GPU.
    by_gpus = gpu and not request.gres and not _has(extra, PER_NODE)
    return {
        "slurm_partition": request.partition,
        "slurm_account": request.account,
        "gpu": int(by_gpus) if gpu else None,
        "gpu_model": request.gpu_model if by_gpus else None,
        "gres": _gres(request.gres) if gpu and request.gres else None,
        "constraint": request.constraint,
        "qos": request.qos,
        "slurm_extra": shlex.join(extra) or None,
        "runtime": runtime,
        "mem_mb": _grown(request.mem, attempt, [mem for mem in largest if mem]),
        "cpus_per_task": request.cpus,
    }


def check_request(request: RequestConfig, where: str, *, gpu: bool = True) -> None:
    """Refuse what cannot be passed to sbatch or is not one GPU (without `gpu`: any GPU in `slurm_extra`).

    Raises UserError, one line: `where`, the key, its value and what would be right.
    """
    if request.gres and _gres(request.gres) is None:
        raise UserError(f"{where}.gres: {printable(request.gres)} is not one GPU; right would be gpu:1 or gpu:a100:1")
    try:
        words = _words(request.slurm_extra)
        _check_words(words)
        trips = SEEN_BY_PLUGIN.search(f"{shlex.join(words)} ")
        if trips:
            raise UserError(
                f"{request.slurm_extra} has {trips[0]}, which Snakemake takes for an option; write it otherwise"
            )
        asked = next((word for word in words if word.split("=")[0] == PER_NODE), None)
        if asked and not gpu:
            raise UserError(f"{PER_NODE} asks for a GPU, which this job does not need; leave it out")
        if asked and not re.fullmatch(PER_NODE + r"=(?!\d+\Z)[A-Za-z0-9_.-]+(:1)?", asked):
            raise UserError(f"{asked} is not one GPU of a type; right would be {PER_NODE}=TYPE:1, or the key gpu_model")
        if asked and (request.gres or request.gpu_model):
            raise UserError(f"{PER_NODE} and the keys gres and gpu_model say the same; right would be one of them")
    except UserError as error:
        raise UserError(f"{where}.slurm_extra: {error}") from None


def partition_names(request: RequestConfig, limits: dict[str, Partition]) -> list[str]:
    """The partitions that the job may run in: those of the row, which may be several as a,b, else the default."""
    if request.partition:
        return request.partition.split(",")
    return [name for name, each in limits.items() if each.default]


def gpu_type(request: RequestConfig) -> str:
    """The type of GPU that is asked for, as the cluster names it; "" where any will do."""
    if request.gres:
        parts = (_gres(request.gres) or "").split(":")
        return parts[1] if len(parts) == 3 else OF_ANY_TYPE
    asked = [word for word in _words(request.slurm_extra) if word.startswith(f"{PER_NODE}=")]
    if asked:
        return asked[0].split("=")[1].split(":")[0]
    return request.gpu_model or OF_ANY_TYPE


def gpu_key(request: RequestConfig) -> str:
    """The key that says which GPU is asked for; gpu_model where none does."""
    if request.gres:
        return "gres"
    return "slurm_extra" if gpu_type(request) and not request.gpu_model else "gpu_model"


def names_gpu(request: RequestConfig) -> bool:
    """Whether a key asks for a GPU, of a type or of any."""
    return bool(request.gres or gpu_type(request))


def missing_type(request: RequestConfig, where: str, partitions: Mapping[str, Partition]) -> str | None:
    """Why the partitions of a row, which are among `partitions`, never have the type of GPU that it asks for.

    None: one may have it, none is asked for, or the types are not known: no GPU is listed, or one without a type.
    """
    model = gpu_type(request)
    # Without a partition the site itself may choose one that is not the default.
    rooms = [partitions[name] for name in request.partition.split(",")] if request.partition else partitions.values()
    types = list(dict.fromkeys(each for room in rooms for each in room.gpus))
    if not model or not types or OF_ANY_TYPE in types or model in types:
        return None
    listed = ", ".join(one_line(each, 40) for each in types[:LISTED]) + (", ..." if len(types) > LISTED else "")
    return (
        f"{where}.{gpu_key(request)}: {request.partition or 'this cluster'} has no GPU {model}, only {listed}; "
        "see python -m meddpm slurm check"
    )


def matching_nodes(request: RequestConfig, gpu: bool, partition: Partition) -> list[NodeKind]:
    """The nodes of a partition that have the GPU and the features that are asked for; all of them if none has."""
    model = gpu_type(request) if gpu else OF_ANY_TYPE
    found = [
        node
        for node in partition.nodes
        if (not gpu or (model in node.gpus if model else node.gpus)) and has_features(request.constraint, node.features)
    ]
    return found or list(partition.nodes)


def feature_names(constraint: str | None) -> list[str]:
    """The features that a constraint as a100&nvlink, [rack1|rack2] or a100*2 names; not those that it excludes."""
    parts = re.split(r"[&|,\[\]()]+", constraint or "")
    names = [re.sub(r"\*\d+$", "", part.strip()) for part in parts]
    return list(dict.fromkeys(name for name in names if name and not name.startswith("!")))


def has_features(constraint: str | None, features: frozenset[str]) -> bool:
    """Whether a node with these features may be what the constraint asks for: one of them where it has an "or"."""
    names = feature_names(constraint)
    enough = any if set("|[") & set(constraint or "") else all
    return not names or enough(name in features for name in names)


def _grown(asked: int, attempt: int, most: list[int]) -> int:
    """`asked` times `attempt`, but not more than each of `most`, and not less than `asked`."""
    return max(asked, min([asked * attempt, *most]))


def _gres(gres: str) -> str | None:
    """A GRES of one GPU with its number written out; None where it is something else."""
    found = re.fullmatch(r"gpu(:(?!\d+\Z)[A-Za-z0-9_.]+)?(:1)?", gres)
    return f"gpu{found[1] or ''}:1" if found else None


def _has(words: list[str], option: str) -> bool:
    return any(word.split("=")[0] == option for word in words)


def _words(extra: str | None) -> list[str]:
    """The words of `slurm_extra`. Raises UserError where it has what a shell obeys, or a quote that does not end."""
    extra = extra or ""
    bad = next((letter for letter in extra if letter in SHELL or not letter.isprintable()), None)
    if bad is not None:
        shown = bad if bad.isprintable() else ascii(bad)[1:-1]
        raise UserError(
            f"{printable(extra)[:60]} has {shown}, which a shell obeys; right would be options of sbatch alone"
        )
    try:
        return shlex.split(extra)
    except ValueError as error:
        raise UserError(f"{extra[:60]} cannot be split into words ({error})") from None


def _check_words(words: list[str]) -> None:
    """Raise UserError at a word that is no option or value of one, or an option that is set elsewhere."""
    before = ""
    for word in words:
        if not word.startswith("-") or word in ("-", "--"):
            if not before.startswith("-") or "=" in before or word in ("-", "--"):
                raise UserError(f"{word} is no option of sbatch; right would be --option=value")
            before = word
            continue
        name, before = word.split("=")[0], word
        if name == PER_NODE:
            continue
        for option, (letter, key) in MANAGED.items():
            # sbatch takes an option by its first letters as well.
            if (name.startswith("--") and option.startswith(name[2:])) or (letter and re.match(f"-{letter}", name)):
                mend = f"the key {key} sets it: write it there" if key else "Snakemake sets it: leave it out"
                raise UserError(f"{name} is not for here; {mend}")
