"""From one grid of voxels to another and back: no voxel changes its place in space, and none its value unseen."""

import nibabel
import numpy as np
import pytest

from meddpm.config import PreparationConfig
from meddpm.data import grids

# A scanner's affine: voxels of three sizes, axes that lie near none of the patient's.
SPACING = np.diag([1.5, 0.8, 2.0, 1.0])


def turned(degrees: float) -> np.ndarray:
    """The affine of an oblique volume."""
    from scipy.spatial.transform import Rotation

    affine = np.eye(4)
    affine[:3, :3] = Rotation.from_euler("xyz", [degrees, -degrees / 2, degrees / 3], degrees=True).as_matrix()
    affine[:3, 3] = 12.5, -80.25, 33
    return affine @ SPACING


def affine_of(codes: str) -> np.ndarray:
    """The affine of a volume whose axes run to `codes`, with voxels of three sizes and an odd origin."""
    ornt = nibabel.orientations.axcodes2ornt(codes)
    affine = np.eye(4)
    affine[:3, :3] = 0
    for axis, (along, sign) in enumerate(ornt):
        affine[int(along), axis] = sign * SPACING[axis, axis]
    affine[:3, 3] = 12.5, -80.25, 33
    return affine


AFFINES = {codes: affine_of(codes) for codes in ("RAS", "LAS", "LPS", "PIR", "SLA")} | {"oblique": turned(20)}


def counting(*shape: int) -> np.ndarray:
    """Every voxel has a value of its own, so that any swapped or flipped axis shows."""
    return np.arange(1, np.prod(shape) + 1, dtype=np.float32).reshape(shape)


def millimetres(shape: tuple[int, ...], affine: np.ndarray) -> np.ndarray:
    """Where each voxel lies: (H, W, D, 3)."""
    indices = np.stack(np.meshgrid(*map(np.arange, shape), indexing="ij"), axis=-1)
    return indices @ affine[:3, :3].T + affine[:3, 3]


def ramp(shape: tuple[int, ...], affine: np.ndarray) -> np.ndarray:
    """An image that is linear in space, so that linear resampling is exact inside of it."""
    return (millimetres(shape, affine) @ [1.0, -2.0, 0.5]).astype(np.float32)


def fitted(array: np.ndarray, affine: np.ndarray, size: tuple[int, int, int], **how) -> tuple[np.ndarray, grids.Grid]:
    grid = grids.target_grid(array.shape[:3], affine, PreparationConfig(**how), size)
    return grids.onto(array, affine, grid, 0), grid


def box(shape: tuple[int, ...], affine: np.ndarray) -> np.ndarray:
    """The two outermost corners of the cells of a volume, in millimetres."""
    corners = np.array([[-0.5] * 3, np.array(shape) - 0.5])
    return corners @ affine[:3, :3].T + affine[:3, 3]


# There and back


@pytest.mark.parametrize("codes", ["RAS", "LPS"])
@pytest.mark.parametrize("affine", AFFINES.values(), ids=AFFINES)
def test_orient_keeps_every_voxel_in_its_place(affine, codes):
    array = counting(3, 4, 5)
    result, turned_affine = grids.orient(array, affine, codes)
    assert "".join(nibabel.aff2axcodes(turned_affine)) == codes
    before = dict(zip(array.ravel(), millimetres(array.shape, affine).reshape(-1, 3), strict=True))
    places = millimetres(result.shape, turned_affine).reshape(-1, 3)
    for value, place in zip(result.ravel(), places, strict=True):
        np.testing.assert_allclose(place, before[value], atol=1e-4)


