"""The synthetic lesions: where they lie, how they look, and that they change nothing else."""

import dataclasses
import functools

import nibabel
import numpy as np
import pytest
from scipy import ndimage

from meddpm.config import ConfigError, Icbm152Config
from meddpm.data import SOURCES, icbm152, manifest
from meddpm.data.lesions import LABEL, draw
from meddpm.data.preparing import prepare
from meddpm.data.tasks import Goal
from meddpm.data.volumes import Case

WITHOUT, WITH = Icbm152Config(), Icbm152Config(lesion_every=4)
DEMO = (56, 64, 56)


@functools.cache
def case(settings_lesions: int, index: int, size: tuple[int, int, int] = DEMO, seed: int = 0) -> Case:
    return icbm152.build(Icbm152Config(lesion_every=settings_lesions, seed=seed), index, size)


@functools.cache
def maps(seed: int) -> np.ndarray:
    template = icbm152.load_template()
    return draw(template.maps.numpy(), template.spacing_mm, seed, 1)


def volume_ml(one: Case) -> float:
    return float((one.label == LABEL).sum() * abs(np.linalg.det(one.affine[:3, :3])) / 1000)


@pytest.mark.parametrize(
    ("every", "having"), [(0, []), (1, [0, 1, 2, 3, 4, 5]), (2, [1, 3, 5]), (4, [1, 5]), (5, [1]), (9, [1])]
)
def test_every_nth_case_from_the_second_on_has_lesions(every, having):
    settings = dataclasses.replace(WITHOUT, lesion_every=every)
    assert [index for index in range(6) if icbm152.has_lesions(settings, index)] == having


def test_a_case_without_lesions_is_what_it_was():
    for index in (0, 2):
        np.testing.assert_array_equal(case(4, index).image, case(0, index).image)
        np.testing.assert_array_equal(case(4, index).label, case(0, index).label)
    assert LABEL not in case(0, 1).label


def test_a_case_with_lesions_differs_in_and_by_them_alone():
    plain, drawn = case(0, 1), case(4, 1)
    np.testing.assert_array_equal(drawn.affine, plain.affine)
    lesion = drawn.label == LABEL
    assert (plain.label[lesion] == 3).all()
    np.testing.assert_array_equal(drawn.label[~lesion], plain.label[~lesion])
    # Lesions too thin for a label of their own darken a little, too.
    darker = plain.image - drawn.image
    assert darker.min() > -1e-5
    touched = darker > 1e-5
    assert touched[lesion].all()
    assert touched[drawn.label == 0].sum() == 0
    assert touched[plain.label > 0].mean() < 0.05
    assert darker[ndimage.binary_dilation(lesion, iterations=4)].sum() > 0.9 * darker.sum()


def test_lesions_depend_on_seed_and_index_alone():
    again = icbm152.build(dataclasses.replace(WITH, cases=9, lesion_every=1), 1, DEMO)
    np.testing.assert_array_equal(again.image, case(4, 1).image)
    np.testing.assert_array_equal(again.label, case(4, 1).label)
    template = icbm152.load_template()
    for seed, index in ((1, 1), (0, 5)):
        other = draw(template.maps.numpy(), template.spacing_mm, seed, index)[4]
        assert (np.minimum(other, maps(0)[4])).sum() < 0.5 * maps(0)[4].sum()


@pytest.mark.parametrize("seed", range(4))
def test_the_drawing_keeps_to_the_white_matter(seed):
    before = icbm152.load_template().maps.numpy()
    untouched = before.copy()
    drawn = maps(seed)
    np.testing.assert_array_equal(before, untouched)
    assert drawn.dtype == np.float32
    assert drawn.shape == (5, *before.shape[1:])
    np.testing.assert_array_equal(drawn[1:4], before[1:])
    lesion = drawn[4]
    assert lesion.min() == 0
    assert (lesion <= before[2]).all()
    np.testing.assert_array_equal(drawn[0][lesion == 0], before[0][lesion == 0])
    assert 2 < lesion.sum() / 1000 < 25
    places, found = ndimage.label(lesion > 0.5)
    volumes = ndimage.sum_labels(lesion, places, range(1, found + 1)) / 1000
    assert (volumes > 0.05).sum() >= 3


