"""NIfTI in and out, the order of the axes, and the case table."""

from pathlib import Path

import nibabel
import numpy as np
import pytest

from meddpm.config import UserError
from meddpm.data import manifest, volumes
from meddpm.data.volumes import Case
from tests.unit.files_fixture import one_line

AFFINE = np.array([[-1.5, 0, 0, 20], [0, 1.25, 0, -30], [0, 0, 2, 4.5], [0, 0, 0, 1]])


def counting(*shape: int) -> np.ndarray:
    """Every voxel has a value of its own, so that any swapped or flipped axis shows."""
    return np.arange(np.prod(shape), dtype=np.float32).reshape(shape)


# Axes


@pytest.mark.parametrize("channels", [1, 4])
def test_tensor_axes_are_reversed(channels):
    array = counting(2, 3, 5, channels)
    if channels == 1:
        array = array[..., 0]
    tensor = volumes.to_tensor_axes(array)
    assert tensor.shape == (channels, 5, 3, 2)
    for c, d, w, h in [(0, 0, 0, 1), (channels - 1, 4, 1, 0), (channels - 1, 3, 2, 1)]:
        assert tensor[c, d, w, h] == (array[h, w, d] if channels == 1 else array[h, w, d, c])
    np.testing.assert_array_equal(volumes.from_tensor_axes(tensor), array)


# NIfTI


@pytest.mark.parametrize("suffix", [".nii", ".nii.gz"])
@pytest.mark.parametrize("dtype", [np.float32, np.uint8])
def test_nifti_round_trip(tmp_path, suffix, dtype):
    array = counting(3, 4, 5).astype(dtype)
    path = tmp_path / f"volume{suffix}"
    volumes.write(path, array, AFFINE, "a description")
    back, affine = volumes.read(path)
    assert back.dtype == dtype
    np.testing.assert_array_equal(back, array)
    np.testing.assert_allclose(affine, AFFINE)
    header = nibabel.load(path).header
    assert header.get_xyzt_units()[0] == "mm"
    assert bytes(header["descrip"].item()) == b"a description"
    assert [file.name for file in tmp_path.iterdir()] == [path.name]


def test_gzip_bytes_do_not_depend_on_the_time_or_name(tmp_path, monkeypatch):
    volumes.write(tmp_path / "a.nii.gz", counting(3, 4, 5), AFFINE)
    monkeypatch.setattr("time.time", lambda: 1e9)
    volumes.write(tmp_path / "b.nii.gz", counting(3, 4, 5), AFFINE)
    first = (tmp_path / "a.nii.gz").read_bytes()
    assert first == (tmp_path / "b.nii.gz").read_bytes()
    assert first[4:8] == b"\0\0\0\0"


def test_a_failed_write_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "volume.nii.gz"
    volumes.write(path, counting(3, 4, 5), AFFINE)
    before = path.read_bytes()

    def half(self, content):
        with open(self, "wb") as stream:
            stream.write(content[:10])
        raise OSError("disk full")

    monkeypatch.setattr(Path, "write_bytes", half)
    with pytest.raises(OSError, match="disk full"):
        volumes.write(path, counting(5, 4, 3), AFFINE)
    assert [file.name for file in tmp_path.iterdir()] == [path.name]
    assert path.read_bytes() == before


def test_image_with_nan_is_refused(tmp_path):
    array = counting(3, 4, 5)
    array[1, 2, 3] = np.nan
    volumes.write(tmp_path / "v.nii", array, AFFINE)
    with pytest.raises(UserError) as error:
        volumes.read_image(tmp_path / "v.nii")
    one_line(error, "v.nii", "1 voxels are NaN")


@pytest.mark.parametrize("value", [0.5, -1, 256, np.nan])
def test_label_map_holds_bytes_only(tmp_path, value):
    array = np.ones((3, 4, 5), np.float32)
    volumes.write(tmp_path / "good.nii", array * 4, AFFINE)
    assert volumes.read_label(tmp_path / "good.nii")[0].dtype == np.uint8
    array[0, 0, 0] = value
    volumes.write(tmp_path / "v.nii", array, AFFINE)
    with pytest.raises(UserError) as error:
        volumes.read_label(tmp_path / "v.nii")
    one_line(error, "v.nii", "0 to 255")


