"""Train the weights of a model, or go on with a training that was stopped."""

import dataclasses
import json
from collections import Counter
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import numpy as np
import torch

from meddpm import data, device, interrupt, memory, provenance, variants
from meddpm.config import GpuConfig, ModelConfig, TrainConfig, UserError, VariantConfig, to_mapping
from meddpm.data import manifest, volumes
from meddpm.data.nifti import by
from meddpm.files import remove_abandoned, sha256, write_csv, write_json
from meddpm.log import REFUSED, logger, refusal
from meddpm.model import build_model, weights
from meddpm.model.checkpoints import Checkpoints
from meddpm.stages.job import Job, folder
from meddpm.stages.network import device_errors
from meddpm.status import FAILED, OK, CannotRun
from meddpm.training.batches import Batches
from meddpm.training.cases import Cases, gather
from meddpm.training.loop import ENTRIES, Diverged, Run, Stopped, TrainingResult, train

STATUS_FILE = "status.json"
ONE_CASE = "one case only: the network learns this volume by heart and nothing about others"
# They say how long and how safely, not what is computed: a run with others of them is continued.
NOT_OF_THE_RUN = ("max_seconds", "checkpoint_every", "keep_checkpoints")


def run(
    settings: str, cases: Path | str, target: Path | str, curve: Path | str, record: Path | str, threads: int
) -> None:
    """Train on the cases of `cases` (cases.tsv); write weights to `target`, losses to `curve`, facts to `record`.

    Checkpoints lie under checkpoints/ beside `target`, in a folder of this run alone: the digest of its settings and
    its cases. One that is there is continued. The weights are kept a second time under kept/, in a folder named by the
    digest of settings and cases, where a rerun with others does not replace them. status.json says how the last run
    ended. Raises UserError when the training cannot end well: nothing after it could run.
    """
    place = folder(target)
    (place / STATUS_FILE).unlink(missing_ok=True)  # that of the run before
    remove_abandoned(place)
    torch.set_num_threads(threads)
    checkpoints = None
    try:
        job = Job.parse("train", settings)
        how = job.get("train", TrainConfig)
        rows = manifest.read(cases)
        if not rows:
            raise UserError(f"{cases}: lists no case; a training needs one or more")
        checkpoints = Checkpoints(place / "checkpoints" / _identity(job, how, rows), how.keep_checkpoints)
        _require_fit(Path(cases), rows, job.get("model_config", ModelConfig))
        with interrupt.noted() as asked, _claimed(job, asked) as where:
            facts, result = _train(job, how, Path(cases), rows, checkpoints, where, asked, threads)
            kept = place / "kept" / _digest(settings, rows) / Path(target).name
            for path in (kept, Path(target)):
                weights.save(path, result.weights, facts)
            points = ({"step": number, "loss": f"{loss:.6f}"} for number, loss in enumerate(result.losses, 1))
            write_csv(curve, ["step", "loss"], points)
            write_json(record, facts)
    except (CannotRun, Diverged, Stopped, OSError, UserError) as error:
        if isinstance(error, OSError) and error.errno not in REFUSED:
            raise
        last = checkpoints.last if checkpoints else None
        raise _ended(json.loads(settings)["model"], error, last, place) from None
    write_json(place / STATUS_FILE, {"status": OK, "reason": "", "step": facts["steps"]})


def _claimed(job: Job, asked: Callable[[], str | None]) -> AbstractContextManager[torch.device]:
    """The device for the block; a training that is asked to stop waits for none."""

    def between() -> None:
        if asked():
            raise Stopped("stopped while it waited for a GPU")

    return device.claimed(job.get("gpu_config", GpuConfig), job.values["gpu"], between)


def _train(
    job: Job,
    how: TrainConfig,
    cases: Path,
    rows: list[manifest.CaseRow],
    checkpoints: Checkpoints,
    where: torch.device,
    asked: Callable[[], str | None],
    threads: int,
) -> tuple[dict[str, Any], TrainingResult]:
    """The facts of the training, which become the card of the weights, and its result."""
    config = job.get("model_config", ModelConfig)
    if len(rows) == 1:
        logger.warning("%s: %s", cases, ONE_CASE)
    torch.manual_seed(how.seed)
    with (
        variants.applied(job.get("variant_config", VariantConfig), where, training=True) as applied,
        device_errors(),
        _gathered(cases, rows, config, asked, threads) as shown,
    ):
        logger.info("training on %s with %s", device.name(where), applied.flags())
        under_way = Run(build_model(config), config, how, applied, Batches(shown, config, how, applied))
        saved = checkpoints.newest(how.steps, ENTRIES)
        if saved:
            under_way.restore(saved)
            logger.info("going on after step %d of %d, from %s", saved["step"], how.steps, checkpoints.folder)
        elif any(other != checkpoints.folder for other in checkpoints.folder.parent.glob("*")):
            logger.info("beginning anew: the checkpoints there are of other settings, code or cases")
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
        "dataset": _described(rows),
        "dataset_name": cases.parent.name,
        "cases": len(rows),
        "cases_sha256": sha256(cases),
        "note": ONE_CASE if len(rows) == 1 else "",
        "settings": {**to_mapping(how), **job.cell("gpu", "variant")},
        "preset": to_mapping(config),
        "environment": provenance.environment(where.type, job.code),
    }
    return facts, result


