"""Train the weights of a model, or go on with a training that was stopped."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import torch

from meddpm import data, device, interrupt, provenance, variants
from meddpm.config import GpuConfig, ModelConfig, TrainConfig, UserError, VariantConfig, to_mapping
from meddpm.data import conditions, manifest, volumes
from meddpm.files import write_csv, write_json
from meddpm.log import REFUSED, logger
from meddpm.model import build_model, weights
from meddpm.model.checkpoints import Checkpoints
from meddpm.stages.job import Job, folder
from meddpm.stages.network import device_errors
from meddpm.status import FAILED, OK, CannotRun
from meddpm.training.batches import Batches
from meddpm.training.loop import Diverged, Run, Stopped, TrainingResult, train

STATUS_FILE = "status.json"
ONE_CASE = "one case only: the network learns this volume by heart and nothing about others"
# They say how long and how safely, not what is computed: a run with others of them is continued.
NOT_OF_THE_RUN = ("max_seconds", "checkpoint_every", "keep_checkpoints")


def run(
    settings: str, cases: Path | str, target: Path | str, curve: Path | str, record: Path | str, threads: int
) -> None:
    """Train on the cases of `cases` (cases.tsv); write weights to `target`, losses to `curve`, facts to `record`.

    Checkpoints lie under checkpoints/ beside `target`, in a folder of this run alone: the digest of its settings and
    its cases. One that is there is continued. The weights are kept a second time under kept/<digest of the settings>/,
    where a rerun with other code or settings does not replace them. status.json says how the last run ended.
    Raises UserError when the training cannot end well: nothing after it could run.
    """
    job = Job.parse("train", settings)
    torch.set_num_threads(threads)
    how = job.get("train", TrainConfig)
    rows = manifest.read(cases)
    checkpoints = Checkpoints(folder(target) / "checkpoints" / _identity(job, how, cases), how.keep_checkpoints)
    (folder(target) / STATUS_FILE).unlink(missing_ok=True)  # that of the run before
    try:
        facts, result = _train(job, how, Path(cases), rows, checkpoints)
        kept = folder(target) / "kept" / provenance.text_digest(settings) / Path(target).name
        for path in (kept, Path(target)):
            weights.save(path, result.weights, facts)
        points = ({"step": number, "loss": f"{loss:.6f}"} for number, loss in enumerate(result.losses, 1))
        write_csv(curve, ["step", "loss"], points)
        write_json(record, facts)
    except (CannotRun, Diverged, Stopped, OSError, UserError) as error:
        if isinstance(error, OSError) and error.errno not in REFUSED:
            raise
        raise _ended(job, error, checkpoints, folder(target)) from None
    write_json(folder(target) / STATUS_FILE, {"status": OK, "reason": "", "step": facts["steps"]})


def _train(
    job: Job, how: TrainConfig, cases: Path, rows: list[manifest.CaseRow], checkpoints: Checkpoints
) -> tuple[dict[str, Any], TrainingResult]:
    """The facts of the training, which become the card of the weights, and its result."""
    config = job.get("model_config", ModelConfig)
    if len(rows) == 1:
        logger.warning("%s: %s", cases, ONE_CASE)
    images, labels = _tensors(cases, rows, config)
    where = device.resolve(job.get("gpu_config", GpuConfig))
    torch.manual_seed(how.seed)
    with (
        variants.applied(job.get("variant_config", VariantConfig), where, training=True) as applied,
        device_errors(),
        interrupt.noted() as asked,
    ):
        logger.info("training on %s with %s", device.name(where), applied.flags())
        under_way = Run(build_model(config), config, how, applied, Batches(images, labels, config, how, applied))
        saved = checkpoints.newest(how.steps)
        if saved:
            under_way.restore(saved)
            logger.info("going on after step %d of %d, from %s", saved["step"], how.steps, checkpoints.folder)
        result = train(under_way, checkpoints.save, asked)

    ends = max(1, min(10, len(result.losses) // 4))  # steps averaged at each end of the curve
    facts = {
        **job.cell("model", "gpu", "variant"),
        "steps": len(result.losses),
        "seconds": round(result.seconds, 1),
        "batch": how.batch * how.accumulation,
        "loss_first": float(np.mean(result.losses[:ends])),
        "loss_last": float(np.mean(result.losses[-ends:])),
        "loss_averaged_over": ends,
        "continued_after_step": saved["step"] if saved else 0,
        "device_name": device.name(where),
        "dataset": rows[0].notes,
        "cases": len(rows),
        "note": ONE_CASE if len(rows) == 1 else "",
        "settings": to_mapping(how),
        "preset": to_mapping(config),
        "environment": provenance.environment(where.type, job.code),
    }
    return facts, result


def _identity(job: Job, how: TrainConfig, cases: Path | str) -> str:
    """Digest of what decides the course of the training, from its first step on: two runs share it or nothing."""
    fixed = dataclasses.replace(how, **{name: getattr(TrainConfig(), name) for name in NOT_OF_THE_RUN})
    if how.decay == "none":
        fixed = dataclasses.replace(fixed, steps=TrainConfig().steps)  # then it only says where to end
    try:
        kind = device.resolve(job.get("gpu_config", GpuConfig)).type  # random states are of one kind of device
    except CannotRun:
        kind = "none"
    values = {**job.values, "train": to_mapping(fixed), "kind": kind}
    return provenance.text_digest(json.dumps(values, sort_keys=True) + Path(cases).read_text(encoding="utf-8"))


def _ended(job: Job, error: Exception, checkpoints: Checkpoints, target: Path) -> UserError:
    """What the user reads of a training that ended before its end; status.json beside the weights says it too."""
    model = job.values["model"]
    if isinstance(error, CannotRun):
        text = f"{model} cannot be trained here: {error}; see train.gpu, train.variant and train.batch in config.yaml"
        status = error.status
    elif isinstance(error, OSError):
        place = error.filename or checkpoints.folder
        text, status = f"{place}: {error.strerror or error}; make room or mend the permissions", FAILED
    elif isinstance(error, UserError):
        text, status = str(error), FAILED
    elif isinstance(error, Stopped):
        text, status = f"{model}: {error}; the same command goes on from there", FAILED
    else:
        text, status = f"{model}: {error}: lower train.learning_rate in config.yaml", FAILED
    last = checkpoints.latest()
    if last:
        text += f" (last good checkpoint: {last})"
    try:
        write_json(target / STATUS_FILE, {"status": status, "reason": text, "checkpoint": str(last) if last else None})
    except OSError:
        logger.warning("no room for %s", target / STATUS_FILE)
    return UserError(text)


def _tensors(cases: Path, rows: list[manifest.CaseRow], config: ModelConfig) -> tuple[torch.Tensor, torch.Tensor]:
    """Images (N, C, D, W, H) float32 in [-1, 1] and label maps (N, D, W, H) uint8 of every case."""
    images, labels = [], []
    for row in rows:
        case = data.load_case(cases, row)
        if case.image is None:
            raise UserError(f"{cases}: {row.id} has no image; a training needs one for each case")
        conditions.require_size(case.label, config)
        images.append(volumes.to_tensor_axes(case.image))
        labels.append(volumes.to_tensor_axes(case.label)[0])
    return torch.from_numpy(np.stack(images)), torch.from_numpy(np.stack(labels))
