"""After a finished study: what runs again after what edit, on SLURM, and in a clone that results were restored into."""

import shutil
from pathlib import Path

import pytest

from tests.slurm.conftest import Cluster, SlurmCheckout

CELLS = 8
SAMPLE = {"sample": CELLS, "environment_table": 1}
QUALITY = {"evaluate": 1, "quality_table": 1, "claims": 1}
PAGE = {"report": 1, "archive": 1}
TABLES = {"timing_table": 1, "kernels_table": 1, "counters_table": 1, "environment_table": 1}
MEASURED = {"bench": CELLS, "profile": CELLS} | TABLES
NETWORK = {"train": 1} | SAMPLE | QUALITY | MEASURED | PAGE

EDITS = {
    "a comment in the network": ("meddpm/model/unet.py", "\nclass ", "\n# Why this is a class.\nclass ", {}),
    "the network": ("meddpm/model/unet.py", "from torch import", "NEW = 1\nfrom torch import", NETWORK),
    "the noise": ("meddpm/diffusion/noise.py", "import numpy", "NEW = 1\nimport numpy", SAMPLE | QUALITY | PAGE),
    "another variant": (
        "tiny.yaml",
        "[fp32, channels_last]",
        "[fp32, channels_last, bf16]",
        {"run_config": 1, "sample": 4, "bench": 4, "profile": 4} | TABLES | QUALITY | PAGE,
    ),
    "another case": (
        "tiny.yaml",
        "cases: 2}\nsolvers",
        "cases: 3}\nsolvers",
        {"run_config": 1, "prepare": 1, "data_qc": 1, "train": 1} | SAMPLE | QUALITY | PAGE,
    ),
    # How a job is asked for is no part of what it computes.
    "the memory of a row": ("site.yaml", "mem: 1500", "mem: 1600", {"run_config": 1, "claims": 1} | PAGE),
}


def test_nothing_is_to_be_done(finished: SlurmCheckout, cluster: Cluster) -> None:
    submitted = len(cluster.jobs())
    result = finished.snakemake()
    assert result.returncode == 0, result.stdout
    assert "Nothing to be done" in result.stdout
    assert len(cluster.jobs()) == submitted


@pytest.mark.parametrize("edit", EDITS)
def test_an_edit_reruns_what_follows_from_it_and_nothing_else(finished: SlurmCheckout, edit: str) -> None:
    file, old, new, expected = EDITS[edit]
    with finished.edited(file, old, new):
        assert finished.planned() == expected


def test_a_new_case_is_prepared_and_the_others_are_left(study: SlurmCheckout) -> None:
    folder = study.root / "results/data/icbm152_tiny"
    before = {path.name: path.stat().st_mtime_ns for path in folder.glob("*.nii.gz")}
    with study.edited(*EDITS["another case"][:3]):
        result = study.snakemake("results/data/icbm152_tiny/cases.tsv")
    assert result.returncode == 0, result.stdout
    after = {path.name: path.stat().st_mtime_ns for path in folder.glob("*.nii.gz")}
    assert len(after) == len(before) + 2, "an image and a label map more"
    assert before.items() <= after.items()


def test_results_restored_into_a_fresh_clone_are_taken(
    cluster: Cluster, finished: SlurmCheckout, tmp_path: Path
) -> None:
    clone = SlurmCheckout.clone(finished, tmp_path / "a clone")
    for part in ("results", ".snakemake/metadata"):
        shutil.copytree(finished.root / part, clone.root / part)
    assert clone.planned() == {}
    file, old, new, expected = EDITS["the network"]
    with clone.edited(file, old, new):
        assert clone.planned() == expected
