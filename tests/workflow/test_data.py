"""Datasets of files through the workflow: each layout prepared, shown and drawn from; bad cases; a case more."""

import csv
import os
from pathlib import Path
from typing import Any

import nibabel
import numpy as np
import pytest
import yaml

from meddpm.config import repository_root
from meddpm.data import manifest
from tests.unit.files_fixture import SHAPE, head, raw_brats, save, whole_heads
from tests.workflow.conftest import Checkout

SHARED = repository_root().parent / "shared" / "data"
TINY = {"channel_multipliers": [1, 1], "attention_factors": [], "blocks_per_level": 1, "base_channels": 32, "steps": 10}
WHOLE_HEAD = {"preset": "whole_head_128", "weights": "random", "size": [16, 16, 16], **TINY}
BRATS = {"preset": "brats_192", "weights": "random", "size": [24, 24, 16], **TINY}
NAMES_2021 = {"t1": "t1", "t1ce": "t1ce", "t2": "t2", "flair": "flair", "seg": "seg"}


def write_study(checkout: Checkout, datasets: dict[str, tuple[dict[str, Any], dict[str, Any]]]) -> None:
    """A study of one model a dataset, which is given as its model and its row; five steps in fp32 on the CPU."""
    study = {
        "study": {
            "name": "files",
            "models": list(datasets),
            "gpus": ["cpu"],
            "variants": ["fp32"],
            "solvers": ["few"],
            "phases": ["sample"],
        },
        "models": {name: {**model, "dataset": name} for name, (model, _) in datasets.items()},
        "datasets": {name: {"source": "files", **row} for name, (_, row) in datasets.items()},
        "gpus": {"cpu": {"device": "cpu"}},
        "solvers": {"few": {"kind": "dpmpp_2m_sde", "evaluations": 5, "skip_first": 1}},
        "sample": {"cases": 1, "seeds": [0]},
    }
    (checkout.root / "files.yaml").write_text(yaml.safe_dump(study), encoding="utf-8")


def targets(*names: str) -> list[str]:
    pages = [f"results/data/{name}/qc.html" for name in names]
    return ["--", *pages, *(f"results/samples/{name}/cpu/fp32/few/samples.csv" for name in names)]


def run(checkout: Checkout, *names: str) -> None:
    result = checkout.snakemake(*targets(*names), configfile="files.yaml")
    assert result.returncode == 0, result.stdout + result.stderr


def planned(checkout: Checkout, *names: str) -> dict[str, int]:
    """Rules and numbers of jobs of a dry run."""
    return checkout.planned(*targets(*names), configfile="files.yaml")


def drawn(checkout: Checkout, name: str) -> dict[str, str]:
    """The row of the first sample of a dataset."""
    with open(checkout.root / f"results/samples/{name}/cpu/fp32/few/samples.csv", encoding="utf-8", newline="") as file:
        return next(csv.DictReader(file))


def lies_on_the_grid_of(checkout: Checkout, name: str, mask: Path, channels: int) -> None:
    """The first sample of a dataset was written on the grid of the file of its label map too."""
    row = drawn(checkout, name)
    assert row["status"] == "ok", row
    folder = checkout.root / f"results/samples/{name}/cpu/fp32/few"
    image, label = nibabel.load(folder / row["original_grid_file"]), nibabel.load(mask)
    assert image.shape == (label.shape if channels == 1 else (*label.shape, channels))
    np.testing.assert_allclose(image.affine, label.affine, atol=1e-4)
    values = image.get_fdata()
    assert -1 <= values.min() < values.max() <= 1


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Checkout:
    """Two layouts with values of our own, each drawn from."""
    checkout = Checkout(tmp_path_factory.mktemp("files") / "with spaces")
    data = checkout.root / "my {data} <x>"
    whole_heads(data / "heads", 2)
    raw_brats(data / "raw", NAMES_2021, ["BraTS2021_00001", "BraTS2021_00002"], enhancing=4)
    write_study(
        checkout,
        {
            "heads": (WHOLE_HEAD, {"path": "my {data} <x>/heads"}),
            "raw": (BRATS, {"path": "my {data} <x>/raw"}),
        },
    )
    run(checkout, "heads", "raw")
    return checkout


@pytest.mark.parametrize(
    ("name", "mask", "channels"),
    [
        ("heads", "heads/mask/sample_0.nii.gz", 1),
        ("raw", "raw/BraTS2021_00001/BraTS2021_00001_seg.nii.gz", 4),
    ],
)
def test_a_layout_is_prepared_and_drawn_from(files: Checkout, name: str, mask: str, channels: int) -> None:
    lies_on_the_grid_of(files, name, files.root / "my {data} <x>" / mask, channels)
    row = manifest.read(files.root / f"results/data/{name}/cases.tsv")[0]
    assert (row.original_shape, row.shape) == (SHAPE, (16, 16, 16) if channels == 1 else (24, 24, 16))
    assert row.id in (files.root / f"results/data/{name}/qc.html").read_text(encoding="utf-8")


