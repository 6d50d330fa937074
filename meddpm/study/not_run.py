"""Cells of the matrix that do not run here: why, so that each is a row with its reason and none is missing."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from meddpm.config import ConfigError
from meddpm.slurm import request
from meddpm.slurm.site import Partition
from meddpm.status import FAILED, UNAVAILABLE
from meddpm.study.matrix import CELL_STAGES, Study
from meddpm.validation import closest


class NotRun(NamedTuple):
    """A job that does not run: its stage and wildcards, its files, the status and reason of its rows."""

    stage: str
    wildcards: dict[str, str]
    files: list[str]
    status: str
    reason: str


def unavailable(study: Study, partitions: Mapping[str, Partition] | None) -> dict[str, str]:
    """The rows of the GPU matrix whose partition or type of GPU the cluster lacks, each with the reason.

    `partitions` are those of the cluster by name; None: not known.

    Raises ConfigError where the stages without a GPU have no partition to run in: then nothing can.
    """
    if partitions is None or study.cluster is None:
        return {}

    def lacks(partition: str | None) -> str | None:
        # sbatch takes several, as a,b, and refuses them all where one is not known.
        names = partition.split(",") if partition else []
        return next((name for name in names if name not in partitions), None)

    missing = lacks(study.cluster.stages.partition)
    if missing:
        raise ConfigError(
            f"cluster.stages.partition: this cluster has no partition {missing}; {closest(missing, list(partitions))}"
        )

    def reason(gpu: str) -> str | None:
        asked = study.requests[gpu]
        partition = lacks(asked.partition)
        if partition:
            return f"this cluster has no partition {partition}"
        return request.missing_type(asked, f"gpus.{gpu}", partitions) if study.asks_for_gpu(gpu) else None

    reasons = {name: reason(name) for name in study.gpu_names()}
    return {name: each for name, each in reasons.items() if each}


def cells(
    study: Study,
    files: Callable[[str, Mapping[str, str]], Sequence[str]],
    missing: Mapping[str, str],
    failed: Mapping[str, str],
) -> list[NotRun]:
    """The cells that do not run: those that `failed` (file to reason), and those of a row that is `missing`.

    `files` gives the files of a job by stage and wildcards. A cell of a missing row whose files are there already, from
    another cluster, is taken as it is.
    """
    found = []
    for stage in CELL_STAGES:
        for wildcards in study.cells(stage):
            paths = list(files(stage, wildcards))
            reason = next((failed[path] for path in paths if path in failed), None)
            if reason is not None:
                found.append(NotRun(stage, wildcards, paths, FAILED, reason))
                continue
            reason = missing.get(wildcards.get("gpu", ""))
            if reason is None and stage == "sample":
                reason = _weights_missing(study, wildcards["model"], files, missing)
            if reason is not None and not all(Path(path).is_file() for path in paths):
                found.append(NotRun(stage, wildcards, paths, UNAVAILABLE, reason))
    return found


def trains_nowhere(study: Study, model: str, missing: Mapping[str, str]) -> str | None:
    """Why `model` cannot be trained here; None if it can, or has its weights already."""
    return missing.get(study.training_cell(model)["gpu"]) if study.models[model].trains else None


def _weights_missing(
    study: Study, model: str, files: Callable[[str, Mapping[str, str]], Sequence[str]], missing: Mapping[str, str]
) -> str | None:
    reason = trains_nowhere(study, model, missing)
    if reason is None or all(Path(path).is_file() for path in files("train", study.training_cell(model))):
        return None
    return f"no weights: {reason}, where they are trained (train.gpu)"
