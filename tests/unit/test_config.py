"""config.yaml is checked before anything runs: one line a fault, with the key, the value and what would be right."""

import copy
import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

from meddpm import config as settings
from meddpm import study
from meddpm.config import ConfigError, repository_root
from meddpm.data import preparations
from meddpm.model import build_model, weights
from meddpm.study.loading import NOT_OF_THE_PRESET
from meddpm.validation import validate
from tests.unit.files_fixture import raw_brats, whole_heads

ROOT = repository_root()
CONFIG = yaml.safe_load((ROOT / "config.yaml").read_text(encoding="utf-8"))
SECTIONS = {
    "train": settings.TrainConfig,
    "sample": settings.SampleConfig,
    "bench": settings.BenchConfig,
    "profile": settings.ProfileConfig,
    "evaluate": settings.EvaluateConfig,
    "report": settings.ReportConfig,
    "archive": settings.ArchiveConfig,
}
TABLES = {
    "gpus": settings.GpuConfig,
    "variants": settings.VariantConfig,
    "solvers": settings.SolverConfig,
}


def changed(path: str, value: Any) -> dict[str, Any]:
    """config.yaml with the value at a dotted path replaced."""
    config = copy.deepcopy(CONFIG)
    *parents, last = path.split(".")
    place = config
    for key in parents:
        place = place.setdefault(key, {})
    place[last] = value
    return config


@pytest.mark.parametrize("file", ["config.yaml", "study.yaml"])
def test_the_shipped_configurations_are_right(file: str) -> None:
    config = copy.deepcopy(CONFIG)
    for key, value in yaml.safe_load((ROOT / file).read_text(encoding="utf-8")).items():
        config[key] = {**config.get(key, {}), **value}
    loaded = study.load(config, ROOT)
    assert study.BASELINE in loaded.selection.variants


