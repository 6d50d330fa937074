"""From the merged configuration to a study: rows become dataclasses, recipes and presets get their changes."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from meddpm.config import (
    ArchiveConfig,
    BenchConfig,
    ClusterConfig,
    ConfigError,
    EvaluateConfig,
    GpuConfig,
    ProfileConfig,
    ReportConfig,
    RequestConfig,
    SampleConfig,
    SlowProfileConfig,
    SolverConfig,
    StudySelection,
    TrainConfig,
    VariantConfig,
    dataset_from_mapping,
    from_mapping,
)
from meddpm.model import presets
from meddpm.slurm import request
from meddpm.study import checks
from meddpm.study.matrix import TRAIN, Study, StudyModel
from meddpm.validation import closest, validate

MB = {"M": 1, "G": 1024, "T": 1024 * 1024}
MINUTES = {"m": 1, "h": 60, "d": 24 * 60}
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

    cluster = config.get("cluster")
    study = Study(
        selection=section("study", StudySelection),
        models={name: _model(name, row) for name, row in config["models"].items()},
        datasets={name: dataset_from_mapping(row or {}) for name, row in config["datasets"].items()},
        gpus={name: from_mapping(GpuConfig, _of(GpuConfig, row or {})) for name, row in config["gpus"].items()},
        requests={name: _request(row or {}, cluster) for name, row in config["gpus"].items()},
        cluster=_cluster(cluster),
        variants=table("variants", VariantConfig),
        solvers=table("solvers", SolverConfig),
        train=_recipe(config),
        sample=section("sample", SampleConfig),
        bench=section("bench", BenchConfig),
        profile=section("profile", ProfileConfig),
        counters=section("counters", SlowProfileConfig),
        timeline=section("timeline", SlowProfileConfig),
        evaluate=section("evaluate", EvaluateConfig),
        report=section("report", ReportConfig),
        archive=section("archive", ArchiveConfig),
    )
    study = _on_the_cluster(study)
    checks.check(study, root)
    return study


def _on_the_cluster(study: Study) -> Study:
    """The study on all GPUs that have a partition, where `study.gpus` is the row of one machine, as in config.yaml.

    So the file of a site need not pick rows, which would take the place of those that a study of one's own picks.
    """
    picked = study.selection.gpus
    if study.cluster is None or not all(name in study.gpus and _whatever_is_there(study, name) for name in picked):
        return study
    rows = [name for name, asked in study.requests.items() if asked.partition]
    gpus = [name for name in rows if study.asks_for_gpu(name)]
    selection = dataclasses.replace(study.selection, gpus=tuple(gpus or rows or picked))
    return dataclasses.replace(study, selection=selection)


def _whatever_is_there(study: Study, gpu: str) -> bool:
    """Whether a row says neither what device it is nor how a cluster is asked for it."""
    asked = study.requests[gpu]
    return study.gpus[gpu].device == "auto" and not asked.partition and not request.names_gpu(asked)


def _of(cls: type, row: dict[str, Any]) -> dict[str, Any]:
    """The keys of `row` that are of `cls`: a row of the matrix says what a device is and how it is asked for."""
    names = {each.name for each in dataclasses.fields(cls)}
    return {name: value for name, value in row.items() if name in names}


def _cluster(section: dict[str, Any] | None) -> ClusterConfig | None:
    if section is None:
        return None
    stages = _request(section.get("stages") or {}, section)
    return from_mapping(ClusterConfig, {**_of(ClusterConfig, section), "stages": stages})


def _request(row: dict[str, Any], cluster: dict[str, Any] | None) -> RequestConfig:
    """What is asked for a row; `cluster.account` is that of every row without one."""
    asked = {name: value for name, value in _of(RequestConfig, row).items() if value is not None}
    for name, units in (("mem", MB), ("runtime", MINUTES)):
        if isinstance(asked.get(name), str):
            asked[name] = int(asked[name][:-1]) * units[asked[name][-1]]
    account = (cluster or {}).get("account")
    return RequestConfig(**({"account": account} | asked))


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
