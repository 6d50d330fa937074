"""From what the files of a case hold to what a model is shown, step by step, and what is said of each."""

import dataclasses

import numpy as np
import pytest

from meddpm.config import PreparationConfig, UserError
from meddpm.data import cases
from meddpm.data.examine import Examined
from meddpm.data.tasks import Goal

SHAPE = (20, 16, 24)
# Voxels of 5 mm: SHAPE is 10 x 8 x 12 cm, 0.96 L.
AFFINE = np.array([[5.0, 0, 0, -50], [0, 5, 0, 20], [0, 0, 5, 4.5], [0, 0, 0, 1]])
PLAIN = PreparationConfig(fit="crop_or_pad")


def examined(channels: int = 1, **changed) -> Examined:
    """A brain of 12 x 10 x 14 voxels on a background of 0, with a lesion, label 2, of 3 x 3 x 3."""
    images = np.zeros((*SHAPE, channels), np.float32)
    random = np.random.default_rng(0)
    images[4:16, 3:13, 5:19] = random.uniform(50, 300, (12, 10, 14, channels))
    images[10, 8, 12] = 300
    label = np.zeros(SHAPE, np.uint8)
    label[6:9, 5:8, 7:10] = 2
    names = ("t1", "t1ce", "t2", "flair")[:channels]
    files = {"label": "one/seg.nii.gz"} | {name: f"one/{name}.nii.gz" for name in names}
    case = Examined("one", images, names, label, AFFINE, {"files": files}, [], [])
    return dataclasses.replace(case, **changed)


def refusal(case: Examined, how: PreparationConfig, size=None, whole_head: bool = False) -> str:
    with pytest.raises(UserError) as error:
        cases.build(case, how, Goal(size, whole_head=whole_head))
    text = str(error.value)
    assert "\n" not in text
    return text


def with_(**how) -> PreparationConfig:
    return dataclasses.replace(PLAIN, **how)


def said(sentences: list[str], *words: str) -> bool:
    """Whether one of `sentences` has all the words. None may have a semicolon, which parts them in the table."""
    assert not any(";" in sentence for sentence in sentences)
    return any(all(word in sentence for word in words) for sentence in sentences)


# What comes out


def test_a_case_on_its_own_grid():
    built = cases.build(examined(), PLAIN, Goal())
    assert built.case.id == "one"
    assert built.case.image.shape == SHAPE
    assert built.case.image.dtype == np.float32
    assert (built.case.image.min(), built.case.image.max()) == (-1, 1)
    assert built.case.label.dtype == np.uint8
    np.testing.assert_array_equal(built.case.label, examined().label)
    np.testing.assert_array_equal(built.case.affine, AFFINE)
    assert built.warnings == []
    assert said(built.changes, "scaled to [-1, 1] by minmax: t1 from 0..300")
    assert len(built.changes) == 1


def test_several_images_are_channels_with_a_scale_each():
    case = examined(3)
    case.images[..., 1] *= 7
    built = cases.build(case, PLAIN, Goal())
    assert built.case.image.shape == (*SHAPE, 3)
    assert built.case.image.max(axis=(0, 1, 2)).tolist() == [1, 1, 1]
    (words,) = [change for change in built.changes if "scaled" in change]
    assert all(f"{name} from " in words for name in case.names)


def test_a_label_map_alone_is_a_case():
    built = cases.build(examined(images=None, names=()), PLAIN, Goal((16, 16, 16)))
    assert built.case.image is None
    assert built.case.label.shape == (16, 16, 16)


def test_what_was_examined_stays_as_it_was():
    case = examined(2)
    case.images[0, 0, 0] = -5
    images, label = case.images.copy(), case.label.copy()
    cases.build(case, with_(floor=0.0, derive="brain"), Goal((16, 16, 16)))
    np.testing.assert_array_equal(case.images, images)
    np.testing.assert_array_equal(case.label, label)


# Floor


def test_the_floor_is_counted_for_each_image():
    case = examined(3)
    case.images[0, 0, :3, 0] = -5
    case.images[0, 0, :2, 2] = -7
    built = cases.build(case, with_(floor=0.0), Goal())
    assert said(built.changes, "negative intensities set to 0, voxels: t1 3, t2 2")
    np.testing.assert_array_equal(built.case.image, cases.build(examined(3), PLAIN, Goal()).case.image)
    assert said(cases.build(case, with_(floor=-6.0), Goal()).changes, "intensities below -6 set to -6, voxels: t2 2")


# Derived labels