FAULTS = [
    ("study.modles", ["demo"], ["study.modles: unknown key", "did you mean models?"]),
    ("smaple", {}, ["smaple: unknown key", "did you mean sample?"]),
    ("study.variants", ["fp32", "bf61"], ["study.variants: bf61", "did you mean bf16?"]),
    ("study.variants", ["bf16"], ["study.variants", "fp32"]),
    ("study.variants", ["fp32", "fp32"], ["study.variants", "twice"]),
    ("study.name", "a/b", ["study.name", '"a/b"', "letters, digits"]),
    ("study.phases", ["samples"], ["study.phases.0", '"samples"', "did you mean sample?"]),
    ("variants.mine", {"autocast": "bf61"}, ["variants.mine.autocast", '"bf61"', "did you mean bf16?"]),
    ("variants.mine", {"autocsat": "bf16"}, ["variants.mine.autocsat", "unknown key", "did you mean autocast?"]),
    ("variants.fp32", {"autocast": "bf16"}, ["variants.fp32", "baseline"]),
    ("solvers.dpmpp_2m_sde_10", {"kind": "dpmpp_2m_sde", "evaluations": -3}, ["evaluations", "-3", "1 or more"]),
    ("solvers.dpmpp_2m_sde_10", {"kind": "ddim", "evaluations": 7}, ["solvers.dpmpp_2m_sde_10", "7"]),
    ("gpus.a", {"partition": "a b"}, ["gpus.a.partition", '"a b"', "as sinfo lists it"]),
    ("gpus.a", {"mem": "64X"}, ["gpus.a.mem", '"64X"', "64G"]),
    ("gpus.a", {"runtime": "12:00:00"}, ["gpus.a.runtime", '"12:00:00"', "12h"]),
    ("gpus.a", {"cpus": 0}, ["gpus.a.cpus", "0", "1 or more"]),
    ("gpus.a", {"gres": "gpu:a100:2"}, ["gpus.a.gres", '"gpu:a100:2"', "one GPU"]),
    ("gpus.a", {"slurm_extra": "--x; rm -r y"}, ["gpus.a.slurm_extra", "a shell obeys"]),
    ("gpus.a", {"slurm_extra": "--partition=b"}, ["gpus.a.slurm_extra", "--partition", "the key partition"]),
    ("cluster.stages", {"gpu_model": "a100"}, ["cluster.stages.gpu_model", "unknown key"]),
    ("cluster.exclusive", ["evaluate"], ["cluster.exclusive.0", '"evaluate"', "bench"]),
    ("train.steps", -5, ["train.steps", "-5", "1 or more"]),
    ("train.steps", "many", ["train.steps", '"many"', "a whole number"]),
    ("train.learning_rate", 0, ["train.learning_rate", "0", "more than 0"]),
    ("train.variant", "bf61", ["train.variant", "bf61", "did you mean bf16?"]),
    ("train.gpu", "h1000", ["train.gpu", "h1000", "local"]),
    ("train.gradient_clip", 0, ["train.gradient_clip", "0", "more than 0"]),
    ("train.recipe", "fats", ["train.recipe", "fats", "did you mean fast?"]),
    ("recipes.mine", {"lerning_rate": 1.0e-4}, ["recipes.mine.lerning_rate", "unknown key", "learning_rate?"]),
    ("recipes.mine", {"loss": "l3"}, ["recipes.mine.loss", '"l3"', "l1, l2"]),
    ("recipes.mine", {"seed": 1}, ["recipes.mine.seed", "unknown key"]),
    ("recipes.mine", {"variant": "bf61"}, ["recipes.mine.variant", "bf61", "did you mean bf16?"]),
    ("recipes.mine", None, ["recipes.mine", "null", "a mapping"]),
    ("recipes", {}, ["recipes", "empty"]),
    ("models.demo.preset", "demos", ["models.demo.preset", "demos", "did you mean demo?"]),
    ("models.demo.dataset", "icbm", ["models.demo.dataset", "icbm", "icbm152"]),
    ("models.demo.steps", 0, ["models.demo.steps", "0", "1 or more"]),
    ("models.demo.size", [50, 48, 48], ["models.demo.size", "50", "48"]),
    ("models.demo.size", [48, 48], ["models.demo.size", "2 entries", "3"]),
    ("models.demo.base_channels", 40, ["models.demo.base_channels", "40", "32"]),
    ("models.demo.weights", "nowhere.safetensors", ["models.demo.weights", "nowhere.safetensors", "not there"]),
    ("datasets.icbm152.remap", {"1": 300}, ["datasets.icbm152.remap.1", "300", "255 or less"]),
    ("sample.cases", 9, ["sample.cases", "9", "icbm152"]),
    ("sample.seeds", [], ["sample.seeds", "0 entries", "at least 1"]),
    ("evaluate.ssim_window", 8, ["evaluate.ssim_window", "8", "odd"]),
    ("train.learning_rate", "1e-4", ["train.learning_rate", "1e-4", "1.0e-04 with a point"]),
    ("train.learning_rate", float("nan"), ["train.learning_rate", "NaN", "a number"]),
    ("train.steps", 3.0, ["train.steps", "3.0", "a whole number"]),
    ("train.seed", 10**30, ["train.seed", "or less"]),
    ("models.demo.condition_labels", [9], ["models.demo.condition_labels", "[9]", "icbm152", "1, 2, 3"]),
    (
        "models.demo",
        {"preset": "demo", "dataset": "icbm152", "training_dataset": "icbm152_head", "weights": "train"},
        ["models.demo.training_dataset", "icbm152_head never shows the label 2"],
    ),
    ("models.demo.weights", "results/train/demo/local/fp32/config.yaml", ["models.demo.weights", "not there"]),
    ("gpus.local", {"device_name": "A100("}, ["gpus.local.device_name", "A100(", "regular expression"]),
    ("datasets.icbm152.remap", {-1: 2}, ["datasets.icbm152.remap", "-1", "a whole number from 0"]),
    ("datasets.icbm152.rotation_degrees", 60, ["datasets.icbm152.rotation_degrees", "60", "45 or less"]),
    ("models.demo.size", [4, 48, 48], ["models.demo.size.0", "4", "8 or more"]),
    ("study.name", "a\n", ["study.name", "letters, digits"]),
    ("gpus", {}, ["gpus", "empty"]),
    ("gpus", None, ["gpus", "null", "a mapping"]),
    ("variants.mine", None, ["variants.mine", "null", "a mapping"]),
]