@pytest.mark.parametrize("size", [(9, 11, 8), (3, 4, 5), (5, 4, 7), (2, 9, 4)], ids=str)
@pytest.mark.parametrize("codes", ["RAS", "LPS"])
@pytest.mark.parametrize("affine", AFFINES.values(), ids=AFFINES)
def test_voxels_go_round(affine, codes, size):
    """Orient, crop or pad, and back: each voxel that was kept is where it was, bit for bit; the rest is `fill`."""
    image = counting(3, 4, 5) / 3
    label = (counting(3, 4, 5) % 5).astype(np.uint8)
    oriented, oriented_affine = grids.orient(image, affine, codes)
    oriented_label, _ = grids.orient(label, affine, codes)
    prepared, grid = fitted(oriented, oriented_affine, size, fit="crop_or_pad")
    prepared_label = grids.label_onto(oriented_label, oriented_affine, grid)
    assert prepared.shape == prepared_label.shape == size

    returned = grids.back(prepared, grid.affine, image.shape, affine, fill=-1)
    returned_label = grids.label_onto(prepared_label, grid.affine, grids.Grid(label.shape, affine))
    there = np.isin(image, prepared)
    kept = [min(old, new) for old, new in zip(oriented.shape, size, strict=True)]
    assert there.sum() == np.prod(kept)
    assert returned.dtype == np.float32
    np.testing.assert_array_equal(returned, np.where(there, image, -1))
    assert returned_label.dtype == np.uint8
    np.testing.assert_array_equal(returned_label, np.where(there, label, 0))


@pytest.mark.parametrize("affine", AFFINES.values(), ids=AFFINES)
def test_channels_go_round_together(affine):
    images = counting(3, 4, 5, 2)
    oriented, oriented_affine = grids.orient(images, affine, "RAS")
    prepared, grid = fitted(oriented, oriented_affine, (7, 6, 9), fit="crop_or_pad")
    np.testing.assert_array_equal(grids.back(prepared, grid.affine, (3, 4, 5), affine, -1), images)


@pytest.mark.parametrize("affine", AFFINES.values(), ids=AFFINES)
def test_back_from_other_voxels_is_one_linear_resampling(affine):
    shape = (12, 20, 9)
    _, oriented_affine = grids.orient(ramp(shape, affine), affine, "RAS")
    # Wider than the volume, so that its edge is not blurred by what lies beyond.
    wide = grids.Grid(
        (48, 48, 48), oriented_affine @ np.array([[0.7, 0, 0, -7], [0, 0.9, 0, -7], [0, 0, 0.8, -7], [0, 0, 0, 1]])
    )
    returned = grids.back(ramp(wide.shape, wide.affine), wide.affine, shape, affine, fill=-1)
    np.testing.assert_allclose(returned, ramp(shape, affine), atol=2e-3)


def test_back_fills_outside_of_what_was_prepared():
    affine = np.eye(4)
    prepared, grid = fitted(np.ones((8, 8, 8), np.float32), affine, (4, 4, 4), fit="crop_or_pad", spacing_mm=(0.5,) * 3)
    returned = grids.back(prepared, grid.affine, (8, 8, 8), affine, fill=-1)
    assert (returned[3:5, 3:5, 3:5] == 1).all()
    assert (returned[[0, -1]] == -1).all()


# Fit


@pytest.mark.parametrize("size", [(6, 4, 7), (9, 4, 2), (3, 7, 12), (5, 9, 4)], ids=str)
def test_crop_or_pad_is_that_of_torchio(size):
    import torch
    import torchio

    array, affine = counting(6, 4, 7), AFFINES["LPS"]
    expected = torchio.CropOrPad(size)(torchio.ScalarImage(tensor=torch.from_numpy(array)[None], affine=affine))
    result, grid = fitted(array, affine, size, fit="crop_or_pad")
    np.testing.assert_array_equal(result, expected.data[0].numpy())
    np.testing.assert_allclose(grid.affine, expected.affine, atol=1e-6)


def test_an_odd_number_of_voxels_has_its_larger_part_at_the_start():
    line = counting(7, 1, 1)
    assert fitted(line, np.eye(4), (4, 1, 1), fit="crop_or_pad")[0].ravel().tolist() == [3, 4, 5, 6]
    assert fitted(line, np.eye(4), (10, 1, 1), fit="crop_or_pad")[0].ravel().tolist() == [0, 0, *range(1, 8), 0]


