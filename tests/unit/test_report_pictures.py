"""Charts and slices: upright whatever the order of the axes, nothing dropped, nothing counted twice."""

import nibabel
import numpy as np
import pytest

from meddpm import tables
from meddpm.data import volumes
from meddpm.report import figures, page, rows, slices, style
from tests.unit.report_fixture import Run, head, kernel_rows, quality_rows, timing_rows, to_orientation, write_run


@pytest.fixture(params=["RAS", "LPS", "PIL", "SRA"])
def stored(request, tmp_path):
    """The label map of the made-up head in some order of axes on disk."""
    path = tmp_path / "label.nii.gz"
    volumes.write(path, *to_orientation(head(Run(side=24))[1], request.param))
    assert "".join(nibabel.aff2axcodes(nibabel.load(path).affine)) == request.param
    return path


def test_slices_are_upright_whatever_the_order_on_disk(stored):
    volume = slices.read_upright(stored)
    expected = head(Run(side=24))[1]
    np.testing.assert_array_equal(volume.array, expected)
    spot = slices.centre(volume.array)
    planes, _ = slices.cut(volume, spot)
    rows_of = {name: np.argwhere(plane == 2).mean(axis=0) for name, plane in planes.items()}
    middle = 11.5
    assert rows_of["sagittal"][0] < middle - 3  # the spot is up, in the upper half of the picture
    assert rows_of["coronal"][0] < middle - 3
    assert rows_of["coronal"][1] > middle + 2  # and on the right of the head, at the right of the picture
    assert rows_of["axial"][1] > middle + 2


def test_the_face_looks_right_in_the_sagittal_and_up_in_the_axial_plane(stored):
    planes, _ = slices.cut(slices.read_upright(stored), (12, 12, 12))
    columns, lines = np.argwhere(planes["sagittal"])[:, 1], np.argwhere(planes["axial"])[:, 0]
    assert columns.max() == 22
    assert columns.min() > 1
    assert lines.min() == 1
    assert lines.max() < 22


def test_pixels_have_the_shape_of_the_voxels(tmp_path):
    path = tmp_path / "slabs.nii.gz"
    volumes.write(path, np.zeros((4, 6, 8), np.float32), np.diag([1.0, 2.0, 3.0, 1.0]))
    planes, aspect = slices.cut(slices.read_upright(path), (1, 2, 3))
    assert aspect == {"sagittal": 1.5, "coronal": 3.0, "axial": 2.0}
    assert {name: plane.shape for name, plane in planes.items()} == {
        "sagittal": (8, 6),
        "coronal": (8, 4),
        "axial": (6, 4),
    }


def test_the_first_of_several_images_is_shown(tmp_path):
    path = tmp_path / "four.nii.gz"
    array = np.stack([np.full((4, 4, 4), value, np.float32) for value in (0.1, 0.2, 0.3, 0.4)], axis=-1)
    volumes.write(path, array, np.eye(4))
    volume = slices.read_upright(path)
    assert volume.images == 4
    assert np.all(volume.array == np.float32(0.1))


def test_grey_is_that_of_the_models_range():
    grey = slices.grey(np.array([[-1.0, 0.0, 1.0], [-3.0, 3.0, np.nan]]))
    np.testing.assert_array_equal(grey, [[0, 128, 255], [0, 255, 0]])


def test_cut_goes_through_the_rarest_label():
    label = np.zeros((9, 9, 9), np.uint8)
    label[2:8, 2:8, 2:8] = 1
    label[3, 4, 5:8] = 2
    assert slices.centre(label) == (3, 4, 6)
    assert slices.centre(np.zeros((9, 9, 9))) == (4, 4, 4)


def test_a_plane_between_two_lesions_is_not_taken():
    label = np.ones((20, 20, 20), np.uint8)
    label[2:4, 3:6, 2:4] = 2
    label[15:17, 14:16, 15:17] = 2
    at = slices.centre(label)
    for axis in range(3):
        assert (label.take(at[axis], axis) == 2).sum() >= 4


