"""The files of a case on one grid: what is brought together, what is refused and in which words."""

from dataclasses import replace
from pathlib import Path

import nibabel
import numpy as np
import pytest

from meddpm.config import PreparationConfig, UserError
from meddpm.data import conditions, manifest, preparations
from meddpm.data.examine import Examined, examine
from meddpm.data.layouts import CaseFiles
from tests.unit.files_fixture import one_line, shared

# RAS+, with edges of 1, 2 and 4 mm.
AFFINE = np.array([[1, 0, 0, -20], [0, 2, 0, -30], [0, 0, 4, 4.5], [0, 0, 0, 1]], float)
ANY = PreparationConfig()
VOXEL_ML = 0.008


def counting(*shape: int) -> np.ndarray:
    """Every voxel has a value of its own, so that any swapped or flipped axis shows."""
    return np.arange(np.prod(shape), dtype=np.float32).reshape(shape)


def mask(*values: int, dtype: type = np.uint8) -> np.ndarray:
    """A label map (3, 4, 5) with `values` in a row, the first in one voxel, the second in two and so on."""
    label = np.zeros(60, dtype)
    voxels = [value for count, value in enumerate(values, 1) for _ in range(count)]
    label[: len(voxels)] = voxels
    return label.reshape(3, 4, 5)


def saved(path: Path, array: np.ndarray, affine: np.ndarray = AFFINE, codes: str = "RAS") -> Path:
    """Write an array (in RAS) so that its axes run to `codes`."""
    image = nibabel.Nifti1Image(array, affine)
    here, there = (nibabel.orientations.axcodes2ornt(each) for each in ("RAS", codes))
    path.parent.mkdir(parents=True, exist_ok=True)
    nibabel.save(image.as_reoriented(nibabel.orientations.ornt_transform(here, there)), path)
    return path


def case(folder: Path, label: np.ndarray | None = None, **images: np.ndarray) -> CaseFiles:
    """A case of files in `folder`; without images it has one, t1."""
    images = images or {"t1": counting(3, 4, 5)}
    paths = {name: saved(folder / f"{name}.nii.gz", array) for name, array in images.items()}
    return CaseFiles("one", paths, saved(folder / "seg.nii.gz", mask(1, 2) if label is None else label))


def examined(files: CaseFiles, root: Path, how: PreparationConfig = ANY, labels: tuple[int, ...] = ()) -> Examined:
    return examine(files, root, how, labels)


def refused(files: CaseFiles, *words: str, how: PreparationConfig = ANY, labels: tuple[int, ...] = ()) -> None:
    with pytest.raises(UserError) as error:
        examine(files, Path("/"), how, labels)
    one_line(error, *words)


# What comes out


def test_images_and_label_are_what_the_files_hold(tmp_path: Path) -> None:
    found = examined(case(tmp_path, mask(1, 2), t2=counting(3, 4, 5), t1=-counting(3, 4, 5)), tmp_path)
    assert (found.id, found.names) == ("one", ("t2", "t1"))
    assert (found.images.dtype, found.label.dtype) == (np.float32, np.uint8)
    np.testing.assert_array_equal(found.images[..., 0], counting(3, 4, 5))
    np.testing.assert_array_equal(found.images[..., 1], -counting(3, 4, 5))
    np.testing.assert_array_equal(found.label, mask(1, 2))
    np.testing.assert_allclose(found.affine, AFFINE)
    assert (found.changes, found.warnings) == ([], [])


def test_original_is_what_the_files_were(tmp_path: Path) -> None:
    files = CaseFiles(
        "one",
        {"t1": saved(tmp_path / "data/one/t1.nii", counting(3, 4, 5) - 2), "b": saved(tmp_path / "b.nii", mask(7, 9))},
        saved(tmp_path / "data/seg.nii", mask(1, 4), codes="LSP"),
    )
    found = examined(files, tmp_path / "data", replace(ANY, remap={4: 3}))
    affine = nibabel.load(files.label).affine
    assert found.original == {
        "files": {"label": "seg.nii", "t1": "one/t1.nii", "b": "../b.nii"},
        "original_shape": (3, 5, 4),
        "original_spacing_mm": (1.0, 4.0, 2.0),
        "original_orientation": "LSP",
        "original_affine": tuple(affine[:3].ravel().tolist()),
        "original_intensity_ranges": {"t1": (-2.0, 57.0), "b": (0.0, 9.0)},
        "original_label_volumes_ml": {1: VOXEL_ML, 4: 2 * VOXEL_ML},
    }
    assert list(found.original["files"]) == ["label", "t1", "b"]
    columns = {name: value for name, value in found.original.items() if name != "files"}
    assert manifest.CaseRow("one", files=found.original["files"], **columns).original_shape == (3, 5, 4)


