"""The cases deformed from the ICBM 152 template, and `prepare`, which writes them."""

import dataclasses
import functools
import subprocess
import sys

import numpy as np
import pytest
import torch

from meddpm.config import ConfigError, Icbm152Config
from meddpm.data import icbm152, load_case, manifest
from meddpm.data.preparing import prepare
from meddpm.data.tasks import Goal
from meddpm.data.volumes import Case

SETTINGS = Icbm152Config()
SIZE = (32, 40, 36)


@functools.cache
def case(index: int = 0) -> Case:
    return icbm152.build(SETTINGS, index, SIZE)


def still(**changes) -> Icbm152Config:
    """The template as it is, but for `changes`."""
    return dataclasses.replace(SETTINGS, rotation_degrees=0.0, scaling=0.0, elastic_mm=0.0, **changes)


def test_case_ids():
    assert icbm152.case_ids(dataclasses.replace(SETTINGS, cases=3)) == ["icbm152-000", "icbm152-001", "icbm152-002"]
    assert case(1).id == "icbm152-001"


def test_a_case_depends_on_seed_and_index_alone():
    again = icbm152.build(dataclasses.replace(SETTINGS, cases=9), 0, SIZE)
    np.testing.assert_array_equal(again.image, case().image)
    np.testing.assert_array_equal(again.label, case().label)
    np.testing.assert_array_equal(again.affine, case().affine)
    other_seed = icbm152.build(dataclasses.replace(SETTINGS, seed=1), 0, SIZE)
    for other in (case(1), other_seed):
        differs = other.label != case().label
        assert differs[(other.label > 0) | (case().label > 0)].mean() > 0.1


def test_types_range_and_background():
    image, label = case().image, case().label
    assert image.dtype == np.float32
    assert image.shape == label.shape == SIZE
    assert label.dtype == np.uint8
    assert np.unique(label).tolist() == [0, 1, 2, 3]
    assert (image[label == 0] == -1).all()
    assert (image[label > 0] > -1).mean() > 0.99
    assert image.max() <= 1


def test_intensities_rise_from_csf_to_white_matter():
    csf, grey, white = (case().image[case().label == value].mean() for value in (1, 2, 3))
    assert -1 < csf < grey - 0.2
    assert grey < white - 0.2


def test_volumes_are_those_of_a_brain():
    voxel_ml = abs(np.linalg.det(case().affine[:3, :3])) / 1000
    csf, grey, white = (np.bincount(case().label.ravel())[1:] * voxel_ml).tolist()
    assert 30 < csf < 300
    assert 700 < grey < 1500
    assert 400 < white < 900
    assert 1400 < csf + grey + white < 2400


def test_axes_run_right_anterior_superior():
    """The affine puts the undeformed brain where the template's own affine has it, down to landmarks."""
    from nilearn.datasets import load_mni152_brain_mask

    sharp = icbm152.build(still(), 0, SIZE)
    edge = sharp.affine[0, 0]
    np.testing.assert_allclose(sharp.affine[:3, :3], np.eye(3) * edge)
    centre = np.argwhere(sharp.label > 0).mean(axis=0)
    mask = load_mni152_brain_mask(resolution=1)
    expected = mask.affine @ [*np.argwhere(mask.get_fdata() > 0).mean(axis=0), 1]
    np.testing.assert_allclose(sharp.affine @ [*centre, 1], expected, atol=0.5)
    corpus_callosum, ventricle = ([0, 25, 5], 3), ([0, 12, 12], 1)
    for place, tissue in (corpus_callosum, ventricle):
        i, j, k = np.rint(np.linalg.inv(sharp.affine) @ [*place, 1])[:3].astype(int)
        assert tissue in sharp.label[i - 1 : i + 2, j, k]


def test_the_undeformed_case_is_the_averaged_template():
    """At a whole number of millimetres a voxel is the mean of the template's own voxels."""
    template = icbm152.load_template()
    fine = icbm152.build(still(), 0, tuple(int(edge) + 2 for edge in template.extent_mm))
    assert fine.affine[0, 0] == pytest.approx(1)
    mask = template.maps[3].numpy() > 0
    inner = (slice(1, -1),) * 3
    assert ((fine.label[inner] > 0) == mask).mean() > 0.99
    grey, white = template.maps[1].numpy(), template.maps[2].numpy()
    sure = np.maximum(grey, white) > 0.8
    assert (fine.label[inner][sure] == np.where(white > grey, 3, 2)[sure]).mean() > 0.98
    values = 2 * (template.maps[0].numpy() - template.low) / (template.high - template.low) - 1
    assert np.corrcoef(fine.image[inner][mask], np.clip(values, -1, 1)[mask])[0, 1] > 0.97


