"""What the schema cannot say: names must be defined, values must fit each other, files must exist."""

import os
import re
from pathlib import Path
from typing import Any

from meddpm.config import BASELINE, ConfigError, FilesConfig, Icbm152Config, UserError, VariantConfig
from meddpm.data import from_files, labels, preparations
from meddpm.diffusion import solver_table
from meddpm.model import presets
from meddpm.model.formats import fit
from meddpm.slurm import request
from meddpm.study.matrix import SHIPPED, Study, StudyModel
from meddpm.validation import closest


def known(where: str, name: str, table: dict[str, Any]) -> None:
    """Raise ConfigError where `name`, the value at `where`, is no key of `table`."""
    if name not in table:
        raise ConfigError(f"{where}: {name} is not defined; {closest(name, list(table))}")


def check(study: Study, root: Path) -> None:
    """Raise ConfigError, one line, at the first fault. Paths are relative to `root`."""
    _check_names(study)
    _check_baseline(study)
    _check_datasets(study, root)
    for name in study.selection.models:
        _check_model(study, name, root)
    if study.evaluate.ssim_window % 2 == 0:
        raise ConfigError(f"evaluate.ssim_window: {study.evaluate.ssim_window} is even; right would be an odd number")


def _check_names(study: Study) -> None:
    for key in ("models", "gpus", "variants", "solvers"):
        for name in getattr(study.selection, key):
            known(f"study.{key}", name, getattr(study, key))
    for name, model in study.models.items():
        known(f"models.{name}.dataset", model.dataset, study.datasets)
        known(f"models.{name}.training_dataset", model.training_dataset, study.datasets)
    for name, gpu in study.gpus.items():
        try:
            re.compile(gpu.device_name or "")
        except re.error as error:
            raise ConfigError(
                f"gpus.{name}.device_name: {gpu.device_name} is no regular expression ({error}); right would be A100"
            ) from None
    _check_requests(study)
    for section in ("counters", "timeline"):
        for key in ("models", "variants"):
            for name in getattr(getattr(study, section), key) or ():
                known(f"{section}.{key}", name, getattr(study, key))
    if study.train.gpu:
        known("train.gpu", study.train.gpu, study.gpus)
    known("train.variant", study.train.variant, study.variants)


def _check_requests(study: Study) -> None:
    """What rows ask a cluster for can be asked for."""
    try:
        for name, each in study.requests.items():
            request.check_request(each, f"gpus.{name}", gpu=study.asks_for_gpu(name))
        if study.cluster:
            request.check_request(study.cluster.stages, "cluster.stages", gpu=False)
    except UserError as error:
        raise ConfigError(str(error)) from None


def _check_baseline(study: Study) -> None:
    if BASELINE not in study.selection.variants:
        raise ConfigError(f"study.variants: {BASELINE} is not among them; it is what every variant is compared with")
    if study.variants[BASELINE] != VariantConfig():
        raise ConfigError(f"variants.{BASELINE}: the baseline switches nothing; right would be {BASELINE}: {{}}")


def _check_datasets(study: Study, root: Path) -> None:
    """A dataset is prepared at one size, that of its models, and there are files where it is one of files."""
    for name in study.dataset_names():
        config = study.datasets[name]
        if isinstance(config, FilesConfig):
            _check_files(config, f"datasets.{name}", root)
    first: dict[str, str] = {}
    for name in study.selection.models:
        model = study.models[name]
        for dataset in model.datasets:
            other = first.setdefault(dataset, name)
            size, prepared = _times(model.config.size), _times(study.models[other].config.size)
            if size != prepared:
                key = "dataset" if dataset == model.dataset else "training_dataset"
                raise ConfigError(
                    f"models.{name}.{key}: {dataset} is prepared at {prepared} for {other}, but this model is "
                    f"{size}; right would be a dataset of its own"
                )
            images, others = model.config.image_channels, study.models[other].config.image_channels
            if images != others and isinstance(study.datasets[dataset], FilesConfig):
                raise ConfigError(
                    f"models.{name}: draws {images} images from {dataset}, and {other} draws {others}; right would be "
                    "a dataset of its own, with its `images`"
                )
        cases = study.datasets[model.dataset].cases
        if study.sample.enabled and cases is not None and study.sample.cases > cases:
            raise ConfigError(
                f"sample.cases: {study.sample.cases} is more than datasets.{model.dataset}.cases, {cases}"
            )


