"""From a configuration to the matrix: names resolved and checked against each other, cells, and a stage's settings.

Floor 2, and imports no torch: the Snakefile reads it at every start.
"""

import dataclasses
import json
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from meddpm import provenance
from meddpm.config import (
    BASELINE,
    ArchiveConfig,
    BenchConfig,
    ConfigError,
    DatasetConfig,
    EvaluateConfig,
    GpuConfig,
    ModelConfig,
    ProfileConfig,
    ReportConfig,
    SampleConfig,
    SolverConfig,
    StudySelection,
    TrainConfig,
    UserError,
    VariantConfig,
    from_mapping,
    to_mapping,
)
from meddpm.data import SOURCES, tissues
from meddpm.diffusion import solver_table
from meddpm.model import fit, presets
from meddpm.validation import closest, validate

TRAIN, RANDOM, SHIPPED = "train", "random", "shipped"
NOT_OF_THE_PRESET = {"preset", "dataset", "training_dataset", "weights"}


@dataclass(frozen=True)
class StudyModel:
    """One model of the study: its preset with the changes of config.yaml, its datasets, where its weights come from."""

    config: ModelConfig
    dataset: str
    weights: str
    preset: str
    training_dataset: str

    @property
    def trains(self) -> bool:
        """Whether the train stage makes the weights."""
        return self.weights == TRAIN

    @property
    def datasets(self) -> list[str]:
        """The datasets that must be prepared for it: what it draws from and what it is trained on."""
        return [self.dataset, self.training_dataset] if self.trains else [self.dataset]

    @property
    def weights_file(self) -> str | None:
        """Path of the file of the weights, of the package or the user; None where they are trained or random."""
        if self.weights == SHIPPED:
            # From the folder of the run: a checkout that has moved asks for no other file.
            return os.path.relpath(presets.shipped(self.preset))
        return None if self.weights in (TRAIN, RANDOM) else self.weights


@dataclass(frozen=True)
class Study:
    """A checked configuration."""

    selection: StudySelection
    models: dict[str, StudyModel]
    datasets: dict[str, DatasetConfig]
    gpus: dict[str, GpuConfig]
    variants: dict[str, VariantConfig]
    solvers: dict[str, SolverConfig]
    train: TrainConfig
    sample: SampleConfig
    bench: BenchConfig
    profile: ProfileConfig
    evaluate: EvaluateConfig
    report: ReportConfig
    archive: ArchiveConfig

    def training_cell(self, model: str) -> dict[str, str]:
        """The wildcards of the job that trains `model`."""
        return {"model": model, "gpu": self.train.gpu or self.selection.gpus[0], "variant": self.train.variant}

    def trained_models(self) -> list[str]:
        """The models of the study whose weights the train stage makes."""
        return [name for name in self.selection.models if self.models[name].trains]

    def dataset_names(self) -> list[str]:
        """The datasets of the study's models, each once."""
        return list(dict.fromkeys(name for model in self.selection.models for name in self.models[model].datasets))

    def dataset_size(self, dataset: str) -> tuple[int, int, int]:
        """(H, W, D) that `dataset` is prepared at: the size of the models that use it."""
        return next(
            self.models[name].config.size for name in self.selection.models if dataset in self.models[name].datasets
        )

    def settings(self, stage: str, **cell: str) -> str:
        """What decides the result of one job of `stage`, with the digest of its code, as one JSON string.

        One string, because Snakemake compares a job's parameters as an unnamed set: two that swap would not be seen.
        """
        values: dict[str, Any] = {"code": provenance.code_digest(f"meddpm.stages.{stage}"), **cell}
        if "model" in cell:
            values["model_config"] = self.models[cell["model"]].config
        for key, table in (("variant", self.variants), ("gpu", self.gpus), ("solver", self.solvers)):
            if key in cell:
                values[f"{key}_config"] = table[cell[key]]
        values |= getattr(self, f"_{stage}_settings")(**cell)
        return json.dumps(values, sort_keys=True, default=to_mapping)

    def _prepare_settings(self, dataset: str) -> dict[str, Any]:
        return {"dataset_config": self.datasets[dataset], "size": self.dataset_size(dataset)}

    def _train_settings(self, **cell: str) -> dict[str, Any]:
        # Where it runs is in the wildcards already.
        return {"train": dataclasses.replace(self.train, gpu=None, variant="")}

    def _sample_settings(self, **cell: str) -> dict[str, Any]:
        return {"sample": self.sample}

    def _bench_settings(self, phase: str, **cell: str) -> dict[str, Any]:
        solvers = {name: self.solvers[name] for name in self.selection.solvers} if phase == "sample" else {}
        return {"bench": self.bench, "baseline_config": self.variants[BASELINE], "solvers": solvers}

    def _profile_settings(self, **cell: str) -> dict[str, Any]:
        return {"profile": self.profile}

    def _evaluate_settings(self, model: str) -> dict[str, Any]:
        every_step = (name for name in self.selection.solvers if self.solvers[name].kind == "ddpm")
        return {
            "evaluate": self.evaluate,
            "baseline": BASELINE,
            "full_solver": next(every_step, None),
            # Pairs, not a mapping: the order matters, and the keys of a mapping are sorted.
            "tissues": tissues(self.datasets[self.models[model].dataset]),
        }

    def _report_settings(self) -> dict[str, Any]:
        return {"report": self.report}

    def _archive_settings(self) -> dict[str, Any]:
        return {"archive": self.archive}