def test_a_grid_has_the_label_the_truth_and_every_variant(tmp_path):
    inputs = write_run(tmp_path, Run(seeds=(0, 5)))
    (grid,) = slices.grids(inputs.samples, inputs.cases, 3)
    assert (grid.model, grid.gpu, grid.solver, grid.drawn, grid.shown) == ("demo", "auto", "ddpm250", 4, 3)
    assert [(strip.case, strip.seed) for strip in grid.strips] == [("case0", "0"), ("case0", "5"), ("case1", "0")]
    pictures = grid.strips[0].pictures
    titles = ["label map", "true image", "fp32", "tf32", "tf32_channels_last", "bf16_compiled", "bf16_graph"]
    assert [picture.title for picture in pictures] == titles
    assert [picture.note for picture in pictures] == [""] * 6 + ["unsupported"]
    assert not np.array_equal(pictures[2].planes["axial"], pictures[5].planes["axial"])
    figure = slices.draw(grid)
    assert len(figure.axes) == 7 * 3 * 3
    assert sum(bool(panel.images) for panel in figure.axes) == 6 * 3 * 3


def test_a_volume_that_cannot_be_read_is_said_and_not_hidden(tmp_path):
    inputs = write_run(tmp_path)
    (inputs.samples[1].parent / "case0_seed0.nii.gz").write_bytes(b"no volume")
    (inputs.samples[2].parent / "case0_seed0.nii.gz").unlink()
    volumes.write(inputs.samples[3].parent / "case0_seed0.nii.gz", np.zeros((4, 4, 4), np.float32), np.eye(4))
    (grid,) = slices.grids(inputs.samples, inputs.cases, 1)
    assert [p.note for p in grid.strips[0].pictures[2:6]] == ["", "cannot be read", "cannot be read", "another shape"]


def picture(title: str, labels: bool = False) -> slices.Picture:
    planes = {name: np.array([[0, 2], [3, 9]]) for name in slices.PLANES}
    return slices.Picture(title, planes, dict.fromkeys(slices.PLANES, 1.0), labels=labels)


def test_the_legend_has_the_colour_that_each_label_is_drawn_in():
    strip = slices.Strip("a", "0", [picture("label map", labels=True), picture("fp32")])
    colours = slices.Grid("m", "g", "s", [strip], 1, 1).colours
    # A label beyond the last colour is drawn in the last one.
    assert colours == {2: style.PALETTE[1], 3: style.PALETTE[2], 9: style.PALETTE[-1]}
    assert [style.COLOUR_NAMES[colour] for colour in colours.values()] == ["orange", "green", "grey"]


@pytest.mark.parametrize(("cases", "pictures", "lying"), [(4, 3, True), (2, 9, False), (1, 3, False), (2, 2, True)])
def test_few_pictures_of_several_cases_lie_on_their_side(cases, pictures, lying):
    titles = ["label map", *(f"variant {number}" for number in range(1, pictures))]
    strips = [slices.Strip(str(case), "0", [picture(title) for title in titles]) for case in range(cases)]
    figure = slices.draw(slices.Grid("m", "g", "s", strips, cases, 1))
    assert sum(bool(axes.images) for axes in figure.axes) == cases * 3 * pictures
    grid = figure.axes[0].get_gridspec()
    assert (grid.nrows, grid.ncols) == ((pictures, cases * 3) if lying else (cases * 3, pictures))


def test_without_cases_the_samples_are_still_shown(tmp_path):
    inputs = write_run(tmp_path)
    (grid,) = slices.grids(inputs.samples, {}, 1)
    assert [p.note for p in grid.strips[0].pictures[:2]] == ["not there", ""]
    assert grid.strips[0].pictures[1].title == "fp32"


def texts(figure) -> list[str]:
    found = [text.get_text() for axes in figure.axes for text in axes.texts]
    return found + [label.get_text() for axes in figure.axes for label in axes.get_yticklabels()]


def the_group(run: Run) -> rows.Group:
    (group,) = rows.groups([{**dict.fromkeys(tables.columns("timing")), **row} for row in timing_rows(run)])
    return group


def test_timing_chart_has_a_bar_a_variant_and_a_word_where_there_is_none():
    figure = figures.timing(the_group(Run()))
    widths = [round(bar.get_width(), 1) for bar in figure.axes[0].patches]
    assert widths == [200.0, 91.0, 125.5, 29.7]
    assert "unsupported" in texts(figure)
    assert "29.7   6.84\N{MULTIPLICATION SIGN}" in texts(figure)