def _check_files(config: FilesConfig, where: str, root: Path) -> None:
    """The files are there, and the keys of the preparation agree with each other."""
    try:
        path = root / from_files.place(config)
    except UserError as error:
        raise ConfigError(f"{where}.path: {error}") from None
    try:
        os.stat(path)
    except OSError as error:
        reason = "is not there" if isinstance(error, FileNotFoundError) else f"cannot be looked at ({error.strerror})"
        raise ConfigError(
            f"{where}.path: {config.path} {reason}; right would be a folder, or a .tsv of files"
        ) from None
    if os.path.isfile(path) and path.suffix.lower() != ".tsv":
        raise ConfigError(f"{where}.path: {config.path} is a file; right would be a folder, or a .tsv of files")
    try:
        preparations.check(config)
    except ConfigError as error:
        raise ConfigError(f"{where}.{error}") from None


def check_sources(study: Study) -> None:
    """Look at the names of the files of each dataset of files.

    Raises ConfigError where there is no dataset, its cases have other images than its models draw, or there are fewer
    than are to be drawn. Apart from `check`, because it walks through folders, and on the machine of a job they may be
    out of reach.
    """
    for name in study.dataset_names():
        config = study.datasets[name]
        if not isinstance(config, FilesConfig):
            continue
        try:
            found = from_files.find(config)
            from_files.require_images(config, found, study.dataset_goal(name))
        except UserError as error:
            raise ConfigError(f"datasets.{name}: {error}") from None
        drawn = study.sample.enabled and any(study.models[model].dataset == name for model in study.selection.models)
        if drawn and len(found.cases) < study.sample.cases:
            raise ConfigError(
                f"sample.cases: {study.sample.cases} is more than the cases of datasets.{name}, {len(found.cases)}; "
                f"right would be {len(found.cases)} or less"
            )


def _check_model(study: Study, name: str, root: Path) -> None:
    model = study.models[name]

    def drawn_with(dataset: str) -> set[int]:
        """The labels that the model may be shown of a dataset."""
        there = labels(study.datasets[dataset])
        return {label for label in model.config.condition_labels if there is None or label in there}

    for dataset in model.datasets:
        if not drawn_with(dataset):
            listed = ", ".join(str(label) for label in sorted(set(labels(study.datasets[dataset]))))
            raise ConfigError(
                f"models.{name}.condition_labels: {list(model.config.condition_labels)}, but the labels of {dataset} "
                f"are {listed}; right would be one of these, or a remap of the dataset"
            )
    unseen = drawn_with(model.dataset) - drawn_with(model.training_dataset) if model.trains else set()
    if unseen:
        raise ConfigError(
            f"models.{name}.training_dataset: {model.training_dataset} never shows the label {min(unseen)} that "
            f"{model.dataset} has; right would be one that does"
        )
    made = isinstance(study.datasets[model.training_dataset], Icbm152Config)
    if model.trains and made and model.config.image_channels != 1:
        raise ConfigError(
            f"models.{name}.weights: train needs {model.config.image_channels} images a case and "
            f"{model.training_dataset} has one; right would be random, a file, or a dataset of files"
        )
    if model.weights_file is not None:
        _check_weights(model, f"models.{name}.weights", root)
    for solver in study.selection.solvers:
        solver_table.check(study.solvers[solver], model.config.steps, f"solvers.{solver}")


def _check_weights(model: StudyModel, where: str, root: Path) -> None:
    """A file of weights is there and, as far as can be told without torch, is one of this model's."""
    file = root / model.weights
    if model.weights == SHIPPED:
        file = presets.shipped(model.preset)
        if not file.is_file():
            there = ", ".join(preset for preset in presets.PRESETS if presets.shipped(preset).is_file())
            raise ConfigError(
                f"{where}: {SHIPPED}, but the preset {model.preset} has none (those that have: {there or 'none'}); "
                "right would be train, random or a file of weights"
            )
    if not os.path.isfile(file):  # never raises, whatever the path
        raise ConfigError(
            f"{where}: {model.weights} is not there; right would be train, random, shipped or a file of weights "
            "(safetensors, or of torch.save)"
        )
    if set("{}") & set(str(model.weights_file)):
        raise ConfigError(f"{where}: {model.weights_file} has braces, which Snakemake reads as a wildcard")
    if _is_output_of_training(model.weights):
        raise ConfigError(
            f"{where}: {model.weights} is a file that the train stage writes and may replace; right would be train, "
            "or the copy under kept/ beside it"
        )
    try:
        differ = fit.foreseen(file, model.config)
    except UserError as error:
        raise ConfigError(f"{where}: {error}") from None
    if differ:
        raise ConfigError(
            f"{where}: {model.weights} is for {'; '.join(differ)}; right would be a row that agrees, or other weights"
        )


def _is_output_of_training(weights: str) -> bool:
    """Whether a path names what a training rule makes, so that Snakemake would make it anew."""
    parts = Path(os.path.relpath(weights)).parts
    return parts[:2] == ("results", "train") and "kept" not in parts


def _times(size: tuple[int, ...]) -> str:
    return "x".join(str(side) for side in size)