def test_a_label_map_alone(tmp_path: Path) -> None:
    found = examined(CaseFiles("one", {}, saved(tmp_path / "seg.nii", mask(1))), tmp_path)
    assert (found.images, found.names) == (None, ())
    assert found.original["original_intensity_ranges"] == {}


@pytest.mark.parametrize("dtype", [np.uint8, np.int16, np.float32, np.float64])
def test_labels_of_any_type(tmp_path: Path, dtype: type) -> None:
    label = mask(1, 2).astype(dtype)
    if label.dtype.kind == "f":
        label[label > 0] -= dtype(5e-4)
    found = examined(case(tmp_path, label), tmp_path)
    np.testing.assert_array_equal(found.label, mask(1, 2))


def test_what_reading_notes_is_passed_on(tmp_path: Path) -> None:
    files = case(tmp_path)
    image = nibabel.Nifti1Image(counting(3, 4, 5, 1), AFFINE)
    image.set_qform(np.diag([1, 2, 4, 1]), code=1)
    image.set_sform(AFFINE, code=1)
    nibabel.save(image, tmp_path / "t1.nii.gz")
    found = examined(files, tmp_path)
    assert found.changes == ["t1: 4D with one volume: squeezed"]
    assert found.warnings == ["t1.nii.gz: qform and sform place it 36.3 mm apart: the sform is taken"]


# Orientation and place


@pytest.mark.parametrize("codes", ["RAS", "LPS", "LAS", "SPL", "PIR"])
def test_files_are_turned_to_the_orientation_of_the_preparation(tmp_path: Path, codes: str) -> None:
    files = CaseFiles(
        "one",
        {"t1": saved(tmp_path / "t1.nii", counting(3, 4, 5), codes=codes)},
        saved(tmp_path / "seg.nii", mask(1, 2), codes=codes),
    )
    found = examined(files, tmp_path)
    np.testing.assert_array_equal(found.images[..., 0], counting(3, 4, 5))
    np.testing.assert_array_equal(found.label, mask(1, 2))
    np.testing.assert_allclose(found.affine, AFFINE)
    assert found.changes == ([] if codes == "RAS" else [f"reoriented from {codes} to RAS"])
    turned = examined(files, tmp_path, replace(ANY, orientation="LPS"))
    np.testing.assert_array_equal(turned.images[::-1, ::-1, :, 0], counting(3, 4, 5))
    assert manifest.orientation(turned.affine) == "LPS"


def test_another_orientation_of_the_same_shape_is_turned_not_mispaired(tmp_path: Path) -> None:
    files = CaseFiles(
        "one",
        {
            name: saved(tmp_path / f"{name}.nii", counting(3, 4, 5), codes=codes)
            for name, codes in (("a", "LAS"), ("b", "RAS"))
        },
        saved(tmp_path / "seg.nii", mask(1, 2), codes="LPS"),
    )
    found = examined(files, tmp_path)
    np.testing.assert_array_equal(found.images[..., 0], found.images[..., 1])
    np.testing.assert_array_equal(found.images[..., 0], counting(3, 4, 5))
    np.testing.assert_array_equal(found.label, mask(1, 2))
    assert found.changes == ["label reoriented from LPS to RAS", "a reoriented from LAS to RAS"]


def test_shapes_are_compared_once_turned(tmp_path: Path) -> None:
    files = case(tmp_path)
    saved(files.images["t1"], counting(3, 4, 5), codes="SAR")
    np.testing.assert_array_equal(examined(files, tmp_path).images[..., 0], counting(3, 4, 5))
    saved(files.images["t1"], counting(3, 4, 6))
    refused(files, "t1.nii.gz: has 3x4x6 voxels", "seg.nii.gz 3x4x5", "resample one onto the other")


@pytest.mark.parametrize(
    ("shift", "outcome"), [(0.09, "same"), (0.11, "warning"), (0.24, "warning"), (0.26, "refused"), (30, "refused")]
)
def test_places_are_compared_in_the_smallest_edge(tmp_path: Path, shift: float, outcome: str) -> None:
    files = case(tmp_path)
    moved = AFFINE.copy()
    moved[2, 3] += shift
    saved(files.images["t1"], counting(3, 4, 5), moved)
    if outcome == "refused":
        refused(files, f"t1.nii.gz: by its affine it lies up to {shift} mm away from", "seg.nii.gz", "copy the header")
        return
    found = examined(files, tmp_path)
    np.testing.assert_allclose(found.affine, AFFINE)
    words = f"t1.nii.gz: by its affine it lies up to {shift} mm away from seg.nii.gz"
    assert found.warnings == ([words] if outcome == "warning" else [])


