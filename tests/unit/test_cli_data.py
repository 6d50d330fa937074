"""python -m meddpm data check: what it prints, and its exit code."""

from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner, Result

from meddpm.cli import app
from meddpm.config import UserError
from tests.unit.files_fixture import head, raw_brats, save, whole_heads

NAMES = {"t1": "t1", "t1ce": "t1ce", "t2": "t2", "flair": "flair", "seg": "seg"}


def check(*words: str | Path) -> Result:
    """The result of the command; a fault that the user can mend is raised."""
    result = CliRunner().invoke(app, ["data", "check", *map(str, words)])
    if isinstance(result.exception, UserError):
        raise result.exception
    return result


def test_a_good_dataset_is_listed_and_nothing_is_written(tmp_path):
    data = whole_heads(tmp_path / "data")
    before = sorted(tmp_path.rglob("*"))
    result = check(data)
    assert result.exit_code == 0
    assert "layout med_ddpm_whole_head, images image" in result.stdout
    assert "for the model preset whole_head_128: 128x128x128 voxels, labels 1, 2, images: 1" in result.stdout
    assert "3 cases: 3 can be used" in result.stdout
    assert sorted(tmp_path.rglob("*")) == before


def test_a_refused_case_is_a_line_and_exit_code_1(tmp_path):
    data = whole_heads(tmp_path / "data")
    (data / "image" / "sample_1.nii.gz").write_bytes(b"")
    result = check(data)
    assert result.exit_code == 1
    assert " ".join(result.stdout.split()).count("is empty (0 bytes)") == 1
    assert "is empty" not in result.stderr
    assert "3 cases: 2 can be used, 1 refused" in result.stdout


def test_a_mask_of_a_brain_is_warned_of(tmp_path):
    data = whole_heads(tmp_path / "data", 1)
    label = head(0)[1]
    label[:, :, 6:] = 0
    save(data / "mask" / "sample_0.nii.gz", label)
    result = check(data)
    assert result.exit_code == 0
    assert "the size of a brain, not of a head (about 3.8 L)" in " ".join(result.stdout.split())


def test_the_table_can_be_kept(tmp_path):
    data = raw_brats(tmp_path / "data", NAMES, ["BraTS2021_00001"], 4)
    check(data, "--table", tmp_path / "found.tsv", "--workers", "1")
    (row,) = rows_of(tmp_path / "found.tsv")
    assert row["id"] == "BraTS2021_00001"
    assert row["files"].startswith("label=BraTS2021_00001/BraTS2021_00001_seg.nii.gz; t1=")


def test_a_table_replaces_nothing(tmp_path):
    data = whole_heads(tmp_path / "data", 1)
    mine = tmp_path / "mine.tsv"
    mine.write_text("mine", encoding="utf-8")
    for table, words in (
        (mine, "is there already"),
        (tmp_path / "no" / "x.tsv", "is in no folder"),
        (tmp_path, "is there"),
    ):
        with pytest.raises(UserError, match=words):
            check(data, "--table", table)
    assert mine.read_text(encoding="utf-8") == "mine"


def rows_of(path: Path) -> list[dict[str, str]]:
    header, *lines = [line.split("\t") for line in path.read_text(encoding="utf-8").splitlines()]
    return [dict(zip(header, line, strict=True)) for line in lines]


def test_a_preset_of_preparation_and_a_model_can_be_named(tmp_path):
    listed = tmp_path / "cases.tsv"
    image, label = head(0)
    save(tmp_path / "i.nii", image)
    save(tmp_path / "l.nii", label)
    listed.write_text("id\tlabel\tt1\none\tl.nii\ti.nii\n", encoding="utf-8")
    assert "for no model" in " ".join(check(listed).stdout.split())
    stretched = check(listed, "--preparation", "med_ddpm_whole_head", "--model", "whole_head_128")
    assert "med_ddpm_per_slice" in stretched.stdout
    for option, name in (("--layout", "brats"), ("--preparation", "brats"), ("--model", "brats")):
        with pytest.raises(UserError, match=f"{option}: brats is not known; "):
            check(listed, option, name)


def test_another_number_of_images_than_the_model_draws_is_refused(tmp_path):
    data = raw_brats(tmp_path / "data", NAMES, ["BraTS2021_00001"], 4)
    with pytest.raises(UserError, match=r"have 4 images \(t1, t1ce, t2, flair\), and the model draws 1; .* \[t1\]"):
        check(data, "--model", "whole_head_128")
    heads = whole_heads(tmp_path / "heads", 1)
    with pytest.raises(UserError, match=r"have 1 image \(image\), and the model draws 4; take another model"):
        check(heads, "--model", "brats_192")


def test_a_modality_that_all_cases_lack_is_named(tmp_path):
    data = raw_brats(tmp_path / "data", NAMES, ["BraTS2021_00001"], 4)
    (data / "BraTS2021_00001" / "BraTS2021_00001_flair.nii.gz").unlink()
    result = check(data)
    assert result.exit_code == 1
    assert "lacks flair" in " ".join(result.stdout.split())


def study_file(tmp_path: Path, **row) -> Path:
    """A study of the demo's model on files."""
    path = tmp_path / "mine.yaml"
    mine = {"source": "files", "path": str(tmp_path / "data"), **row}
    study = {"models": {"demo": {"preset": "demo", "dataset": "mine", "weights": "random"}}, "datasets": {"mine": mine}}
    path.write_text(yaml.safe_dump(study), encoding="utf-8")
    return path


def test_the_row_of_a_study_is_checked_with_its_keys(tmp_path):
    whole_heads(tmp_path / "data", 2)
    plain = check("--configfile", study_file(tmp_path, preparation="general"))
    assert "for the study's demo: 56x64x56 voxels, labels 1, 2, 3, 4, images: 1" in plain.stdout
    assert "no case has the labels 3, 4 that the model is shown" in " ".join(plain.stdout.split())
    remapped = check("--configfile", study_file(tmp_path, preparation="general", remap={1: 3}), "--dataset", "mine")
    assert "label 1 became 3" in remapped.stdout


def test_what_a_study_says_cannot_be_said_again(tmp_path):
    whole_heads(tmp_path / "data", 2)
    file = study_file(tmp_path)
    with pytest.raises(UserError, match="PATH: has no use beside --configfile"):
        check(tmp_path / "data", "--configfile", file)
    with pytest.raises(UserError, match="--model: has no use beside --configfile"):
        check("--configfile", file, "--model", "demo")
    with pytest.raises(UserError, match=r"--dataset: other; right would be a dataset of files of .*: mine"):
        check("--configfile", file, "--dataset", "other")
    with pytest.raises(UserError, match="--dataset: has no use without --configfile"):
        check(tmp_path / "data", "--dataset", "mine")
    with pytest.raises(UserError, match="nothing to look at"):
        check()
    with pytest.raises(UserError, match=r"nope\.yaml: cannot be read \(No such file"):
        check("--configfile", tmp_path / "nope.yaml")