def test_most_of_it_is_by_the_ventricles():
    """The lateral ventricles reach from about 20 mm behind to 30 mm before and 0 to 30 mm above the commissures."""
    origin = icbm152.load_template().centre_mm - (np.array(maps(0).shape[1:]) - 1) / 2
    x, y, z = (np.concatenate([np.argwhere(maps(seed)[4] > 0.5) for seed in range(4)]) + origin).T
    assert ((abs(x) < 50) & (y > -60) & (y < 50) & (z > -20) & (z < 45)).mean() > 0.7


@pytest.mark.parametrize("seed", range(4))
def test_t1_inside_is_between_fluid_and_grey_matter(seed):
    before, drawn = icbm152.load_template().maps.numpy(), maps(seed)
    t1, (_, grey, white, inside) = drawn[0], before
    fluid = np.clip(inside - grey - white, 0, 1)
    core = drawn[4] > 0.95
    assert core.sum() > 200
    assert t1[fluid > 0.9].mean() < t1[core].mean() < t1[grey > 0.9].mean() < before[0][core].mean() - 0.1


def test_t1_inside_is_darker_than_the_white_matter_around():
    drawn = case(4, 1)
    lesion = drawn.label == LABEL
    around = ndimage.binary_dilation(lesion, iterations=3) & (drawn.label == 3)
    assert drawn.image[lesion].mean() < drawn.image[around].mean() - 0.3


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_another_size_shows_the_same_lesions(seed):
    coarse, fine = case(4, 1, DEMO, seed), case(4, 1, (96, 96, 96), seed)
    assert 2 < volume_ml(fine) < 25
    assert volume_ml(coarse) == pytest.approx(volume_ml(fine), rel=0.3)
    centres = [one.affine @ [*np.argwhere(one.label == LABEL).mean(axis=0), 1] for one in (coarse, fine)]
    np.testing.assert_allclose(*centres, atol=4)


@pytest.mark.parametrize("size", [(32, 32, 32), (32, 40, 36), (48, 48, 32)])
def test_no_case_loses_its_lesions_at_a_coarse_size(size):
    for seed in range(6):
        for index in (1, 5):
            assert (case(4, index, size, seed).label == LABEL).any(), (seed, index)


def test_remap_renames_lesions():
    remapped = icbm152.build(dataclasses.replace(WITH, remap={1: 1, 2: 1, 3: 1, 4: 2}), 1, DEMO)
    np.testing.assert_array_equal(remapped.label == 2, case(4, 1).label == LABEL)


def test_the_labels_of_the_source_are_those_that_have_names():
    assert set(icbm152.LABELS) == set(SOURCES["icbm152"])
    assert "synthetic" in icbm152.LABELS[LABEL]


def test_the_notes_say_synthetic(tmp_path):
    table = prepare(dataclasses.replace(WITH, cases=2), Goal((32, 32, 32)), tmp_path)
    plain, lesioned = manifest.read(table)
    assert "lesion" not in plain.notes
    assert "with synthetic lesions drawn in" in lesioned.notes
    for row, has in ((plain, False), (lesioned, True)):
        for kind in ("image", "label"):
            header = nibabel.load(tmp_path / f"{row.id}_{kind}.nii.gz").header
            assert ("synthetic lesions" in header["descrip"].item().decode()) is has
        note, short = icbm152.notes(WITH, int(has))
        assert note in row.notes
        assert len(short) <= 79


def test_a_setting_out_of_range_is_named():
    with pytest.raises(ConfigError, match=r"^lesion_every: [^\n]*$"):
        icbm152.build(dataclasses.replace(WITHOUT, lesion_every=-1), 0, (32, 32, 32))