def test_nothing_is_done_twice_and_a_new_case_is_prepared_alone(files: Checkout) -> None:
    assert planned(files, "heads", "raw") == {}
    # Braces in a path are in the merged configuration too, which the default target writes.
    assert files.planned(configfile="files.yaml")["run_config"] == 1
    out = files.root / "results/data/heads"
    times = {path.name: path.stat().st_mtime_ns for path in out.glob("*.nii.gz")}
    image, label = head(5)
    save(files.root / "my {data} <x>/heads/mask/sample_5.nii.gz", label)
    save(files.root / "my {data} <x>/heads/image/sample_5.nii.gz", image)
    assert planned(files, "heads", "raw") == {"prepare": 1, "data_qc": 1, "sample": 1}
    run(files, "heads", "raw")
    assert {name: (out / name).stat().st_mtime_ns for name in times} == times
    assert [row.id for row in manifest.read(out / "cases.tsv")] == ["sample_0", "sample_1", "sample_5"]
    assert planned(files, "heads", "raw") == {}


def test_a_bad_case_is_one_line_and_can_be_left_out(files: Checkout) -> None:
    data = files.root / "my {data} <x>"
    whole_heads(data / "bad", 2)
    whole = (data / "bad/image/sample_1.nii.gz").read_bytes()
    (data / "bad/image/sample_1.nii.gz").write_bytes(whole[: len(whole) // 2])
    os.symlink("nowhere", data / "bad" / "mask" / "sample_9.nii.gz")
    before = (files.root / "files.yaml").read_text(encoding="utf-8")
    try:
        write_study(files, {"bad": (WHOLE_HEAD, {"path": "my {data} <x>/bad"})})
        result = files.snakemake(*targets("bad"), configfile="files.yaml")
        told = result.stdout + result.stderr
        assert result.returncode != 0
        assert "Traceback" not in told
        assert "2 of 3 cases cannot be used" in told
        assert "sample_1.nii.gz" in told
        assert "sample_9.nii.gz" in told
        write_study(files, {"bad": (WHOLE_HEAD, {"path": "my {data} <x>/bad", "on_bad_case": "skip"})})
        run(files, "bad")
        page = (files.root / "results/data/bad/qc.html").read_text(encoding="utf-8")
        assert "sample_9" in page
        assert drawn(files, "bad")["case"] == "sample_0"
    finally:
        (files.root / "files.yaml").write_text(before, encoding="utf-8")


def test_a_dataset_without_a_case_is_one_line_before_anything_runs(files: Checkout) -> None:
    (files.root / "my {data} <x>/empty").mkdir()
    before = (files.root / "files.yaml").read_text(encoding="utf-8")
    try:
        write_study(files, {"empty": (WHOLE_HEAD, {"path": "my {data} <x>/empty"})})
        result = files.snakemake(*targets("empty"), configfile="files.yaml")
    finally:
        (files.root / "files.yaml").write_text(before, encoding="utf-8")
    told = (result.stdout + result.stderr).strip().splitlines()
    assert result.returncode != 0
    assert "datasets.empty: my {data} <x>/empty: has no case" in told[-1]
    assert not any("Traceback" in line for line in told)


def test_a_file_that_is_replaced_by_an_older_one_is_seen(files: Checkout) -> None:
    image = files.root / "my {data} <x>/heads/image/sample_0.nii.gz"
    before, times = image.read_bytes(), image.stat()
    try:
        save(image, head(8)[0])
        os.utime(image, (1e9, 1e9))
        assert planned(files, "heads") == {"prepare": 1, "data_qc": 1, "sample": 1}
    finally:
        image.write_bytes(before)
        os.utime(image, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert planned(files, "heads") == {}


def test_the_published_layouts_are_prepared_and_drawn_from(tmp_path: Path) -> None:
    if not SHARED.is_dir():
        pytest.skip("needs the real cases in a folder shared/ beside the checkout")
    checkout = Checkout(tmp_path / "real")
    small = {"fit": "contain"}
    write_study(
        checkout,
        {
            "heads": (WHOLE_HEAD, {"path": str(SHARED / "med-ddpm/whole_head")}),
            "brats": (BRATS, {"path": str(SHARED / "med-ddpm/brats2021"), **small}),
            "raw": (BRATS, {"path": str(SHARED / "brats_raw"), **small}),
        },
    )
    run(checkout, "heads", "brats", "raw")
    lies_on_the_grid_of(checkout, "heads", SHARED / "med-ddpm/whole_head/mask/sample_0.nii.gz", 1)
    lies_on_the_grid_of(checkout, "brats", SHARED / "med-ddpm/brats2021/seg/BraTS2021_01306_seg.nii.gz", 4)
    raw = SHARED / "brats_raw/BraTS2021_90001/BraTS2021_90001_seg.nii.gz"
    lies_on_the_grid_of(checkout, "raw", raw, 4)
    (row,) = manifest.read(checkout.root / "results/data/raw/cases.tsv")
    # 1.6 L of brain, and not the whole of the crop, which negative values outside the head would make it.
    assert 1000 < row.label_volumes_ml[4] < 2000