@pytest.mark.parametrize(("path", "value", "words"), FAULTS, ids=[f"{path}={value}" for path, value, _ in FAULTS])
def test_a_fault_is_one_line_with_key_value_and_mend(path: str, value: Any, words: list[str]) -> None:
    with pytest.raises(ConfigError) as caught:
        study.load(changed(path, value), ROOT, "config.yaml")
    lines = str(caught.value).splitlines()
    hits = [line for line in lines if all(word in line for word in words)]
    assert hits, f"no line has {words}: {lines}"
    assert all(line.startswith("config.yaml: ") and len(line) < 300 for line in lines)


def test_several_faults_are_a_line_each_and_not_endless() -> None:
    config = changed("train", {f"key{number}": 1 for number in range(30)})
    with pytest.raises(ConfigError) as caught:
        validate(config)
    lines = str(caught.value).splitlines()
    assert len(lines) == 11
    assert lines[-1] == "config.yaml: ... and 20 more"


def test_numbers_as_names_are_texts() -> None:
    config = changed("solvers.1", {"kind": "ddpm"})
    config["solvers"][1] = config["solvers"].pop("1")
    config["study"]["solvers"] = ["1"]
    config["datasets"]["icbm152"]["remap"] = {1: 1, "2": 2}
    loaded = study.load(config, ROOT)
    assert loaded.solvers["1"] == settings.SolverConfig()
    assert loaded.datasets["icbm152"].remap == {1: 1, 2: 2}


def test_weights_that_the_train_stage_writes_are_no_weights_from_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    folder = Path("results/train/demo/local/fp32")
    for path in (folder / "weights.safetensors", folder / "kept/abc/weights.safetensors"):
        weights.save(path, build_model("demo"), {}, torch.float16)
    study.load(changed("models.demo.weights", str(folder / "kept/abc/weights.safetensors")))
    for name in (folder / "weights.safetensors", tmp_path / folder / "weights.safetensors"):
        with pytest.raises(ConfigError, match=r"models\.demo\.weights: .* the train stage writes"):
            study.load(changed("models.demo.weights", str(name)))


def test_two_models_of_different_size_cannot_share_a_dataset() -> None:
    config = changed("models.small", {"preset": "demo", "dataset": "icbm152", "size": [16, 16, 16]})
    config["study"]["models"] = ["demo", "small"]
    with pytest.raises(ConfigError, match=r"models\.small\.dataset: icbm152 is prepared at 56x64x56 for demo"):
        study.load(config, ROOT)


def test_a_model_of_four_images_cannot_be_trained_on_one() -> None:
    config = changed("models.brats_192", {"preset": "brats_192", "dataset": "icbm152_brats", "weights": "train"})
    config["study"]["models"] = ["brats_192"]
    config["sample"]["cases"] = 1
    with pytest.raises(ConfigError, match=r"models\.brats_192\.weights: train needs 4 images"):
        study.load(config, ROOT)


@pytest.mark.parametrize("name", SECTIONS)
def test_the_schema_states_the_defaults_that_the_code_has(name: str) -> None:
    schema = yaml.safe_load((ROOT / "schemas/config.schema.yaml").read_text(encoding="utf-8"))["properties"][name]
    # The name of a recipe stands for the keys of that recipe.
    assert_defaults(SECTIONS[name], {key: row for key, row in schema["properties"].items() if key != "recipe"})


@pytest.mark.parametrize("name", TABLES)
def test_the_schema_states_the_defaults_of_a_row(name: str) -> None:
    schema = yaml.safe_load((ROOT / "schemas/config.schema.yaml").read_text(encoding="utf-8"))["properties"][name]
    keys = schema["additionalProperties"]["properties"]
    own = {key: row for key, row in keys.items() if "$ref" not in row}
    assert_defaults(TABLES[name], own)
    requested = {field.name for field in dataclasses.fields(settings.RequestConfig)} if name == "gpus" else set()
    assert keys.keys() - own.keys() == requested


def test_the_schema_states_the_defaults_of_what_a_cluster_is_asked_for() -> None:
    schema = yaml.safe_load((ROOT / "schemas/config.schema.yaml").read_text(encoding="utf-8"))
    definitions, cluster = schema["$defs"], schema["properties"]["cluster"]["properties"]
    request = {field.name for field in dataclasses.fields(settings.RequestConfig)}
    assert_defaults(settings.RequestConfig, {name: definitions[name] for name in request})
    assert set(cluster["stages"]["properties"]) == request - {"gpu_model", "gres"}
    defaults = settings.to_mapping(settings.ClusterConfig())
    assert {name: cluster[name]["default"] for name in ("exclusive", "warning_s")} == {
        name: defaults[name] for name in ("exclusive", "warning_s")
    }