def test_a_slant_shows_at_the_far_corner(tmp_path: Path) -> None:
    files = case(tmp_path, np.ones((3, 4, 60), np.uint8), t1=counting(3, 4, 60))
    slant = AFFINE.copy()
    slant[0, 2] = 0.01
    saved(files.images["t1"], counting(3, 4, 60), slant)
    refused(files, "up to 0.59 mm away")


# Files


def test_faults_of_names_come_first_and_all(tmp_path: Path) -> None:
    files = CaseFiles("one", {}, tmp_path / "none.nii", ["one: no t1; add it.", "one: two masks; keep one."])
    with pytest.raises(UserError) as error:
        examined(files, tmp_path)
    assert str(error.value) == "one: no t1; add it.\none: two masks; keep one."


def test_a_case_without_a_label_map(tmp_path: Path) -> None:
    refused(CaseFiles("one", {}, None), "one: has no label map", "leave the case out")


@pytest.mark.parametrize("which", ["t1.nii.gz", "seg.nii.gz"])
def test_a_file_that_cannot_be_read(tmp_path: Path, which: str) -> None:
    files = case(tmp_path)
    content = (tmp_path / which).read_bytes()
    (tmp_path / which).write_bytes(content[:-20])
    refused(files, f"{which}: its compressed data end too early")
    (tmp_path / which).unlink()
    refused(files, f"{which}: no such file")


# Intensities


@pytest.mark.parametrize(
    ("value", "dtype"), [(np.nan, np.float32), (np.inf, np.float32), (-np.inf, np.float64), (1e300, np.float64)]
)
def test_image_that_is_not_finite(tmp_path: Path, value: float, dtype: type) -> None:
    image = counting(3, 4, 5).astype(dtype)
    image[1, 2, 1:4] = value
    refused(case(tmp_path, t1=image), "t1.nii.gz: 3 voxels are NaN or infinite", "replace them")


@pytest.mark.parametrize("value", [0, 7.5])
def test_constant_image(tmp_path: Path, value: float) -> None:
    image = np.full((3, 4, 5), value, np.float32)
    refused(case(tmp_path, t1=counting(3, 4, 5), t2=image), f"t2.nii.gz: every voxel is {value:g}", "replace the file")


# Labels


def test_label_with_nan(tmp_path: Path) -> None:
    label = mask(1, 2).astype(np.float32)
    label[2, 3, 3:] = np.nan
    refused(case(tmp_path, label), "seg.nii.gz: 2 voxels of this label map are NaN")


def test_fractional_labels(tmp_path: Path) -> None:
    label = mask(1, 2).astype(np.float32)
    label[0, 0, 1:3] = 0.372
    refused(case(tmp_path, label), "seg.nii.gz: 2 labels are fractions, such as 0.372", "nearest neighbour")
    label[0, 0, 1:3] = 1.002
    refused(case(tmp_path, label), "are fractions")


@pytest.mark.parametrize("value", [-1, 65536])
def test_labels_that_no_map_holds(tmp_path: Path, value: int) -> None:
    refused(case(tmp_path, mask(1, value, dtype=np.int32)), "seg.nii.gz: goes from", f"{value}", "0 to 65535")


def test_empty_mask(tmp_path: Path) -> None:
    refused(case(tmp_path, mask()), "seg.nii.gz: every voxel is 0", "leave the case out")


def test_labels_of_the_preset_are_known_and_others_are_not(tmp_path: Path) -> None:
    how = replace(ANY, source_labels=(1, 2))
    np.testing.assert_array_equal(examined(case(tmp_path, mask(1, 2)), tmp_path, how, (9,)).label, mask(1, 2))
    files = case(tmp_path, mask(1, 3, 7))
    words = (
        "seg.nii.gz: holds labels 3 (0.016 mL), 7 (0.024 mL)",
        "known are 1, 2",
        "remap",
        "unknown_labels: background",
    )
    refused(files, *words, how=how, labels=(1, 3, 7))
    refused(case(tmp_path, mask(7)), "holds label 7 (0.008 mL)", how=how)


def test_labels_of_the_models_are_known_where_the_preset_names_none(tmp_path: Path) -> None:
    files = case(tmp_path, mask(1, 5))
    refused(files, "holds label 5", "known are 1, 2", labels=(1, 2))
    np.testing.assert_array_equal(examined(files, tmp_path, ANY, (5, 1)).label, mask(1, 5))
    np.testing.assert_array_equal(examined(files, tmp_path).label, mask(1, 5))