def test_brain_is_derived_where_there_is_no_label():
    built = cases.build(examined(2), with_(derive="brain", derived_label=4), Goal())
    expected = np.zeros(SHAPE, np.uint8)
    expected[4:16, 3:13, 5:19] = 4
    expected[6:9, 5:8, 7:10] = 2
    np.testing.assert_array_equal(built.case.label, expected)
    millilitres = (12 * 10 * 14 - 27) * 0.125
    assert said(built.changes, f"label 4 (rest of the brain) derived from t1: {millilitres:.0f} mL")


def test_head_is_derived():
    built = cases.build(examined(), with_(derive="head", derived_label=1), Goal())
    assert (built.case.label[4:16, 3:13, 5:19] > 0).mean() > 0.98
    assert (built.case.label == 2).sum() == 27
    assert (built.case.label == 1).sum() < 1.1 * 12 * 10 * 14
    assert said(built.changes, "label 1 (head) derived from t1")


def test_derivation_comes_before_the_fit():
    """A crop that has no background in it still knows what background is."""
    case = examined()
    case.images[11, 8, 12] = 0
    built = cases.build(case, with_(derive="brain"), Goal((6, 6, 6)))
    assert np.argwhere(built.case.label == 0).tolist() == [[4, 3, 3]]


def test_a_label_that_is_there_is_left():
    built = cases.build(examined(), with_(derive="brain", derived_label=2), Goal())
    np.testing.assert_array_equal(built.case.label, examined().label)
    assert said(built.warnings, "label 2 is in the map already", "`derived_label`")


def test_nothing_to_derive_from_is_refused():
    text = refusal(examined(images=None, names=()), with_(derive="head"))
    assert text.startswith("one/seg.nii.gz: has no label 1 (head)")
    assert "no image" in text


@pytest.mark.parametrize(("litres", "odd"), [(0.3, True), (1.3, False), (3.0, True)])
def test_a_brain_of_an_odd_size_is_said(litres: float, odd: bool):
    edge = (litres * 1e6 / 1680) ** (1 / 3)  # of the voxels of the brain
    case = examined(affine=np.diag([edge, edge, edge, 1.0]))
    warnings = cases.build(case, with_(derive="brain"), Goal()).warnings
    assert said(warnings, "L were taken for brain in t1", "look at it") is odd


def test_an_implausible_brain_is_refused():
    case = examined()
    case.images[:] = np.random.default_rng(0).uniform(1, 2, case.images.shape)
    case.images[0, 0] = 0
    assert refusal(case, with_(derive="brain")).startswith("one/t1.nii.gz: ")


def test_a_head_of_microscopic_voxels_is_refused():
    case = examined(affine=np.diag([0.001, 0.001, 0.001, 1.0]))
    assert "too fine for a head" in refusal(case, with_(derive="head"))


def test_a_mask_that_the_model_knows_as_a_head_needs_one():
    assert "has no label 1 (head)" in refusal(examined(), PLAIN, None, whole_head=True)
    # What is set already is no mend.
    case = examined(images=np.zeros((*SHAPE, 1), np.float32))
    case.images[2:18, 2:14, 2:22] = 1
    case.label[:] = 2
    assert "label it in the map" in refusal(case, with_(derive="head", required_label=1))


# Required label


def test_a_case_without_its_label_is_refused():
    text = refusal(examined(), with_(required_label=4))
    assert text.startswith("one/seg.nii.gz: has no label 4 (brain)")
    assert "`derive: brain`" in text
    assert "`remap`" in text
    assert "no label 1 (head)" in refusal(examined(), with_(required_label=1), whole_head=True)
    cases.build(examined(), with_(required_label=2), Goal())


def test_an_empty_map_is_refused():
    text = refusal(examined(label=np.zeros(SHAPE, np.uint8)), PLAIN)
    assert text.startswith("one/seg.nii.gz: every voxel is 0")
    cases.build(examined(label=np.zeros(SHAPE, np.uint8)), with_(derive="brain"), Goal())


@pytest.mark.parametrize(
    ("litres", "words"),
    [
        (1.3, ("1.3 L", "size of a brain", "scalp and skull")),
        (3.8, ()),
        (2.2, ()),
        (7.5, ("7.5 L", "more than a head")),
    ],
)
def test_a_whole_head_has_its_volume(litres, words):
    label = np.ones(SHAPE, np.uint8)
    label[:1] = 2
    edge = (litres * 1e6 / (label == 1).sum()) ** (1 / 3)
    case = examined(label=label, affine=np.diag([edge, edge, edge, 1]))
    warnings = cases.build(case, PLAIN, Goal(whole_head=True)).warnings
    assert said(warnings, *words) if words else warnings == []
    assert cases.build(case, PLAIN, Goal()).warnings == []