def test_the_schema_states_the_defaults_of_both_kinds_of_dataset() -> None:
    schema = yaml.safe_load((ROOT / "schemas/config.schema.yaml").read_text(encoding="utf-8"))["$defs"]
    assert_defaults(settings.Icbm152Config, schema["icbm152"]["properties"])
    keys = schema["files"]["properties"]
    own = {field.name: field.default for field in dataclasses.fields(settings.FilesConfig)}
    of_preparation = {field.name for field in dataclasses.fields(settings.PreparationConfig)}
    assert set(keys) == own.keys() - {"changes"} | of_preparation
    for name in own.keys() - {"path", "source", "changes"}:
        assert keys[name]["default"] == own[name]
    assert all(row.get("description") for row in keys.values())
    assert keys["preparation"]["enum"] == [*preparations.PREPARATIONS, None]
    assert keys["layout"]["enum"] == ["auto", *preparations.OF_LAYOUT]


def of_files(**keys: Any) -> dict[str, Any]:
    """config.yaml with the demo drawing from a dataset of files; this folder stands in for it."""
    return changed("datasets.icbm152", {"source": "files", "path": str(Path(__file__).parent), **keys})


def test_a_dataset_of_files_keeps_the_keys_of_its_preparation_apart() -> None:
    loaded = study.load(of_files(preparation="brats2021", remap={4: 3, 3: 1}, fit="contain"), ROOT)
    dataset = loaded.datasets["icbm152"]
    assert dataset.changes == {"remap": {"4": 3, "3": 1}, "fit": "contain"}
    how = preparations.preparation(dataset, "brats2021")
    assert (how.remap, how.fit, how.floor, how.derived_label) == ({4: 3, 3: 1}, "contain", 0.0, 4)
    values = json.loads(loaded.settings("prepare", dataset="icbm152"))
    assert settings.dataset_from_mapping(values["dataset_config"]) == dataset
    assert values["goal"] == {
        "size": [56, 64, 56],
        "labels": [1, 2, 3, 4],
        "images": 1,
        "partly": [],
        "whole_head": False,
    }


FILES_FAULTS = [
    ({"path": "no/such/folder"}, "datasets.icbm152.path: no/such/folder is not there"),
    ({"path": str(ROOT / "README.md")}, "README.md is a file"),
    ({"path": "~nobody-of-this-name/x"}, "datasets.icbm152.path: ~nobody-of-this-name/x: there is no such user"),
    ({"lesion_every": 2}, "datasets.icbm152.lesion_every: unknown key"),
    ({"layout": "brats2020"}, "datasets.icbm152.layout: .* did you mean brats2021 or brats2023"),
    ({"orientation": "RAR"}, "datasets.icbm152.orientation: RAR does not name three directions"),
    ({"orientation": "ras"}, "datasets.icbm152.orientation: .ras. is not allowed; right would be three of"),
    ({"percentiles": [99, 1]}, r"datasets.icbm152.percentiles: \[99, 1\] do not rise"),
    ({"spacing_mm": [1, 1, 1], "fit": "contain"}, "datasets.icbm152.spacing_mm: has no use with fit: contain"),
    ({"spacing_mm": [1, 1, 1], "layout": "bids"}, "datasets.icbm152.spacing_mm: has no use with fit: contain"),
    ({"cases": 1}, "sample.cases: 2 is more than datasets.icbm152.cases, 1"),
]


