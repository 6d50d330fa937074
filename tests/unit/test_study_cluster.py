"""What a study asks a cluster for, and the cells that do not run there."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from meddpm import study, tables
from meddpm.config import ConfigError, RequestConfig, repository_root
from meddpm.slurm.site import Partition
from meddpm.stages import drawn
from meddpm.stages import not_run as stage
from meddpm.study import not_run
from meddpm.study.matrix import Study

ROOT = repository_root()
PATTERNS = {
    "train": ["train/{model}/{gpu}/{variant}/weights.safetensors"],
    "sample": [
        "samples/{model}/{gpu}/{variant}/{solver}/samples.csv",
        "samples/{model}/{gpu}/{variant}/{solver}/environment.csv",
    ],
    "bench": ["bench/{model}/{gpu}/{variant}/{phase}/timing.csv"],
    "profile": ["profiles/{model}/{gpu}/{variant}/{phase}/kernels.csv"],
    "evaluate": ["quality/{model}/quality.csv"],
}


def cluster_study(**changes: dict[str, Any]) -> Study:
    """The demo on two GPUs and a CPU of a cluster."""
    config = study.read([ROOT / "config.yaml"])
    config["study"] |= {"gpus": ["a100", "h100", "cpu"], "variants": ["fp32", "tf32"]}
    config["gpus"] = {
        "a100": {"device": "cuda", "partition": "gpu-a100", "gpu_model": "a100", "mem": "2G", "runtime": "3h"},
        "h100": {"device": "cuda", "partition": "gpu-h100,gpu-all", "gres": "gpu:h100:1", "account": "other"},
        "cpu": {"device": "cpu", "partition": "cpu"},
    }
    config["cluster"] = {"account": "mine", "stages": {"partition": "cpu", "mem": 500}}
    for key, value in changes.items():
        config[key] = config[key] | value
    return study.load(config, ROOT)


def room(name: str, *types: str) -> Partition:
    """A partition with these types of GPU; "": without a type."""
    return Partition(name, False, True, dict.fromkeys(types, 2), frozenset(), 64, 256000, None)


def rooms(**types: tuple[str, ...]) -> dict[str, Partition]:
    """The partitions of `cluster_study`, their types of GPU changed."""
    usual = {"cpu": (), "gpu_a100": ("a100",), "gpu_h100": ("h100",), "gpu_all": ()}
    return {name.replace("_", "-"): room(name.replace("_", "-"), *each) for name, each in (usual | types).items()}


def files(stage_name: str, wildcards: dict[str, str]) -> list[str]:
    return [pattern.format(**wildcards) for pattern in PATTERNS[stage_name]]


def test_units_and_the_account_of_the_cluster() -> None:
    loaded = cluster_study()
    assert loaded.requests["a100"] == RequestConfig(
        partition="gpu-a100", gpu_model="a100", account="mine", mem=2048, runtime=180
    )
    assert loaded.requests["h100"].account == "other"
    assert loaded.cluster.stages == RequestConfig(partition="cpu", account="mine", mem=500)
    assert [loaded.asks_for_gpu(name) for name in ("a100", "h100", "cpu")] == [True, True, False]
    assert study.load(study.read([ROOT / "config.yaml"]), ROOT).cluster is None


def test_what_a_cluster_is_asked_for_is_in_no_setting() -> None:
    """Else an edit of a time limit would rerun what took hours."""
    a, b = cluster_study(), cluster_study(gpus={"a100": {"device": "cuda", "partition": "x", "runtime": 7, "cpus": 3}})
    for name in ("sample", "bench", "profile"):
        for cell in a.cells(name):
            assert a.settings(name, **cell) == b.settings(name, **cell)


def test_the_cells_of_each_stage() -> None:
    loaded = cluster_study(study={"phases": ["sample", "train"]})
    assert len(loaded.cells("sample")) == 3 * 2
    assert len(loaded.cells("bench")) == 3 * 2 * 2
    assert len(loaded.cells("profile")) == 3 * 2, "profile.phases has one"
    assert loaded.cells("evaluate") == [{"model": "demo"}]
    assert loaded.cells("sample")[0] == {"model": "demo", "gpu": "a100", "variant": "fp32", "solver": "dpmpp_2m_sde_10"}


def test_rows_whose_partition_is_not_there() -> None:
    loaded = cluster_study()
    every = rooms()
    assert not_run.unavailable(loaded, every) == {}

    def without(name: str) -> dict[str, str]:
        return not_run.unavailable(loaded, {each: every[each] for each in every if each != name})

    assert without("gpu-a100") == {"a100": "this cluster has no partition gpu-a100"}
    assert without("gpu-h100") == {"h100": "this cluster has no partition gpu-h100"}, (
        "sbatch refuses a list of which one is not known"
    )
    assert not_run.unavailable(loaded, None) == {}, "not known: sinfo did not answer"
    with pytest.raises(ConfigError, match=r"cluster\.stages\.partition: this cluster has no partition cpu; .*cpus"):
        not_run.unavailable(loaded, {"cpus": room("cpus")} | {name: every[name] for name in every if name != "cpu"})


@pytest.mark.parametrize(
    ("row", "types", "reason"),
    [
        ({"gpu_model": "a10"}, {}, "gpus.a100.gpu_model: gpu-a100 has no GPU a10, only a100"),
        ({"gres": "gpu:a10:1"}, {}, "gpus.a100.gres: gpu-a100 has no GPU a10, only a100"),
        ({"gres": "gpu:a10"}, {"gpu_a100": ("b", "c")}, "gpus.a100.gres: gpu-a100 has no GPU a10, only b, c"),
        ({"slurm_extra": "--gpus-per-node=a10:1"}, {}, "gpus.a100.slurm_extra: gpu-a100 has no GPU a10, only a100"),
        (
            {"partition": "gpu-a100,gpu-h100", "gpu_model": "a10"},
            {},
            "gpu-a100,gpu-h100 has no GPU a10, only a100, h100",
        ),
        # The site chooses the partition.
        (
            {"partition": None, "gpu_model": "a10"},
            {},
            "gpus.a100.gpu_model: this cluster has no GPU a10, only a100, h100",
        ),
        ({"device": "cpu", "gpu_model": "a10"}, {}, "gpus.a100.gpu_model: gpu-a100 has no GPU a10, only a100"),
        ({"gpu_model": "a10"}, {"gpu_a100": tuple("abcdefghijkl")}, "only a, b, c, d, e, f, g, h, i, j, ...;"),
        ({"gpu_model": "a100"}, {}, None),
        ({"gres": "gpu:1"}, {}, None),
        ({}, {}, None),
        ({"partition": None, "gpu_model": "h100"}, {}, None),
        ({"partition": "gpu-h100,gpu-a100", "gpu_model": "a100"}, {}, None),
        # sinfo does not say which they are.
        ({"gpu_model": "a10"}, {"gpu_a100": ("",)}, None),
        ({"gpu_model": "a10"}, {"gpu_a100": ("a100", "")}, None),
        ({"gpu_model": "a10"}, {"gpu_a100": ()}, None),
    ],
)
def test_rows_whose_type_of_gpu_is_not_there(
    row: dict[str, Any], types: dict[str, tuple[str, ...]], reason: str | None
) -> None:
    loaded = cluster_study(gpus={"a100": {"device": "cuda", "partition": "gpu-a100"} | row})
    found = not_run.unavailable(loaded, rooms(**types))
    if reason is None:
        assert found == {}
        return
    assert list(found) == ["a100"]
    assert reason in found["a100"]
    assert found["a100"].endswith("; see python -m meddpm slurm check")
    assert not_run.unavailable(loaded, None) == {}


def test_a_study_that_picks_no_row_of_the_cluster_gets_its_gpus() -> None:
    """Then the site's file, which is laid over the study's own, need not pick rows."""
    base = ["config.yaml", "study.yaml", "slurm/site.yaml"]
    every = ("V100", "A100", "H100", "H200")

    def gpus(**changes: Any) -> tuple[str, ...]:
        config = study.read([ROOT / name for name in base])
        config["study"] |= changes.pop("study", {})
        config["gpus"] |= changes.pop("gpus", {})
        return study.load(config | changes, ROOT).selection.gpus

    assert gpus() == every
    for picked in (["A100"], ["CPU"], ["H100", "CPU"], ["local", "A100"]):
        assert gpus(study={"gpus": picked}) == tuple(picked)
    for own in ({"device": "cpu"}, {"device": "cuda"}, {"partition": "x"}, {"gpu_model": "x"}, {"gres": "gpu"}):
        assert gpus(gpus={"mine": own}, study={"gpus": ["mine"]}) == ("mine",), "a row that says where it runs"
    assert gpus(gpus={name: {} for name in every}) == ("CPU",), "no GPU has a partition"
    assert gpus(gpus={name: {} for name in (*every, "CPU")}) == ("local",)
    with pytest.raises(ConfigError, match=r"study\.gpus: nowhere is not defined"):
        gpus(study={"gpus": ["nowhere"]})
    local = study.load(study.read([ROOT / "config.yaml", ROOT / "study.yaml"]), ROOT)
    assert local.selection.gpus == ("local",)


def test_only_the_cells_of_a_missing_row_do_not_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    loaded = cluster_study()
    found = not_run.cells(loaded, files, {"a100": "no partition"}, {})
    assert {(each.stage, each.wildcards["gpu"]) for each in found} == {
        (name, "a100") for name in ("sample", "bench", "profile")
    }
    assert {(each.status, each.reason) for each in found} == {("unavailable", "no partition")}
    there = found[0].files
    for path in map(Path, there):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    again = not_run.cells(loaded, files, {"a100": "no partition"}, {})
    assert again == found[1:], "what another cluster has made is taken as it is"
    Path(there[1]).unlink()
    assert not_run.cells(loaded, files, {"a100": "no partition"}, {}) == found, "half of it is not"


def test_a_model_that_cannot_be_trained_has_no_samples_but_times(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    trains = {"demo": {"preset": "demo", "dataset": "icbm152", "weights": "train"}}
    loaded = cluster_study(models=trains, train={"gpu": "h100"}, study={"gpus": ["cpu"]})
    assert loaded.gpu_names() == ["cpu", "h100"]
    found = not_run.cells(loaded, files, {"h100": "no partition x"}, {})
    assert {each.stage for each in found} == {"sample"}
    assert all(each.reason == "no weights: no partition x, where they are trained (train.gpu)" for each in found)
    weights = Path(files("train", loaded.training_cell("demo"))[0])
    weights.parent.mkdir(parents=True)
    weights.touch()
    assert not_run.cells(loaded, files, {"h100": "no partition x"}, {}) == []


def test_failed_cells_are_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    loaded = cluster_study(study={"phases": ["sample"]})
    cells = [next(iter(loaded.cells(name))) for name in ("sample", "bench", "profile", "evaluate")]
    failed = {
        files(name, cell)[0]: f"{name} ended as TIMEOUT"
        for name, cell in zip(("sample", "bench", "profile", "evaluate"), cells, strict=True)
    }
    found = not_run.cells(loaded, files, {}, failed)
    assert [each.stage for each in found] == ["sample", "bench", "profile", "evaluate"]
    text = json.dumps(
        [
            each._asdict()
            | {"settings": loaded.settings(each.stage, **each.wildcards), "cells": loaded.cells("sample")}
            for each in found
        ]
    )
    stage.run(text)
    for path, table in ((found[1].files[0], "timing"), (found[2].files[0], "kernels"), (found[3].files[0], "quality")):
        rows = tables.read(table, path)
        assert {row["status"] for row in rows} == {"failed"}
        assert all(row["reason"].endswith("ended as TIMEOUT") for row in rows)
    assert len(tables.read("quality", found[3].files[0])) == len(loaded.cells("sample")), "no cell is missing"
    assert drawn.read(found[0].files[0]).missing == {"status": "failed", "reason": "sample ended as TIMEOUT"}


def test_the_site_file_and_the_profile_fit_the_study() -> None:
    profile = yaml.safe_load((ROOT / "slurm/profile.yaml").read_text(encoding="utf-8"))
    assert profile["configfile"] == ["study.yaml", "slurm/site.yaml"]
    loaded = study.load(study.read([ROOT / name for name in ("config.yaml", *profile["configfile"])]), ROOT)
    assert set(loaded.gpus) >= {"V100", "A100", "H100", "H200", "CPU"}
    assert loaded.selection.gpus == ("V100", "A100", "H100", "H200"), "hours on a CPU"
    own = yaml.safe_load((ROOT / "slurm/site.yaml").read_text(encoding="utf-8"))
    assert "study" not in own, "it would take the place of the rows that a study of one's own picks"
    assert all(loaded.requests[name].partition for name in loaded.selection.gpus)
    assert loaded.cluster is not None