# Fit


@pytest.mark.parametrize(
    ("size", "word"),
    [((24, 20, 24), "padded"), ((16, 12, 20), "cropped"), ((16, 20, 24), "cropped and padded")],
    ids=str,
)
def test_crop_and_pad_are_said(size, word):
    built = cases.build(examined(), PLAIN, Goal(size))
    shape = "x".join(map(str, size))
    assert f"{word} from 20x16x24 to {shape}" in built.changes
    assert built.case.label.shape == built.case.image.shape == size
    np.testing.assert_allclose(np.abs(np.diag(built.case.affine)[:3]), 5)
    # The lesion is where it was.
    first = built.case.affine @ [*np.argwhere(built.case.label == 2)[0], 1]
    np.testing.assert_allclose(first, AFFINE @ [6, 5, 7, 1])
    assert built.warnings == []


@pytest.mark.parametrize("fit", ["stretch", "contain"])
def test_resampling_is_said(fit):
    built = cases.build(examined(), with_(fit=fit), Goal((48, 48, 48)))
    assert said(built.changes, "resampled from 20x16x24 voxels of 5x5x5 mm to 48x48x48 of")
    assert built.case.label.shape == built.case.image.shape == (48, 48, 48)
    voxel_ml = abs(np.linalg.det(built.case.affine)) / 1000
    assert (built.case.label == 2).sum() * voxel_ml == pytest.approx(27 * 0.125, rel=0.1)


@pytest.mark.parametrize("intensity", ["minmax", "percentile"])
@pytest.mark.parametrize(("offset", "rings"), [(0, 0), (100, 0), (0, -40), (-1000, -40)])
def test_padding_goes_on_with_the_background(intensity, offset, rings):
    case = examined()
    case.images[5, 5, 1:3] = rings
    case.images[:] += offset
    built = cases.build(case, with_(intensity=intensity), Goal((30, 16, 24)))
    assert np.unique(built.case.image[:6]).tolist() == np.unique(built.case.image[5, 0, 0]).tolist()
    assert (built.case.image[0, 0, 0] == -1) == (rings == 0 or intensity == "percentile")


def test_padding_of_images_in_range_is_minus_one():
    case = examined()
    case.images[:] = case.images / 300
    built = cases.build(case, with_(intensity="as_is"), Goal((30, 16, 24)))
    assert (built.case.image[:5] == -1).all()
    np.testing.assert_array_equal(built.case.image[5:25], case.images[..., 0])
    assert said(built.changes, "padded")
    assert not said(built.changes, "scaled")


def test_labels_that_the_fit_cuts_away_are_said():
    case = examined()
    case.label[0:2, 0:2, 0:2] = 3
    case.label[5:15, 5:15, 10:20] = np.maximum(case.label[5:15, 5:15, 10:20], 1)
    built = cases.build(case, PLAIN, Goal((18, 16, 24)))
    # Half of label 3; 4 voxels of 0.125 mL.
    assert said(built.warnings, "0.5 mL (50.0%) of label 3")
    assert len(built.warnings) == 1
    built = cases.build(case, with_(spacing_mm=(2.5, 2.5, 2.5)), Goal((36, 32, 48)))
    assert said(built.warnings, "0.5 mL (50.0%) of label 3")


def test_a_label_that_vanishes_in_coarse_voxels_is_said():
    case = examined()
    case.label[5:15, 4:12, 6:18] = 2
    case.label[18, 14, 22] = 3
    built = cases.build(case, with_(fit="contain"), Goal((8, 8, 8)))
    assert said(built.warnings, "label 3 (0.125 mL) vanishes in voxels of 15x15x15 mm")
    assert not said(built.warnings, "label 2")


def test_a_crop_with_nothing_labelled_is_refused():
    case = examined()
    case.label[:] = 0
    case.label[0, 0, 0] = 2
    text = refusal(case, PLAIN, (8, 8, 8))
    assert text.startswith("one/seg.nii.gz: no label is left in the 8x8x8 voxels")
    case.label[10, 8, 12] = 3
    cases.build(case, PLAIN, Goal((8, 8, 8)))
    assert "label 2 is not left" in refusal(case, with_(required_label=2), (8, 8, 8))


# Intensities