@pytest.mark.parametrize(("keys", "message"), FILES_FAULTS)
def test_a_fault_in_a_dataset_of_files_is_one_line(keys: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        study.load(of_files(**keys), ROOT)
    assert "\n" not in str(caught.value)


def test_models_that_share_a_dataset_ask_of_it_together() -> None:
    config = of_files()
    config["models"]["part"] = {**config["models"]["demo"], "weights": "random", "condition_labels": [1, 9]}
    config["study"]["models"] = ["demo", "part"]
    goal = study.load(config, ROOT).dataset_goal("icbm152")
    assert (goal.labels, goal.partly) == ((1, 2, 3, 4, 9), (2, 3, 4, 9))
    config["models"]["head"] = {"preset": "whole_head_128", "dataset": "icbm152", "weights": "random"}
    config["study"]["models"] = ["head"]
    assert study.load(config, ROOT).dataset_goal("icbm152").whole_head
    config["models"]["head"]["weights"] = "train"
    assert not study.load(config, ROOT).dataset_goal("icbm152").whole_head
    config["models"]["head"] |= {"weights": "random", "condition_labels": [1, 2, 3]}
    assert not study.load(config, ROOT).dataset_goal("icbm152").whole_head


def test_models_that_draw_other_numbers_of_images_do_not_share_files() -> None:
    config = of_files()
    config["models"]["four"] = {**config["models"]["demo"], "weights": "random", "image_channels": 4}
    config["study"]["models"] = ["demo", "four"]
    with pytest.raises(
        ConfigError, match=r"models\.four: draws 4 images from icbm152, and demo draws 1; right would be"
    ):
        study.load(config, ROOT)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda data: None, r"datasets\.icbm152: .*has no case"),
        (lambda data: whole_heads(data, 1), r"sample\.cases: 2 is more than the cases of datasets\.icbm152, 1"),
        (lambda data: raw_brats(data, FOUR, ["A", "B"], 4), r"datasets\.icbm152: .*have 4 images .* the model draws 1"),
    ],
)
def test_what_lies_in_a_dataset_of_files_is_looked_at_before_anything_runs(
    tmp_path: Path, make: Callable[[Path], Any], message: str
) -> None:
    make(tmp_path)
    loaded = study.load(of_files(path=str(tmp_path)), ROOT)
    with pytest.raises(ConfigError, match=message) as caught:
        study.check_sources(loaded)
    assert "\n" not in str(caught.value)


FOUR = {name: name for name in ("t1", "t1ce", "t2", "flair", "seg")}


def test_a_dataset_of_files_with_enough_cases_passes(tmp_path: Path) -> None:
    study.check_sources(study.load(of_files(path=str(whole_heads(tmp_path, 2))), ROOT))


def test_a_dataset_of_files_needs_a_path() -> None:
    with pytest.raises(ConfigError, match=r"datasets\.icbm152: the key path is missing"):
        study.load(changed("datasets.icbm152", {"source": "files"}), ROOT)


def test_a_model_of_four_images_may_be_trained_on_files() -> None:
    config = of_files()
    config["models"]["brats_192"] = {"preset": "brats_192", "dataset": "icbm152", "weights": "train"}
    config["study"]["models"] = ["brats_192"]
    assert study.load(config, ROOT).models["brats_192"].trains


def assert_defaults(cls: type, properties: dict[str, Any]) -> None:
    assert {field.name for field in dataclasses.fields(cls)} == set(properties)
    assert settings.to_mapping(cls()) == {name: row["default"] for name, row in properties.items()}
    assert all(row.get("description") for row in properties.values())


def test_a_recipe_has_every_key_of_train_that_says_how_and_none_that_says_where_and_how_long() -> None:
    schema = yaml.safe_load((ROOT / "schemas/config.schema.yaml").read_text(encoding="utf-8"))["properties"]
    of_the_run = {"recipe", "gpu", "seed", "max_seconds", "checkpoint_every", "keep_checkpoints"}
    train, recipe = schema["train"]["properties"], schema["recipes"]["additionalProperties"]["properties"]
    assert recipe == {key: row for key, row in train.items() if key not in of_the_run}


def test_the_recipe_of_config_yaml_is_that_of_the_original() -> None:
    assert study.load(CONFIG, ROOT).train == settings.TrainConfig()


FAST = {
    "variant": "bf16", "steps": 50, "batch": 4, "loss": "l2", "optimizer": "adamw", "learning_rate": 1.0e-3,
    "warmup_steps": 5, "decay": "cosine", "gradient_clip": 1.0, "ema_warmup": True,
}  # fmt: skip