def test_another_size_shows_the_same_brain():
    """The fine case, read at the centres of the coarse one's voxels, has the coarse one's tissues."""
    strong = dataclasses.replace(SETTINGS, elastic_mm=12.0)
    coarse, fine = icbm152.build(strong, 0, SIZE), icbm152.build(strong, 0, tuple(2 * n for n in SIZE))
    centres = np.indices(SIZE).reshape(3, -1)
    there = np.linalg.inv(fine.affine) @ coarse.affine @ np.vstack([centres, np.ones(centres.shape[1])])
    nearest = np.clip(np.rint(there[:3]).astype(int), 0, np.array(fine.label.shape)[:, None] - 1)
    brain = coarse.label.ravel() > 0
    assert ((fine.label[tuple(nearest)] > 0) == brain).mean() > 0.98
    assert np.corrcoef(fine.image[tuple(nearest)][brain], coarse.image.ravel()[brain])[0, 1] > 0.9


def test_left_stays_left(monkeypatch):
    """The template is symmetric, so a lopsided one stands in for it: a brain with white matter at its left alone."""
    real = icbm152.load_template()
    maps = torch.zeros_like(real.maps)
    maps[0], maps[3] = 0.5, 1
    maps[1, 73:], maps[2, :73] = 1, 1
    monkeypatch.setattr(icbm152, "load_template", lambda: dataclasses.replace(real, maps=maps))
    lopsided = icbm152.build(still(), 0, SIZE)
    edge, origin = lopsided.affine[0, 0], lopsided.affine[0, 3]
    for tissue, side in ((3, -1), (2, 1)):
        x = edge * np.argwhere(lopsided.label == tissue)[:, 0] + origin
        assert x.size > 1000
        assert (x * side > -edge).all()


@pytest.mark.parametrize("size", [(16, 16, 16), (24, 24, 12), (48, 20, 30)])
def test_nothing_is_cut_at_the_border(size):
    strong = dataclasses.replace(SETTINGS, rotation_degrees=20.0, scaling=0.15, elastic_mm=12.0)
    for index in range(2):
        label = icbm152.build(strong, index, size).label
        assert label.shape == size
        for axis in range(3):
            assert not np.take(label, [0, -1], axis).any()
        assert (label > 0).any()


def test_remap_comes_last():
    remapped = icbm152.build(dataclasses.replace(SETTINGS, remap={1: 0, 2: 1, 3: 2}), 0, SIZE)
    np.testing.assert_array_equal(remapped.image, case().image)
    np.testing.assert_array_equal(remapped.label, np.array([0, 0, 1, 2], np.uint8)[case().label])


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"elastic_mm": 40.0}, "elastic_mm"),
        ({"scaling": 0.9}, "scaling"),
        ({"rotation_degrees": -1.0}, "rotation_degrees"),
        ({"cases": 0}, "cases"),
    ],
)
def test_a_setting_out_of_range_is_named(tmp_path, change, word):
    with pytest.raises(ConfigError, match=f"^{word}: [^\n]*$"):
        prepare(dataclasses.replace(SETTINGS, **change), Goal(SIZE), tmp_path)


def test_a_size_too_small_is_named(tmp_path):
    with pytest.raises(ConfigError, match=r"^size 32x32x4: "):
        prepare(SETTINGS, Goal((32, 32, 4)), tmp_path)


def test_prepare_writes_cases_and_table(tmp_path):
    table = prepare(SETTINGS, Goal(SIZE), tmp_path / "one")
    rows = manifest.read(table)
    assert [row.id for row in rows] == icbm152.case_ids(SETTINGS)
    kinds = ("image.nii.gz", "label.nii.gz", "case.json")
    names = {"cases.tsv", "dataset.json"} | {f"{row.id}_{kind}" for row in rows for kind in kinds}
    assert {file.name for file in (tmp_path / "one").iterdir()} == names
    loaded = load_case(table, rows[1])
    np.testing.assert_array_equal(loaded.image, case(1).image)
    np.testing.assert_array_equal(loaded.label, case(1).label)
    np.testing.assert_allclose(loaded.affine, case(1).affine, rtol=1e-5)
    for row in rows:
        assert row.orientation == "RAS"
        assert "synthetic" in row.notes
        assert "not a population" in row.notes
        assert "Fonov et al. 2011" in row.notes
        assert "Fonov et al. 2009" in row.notes
        assert "Collins et al. 1999" in row.notes
    again = prepare(SETTINGS, Goal(SIZE), tmp_path / "two", workers=2)
    for name in names:
        assert (again.parent / name).read_bytes() == (table.parent / name).read_bytes()


def test_the_table_of_an_earlier_run_goes_first(tmp_path, monkeypatch):
    table = prepare(dataclasses.replace(SETTINGS, cases=1), Goal((16, 16, 16)), tmp_path)

    def fails(*_):
        raise OSError("disk full")

    monkeypatch.setattr(icbm152, "build", fails)
    with pytest.raises(OSError, match="disk full"):
        prepare(SETTINGS, Goal((16, 16, 16)), tmp_path)
    assert not table.exists()


def test_no_chatter_and_no_heavy_import():
    script = (
        "import sys, meddpm.data\n"
        "assert not {'torch', 'nilearn', 'nibabel', 'monai', 'scipy'} & set(sys.modules)\n"
        "from meddpm.data import icbm152\n"
        "icbm152.load_template()\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