def test_padding_is_the_fill_and_of_the_arrays_type():
    array = counting(2, 2, 2).astype(np.int16)
    grid = grids.target_grid(array.shape, np.eye(4), PreparationConfig(fit="crop_or_pad"), (4, 2, 2))
    result = grids.onto(array, np.eye(4), grid, 7)
    assert result.dtype == np.int16
    assert (result[[0, -1]] == 7).all()
    np.testing.assert_array_equal(result[1:3], array)


@pytest.mark.parametrize("how", [{"fit": "stretch"}, {"fit": "contain"}, {"fit": "crop_or_pad"}], ids=str)
def test_the_size_that_it_has_leaves_a_volume_alone(how):
    affine = turned(20) @ np.linalg.inv(SPACING) * 1.1
    affine[3, 3] = 1
    array = counting(5, 4, 6)
    result, grid = fitted(array, affine, (5, 4, 6), **how)
    np.testing.assert_array_equal(result, array)
    np.testing.assert_allclose(grid.affine, affine, atol=1e-6)


def test_no_size_is_the_volumes_own_grid():
    grid = grids.target_grid((3, 4, 5), turned(20), PreparationConfig(), None)
    assert grid.shape == (3, 4, 5)
    np.testing.assert_array_equal(grid.affine, turned(20))


def test_a_spacing_that_is_rounded_resamples_nothing():
    affine, how = np.diag([1, 0.80003, 1, 1]), {"fit": "crop_or_pad", "spacing_mm": (1, 0.8, 1)}
    array = counting(3, 400, 5)
    np.testing.assert_array_equal(fitted(array, affine, (5, 390, 4), **how)[0][1:4], array[:, 5:395, 1:])


def test_rounding_in_a_header_resamples_nothing():
    array, affine = counting(6, 40, 7), turned(20)
    rounded = affine.astype(np.float32).astype(float)
    assert not np.array_equal(rounded, affine)
    np.testing.assert_array_equal(grids.back(array, affine, array.shape, rounded, -1), array)
    moved = affine @ np.array([[1, 0, 0, 0.01], [0, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1]])
    assert not grids.is_aligned(array.shape, affine, grids.Grid(array.shape, moved))


def test_stretch_fills_the_same_box_as_cells():
    import torch

    array = np.random.default_rng(0).random((4, 5, 6), np.float32)
    affine = turned(20)
    size = (8, 5, 15)
    result, grid = fitted(array, affine, size, fit="stretch")
    np.testing.assert_allclose(box(grid.shape, grid.affine), box(array.shape, affine), atol=1e-6)
    batch = torch.from_numpy(array)[None, None]
    expected = torch.nn.functional.interpolate(batch, size=size, mode="trilinear", align_corners=False)[0, 0].numpy()
    np.testing.assert_allclose(result, expected, atol=1e-5)


@pytest.mark.parametrize("size", [(16, 16, 16), (32, 20, 24), (7, 9, 8), (11, 12, 13)], ids=str)
@pytest.mark.parametrize("shape", [(10, 20, 5), (12, 7, 9)], ids=str)
def test_contain_has_the_smallest_cubes_that_hold_everything(shape, size):
    affine = turned(20)
    grid = grids.target_grid(shape, affine, PreparationConfig(fit="contain"), size)
    edges = nibabel.affines.voxel_sizes(grid.affine)
    lengths = np.array(shape) * nibabel.affines.voxel_sizes(affine)
    np.testing.assert_allclose(edges, (lengths / size).max())
    # The corners of the volume, in cells of the grid.
    corners = np.c_[box(shape, affine), [1, 1]] @ np.linalg.inv(grid.affine).T
    assert (corners[0, :3] > -0.5 - 1e-6).all()
    assert (corners[1, :3] < np.array(size) - 0.5 + 1e-6).all()
    # In the middle, to less than a voxel.
    assert np.abs(corners[:, :3].mean(axis=0) - (np.array(size) - 1) / 2).max() <= 0.75


