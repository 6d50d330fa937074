"""The page of a dataset's cases and the table in a terminal: every case and warning, nothing cut off or obeyed."""

import base64
import io
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from rich.console import Console

from meddpm.config import UserError
from meddpm.data import manifest, volumes
from meddpm.data.manifest import CaseRow
from meddpm.data.volumes import Case
from meddpm.report import case_pictures, case_words, cases_page, upright
from meddpm.report.case_pictures import PAINTS, PANE
from meddpm.report.cases_table import print_cases
from tests.unit.report_fixture import Run, head, to_orientation

REASON = "/data/brats/sub-02/sub-02_t1ce.nii.gz: ends before its last voxel; copy it again from where it came from."


def case(images: int = 1, orientation: str = "RAS", name: str = "sub-01") -> Case:
    """The made-up head, its spot as label 2 up on the right, with `images` images of growing brightness."""
    image, label = head(Run(side=24))
    label, affine = to_orientation(label, orientation)
    image, _ = to_orientation(image, orientation)
    stack = np.stack([np.clip(image + 0.1 * number, -1, 1) for number in range(images)], -1) if images else None
    return Case(name, None if not images else stack[..., 0] if images == 1 else stack, label, affine)


def row(folder: Path, each: Case, **more) -> CaseRow:
    """Write a case into `folder` and return its row."""
    image = None if each.image is None else folder / f"{each.id}_image.nii.gz"
    label = folder / f"{each.id}_label.nii.gz"
    if image:
        volumes.write(image, each.image, each.affine)
    volumes.write(label, each.label, each.affine)
    known = {
        "original_shape": (240, 240, 155),
        "original_spacing_mm": (0.9375, 0.9375, 1.2),
        "original_orientation": "LAS",
    }
    return manifest.describe(each, image, label, folder, **{**known, **more})


def decoded(source: str) -> np.ndarray:
    """The pixels behind a data: URI."""
    kind, data = source.split(",")
    assert kind == "data:image/webp;base64"
    return np.asarray(Image.open(io.BytesIO(base64.b64decode(data))))


def test_a_case_looks_the_same_whatever_its_order_on_disk():
    pictures = [case_pictures.draw(case(2, codes)) for codes in ("RAS", "LPS", "PIL", "SRA")]
    assert len({(each.labels, each.slices, each.lines, each.further, each.further_lines) for each in pictures}) == 1


def test_the_labels_are_upright_in_their_colours():
    labels = decoded(case_pictures.draw(case()).labels)
    assert labels.shape == (PANE, 3 * PANE, 3)
    colours = {tuple(int(part) for part in colour) for colour in np.unique(labels.reshape(-1, 3), axis=0)}
    assert colours == {(0, 0, 0), *(tuple(int(part) for part in PAINTS[label]) for label in (1, 2))}
    spot = (labels == PAINTS[2]).all(axis=-1)
    for pane, (upper, right) in enumerate([(True, None), (True, True), (None, True)]):
        rows, columns = np.argwhere(spot[:, pane * PANE : (pane + 1) * PANE]).mean(axis=0)
        assert upper is None or rows < 0.4 * PANE
        assert right is None or columns > 0.58 * PANE


def test_the_colours_are_those_of_the_report():
    for label in (1, 2, 7, 8, 255):
        assert "#" + bytes(PAINTS[label]).hex().upper() == upright.label_colour(label)


def test_contours_are_thin_and_those_of_the_rarer_label_within_it():
    plane = np.zeros((40, 40), np.uint8)
    plane[5:35, 5:40] = 4  # reaches the edge of the picture, where no contour is
    plane[15:25, 15:25] = 3
    lines = case_pictures.contours(plane, [4, 3])
    assert set(np.unique(lines)) == {0, 3, 4}
    assert (lines[15:25, 15:25] == 3).sum() == 100 - 36
    assert (lines[17:23, 17:23] == 0).all()
    assert (lines[7:33, 7:] != 4).all()  # not along the border to 3, nor along the edge of the picture
    assert (lines[5:7, 5:] == 4).all()
    assert not lines[plane == 0].any()


