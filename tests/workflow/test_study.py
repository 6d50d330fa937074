"""A study from beginning to end: every stage leaves its files, every cell its row."""

import csv
import json
import zipfile

import nibabel
import numpy as np
import yaml

from meddpm import tables
from meddpm.files import sha256
from tests.workflow.conftest import Checkout

VARIANTS = {"fp32": "ok", "tf32": "unsupported", "bf16": "ok"}
MEASURED = ["step_ms_median", "speedup", "fp32_step_ms_median", "peak_memory_gib", "setup_s"]
SOLVERS = ["ddpm", "dpmpp_2m_sde_5"]


def rows(study: Checkout, table: str) -> list[tables.Row]:
    return tables.read(table, study.root / "results" / "tables" / f"{table}.csv")


def test_every_cell_of_the_matrix_is_a_row_with_a_status(study: Checkout) -> None:
    phases = [("sample", solver) for solver in SOLVERS] + [("train", None)]
    expected = {(variant, *phase) for variant in VARIANTS for phase in phases}
    timing = rows(study, "timing")
    assert {(row["variant"], row["phase"], row["solver"]) for row in timing} == expected
    assert len(timing) == len(expected)
    for row in timing:
        assert row["status"] == VARIANTS[row["variant"]]
        measured = [
            row[name] for name in ("step_ms_median", "speedup", "fp32_step_ms_median", "peak_memory_gib", "setup_s")
        ]
        if row["status"] == "ok":
            assert all(value > 0 for value in measured)
            assert row["repeats"] == 4
            assert row["shape"] == "1x16x16x16"
        else:
            assert measured == [None] * 5, "what was not measured is empty, not zero"
            assert "TF32" in row["reason"]


def test_a_volume_takes_its_evaluations(study: Checkout) -> None:
    for row in rows(study, "timing"):
        if row["phase"] == "sample" and row["status"] == "ok":
            assert row["evaluations"] == {"ddpm": 10, "dpmpp_2m_sde_5": 5}[row["solver"]]
            assert row["volume_s"] == row["evaluations"] * row["step_ms_median"] / 1000


def test_the_flags_in_effect_are_recorded(study: Checkout) -> None:
    flags = json.loads((study.root / "results/bench/tiny/cpu/bf16/sample/flags.json").read_text())
    assert flags["fp32"]["conv_fp32_precision"] == flags["fp32"]["matmul_fp32_precision"] == "ieee"
    assert (flags["fp32"]["autocast"], flags["variant"]["autocast"]) == ("none", "bf16")
    assert 0 < flags["relative_error_of_one_evaluation"] < 0.1


def test_samples_lie_on_the_grid_of_their_mask(study: Checkout) -> None:
    folder = study.root / "results/samples/tiny/cpu/fp32/ddpm"
    with open(folder / "samples.csv", newline="", encoding="utf-8") as stream:
        samples = list(csv.DictReader(stream))
    assert [(row["case"], row["seed"], row["status"]) for row in samples] == [
        ("icbm152-000", "0", "ok"),
        ("icbm152-001", "0", "ok"),
    ]
    for row in samples:
        volume = nibabel.load(folder / row["file"])
        label = nibabel.load(study.root / f"results/data/icbm152_tiny/{row['case']}_label.nii.gz")
        np.testing.assert_array_equal(volume.affine, label.affine)
        assert volume.shape == label.shape == (16, 16, 16)
        assert np.abs(volume.get_fdata()).max() <= 1
        assert sha256(folder / row["file"]) == row["sha256"]


def test_quality_compares_each_variant_with_fp32_and_every_cell_with_the_truth(study: Checkout) -> None:
    quality = rows(study, "quality")
    against_fp32 = [row for row in quality if row["reference"] == "fp32, same noise"]
    assert {row["variant"] for row in against_fp32} == {"tf32", "bf16"}
    for row in against_fp32:
        if row["variant"] == "bf16" and row["metric"] == "relative_error":
            assert 0 < row["value"] < 0.5
            assert row["ci_low"] <= row["value"] <= row["ci_high"]
            assert row["n"] == 2
    for row in quality:
        assert row["status"] == VARIANTS[row["variant"]]
    cells = {(variant, solver) for variant in VARIANTS for solver in SOLVERS}
    truth = [row for row in quality if row["reference"] == "true image"]
    assert {(row["variant"], row["solver"]) for row in truth} == cells
    assert {row["metric"] for row in truth} == {"ssim", "ssim_of_label_means"}
    metrics = {row["metric"] for row in quality if row["reference"] == "label map"}
    assert {"dice_white", "dice_white_of_true_image", "dice_white_over_true_image", "tissue_order"} <= metrics
    fewer = [row for row in quality if row["reference"] == "ddpm, same noise and mask"]
    assert {row["solver"] for row in fewer} == {"dpmpp_2m_sde_5"}


def test_kernels_and_environment_are_there(study: Checkout) -> None:
    kernels = [row for row in rows(study, "kernels") if row["status"] == "ok"]
    assert {row["variant"] for row in kernels} == {"fp32", "bf16"}
    assert "convolution forward" in {row["category"] for row in kernels}
    known = {row["environment"] for row in rows(study, "environment")}
    for table in ("timing", "kernels"):
        assert {row["environment"] for row in rows(study, table) if row["status"] == "ok"} <= known


def test_the_weights_are_kept_and_say_how_little_they_were_trained(study: Checkout) -> None:
    folder = study.root / "results/train/tiny/cpu/fp32"
    assert json.loads((folder / "training.json").read_text())["steps"] == 3
    (kept,) = (folder / "kept").iterdir()
    assert sha256(kept / "weights.safetensors") == sha256(folder / "weights.safetensors")
    page = (study.root / "results/report/index.html").read_text(encoding="utf-8")
    assert "3 steps" in page
    assert "unsupported" in page


def test_the_archive_holds_tables_figures_configuration_and_environment(study: Checkout) -> None:
    with zipfile.ZipFile(study.root / "results/archive/tiny.zip") as archive:
        names = set(archive.namelist())
    tables_there = {
        f"tables/{table}.csv" for table in ("timing", "kernels", "counters", "claims", "quality", "environment")
    }
    assert tables_there | {"run_config.yaml", "report/index.html", "SHA256SUMS"} <= names
    assert any(name.startswith("figures/") and name.endswith(".svg") for name in names)
    assert not any(name.endswith(".nii.gz") for name in names)


def test_the_merged_configuration_is_written(study: Checkout) -> None:
    merged = yaml.safe_load((study.root / "results/run_config.yaml").read_text())
    assert merged["study"]["name"] == "tiny"
    assert merged["models"]["tiny"]["size"] == [16, 16, 16]
    assert "whole_head_128" in merged["models"]


def test_nothing_half_written_is_left(study: Checkout) -> None:
    assert not [path for path in (study.root / "results").rglob(".*") if path.name != ".snakemake_timestamp"]


def test_a_job_on_the_device_runs_alone(study: Checkout) -> None:
    jobs = {}
    for path in (study.root / ".snakemake/metadata").rglob("*"):
        if path.is_file():
            record = json.loads(path.read_text())
            jobs[record["rule"], record["log"][0]] = (record["starttime"], record["endtime"])
    on_device = {job: times for job, times in jobs.items() if job[0] in {"train", "sample", "bench", "profile"}}
    assert len(on_device) == 1 + 6 + 6 + 3
    for job, (start, end) in on_device.items():
        beside = [other for other, (began, ended) in jobs.items() if other != job and began < end and start < ended]
        assert not beside, f"{job} ran beside {beside}"