def test_contain_of_cubes_pads_them():
    array = counting(8, 5, 6)
    result, grid = fitted(array, np.diag([2, 2, 2, 1.0]), (8, 8, 8), fit="contain")
    np.testing.assert_array_equal(result[:, 2:7, 1:7], array)
    np.testing.assert_allclose(nibabel.affines.voxel_sizes(grid.affine), 2)


@pytest.mark.parametrize("fit", ["stretch", "contain", "crop_or_pad"])
@pytest.mark.parametrize("affine", AFFINES.values(), ids=AFFINES)
def test_resampling_keeps_what_is_linear_in_space(affine, fit):
    shape, size = (12, 16, 10), (21, 23, 25)
    result, grid = fitted(ramp(shape, affine), affine, size, fit=fit, spacing_mm=(0.9, 0.7, 1.1))
    # Where all eight neighbours are voxels of the volume.
    indices = np.linalg.inv(affine) @ np.c_[millimetres(size, grid.affine).reshape(-1, 3), np.ones(np.prod(size))].T
    inside = ((indices[:3] >= 0) & (indices[:3] <= np.array(shape)[:, None] - 1)).all(axis=0).reshape(size)
    assert inside.sum() > 1000
    np.testing.assert_allclose(result[inside], ramp(size, grid.affine)[inside], atol=2e-3)


def test_an_axis_that_keeps_its_spacing_is_not_blurred():
    array = counting(9, 6, 4)
    result, _ = fitted(array, np.diag([1, 1, 3, 1.0]), (6, 9, 12), fit="crop_or_pad", spacing_mm=(1, 1, 1))
    # Voxel 2 of an axis of 9 comes first of 6, and 2 are put before 6 to make 9; the middle third is the old voxel.
    np.testing.assert_allclose(result[:, 2:8, 1::3], array[2:8], rtol=1e-6)


def test_voxels_that_grow_are_means_not_samples():
    stripes = np.zeros((32, 32, 32), np.float32)
    stripes[::4] = 1
    result, _ = fitted(stripes, np.eye(4), (8, 8, 8), fit="stretch")
    np.testing.assert_allclose(result[1:-1], 0.25, atol=0.03)


@pytest.mark.parametrize("length", [30, 13, 8])
def test_resampling_never_leaves_the_range(length):
    steps = np.zeros((40, 40, 40), np.float32)
    steps[20:] = steps[:, 10:12] = 1
    result, _ = fitted(steps, np.eye(4), (length,) * 3, fit="stretch")
    assert (result.min(), result.max()) == (0, 1)


@pytest.mark.parametrize("fill", [-3.0, 100.0])
def test_resampling_goes_on_with_the_fill(fill):
    array = np.random.default_rng(0).random((20, 20, 20), np.float32) + 5
    grid = grids.target_grid(array.shape, np.eye(4), PreparationConfig(fit="contain"), (10, 10, 30))
    result = grids.onto(array, np.eye(4), grid, fill)
    assert (result[..., :9] == fill).all()
    assert result[..., 10:20].min() >= 5
    assert result[..., 10:20].max() <= 6


def test_a_thin_axis_can_be_reduced():
    result, _ = fitted(np.ones((20, 20, 2), np.float32), np.eye(4), (10, 10, 1), fit="stretch")
    np.testing.assert_allclose(result, 1)


# Label maps