def load(config: dict[str, Any], root: Path | str = ".", source: str = "config.yaml") -> Study:
    """Check a merged configuration and resolve its names. Paths in it are relative to `root`.

    Raises ConfigError, one line a fault, naming the key, the value and what would be right.
    """
    config = validate(config, source)
    try:
        return _resolve(config, Path(root))
    except ConfigError as error:
        raise ConfigError(f"{source}: {error}") from None


def _resolve(config: dict[str, Any], root: Path) -> Study:
    def table(key: str, cls: type) -> dict[str, Any]:
        return {name: from_mapping(cls, row or {}) for name, row in config[key].items()}

    def section(key: str, cls: type) -> Any:
        return from_mapping(cls, config.get(key) or {})

    study = Study(
        selection=section("study", StudySelection),
        models={name: _model(name, row) for name, row in config["models"].items()},
        datasets=table("datasets", DatasetConfig),
        gpus=table("gpus", GpuConfig),
        variants=table("variants", VariantConfig),
        solvers=table("solvers", SolverConfig),
        train=_recipe(config),
        sample=section("sample", SampleConfig),
        bench=section("bench", BenchConfig),
        profile=section("profile", ProfileConfig),
        evaluate=section("evaluate", EvaluateConfig),
        report=section("report", ReportConfig),
        archive=section("archive", ArchiveConfig),
    )
    _check(study, root)
    return study


def _recipe(config: dict[str, Any]) -> TrainConfig:
    """The recipe that `train` names, with the other keys of `train` laid over it."""
    changes, recipes = dict(config.get("train") or {}), config.get("recipes") or {}
    for each, recipe in recipes.items():
        if "variant" in recipe:
            _known(f"recipes.{each}.variant", recipe["variant"], config["variants"])
    name = changes.pop("recipe", None)
    if name is None:
        return from_mapping(TrainConfig, changes)
    _known("train.recipe", name, recipes)
    return from_mapping(TrainConfig, {**recipes[name], **changes})


def _model(name: str, row: dict[str, Any]) -> StudyModel:
    preset = row["preset"]
    if preset not in presets.PRESETS:
        raise ConfigError(f"models.{name}.preset: {preset} is no preset; {closest(preset, list(presets.PRESETS))}")
    changes = {key: tuple(value) if isinstance(value, list) else value for key, value in row.items()}
    changes = {key: value for key, value in changes.items() if key not in NOT_OF_THE_PRESET}
    model = dataclasses.replace(presets.PRESETS[preset], **changes)
    presets.check(model, f"models.{name}")
    training_dataset = row.get("training_dataset") or row["dataset"]
    return StudyModel(model, row["dataset"], row.get("weights", TRAIN), preset, training_dataset)


def _known(where: str, name: str, table: dict[str, Any]) -> None:
    if name not in table:
        raise ConfigError(f"{where}: {name} is not defined; {closest(name, list(table))}")


def _check(study: Study, root: Path) -> None:
    """What the schema cannot say: names must be defined, values must fit each other, files must exist."""
    _check_names(study)
    _check_baseline(study)
    _check_datasets(study)
    for name in study.selection.models:
        _check_model(study, name, root)
    if study.evaluate.ssim_window % 2 == 0:
        raise ConfigError(f"evaluate.ssim_window: {study.evaluate.ssim_window} is even; right would be an odd number")


def _check_names(study: Study) -> None:
    for key in ("models", "gpus", "variants", "solvers"):
        for name in getattr(study.selection, key):
            _known(f"study.{key}", name, getattr(study, key))
    for name, model in study.models.items():
        _known(f"models.{name}.dataset", model.dataset, study.datasets)
        _known(f"models.{name}.training_dataset", model.training_dataset, study.datasets)
    for name, gpu in study.gpus.items():
        try:
            re.compile(gpu.device_name or "")
        except re.error as error:
            raise ConfigError(
                f"gpus.{name}.device_name: {gpu.device_name} is no regular expression ({error}); right would be A100"
            ) from None
    if study.train.gpu:
        _known("train.gpu", study.train.gpu, study.gpus)
    _known("train.variant", study.train.variant, study.variants)


def _check_baseline(study: Study) -> None:
    if BASELINE not in study.selection.variants:
        raise ConfigError(f"study.variants: {BASELINE} is not among them; it is what every variant is compared with")
    if study.variants[BASELINE] != VariantConfig():
        raise ConfigError(f"variants.{BASELINE}: the baseline switches nothing; right would be {BASELINE}: {{}}")


def _check_datasets(study: Study) -> None:
    """A dataset is prepared at one size, that of its models."""
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
        cases = study.datasets[model.dataset].cases
        if study.sample.cases > cases:
            raise ConfigError(
                f"sample.cases: {study.sample.cases} is more than datasets.{model.dataset}.cases, {cases}"
            )


def _check_model(study: Study, name: str, root: Path) -> None:
    model = study.models[name]
    if model.weights_file is not None:
        _check_weights(model, f"models.{name}.weights", root)
    remap = study.datasets[model.dataset].remap
    known = {remap.get(label, label) for label in SOURCES[study.datasets[model.dataset].source]}
    if not known & set(model.config.condition_labels):
        listed = ", ".join(str(label) for label in sorted(known))
        raise ConfigError(
            f"models.{name}.condition_labels: {list(model.config.condition_labels)}, but the labels of {model.dataset} "
            f"are {listed}; right would be one of these, or a remap of the dataset"
        )
    if model.trains and model.config.image_channels != 1:
        raise ConfigError(
            f"models.{name}.weights: train needs {model.config.image_channels} images a case and {model.dataset} has "
            "one; right would be random or a file"
        )
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
    if not file.is_file():
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