def _identity(job: Job, how: TrainConfig, rows: list[manifest.CaseRow]) -> str:
    """Digest of what decides the course of the training, from its first step on: two runs share it or nothing."""
    fixed = dataclasses.replace(how, **{name: getattr(TrainConfig(), name) for name in NOT_OF_THE_RUN})
    if how.decay == "none":
        fixed = dataclasses.replace(fixed, steps=TrainConfig().steps)  # then it only says where to end
    kind = device.kind(job.get("gpu_config", GpuConfig))  # random states are of one kind of device
    values = {**job.values, "train": to_mapping(fixed), "kind": kind}
    return _digest(json.dumps(values, sort_keys=True), rows)


def _digest(settings: str, rows: list[manifest.CaseRow]) -> str:
    """Digest of the settings and of what the network is shown: where the cases came from is not in it."""
    shown = [(row.id, row.image_sha256, row.label_sha256) for row in rows]
    return provenance.text_digest(settings + json.dumps(shown))


def _described(rows: list[manifest.CaseRow]) -> str:
    """What the cases are: each note of the table, with the number of cases that have it."""
    counted = Counter(row.notes for row in rows)
    return "; ".join(f"{count} of {len(rows)} cases: {note}" for note, count in counted.items())


def _ended(model: str, error: Exception, last: Path | None, target: Path) -> UserError:
    """What the user reads of a training that ended before its end; status.json beside the weights says it too.

    `last` is the last checkpoint that is whole.
    """
    status = FAILED
    if isinstance(error, CannotRun):
        text = f"{model} cannot be trained here: {error}; see train.gpu, train.variant and train.batch in config.yaml"
        status = error.status
    elif isinstance(error, OSError):
        text = refusal(error, target)
    elif isinstance(error, UserError):
        text = str(error)
    elif isinstance(error, Stopped):
        text = f"{model}: {error}; the same command goes on from there"
    else:
        text = f"{model}: {error}: lower train.learning_rate in config.yaml, or train in fp32 (train.variant)"
    if last:
        text += f" (last good checkpoint: {last})"
    try:
        write_json(target / STATUS_FILE, {"status": status, "reason": text, "checkpoint": str(last) if last else None})
    except OSError:
        logger.warning("no room for %s", target / STATUS_FILE)
    return UserError(text)


def _require_fit(cases: Path, rows: list[manifest.CaseRow], config: ModelConfig) -> None:
    """Raise UserError at the first row whose case is none for a training of the model; no volume is read."""
    for row in rows:
        if not row.image:
            raise UserError(f"{cases}: {row.id} has no image; a training needs one for each case")
        if row.shape != tuple(config.size):
            raise UserError(
                f"{cases}: {row.id}: a case of {by(row.shape)} voxels does not fit a model of {by(config.size)}; "
                "prepare the dataset at the model's size"
            )
        images = len(row.files.keys() - {"label"})
        if images:  # else it is not known what the case was made from
            _require_images(cases, row, images, config)


def _require_images(cases: Path, row: manifest.CaseRow, images: int, config: ModelConfig) -> None:
    if images != config.image_channels:
        raise UserError(
            f"{cases}: the number of images of {row.id} is {images}, but the model takes {config.image_channels}; name "
            "as many under `images:` of the dataset in config.yaml, or train another model"
        )


def _gathered(
    cases: Path, rows: list[manifest.CaseRow], config: ModelConfig, asked: Callable[[], str | None], threads: int
) -> Cases:
    """The cases, in at most half of the memory that is left: the rest is for the training and for those being read."""

    def read(number: int) -> tuple[np.ndarray, np.ndarray]:
        row = rows[number]
        try:
            case = data.load_case(cases, row)
        except OSError as error:
            raise UserError(
                f"{error.filename or cases}: {row.id} cannot be read ({error.strerror or error}); mend the disk or the "
                "permissions"
            ) from None
        image = volumes.to_tensor_axes(case.image)
        _require_images(cases, row, len(image), config)
        return image, volumes.to_tensor_axes(case.label)[0]

    def between(done: int) -> None:
        if asked():
            raise Stopped(f"stopped after {done} of {len(rows)} cases were read")

    return gather(read, len(rows), config, memory.available() // 2, threads, between)
