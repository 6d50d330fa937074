"""Train the weights of a model."""

from pathlib import Path

import numpy as np
import torch

from meddpm import data, device, provenance, training, variants
from meddpm.config import GpuConfig, ModelConfig, TrainConfig, UserError, VariantConfig, to_mapping
from meddpm.data import conditions, manifest, volumes
from meddpm.files import write_csv, write_json
from meddpm.log import logger
from meddpm.model import build_model, weights
from meddpm.stages.job import Job, folder
from meddpm.stages.network import device_errors
from meddpm.status import CannotRun


def run(
    settings: str, cases: Path | str, target: Path | str, curve: Path | str, record: Path | str, threads: int
) -> None:
    """Train on the cases of `cases` (cases.tsv); write weights to `target`, losses to `curve`, facts to `record`.

    The weights are kept a second time under kept/<digest of the settings>/, where a rerun with other code or settings
    does not replace them. Raises UserError when the device or the variant cannot: nothing after it could run.
    """
    job = Job.parse("train", settings)
    torch.set_num_threads(threads)
    config, how = job.get("model_config", ModelConfig), job.get("train", TrainConfig)
    images, condition = _tensors(Path(cases), config)
    torch.manual_seed(how.seed)
    model = build_model(config)
    try:
        where = device.resolve(job.get("gpu_config", GpuConfig))
        with (
            variants.applied(job.get("variant_config", VariantConfig), where, training=True) as applied,
            device_errors(),
        ):
            logger.info("training on %s with %s", device.name(where), applied.flags())
            result = training.train(model, config, how, applied, images, condition)
    except CannotRun as reason:
        raise UserError(
            f"{job.values['model']} cannot be trained here: {reason}; see train.gpu and train.variant in config.yaml"
        ) from None
    except FloatingPointError as reason:
        raise UserError(f"{job.values['model']}: {reason}; see train.learning_rate in config.yaml") from None

    ends = max(1, min(10, len(result.losses) // 4))  # steps averaged at each end of the curve
    facts = {
        **job.cell("model", "gpu", "variant"),
        "steps": len(result.losses),
        "seconds": round(result.seconds, 1),
        "batch": how.batch * how.accumulation,
        "loss_first": float(np.mean(result.losses[:ends])),
        "loss_last": float(np.mean(result.losses[-ends:])),
        "loss_averaged_over": ends,
        "device_name": device.name(where),
        "dataset": manifest.read(cases)[0].notes,
        "cases": len(images),
        "settings": to_mapping(how),
        "preset": to_mapping(config),
        "environment": provenance.environment(where.type, job.code),
    }
    kept = folder(target) / "kept" / provenance.text_digest(settings) / Path(target).name
    for path in (kept, Path(target)):
        weights.save(path, result.weights, facts)
    points = ({"step": number, "loss": f"{loss:.6f}"} for number, loss in enumerate(result.losses, 1))
    write_csv(curve, ["step", "loss"], points)
    write_json(record, facts)


def _tensors(cases: Path, config: ModelConfig) -> tuple[torch.Tensor, torch.Tensor]:
    """Images (N, C, D, W, H) in [-1, 1] and conditions (N, K, D, W, H) of every case."""
    loaded = [data.load_case(cases, row) for row in manifest.read(cases)]
    images = np.stack([volumes.to_tensor_axes(case.image) for case in loaded])
    condition = np.stack([conditions.encode(case.label, config) for case in loaded])
    return torch.from_numpy(images), torch.from_numpy(condition)