def test_intensities_are_scaled_after_the_crop():
    case = examined()
    case.images[0, 0, 0] = 1000
    built = cases.build(case, PLAIN, Goal((16, 16, 24)))
    assert built.case.image.max() == 1
    assert said(built.changes, "from 0..300")


def test_percentiles_are_said_as_values():
    built = cases.build(examined(), with_(intensity="percentile", percentiles=(0, 99)), Goal())
    assert said(built.changes, "by percentile: t1 from 0..")
    assert not said(built.changes, "..300")


def test_an_image_without_contrast_in_the_crop_is_refused():
    case = examined(2)
    case.images[..., 1] = 0
    case.images[0, 0, 0, 1] = 9
    text = refusal(case, PLAIN, (12, 12, 12))
    assert text.startswith("one/t1ce.nii.gz: is 0 everywhere")


def test_images_out_of_range_are_refused():
    text = refusal(examined(), with_(intensity="as_is"))
    assert text.startswith("one/t1.nii.gz: runs from 0 to ")
    assert "`intensity: minmax`" in text


def test_images_in_range_stay_so_in_other_voxels():
    case = examined()
    case.images[:] = np.sign(case.images - 175)
    case.label[5:15, 4:12, 6:18] = 2
    for size in ((8, 8, 8), (30, 30, 30)):
        image = cases.build(case, with_(intensity="as_is", fit="contain"), Goal(size)).case.image
        assert -1 <= image.min() < image.max() <= 1


# What a model would make of it


def test_a_label_that_the_model_is_not_shown_is_said():
    case = examined()
    case.label[10:12, 5:8, 7:10] = 9
    warnings = cases.build(case, PLAIN, Goal(labels=(1, 2))).warnings
    assert said(warnings, "label 9", "is background to the model, which is shown 1, 2")
    assert cases.build(examined(), PLAIN, Goal(labels=(1, 2))).warnings == []


def test_a_label_that_one_of_several_models_is_not_shown_is_said():
    warnings = cases.build(examined(), PLAIN, Goal(labels=(1, 2), partly=(2,))).warnings
    assert said(warnings, "label 2", "is background to one of the models")


def test_a_map_of_which_the_model_sees_nothing_is_refused():
    with pytest.raises(UserError, match=r"has labels 2, and the model is shown 41, 77: .* `remap`"):
        cases.build(examined(), PLAIN, Goal(labels=(41, 77)))


def test_a_background_that_is_not_black_is_said():
    case = examined()
    case.images[5, 5, 5] = -100
    warnings = cases.build(case, PLAIN, Goal()).warnings
    assert said(warnings, "the background of t1, 0, is not its darkest value", "`floor: 0` mends it")
    assert cases.build(case, with_(floor=0.0), Goal()).warnings == []


def test_a_label_that_loses_most_of_its_volume_in_larger_voxels_is_said():
    case = examined()
    case.label[:] = 1
    case.label[4:13:4, 4:13:4, 4:13] = 2
    warnings = cases.build(case, with_(fit="contain"), Goal((12, 12, 12))).warnings
    assert said(warnings, "label 2 keeps", "in voxels of") or said(warnings, "label 2", "vanishes")


def test_a_speck_is_no_head_and_a_brain_is_the_size_of_one():
    def words(litres: float) -> str:
        edge = (litres * 1e6 / examined().label.astype(bool).sum()) ** (1 / 3)
        case = examined(affine=np.diag([edge, edge, edge, 1.0]), label=np.minimum(examined().label, 1))
        return " ".join(cases.build(case, PLAIN, Goal(whole_head=True)).warnings)

    assert "label 1 holds 46 mL: no head" in words(0.046)
    assert "label 1 holds 1.3 L: the size of a brain, not of a head" in words(1.3)
    assert words(3.8) == ""
    assert "more than a head" in words(9)


def test_labels_that_changed_sides_are_no_head():
    label = np.full(SHAPE, 2, np.uint8)
    label[8:10, 7:9, 11:13] = 1
    edge = (3.8e6 / label.size) ** (1 / 3)
    case = examined(label=label, affine=np.diag([edge, edge, edge, 1.0]))
    assert said(cases.build(case, PLAIN, Goal(whole_head=True)).warnings, "label 1 holds", "no head")


def test_a_head_that_the_fit_cuts_away_is_refused():
    label = np.zeros(SHAPE, np.uint8)
    label[9:11, 7:9, 11:13], label[0] = 2, 1
    case = examined(label=label)
    assert "label 1 is not left" in refusal(case, PLAIN, (8, 8, 8), whole_head=True)