def test_what_remap_names_is_known(tmp_path: Path) -> None:
    files = case(tmp_path, mask(1, 4))
    found = examined(files, tmp_path, replace(ANY, remap={4: 3}), (1, 2, 3))
    np.testing.assert_array_equal(found.label, mask(1, 3))
    assert found.changes == ["label 4 became 3"]
    refused(case(tmp_path, mask(1, 4, 5)), "holds label 5", how=replace(ANY, remap={4: 3}), labels=(1, 2, 3))
    # Without a model nobody says which labels are wanted, whatever remap moves.
    files = case(tmp_path, mask(1, 4))
    np.testing.assert_array_equal(examined(files, tmp_path, replace(ANY, remap={4: 3})).label, mask(1, 3))


def test_many_unknown_labels_are_counted(tmp_path: Path) -> None:
    refused(
        case(tmp_path, mask(1, 10, 11, 12, 13, 14, 15, 16)),
        "holds labels 10 (0.016 mL), 11 (0.024 mL), 12 (0.032 mL), 13 (0.04 mL), 14 (0.048 mL) and 2 more,",
        labels=(1,),
    )


def test_unknown_labels_become_background(tmp_path: Path) -> None:
    how = replace(ANY, unknown_labels="background", source_labels=(1,))
    found = examined(case(tmp_path, mask(1, 300, 7, dtype=np.uint16)), tmp_path, how)
    np.testing.assert_array_equal(found.label, mask(1))
    assert found.changes == ["labels 7 (0.024 mL), 300 (0.016 mL) set to background"]
    assert found.original["original_label_volumes_ml"] == {1: 0.008, 7: 0.024, 300: 0.016}
    refused(case(tmp_path, mask(7)), "seg.nii.gz: no label is left", "config.yaml", how=how)


def test_remap_is_at_once_and_takes_large_labels(tmp_path: Path) -> None:
    found = examined(
        case(tmp_path, mask(1, 2, 1035, dtype=np.int16)), tmp_path, replace(ANY, remap={1: 2, 2: 1, 1035: 3})
    )
    np.testing.assert_array_equal(found.label, mask(2, 1, 3))
    assert found.changes == ["label 1 became 2", "label 2 became 1", "label 1035 became 3"]
    refused(case(tmp_path, mask(1, 1035, dtype=np.int16)), "seg.nii.gz: remap: label 1035 stays", "at most 255")
    refused(case(tmp_path, mask(1)), "no label is left after remap", how=replace(ANY, remap={1: 0}))


def test_remap_of_arrays() -> None:
    label = np.array([0, 1, 300, 65535], np.int32)
    assert conditions.remap(label, {300: 1, 65535: 255, 1: 0}).tolist() == [0, 0, 1, 255]
    for table in ({65536: 1}, {-1: 1}, {1: 256}, {1: -1}):
        with pytest.raises(UserError, match="remap"):
            conditions.remap(label, table)


# Real files


def test_raw_brats() -> None:
    folder = shared("data/brats_raw/BraTS2021_90001")
    names = ("t1", "t1ce", "t2", "flair")
    paths = {name: folder / f"BraTS2021_90001_{name}.nii.gz" for name in names}
    files = CaseFiles("BraTS2021_90001", paths, folder / "BraTS2021_90001_seg.nii.gz")
    found = examined(files, folder.parent, preparations.PREPARATIONS["brats2021"])
    assert (found.images.shape, found.names) == ((240, 240, 155, 4), names)
    assert np.unique(found.label).tolist() == [0, 1, 2, 3]
    assert found.original["original_label_volumes_ml"].keys() == {1, 2, 4}
    assert (found.changes, found.warnings) == (["label 4 became 3"], [])
    refused(files, "holds label 4 (6.84 mL)", how=preparations.PREPARATIONS["brats2023"])


def test_multiple_sclerosis_is_turned() -> None:
    folder = shared("data/open_ms/patient19")
    files = CaseFiles("patient19", {"flair": folder / "FLAIR.nii.gz"}, folder / "lesions.nii.gz")
    found = examined(files, folder, labels=(1,))
    assert found.changes == ["reoriented from LAS to RAS"]
    np.testing.assert_array_equal(found.label, np.asarray(nibabel.load(files.label).dataobj)[::-1])
    refused(files, "holds label 1 (49.769 mL)", "known are 2", labels=(2,))


def test_odd_nan_voxels(tmp_path: Path) -> None:
    path = shared("data/odd/nan_voxels.nii")
    image = nibabel.load(path)
    nibabel.save(nibabel.Nifti1Image(np.ones(image.shape, np.uint8), image.affine), tmp_path / "seg.nii")
    refused(CaseFiles("one", {"t1": path}, tmp_path / "seg.nii"), "nan_voxels.nii", "voxels are NaN or infinite")