def test_timing_chart_has_one_bar_for_solvers_of_one_time_and_more_where_they_differ():
    group = the_group(Run(solvers=("ddpm250", "unipc25"), absent={}))
    assert [label for label, _ in figures.one_bar_each(group)] == list(Run().variants)
    group.rows[1]["step_ms_median"] += 5  # of 200, within the range from 194 to 212
    assert [label for label, _ in figures.one_bar_each(group)] == list(Run().variants)
    group.rows[1] |= {"step_ms_median": 220.0, "step_ms_p05": 213.0, "step_ms_p95": 230.0}
    labels = [label for label, _ in figures.one_bar_each(group)]
    assert labels == ["fp32, ddpm250", "fp32, unipc25", *Run().variants[1:]]


def test_kernel_chart_shares_add_up_and_small_categories_share_a_grey():
    kernels = [{**dict.fromkeys(tables.columns("kernels")), **row} for row in kernel_rows(Run(absent={}))]
    extra = [{**kernels[0], "category": f"c{number}", "time_ms": 0.01} for number in range(9)]
    colours = figures.category_colours(kernels + extra)
    assert list(colours)[:2] == ["convolution", "normalisation"]
    assert [colours[f"c{number}"] for number in range(2, 9)] == [style.OTHER] * 7
    axes = figures.kernel_shares(kernels + extra, colours).axes[0]
    ends: dict[float, float] = {}
    for bar in axes.patches:
        ends[bar.get_y()] = max(ends.get(bar.get_y(), 0.0), bar.get_x() + bar.get_width())
    assert [round(end, 9) for end in ends.values()] == [1.0] * 4


def test_the_legend_of_the_kernel_chart_has_what_the_chart_shows():
    kernels = [{**dict.fromkeys(tables.columns("kernels")), **row} for row in kernel_rows(Run(absent={}))]
    elsewhere = [{**kernels[0], "category": "convolution weight gradient"}]
    colours = figures.category_colours(kernels + elsewhere)
    legend = figures.kernel_shares(kernels, colours).legends[0]
    assert {text.get_text() for text in legend.get_texts()} == {"normalisation", "elementwise", "others"}
    legend = figures.kernel_shares(elsewhere[:1], colours).legends[0]
    assert [text.get_text() for text in legend.get_texts()] == ["convolution weight gradient"]


def test_kernels_seen_by_two_profilers_count_once():
    kernels = [{**dict.fromkeys(tables.columns("kernels")), **row} for row in kernel_rows(Run(absent={}))]
    twice = [{**row, "profiler": "ncu"} for row in kernels] + kernels
    assert page.one_profiler(twice) == kernels
    assert page.one_profiler([row for row in twice if row["profiler"] == "ncu"]) == twice[: len(kernels)]


def test_quality_chart_draws_distances_and_says_identical_where_there_is_none():
    run = Run()
    quality = [{**dict.fromkeys(tables.columns("quality")), **row} for row in quality_rows(run)]
    for row in quality:
        if row["variant"] == "tf32":
            row |= {"value": 1.0 if row["metric"] == "ssim" else 0.0, "ci_low": None, "ci_high": None}
    figure = figures.quality(the_group(run), quality)
    points = [[line.get_xdata()[0] for line in axes.lines if line.get_marker() == "o"] for axes in figure.axes]
    np.testing.assert_allclose(points, [[1.2e-4, 0.0387], [4e-5, 0.0129]], rtol=1e-6)
    assert texts(figure).count("0: identical") == 2
    assert "unsupported" in texts(figure)
    assert figures.quality(the_group(run), []) is None


def test_names_are_no_mathematics(tmp_path):
    group = the_group(Run())
    group.rows[1]["variant"] = "$x^{$--><b>"
    svg, png = style.save(figures.timing(group), tmp_path, "timing", "../a b")
    assert svg == tmp_path / "timing+..-a-b.svg"
    assert png.read_bytes().startswith(b"\x89PNG")
    assert "<b>" not in svg.read_text(encoding="utf-8")


def test_ids_that_begin_alike_are_told_apart():
    assert slices._tail("sample_0") == "sample_0"
    assert slices._tail("BraTS2021_00001") != slices._tail("BraTS2021_00002")
    assert len(slices._tail("BraTS-GLI-00001-000")) == 13
