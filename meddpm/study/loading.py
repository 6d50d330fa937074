"""From the merged configuration to a study: rows become dataclasses, recipes and presets get their changes."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from meddpm.config import (
    ArchiveConfig,
    BenchConfig,
    ConfigError,
    EvaluateConfig,
    GpuConfig,
    ProfileConfig,
    ReportConfig,
    SampleConfig,
    SolverConfig,
    StudySelection,
    TrainConfig,
    VariantConfig,
    dataset_from_mapping,
    from_mapping,
)
from meddpm.model import presets
from meddpm.study import checks
from meddpm.study.matrix import TRAIN, Study, StudyModel
from meddpm.validation import closest, validate

NOT_OF_THE_PRESET = {"preset", "dataset", "training_dataset", "weights"}


def read(files: Sequence[Path | str]) -> dict[str, Any]:
    """The configuration of several files, each laid over those before it, as Snakemake does.

    Raises ConfigError where a file is not there or is no YAML.
    """
    config: dict[str, Any] = {}
    for file in files:
        try:
            laid = yaml.safe_load(Path(file).read_text(encoding="utf-8")) or {}
        except OSError as error:
            raise ConfigError(
                f"{file}: cannot be read ({error.strerror}); right would be a file like config.yaml"
            ) from None
        except (UnicodeDecodeError, yaml.YAMLError) as error:
            raise ConfigError(f"{file}: is no YAML ({' '.join(str(error).split())})") from None
        if not isinstance(laid, dict):
            raise ConfigError(f"{file}: is no mapping of keys; right would be a file like config.yaml")
        _lay_over(config, laid)
    return config


def _lay_over(config: dict[str, Any], changes: dict[str, Any]) -> None:
    for key, value in changes.items():
        if isinstance(value, dict) and isinstance(config.get(key), dict):
            _lay_over(config[key], value)
        else:
            config[key] = value


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
        datasets={name: dataset_from_mapping(row or {}) for name, row in config["datasets"].items()},
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
    checks.check(study, root)
    return study


def _recipe(config: dict[str, Any]) -> TrainConfig:
    """The recipe that `train` names, with the other keys of `train` laid over it."""
    changes, recipes = dict(config.get("train") or {}), config.get("recipes") or {}
    for each, recipe in recipes.items():
        if "variant" in recipe:
            checks.known(f"recipes.{each}.variant", recipe["variant"], config["variants"])
    name = changes.pop("recipe", None)
    if name is None:
        return from_mapping(TrainConfig, changes)
    checks.known("train.recipe", name, recipes)
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