# The table


def written_case(folder: Path, case_id: str = "one", with_image: bool = True) -> manifest.CaseRow:
    image = np.linspace(-1, 1, 60, dtype=np.float32).reshape(3, 4, 5) if with_image else None
    label = (counting(3, 4, 5) % 3).astype(np.uint8)
    path = folder / f"{case_id}_image.nii.gz" if with_image else None
    if with_image:
        volumes.write(path, image, AFFINE)
    volumes.write(folder / f"{case_id}_label.nii.gz", label, AFFINE)
    case = Case(case_id, image, label, AFFINE)
    return manifest.describe(case, path, folder / f"{case_id}_label.nii.gz", folder, notes="a note\twith a tab")


def test_table_round_trip(tmp_path):
    rows = [written_case(tmp_path), written_case(tmp_path, "two", with_image=False)]
    manifest.write(tmp_path / "cases.tsv", rows)
    assert manifest.read(tmp_path / "cases.tsv") == rows
    row = rows[0]
    assert (row.image, row.label) == ("one_image.nii.gz", "one_label.nii.gz")
    assert row.shape == (3, 4, 5)
    assert row.spacing_mm == (1.5, 1.25, 2.0)
    assert row.orientation == "LAS"
    assert row.intensity_range == (-1.0, 1.0)
    assert row.label_volumes_ml == {1: 0.075, 2: 0.075}
    assert rows[1].image == ""
    assert rows[1].intensity_range is None


def test_load_case_gives_what_was_written(tmp_path):
    row = written_case(tmp_path)
    case = manifest.load_case(tmp_path / "cases.tsv", row)
    assert case.id == "one"
    assert case.image.dtype == np.float32
    np.testing.assert_array_equal(case.label, (counting(3, 4, 5) % 3))
    np.testing.assert_allclose(case.affine, AFFINE)
    bare = written_case(tmp_path, "two", with_image=False)
    assert manifest.load_case(tmp_path / "cases.tsv", bare).image is None


def test_load_case_notices_changed_missing_and_misplaced_files(tmp_path):
    row = written_case(tmp_path)
    volumes.write(tmp_path / row.image, np.zeros((3, 4, 5), np.float32), AFFINE)
    with pytest.raises(UserError) as error:
        manifest.load_case(tmp_path / "cases.tsv", row)
    one_line(error, row.image, "changed")
    (tmp_path / row.image).unlink()
    with pytest.raises(UserError) as error:
        manifest.load_case(tmp_path / "cases.tsv", row)
    one_line(error, row.image, "no such file")
    volumes.write(tmp_path / row.image, np.zeros((3, 4, 5), np.float32), np.eye(4))
    moved = manifest.describe(
        Case("one", None, counting(3, 4, 5).astype(np.uint8), AFFINE),
        tmp_path / row.image,
        tmp_path / row.label,
        tmp_path,
    )
    with pytest.raises(UserError) as error:
        manifest.load_case(tmp_path / "cases.tsv", moved)
    one_line(error, "affines")


@pytest.mark.parametrize(
    ("old", "new", "word"),
    [
        ("sha256", "digest", "image_sha256"),
        ("3 4 5", "3 4 five", "line 2"),
        ("3 4 5", "3 4", "line 2"),
        ("one\t", "../one\t", "line 2"),
        ("two\t", "one\t", "twice"),
        ("LAS", "LAS\n", "line 2"),
    ],
)
def test_a_table_that_does_not_parse_is_one_line(tmp_path, old, new, word):
    path = tmp_path / "cases.tsv"
    manifest.write(path, [written_case(tmp_path), written_case(tmp_path, "two")])
    path.write_text(path.read_text(encoding="utf-8").replace(old, new), encoding="utf-8")
    with pytest.raises(UserError) as error:
        manifest.read(path)
    one_line(error, "cases.tsv", word)