def test_a_voxel_takes_the_label_with_the_largest_share():
    label = np.zeros((12, 6, 6), np.uint8)
    label[:4], label[4:6], label[6:9] = 9, 4, 2
    grid = grids.target_grid(label.shape, np.eye(4), PreparationConfig(fit="stretch"), (24, 6, 6))
    result = grids.label_onto(label, np.eye(4), grid)
    assert result.dtype == np.uint8
    assert result[:, 3, 3].tolist() == [9] * 8 + [4] * 4 + [2] * 6 + [0] * 6
    assert np.unique(result).tolist() == [0, 2, 4, 9]


def test_no_label_comes_up_between_two_others():
    label = np.zeros((16, 16, 16), np.uint8)
    label[:8], label[8:] = 1, 3
    grid = grids.target_grid(label.shape, np.eye(4), PreparationConfig(fit="stretch"), (11, 13, 23))
    assert np.unique(grids.label_onto(label, np.eye(4), grid)).tolist() == [1, 3]


def test_a_thin_structure_does_not_break_up():
    label = np.zeros((64, 64, 16), np.uint8)
    for row in range(64):
        # A sheet of two voxels that crosses the grid at a slant.
        label[row, row // 4 + 20 : row // 4 + 22] = 1
    grid = grids.target_grid(label.shape, np.eye(4), PreparationConfig(fit="stretch"), (43, 43, 16))
    result = grids.label_onto(label, np.eye(4), grid)
    assert (result[:, :, 8] == 1).any(axis=1).all()
    volume = result.sum() * abs(np.linalg.det(grid.affine))
    assert volume == pytest.approx(label.sum(), rel=0.15)


def test_outside_of_a_map_is_no_label():
    label = np.full((4, 4, 4), 3, np.uint8)
    grid = grids.target_grid(label.shape, np.eye(4), PreparationConfig(fit="contain"), (8, 8, 16))
    result = grids.label_onto(label, np.eye(4), grid)
    assert (result[..., 4:12] == 3).all()
    assert (result[..., :4] == 0).all()
    assert (result[..., 12:] == 0).all()


# What is kept


@pytest.mark.parametrize(
    ("how", "size", "expected"),
    [
        ({"fit": "crop_or_pad"}, (6, 9, 4), [(2, 8), (0, 6), (0, 4)]),
        ({"fit": "crop_or_pad", "spacing_mm": (0.5, 1, 1)}, (6, 6, 4), [(3, 6), (0, 6), (0, 4)]),
        ({"fit": "stretch"}, (3, 3, 3), [(0, 9), (0, 6), (0, 4)]),
        ({"fit": "contain"}, (5, 5, 5), [(0, 9), (0, 6), (0, 4)]),
    ],
    ids=str,
)
def test_kept_are_the_voxels_in_the_box(how, size, expected):
    grid = grids.target_grid((9, 6, 4), np.eye(4), PreparationConfig(**how), size)
    kept = grids.kept((9, 6, 4), np.eye(4), grid)
    assert [(part.start, part.stop) for part in kept] == expected


@pytest.mark.parametrize("codes", ["LPS", "PIR", "ASL", "SRA"])
def test_a_file_of_permuted_axes_gets_what_one_of_straight_axes_gets(codes):
    """Noise brought back to thick slices is smoothed across the slices, however the file has its axes."""
    noise = np.random.default_rng(0).normal(size=(20, 22, 25)).astype(np.float32)
    prepared = np.diag([1.5, 1.7, 1.2, 1.0])
    shape, straight = (30, 37, 10), np.diag([1.0, 1.0, 3.0, 1.0])
    expected = grids.back(noise, prepared, shape, straight)
    turn = nibabel.orientations.ornt_transform(
        nibabel.orientations.io_orientation(straight), nibabel.orientations.axcodes2ornt(codes)
    )
    affine = straight @ nibabel.orientations.inv_ornt_aff(turn, shape)
    turned_shape = nibabel.orientations.apply_orientation(np.zeros(shape), turn).shape
    result = grids.back(noise, prepared, turned_shape, affine)
    np.testing.assert_allclose(result, nibabel.orientations.apply_orientation(expected, turn), atol=1e-5)