@pytest.mark.parametrize(
    ("train", "expected"),
    [
        ({"recipe": "mine"}, FAST),
        ({"recipe": "mine", "steps": 7, "loss": "l1", "gradient_clip": None, "seed": 3},
         {**FAST, "steps": 7, "loss": "l1", "gradient_clip": None, "seed": 3}),
        ({"recipe": None, "steps": 7}, {"steps": 7}),
        ({"steps": 7}, {"steps": 7}),
        ({}, {}),
    ],
)  # fmt: skip
def test_the_keys_of_train_are_laid_over_the_recipe_that_it_names(
    train: dict[str, Any], expected: dict[str, Any]
) -> None:
    config = {**changed("recipes.mine", FAST), "train": train}
    loaded = study.load(config, ROOT)
    assert loaded.train == settings.TrainConfig(**expected)
    assert loaded.training_cell("demo")["variant"] == expected.get("variant", "fp32")


def test_recipes_may_be_left_out_but_then_none_can_be_named() -> None:
    config = {key: value for key, value in CONFIG.items() if key not in ("recipes", "train")}
    assert study.load(config, ROOT).train == settings.TrainConfig()
    with pytest.raises(ConfigError, match=r"train\.recipe: med_ddpm is not defined") as caught:
        study.load({**config, "train": {"recipe": "med_ddpm"}}, ROOT)
    assert "\n" not in str(caught.value)


def test_a_recipe_that_is_not_named_trains_nothing_anew() -> None:
    cell = {"model": "demo", "gpu": "local", "variant": "fp32"}
    before = cell_settings(CONFIG, "train", **cell)
    assert cell_settings(changed("recipes.fast.learning_rate", 1.0e-4), "train", **cell) == before
    assert cell_settings(changed("recipes.med_ddpm", {"learning_rate": 1.0e-4}), "train", **cell) != before


def test_the_demo_predicts_v_for_four_labels() -> None:
    demo = study.load(CONFIG, ROOT).models["demo"].config
    assert (demo.size, demo.condition_labels, demo.prediction) == ((56, 64, 56), (1, 2, 3, 4), "v")


def test_a_path_that_no_system_takes_is_not_there() -> None:
    with pytest.raises(ConfigError, match=r"models\.demo\.weights: a+ is not there"):
        study.load(changed("models.demo.weights", "a" * 300), ROOT)


def test_models_can_change_every_value_of_a_preset() -> None:
    schema = yaml.safe_load((ROOT / "schemas/config.schema.yaml").read_text(encoding="utf-8"))
    allowed = set(schema["properties"]["models"]["additionalProperties"]["properties"])
    assert allowed == {field.name for field in dataclasses.fields(settings.ModelConfig)} | NOT_OF_THE_PRESET


def cell_settings(config: dict[str, Any], stage: str, **cell: str) -> dict[str, Any]:
    return json.loads(study.load(config, ROOT).settings(stage, **cell))


SAMPLE = {"model": "demo", "gpu": "local", "variant": "bf16", "solver": "dpmpp_2m_sde_10"}


@pytest.mark.parametrize(
    ("path", "value", "reruns"),
    [
        ("report.title", "Another", False),
        ("train.steps", 77, False),
        ("bench.repeats", 77, False),
        ("variants.fp16", {"autocast": "fp16", "cudnn_benchmark": True}, False),
        ("variants.bf16", {"autocast": "bf16", "cudnn_benchmark": True}, True),
        ("sample.seeds", [0, 1], True),
        ("models.demo.size", [48, 56, 48], True),
        ("solvers.dpmpp_2m_sde_10", {"kind": "dpmpp_2m", "evaluations": 10}, True),
    ],
)
def test_a_key_of_one_stage_is_no_setting_of_another(path: str, value: Any, reruns: bool) -> None:
    before, after = cell_settings(CONFIG, "sample", **SAMPLE), cell_settings(changed(path, value), "sample", **SAMPLE)
    assert (before != after) is reruns


def test_settings_come_back_as_the_dataclasses_they_were() -> None:
    loaded = study.load(CONFIG, ROOT)
    values = json.loads(loaded.settings("prepare", dataset="icbm152"))
    assert settings.from_mapping(settings.Icbm152Config, values["dataset_config"]) == loaded.datasets["icbm152"]
    values = json.loads(loaded.settings("sample", **SAMPLE))
    assert settings.from_mapping(settings.ModelConfig, values["model_config"]) == loaded.models["demo"].config
    remap = settings.Icbm152Config(remap={1: 4, 2: 4})
    assert settings.from_mapping(settings.Icbm152Config, settings.to_mapping(remap)) == remap