def test_a_border_is_drawn_in_the_rarer_label_of_the_volume_and_no_label_is_made_up():
    label = np.zeros((20, 20, 20), np.uint8)
    label[2:18, 2:18, 2:18] = 6
    label[8:12, 8:12, 8:12] = 1
    pictures = case_pictures.draw(Case("a", np.zeros(label.shape, np.float32), label, np.eye(4)))
    colours = {tuple(colour) for colour in decoded(pictures.labels).reshape(-1, 3)}
    assert colours == {(0, 0, 0), tuple(PAINTS[1]), tuple(PAINTS[6])}
    lines = decoded(pictures.lines)
    middle = lines[PANE // 4 : -PANE // 4, PANE // 4 : 3 * PANE // 4]  # of the sagittal plane: the small label alone
    assert {tuple(colour) for colour in middle[middle[..., 3] > 0][:, :3]} == {tuple(PAINTS[1])}
    assert case_pictures.commonest_first(label) == [6, 1]


def test_contours_lie_on_the_picture_where_the_label_is():
    pictures = case_pictures.draw(case())
    lines, labels = decoded(pictures.lines), decoded(pictures.labels)
    drawn = lines[..., 3] == 255
    assert 0 < drawn.sum() < 0.3 * (labels.sum(axis=-1) > 0).sum()
    np.testing.assert_array_equal(lines[drawn][:, :3], labels[drawn])


def test_pixels_are_square_whatever_the_voxels_are():
    label = np.ones((10, 20, 40), np.uint8)
    picture = decoded(case_pictures.draw(Case("a", None, label, np.diag([4.0, 1.0, 1.0, 1.0]))).labels)
    sagittal, coronal, axial = (picture[:, start : start + PANE].any(axis=-1) for start in (0, PANE, 2 * PANE))
    assert (sagittal.any(axis=1).sum(), sagittal.any(axis=0).sum()) == (PANE, PANE // 2)
    assert (coronal.any(axis=1).sum(), coronal.any(axis=0).sum()) == (PANE, PANE)
    assert (axial.any(axis=1).sum(), axial.any(axis=0).sum()) == (PANE // 2, PANE)
    assert not axial[: PANE // 4].any()  # in the middle


def test_every_image_is_shown_in_its_order():
    pictures = case_pictures.draw(case(4))
    assert pictures.count == 4
    first, further = decoded(pictures.slices).mean(axis=-1), decoded(pictures.further).mean(axis=-1)
    assert further.shape == (PANE, 3 * PANE)
    inside = decoded(pictures.labels)[:, 2 * PANE :].any(axis=-1)
    means = [first[:, 2 * PANE :][inside].mean()]
    means += [further[:, start : start + PANE][inside].mean() for start in (0, PANE, 2 * PANE)]
    steps = np.diff(means)
    assert ((steps > 8) & (steps < 16)).all()  # 0.1 of the range from -1 to 1 is 13 of 255; some is cut at 1
    axial = decoded(pictures.lines)[:, 2 * PANE :]
    np.testing.assert_array_equal(decoded(pictures.further_lines), np.hstack([axial] * 3))


def test_a_label_map_alone_has_no_other_picture():
    pictures = case_pictures.draw(case(0))
    assert (pictures.slices, pictures.lines, pictures.further, pictures.count) == ("", "", "", 0)
    assert decoded(pictures.labels).any()


def test_an_empty_label_map_is_drawn():
    empty = replace(case(), label=np.zeros((24, 24, 24), np.uint8))
    assert not decoded(case_pictures.draw(empty).lines)[..., 3].any()


@pytest.fixture
def dataset(tmp_path):
    """A table of five cases: one as it should be, one refused, one with warnings, one damaged later, one label map."""
    tsv = tmp_path / "cases.tsv"
    names = {"t1": "a_t1.nii.gz", "<b>t2</b>": "a_t2.nii.gz", "label": "a_seg.nii.gz"}
    turned = "reoriented from LAS to RAS"
    rows = [
        row(tmp_path, case(2, name="sub-01"), files=names, changes=(turned, "label 4 is 3")),
        CaseRow("sub-02", status="refused", reason=REASON + " <script>alert(1)</script>"),
        row(tmp_path, case(name="sub-03"), changes=(turned,), warnings=("the crop cuts <1 mL> off", "a second one")),
        row(tmp_path, case(name="sub-04"), changes=(turned,)),
        row(tmp_path, case(0, name="sub-05"), changes=(turned,)),
    ]
    manifest.write(tsv, rows)
    (tmp_path / "sub-04_image.nii.gz").write_bytes(b"no volume")
    return tsv


def written(tsv: Path, title: str = "Cases of brats") -> str:
    target = tsv.parent / "qc" / "index.html"
    cases_page.write(tsv, target, title)
    return target.read_text(encoding="utf-8")


def articles(page: str) -> dict[str, str]:
    """The cards of the page by id, in their order."""
    found = re.findall(r"<article.*?</article>", page, re.DOTALL)
    return {re.search("<h2>(.*?)</h2>", text).group(1): text for text in found}


def test_the_page_has_every_case_those_to_look_at_first(dataset):
    page = written(dataset)
    assert "5 cases: 4 can be used, 1 with warnings, 1 refused" in page
    assert "1 without pictures" in page
    cards = articles(page)
    assert list(cards) == ["sub-03", "sub-04", "sub-01", "sub-05"]
    assert [name for name, text in cards.items() if 'class="case warned"' in text] == ["sub-03", "sub-04"]
    assert re.search(r'sub-02</th><td class="bad">/data/brats/sub-02/sub-02_t1ce.nii.gz: ends before', page)
    assert [text.count("<img") for text in cards.values()] == [3, 0, 5, 1]
    assert ">all 5<" in page
    assert ">to look at 2<" in page


def test_a_card_says_what_the_case_is(dataset):
    card = articles(written(dataset))["sub-01"]
    volumes_ml = {
        label: count * 0.008 for label, count in zip(*np.unique(case().label, return_counts=True), strict=True)
    }
    for label in (1, 2):
        colour = upright.label_colour(label)
        said = rf'<i style="background: {colour}"></i>{label}<span>{case_words.volume(volumes_ml[label])} mL</span>'
        assert re.search(said, card)
    grids = "240x240x155 · 0.94x0.94x1.2 mm · LAS → 24x24x24 · 2 mm · RAS"
    assert grids in card.replace("\N{NO-BREAK SPACE}", " ").replace("\N{MULTIPLICATION SIGN}", "x")
    assert '<p class="change">label 4 is 3</p>' in card
    assert "<b>t1</b>" in card
    assert card.count('class="warning"') == 0
    assert articles(written(dataset))["sub-03"].count('class="warning"') == 2


def test_a_card_says_whether_there_is_an_image(dataset):
    """Where the table does not know the files of a case, as for cases that are made, it still knows its image."""
    cards = articles(written(dataset))
    assert [name for name, text in cards.items() if "a label map alone" in text] == ["sub-05"]
    assert not next(row for row in manifest.read(dataset) if row.id == "sub-03").files


def test_warnings_about_the_whole_dataset_stand_above_the_cases(dataset):
    dataset.with_name("dataset.json").write_text('{"layout": "brats2021", "warnings": ["<2> of 5 lack an image"]}')
    page = written(dataset)
    assert "&lt;2&gt; of 5 lack an image" in page.split("<article")[0]


def test_what_was_done_to_every_case_is_told_once(dataset):
    page = written(dataset)
    assert page.count("reoriented from LAS to RAS") == 1
    assert "reoriented" not in "".join(articles(page).values())


def test_a_case_that_cannot_be_read_has_a_word_in_place_of_pictures(dataset):
    card = articles(written(dataset))["sub-04"]
    assert "sub-04_image.nii.gz: has changed since cases.tsv was written" in card
    assert "Traceback" not in card


def test_the_page_needs_no_other_file_and_runs_nothing(dataset):
    page = written(dataset, title="<i>brats</i>")
    sources = re.findall(r'(?:src|href|url)\s*[=(]\s*"?([^")>]*)', page)
    assert len(sources) == 9
    assert all(source.startswith("data:image/webp;base64,") for source in sources)
    assert page.count('loading="lazy"') == 9
    assert "<script" not in page
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in page
    assert "&lt;b&gt;t2&lt;/b&gt;" in page
    assert "&lt;1 mL&gt;" in page
    assert page.count("&lt;i&gt;brats&lt;/i&gt;") == 2


def test_a_table_of_refused_cases_alone_is_a_page_too(tmp_path):
    manifest.write(tmp_path / "cases.tsv", [CaseRow("sub-02", status="refused", reason=REASON)])
    assert "1 case: 0 can be used, 1 refused" in written(tmp_path / "cases.tsv")


def test_a_page_without_a_table_is_refused(tmp_path):
    with pytest.raises(UserError, match="no such table of cases"):
        cases_page.write(tmp_path / "cases.tsv", tmp_path / "index.html", "none")


@pytest.mark.parametrize(
    ("value", "words"), [(0.0234, "0.0234"), (75.12, "75.1"), (99.97, "100"), (999.7, "1000"), (1151.2, "1151")]
)
def test_volumes_have_three_digits_or_all_before_the_point(value, words):
    assert case_words.volume(value) == words


FILES = {"t1": "a_t1.nii.gz", "t1ce": "a_t1ce.nii.gz", "label": "a_seg.nii.gz"}
FOUND = CaseRow(
    "BraTS2021_00001",
    files=FILES,
    original_shape=(240, 240, 155),
    original_spacing_mm=(1.0, 1.0, 1.0),
    original_orientation="LPS",
    original_intensity_ranges={"t1": (-2.5, 1523.0), "t1ce": (0.0, 2210.4)},
    original_label_volumes_ml={1: 24.123, 2: 75.0, 4: 8.231},
)


def printed(rows: list[CaseRow], width: int = 80, warnings: tuple[str, ...] = (), terminal: bool = False) -> str:
    stream = io.StringIO()
    colours = {"force_terminal": True, "color_system": "standard"} if terminal else {}
    console = Console(file=stream, width=width, **colours)
    print_cases("brats2021", Path("/data/brats"), rows, list(warnings), console=console)
    return stream.getvalue()


def test_a_case_is_a_line():
    first, headings, line, _, last = printed([FOUND], 100).splitlines()
    assert first == "/data/brats: layout brats2021, images t1, t1ce"
    assert headings.split() == ["case", "shape", "voxel,", "mm", "axes", "intensity", "labels,", "mL"]
    cells = ["BraTS2021_00001", "240x240x155", "1", "LPS", "-2.5..2210", "1=24.1", "2=75", "4=8.23"]
    assert line.split() == cells
    assert headings.index("shape") == line.index("240")
    assert headings.index("labels") == line.index("1=24.1")
    assert last == "1 case: 1 can be used"


def test_what_is_to_be_said_of_a_case_stands_below_it():
    prepared = {1: 24.0, 2: 75.0, 3: 8.2, 4: 1151.0}
    changed = replace(FOUND, changes=("floor at 0", "4 is 3"), warnings=("look here",), label_volumes_ml=prepared)
    refused = CaseRow("sub-02", status="refused", reason=REASON)
    lines = printed([changed, refused, replace(FOUND, id="sub-03")], 160).splitlines()
    assert lines[3:7] == [
        "    floor at 0; 4 is 3; labels then: 1=24 2=75 3=8.2 4=1151",
        "    warning: look here",
        "sub-02",
        f"    refused: {REASON}",
    ]
    assert lines[-1] == "3 cases: 2 can be used, 1 with warnings, 1 refused"


def test_labels_that_stay_nearly_the_same_are_not_told_again():
    same = replace(FOUND, label_volumes_ml={1: 24.2, 2: 75.4, 4: 8.231})
    assert "labels then" not in printed([same])
    assert "labels then" in printed([replace(same, label_volumes_ml={1: 24.2, 2: 60.0, 4: 8.231})])


def test_what_was_done_to_every_case_is_told_once_in_the_terminal():
    rows = [replace(FOUND, id=f"sub-{number}", changes=("turned", f"change {number}")) for number in range(3)]
    text = printed(rows)
    assert text.count("turned") == 1
    assert "Every case: turned" in text
    assert all(f"    change {number}\n" in text for number in range(3))


@pytest.mark.parametrize("width", [72, 80, 120])
def test_a_hundred_cases_fit_and_nothing_is_cut_off(width):
    deep = "/mnt/" + "a_long_name/" * 12 + "[bold]x_t1.nii.gz"
    rows = [replace(FOUND, id=f"BraTS-GLI-{number:05d}-000") for number in range(100)]
    rows[7] = replace(rows[7], id="an-id-that-is-longer-than-any-column-would-be-for-it-0123456789")
    rows[9] = CaseRow("sub-09", status="refused", reason=f"{deep}: cannot be read; replace the file.")
    text = printed(rows, width, ("[red]README.txt and 3 other files belong to no case",))
    lines = text.splitlines()
    assert max(map(len, lines)) <= width
    assert [line for line in lines if line != line.rstrip()] == []
    joined = "".join(text.split())
    for each in rows:
        assert each.id in joined
    assert f"refused:{deep}:cannotberead;replacethefile." in joined
    assert "warning:[red]README.txtand3otherfilesbelongtonocase" in joined
    assert text.count("1=24.1 2=75") == text.count("4=8.23") == 99
    assert "\N{HORIZONTAL ELLIPSIS}" not in text


def test_one_long_id_makes_no_column_wide():
    rows = [replace(FOUND, id=f"sub-{number}") for number in range(20)]
    rows[3] = replace(FOUND, id="x" * 60)
    lines = printed(rows, 120).splitlines()
    assert "x" * 60 in lines
    assert {line.index("240x240x155") for line in lines if "240x240x155" in line} == {len("sub-10") + 2}


def test_colours_are_for_terminals():
    rows = [replace(FOUND, warnings=("look here",)), CaseRow("sub-02", status="refused", reason="gone.")]
    assert "\x1b" not in printed(rows)
    coloured = printed(rows, terminal=True)
    assert "\x1b[33mwarning: look here" in coloured
    assert "\x1b[31mrefused: gone." in coloured
    assert "\x1b[33mBraTS2021_00001" in coloured


def test_a_name_cannot_steer_the_terminal():
    text = printed([CaseRow("sub-02", status="refused", reason="a\x1b[2Jb\udcff.nii.gz: gone.")])
    assert "a?[2Jb?.nii.gz: gone." in text


def test_no_case_is_said():
    assert printed([]).splitlines()[-1] == "0 cases: 0 can be used"
