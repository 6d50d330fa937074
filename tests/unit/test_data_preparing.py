"""A dataset of files: the table, what is made again and what is not, and what a case that cannot be used does."""

import dataclasses
import os
from pathlib import Path

import numpy as np
import pytest

from meddpm.config import FilesConfig, UserError
from meddpm.data import cases, from_files, load_case, manifest
from meddpm.data.preparing import check, prepare
from meddpm.data.tasks import Goal
from tests.unit.files_fixture import AFFINE, SHAPE, head, raw_brats, save, whole_heads

HEADS = Goal(SHAPE, (1, 2), 1, whole_head=True)


def made(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The ids of the cases that are built from here on."""
    ids: list[str] = []
    build = cases.build

    def counted(examined, *rest):
        ids.append(examined.id)
        return build(examined, *rest)

    monkeypatch.setattr(cases, "build", counted)
    return ids


def settings(path: Path, **keys) -> FilesConfig:
    return FilesConfig(str(path), **keys)


def test_the_table_says_what_was_there_and_what_was_done(tmp_path):
    table = prepare(settings(whole_heads(tmp_path / "data")), HEADS, tmp_path / "out")
    rows = manifest.read(table)
    assert [row.id for row in rows] == ["sample_0", "sample_1", "sample_2"]
    row = rows[0]
    assert row.files == {"label": "mask/sample_0.nii.gz", "image": "image/sample_0.nii.gz"}
    assert set(row.files_sha256) == set(row.files.values())
    assert (row.shape, row.orientation, row.intensity_range) == (SHAPE, "RAS", (-1.0, 1.0))
    assert (row.original_shape, row.original_orientation) == (SHAPE, "RAS")
    assert row.original_spacing_mm == (14.0, 12.0, 17.0)
    np.testing.assert_allclose(np.reshape(row.original_affine, (3, 4)), AFFINE[:3])
    image, label = head(0)
    assert row.original_intensity_ranges["image"] == pytest.approx((image.min(), image.max()), rel=1e-4)
    assert row.original_label_volumes_ml == {1: (label == 1).sum() * 2.856, 2: (label == 2).sum() * 2.856}
    assert any("med_ddpm_per_slice" in change for change in row.changes)
    assert "med_ddpm_whole_head" in row.notes
    case = load_case(table, row)
    np.testing.assert_array_equal(case.label, label)
    k = 5
    slice_ = image[:, :, k]
    expected = 2 * (slice_ - slice_.min()) / (slice_.max() - slice_.min()) - 1
    np.testing.assert_allclose(case.image[:, :, k], expected, atol=1e-6)


def test_a_case_that_is_there_is_not_made_again(tmp_path, monkeypatch):
    data, out = whole_heads(tmp_path / "data"), tmp_path / "out"
    ids = made(monkeypatch)
    table = prepare(settings(data), HEADS, out, code="one")
    assert sorted(ids) == ["sample_0", "sample_1", "sample_2"]
    before, times = table.read_bytes(), {path: path.stat().st_mtime_ns for path in out.glob("*.nii.gz")}
    ids.clear()
    prepare(settings(data), HEADS, out, code="one")
    assert ids == []
    assert table.read_bytes() == before
    assert {path: path.stat().st_mtime_ns for path in out.glob("*.nii.gz")} == times

    image, label = head(7)
    save(data / "mask" / "sample_7.nii.gz", label)
    save(data / "image" / "sample_7.nii.gz", image)
    prepare(settings(data), HEADS, out, code="one")
    assert ids == ["sample_7"]
    assert [row.id for row in manifest.read(table)] == ["sample_0", "sample_1", "sample_2", "sample_7"]


@pytest.mark.parametrize(
    ("what", "again"),
    [
        ("image", ["sample_1"]),
        ("mask", ["sample_1"]),
        ("output", ["sample_1"]),
        ("record", ["sample_1"]),
        ("code", ["sample_0", "sample_1"]),
        ("setting", ["sample_0", "sample_1"]),
        ("size", ["sample_0", "sample_1"]),
        ("labels", ["sample_0", "sample_1"]),
    ],
)
def test_a_case_is_made_again_where_something_that_decides_it_changed(tmp_path, monkeypatch, what, again):
    data, out = whole_heads(tmp_path / "data", 2), tmp_path / "out"
    row, goal, code = settings(data), HEADS, "one"
    prepare(row, goal, out, code=code)
    ids = made(monkeypatch)
    match what:
        case "image":
            save(data / "image" / "sample_1.nii.gz", head(9)[0])
        case "mask":
            save(data / "mask" / "sample_1.nii.gz", np.roll(head(9)[1], 1, axis=0))
        case "output":
            (out / "sample_1_image.nii.gz").write_bytes(b"half")
        case "record":
            (out / "sample_1_case.json").write_text('{"decided_by": "x", "row": {}}', encoding="utf-8")
        case "code":
            code = "two"
        case "setting":
            row = dataclasses.replace(row, changes={"intensity": "minmax"})
        case "size":
            goal = dataclasses.replace(goal, size=(16, 20, 16))
        case "labels":
            goal = dataclasses.replace(goal, labels=(1, 2, 3))
    prepare(row, goal, out, code=code)
    assert sorted(ids) == again


def test_a_bad_case_stops_the_dataset_and_the_others_are_kept(tmp_path, monkeypatch):
    data, out = whole_heads(tmp_path / "data"), tmp_path / "out"
    (data / "image" / "sample_1.nii.gz").write_bytes(b"")
    ids = made(monkeypatch)
    with pytest.raises(UserError) as caught:
        prepare(settings(data), HEADS, out)
    first, reason, table = str(caught.value).splitlines()
    assert "1 of 3 cases cannot be used" in first
    assert "on_bad_case: skip" in first
    assert "sample_1.nii.gz" in reason
    assert str(out / "refused.tsv") in table
    assert not (out / "cases.tsv").exists()
    assert [row.status for row in manifest.read_all(out / "refused.tsv")] == ["ok", manifest.REFUSED, "ok"]
    assert sorted(ids) == ["sample_0", "sample_2"]
    save(data / "image" / "sample_1.nii.gz", head(1)[0])
    ids.clear()
    prepare(settings(data), HEADS, out)
    assert ids == ["sample_1"]
    assert not (out / "refused.tsv").exists()


def test_a_bad_case_can_be_left_out_and_stays_a_row(tmp_path):
    data, out = whole_heads(tmp_path / "data"), tmp_path / "out"
    (data / "image" / "sample_1.nii.gz").write_bytes(b"")
    table = prepare(settings(data, on_bad_case="skip"), HEADS, out)
    assert [row.id for row in manifest.read(table)] == ["sample_0", "sample_2"]
    refused = manifest.read_all(table)[1]
    assert (refused.id, refused.status, refused.image) == ("sample_1", manifest.REFUSED, "")
    assert "sample_1.nii.gz" in refused.reason
    assert "\n" not in refused.reason


def test_a_dataset_without_a_usable_case_stops_whatever_the_policy(tmp_path):
    data = whole_heads(tmp_path / "data", 2)
    for number in range(2):
        (data / "mask" / f"sample_{number}.nii.gz").write_bytes(b"")
    with pytest.raises(UserError, match="2 of 2 cases cannot be used"):
        prepare(settings(data, on_bad_case="skip"), HEADS, tmp_path / "out")


def test_many_refusals_are_counted(tmp_path):
    data = whole_heads(tmp_path / "data", 25)
    for number in range(25):
        (data / "mask" / f"sample_{number}.nii.gz").write_bytes(b"")
    with pytest.raises(UserError) as caught:
        prepare(settings(data), HEADS, tmp_path / "out")
    lines = str(caught.value).splitlines()
    assert len(lines) == 23
    assert lines[-2] == "... and 5 more"
    assert len(manifest.read_all(tmp_path / "out" / "refused.tsv")) == 25


def test_the_number_of_workers_changes_nothing(tmp_path):
    data = whole_heads(tmp_path / "data", 5)
    one = prepare(settings(data), HEADS, tmp_path / "one")
    four = prepare(settings(data), HEADS, tmp_path / "four", workers=4)
    for path in sorted(one.parent.iterdir()):
        assert (four.parent / path.name).read_bytes() == path.read_bytes()


def test_the_first_cases_can_be_picked(tmp_path):
    data = whole_heads(tmp_path / "data")
    table = prepare(settings(data, cases=2), HEADS, tmp_path / "out")
    assert [row.id for row in manifest.read(table)] == ["sample_0", "sample_1"]


def test_label_maps_alone_make_cases_for_sampling(tmp_path):
    table = prepare(settings(whole_heads(tmp_path / "data", 2, images=False)), HEADS, tmp_path / "out")
    row = manifest.read(table)[0]
    assert (row.image, row.image_sha256, row.intensity_range) == ("", "", None)
    case = load_case(table, row)
    assert case.image is None
    np.testing.assert_array_equal(case.label, head(0)[1])


def test_check_finds_what_prepare_would_and_writes_nothing(tmp_path):
    data = whole_heads(tmp_path / "data")
    (data / "image" / "sample_1.nii.gz").write_bytes(b"")
    before = sorted(tmp_path.rglob("*"))
    found, rows = check(settings(data), HEADS, workers=2)
    assert sorted(tmp_path.rglob("*")) == before
    assert found.layout == "med_ddpm_whole_head"
    table = prepare(settings(data, on_bad_case="skip"), HEADS, tmp_path / "out")
    written = manifest.read_all(table)
    only_of_files = {"image": "", "label": "", "image_sha256": "", "label_sha256": ""}
    assert rows == [dataclasses.replace(row, **only_of_files) for row in written]


@pytest.mark.parametrize("error", [MemoryError(), RuntimeError("DefaultCPUAllocator: can't allocate memory")])
def test_no_memory_is_one_line(tmp_path, monkeypatch, error):
    def full(*_):
        raise error

    monkeypatch.setattr(cases, "build", full)
    row = settings(whole_heads(tmp_path / "data", 1), on_bad_case="skip")  # the case is not to blame
    with pytest.raises(UserError, match=r"^sample_0: does not fit into memory"):
        prepare(row, HEADS, tmp_path / "out")


def test_a_fault_of_the_program_is_no_bad_case(tmp_path, monkeypatch):
    def broken(*_):
        raise RuntimeError("a bug")

    monkeypatch.setattr(cases, "build", broken)
    with pytest.raises(RuntimeError, match="a bug"):
        prepare(settings(whole_heads(tmp_path / "data", 1)), HEADS, tmp_path / "out")


def test_a_disk_that_fails_is_a_refused_case(tmp_path):
    data = whole_heads(tmp_path / "data", 1)
    (data / "image" / "sample_0.nii.gz").unlink()
    os.symlink("/proc/self/mem", data / "image" / "sample_0.nii.gz")
    with pytest.raises(UserError, match=r"sample_0\.nii\.gz"):
        prepare(settings(data), HEADS, tmp_path / "out")


def test_a_brain_that_is_dropped_makes_room_for_a_head(tmp_path):
    """A mask of the brain in place of the head, and a T1 with the skull: the mend of the docs."""
    shape = (40, 44, 36)
    grid = np.stack(np.meshgrid(*[np.linspace(-1, 1, n) for n in shape], indexing="ij"))
    skull = (grid**2).sum(0) < 0.7
    random = np.random.default_rng(0)
    image = np.where(skull, 100 + random.normal(0, 10, shape), np.abs(random.normal(0, 3, shape))).astype(np.float32)
    affine = np.diag([5.0, 5.0, 5.0, 1.0])
    save(tmp_path / "data/image/a_1.nii.gz", image, affine)
    save(tmp_path / "data/mask/a_1.nii.gz", ((grid**2).sum(0) < 0.3).astype(np.uint8), affine)
    mended = settings(tmp_path / "data", changes={"remap": {"1": 0, "2": 2}, "derive": "head"})
    (row,) = manifest.read(prepare(mended, dataclasses.replace(HEADS, size=shape), tmp_path / "out"))
    assert row.label_volumes_ml[1] == pytest.approx(skull.sum() * 0.125, rel=0.03)


def test_names_of_any_kind_come_back_from_the_table(tmp_path):
    data = whole_heads(tmp_path / "data" / "a=b; {c} $x", 1)
    table = prepare(settings(data.parent), HEADS, tmp_path / "out")
    (row,) = manifest.read(table)
    assert list(row.files_sha256.values()) == [from_files.sha256(data / path) for path in NAMES_IN_ORDER]


NAMES_IN_ORDER = ("mask/sample_0.nii.gz", "image/sample_0.nii.gz")


def test_a_fingerprint_tells_datasets_apart(tmp_path):
    data = whole_heads(tmp_path / "data", 2)
    row = settings(data)
    seen = [from_files.fingerprint(row)]
    assert from_files.fingerprint(row) == seen[0] != ""
    image = data / "image" / "sample_1.nii.gz"
    save(image, head(5)[0])
    seen.append(from_files.fingerprint(row))
    os.utime(image, (1e9, 1e9))  # a copy that keeps the time of an older file
    seen.append(from_files.fingerprint(row))
    image.unlink()
    seen.append(from_files.fingerprint(row))
    os.symlink("nowhere", image)
    seen.append(from_files.fingerprint(row))
    assert len(set(seen)) >= 4
    assert from_files.fingerprint(settings(tmp_path / "nothing")) == ""


def test_a_list_that_is_edited_is_another_dataset(tmp_path):
    data = whole_heads(tmp_path, 2)
    table = tmp_path / "cases.tsv"
    lines = ["id\tlabel\tt1", "a\tmask/sample_0.nii.gz\timage/sample_0.nii.gz"]
    lines.append("b\tmask/sample_1.nii.gz\timage/sample_1.nii.gz")
    edits = [
        lines,
        [
            lines[0],
            lines[1].replace("mask/sample_0", "mask/sample_1"),
            lines[2].replace("mask/sample_1", "mask/sample_0"),
        ],
        [lines[0], lines[1].replace("a\t", "c\t"), lines[2]],
        [lines[0].replace("t1", "t2"), *lines[1:]],
        [*lines, "d\tmask/no.nii.gz\timage/no.nii.gz"],
        lines[:2],
    ]
    seen = set()
    for edit in edits:
        table.write_text("\n".join(edit), encoding="utf-8")
        seen.add(from_files.fingerprint(settings(table)))
    assert len(seen) == len(edits)
    assert data.is_dir()


def test_what_is_left_of_a_case_that_is_gone_is_removed(tmp_path):
    data, out = whole_heads(tmp_path / "data"), tmp_path / "out"
    prepare(settings(data), HEADS, out)
    (out / f".{2**22 + 1}.sample_0_image.nii.gz").write_bytes(b"of a job that was killed")
    for name in ("notes_case.json", "notes_label.nii.gz"):
        (out / name).write_text("{}", encoding="utf-8")
    for kind in ("mask", "image"):
        (data / kind / "sample_2.nii.gz").unlink()
    (data / "image" / "sample_1.nii.gz").write_bytes(b"")
    prepare(settings(data, on_bad_case="skip"), HEADS, out)
    names = {"cases.tsv", "dataset.json", "sample_0_image.nii.gz", "sample_0_label.nii.gz", "sample_0_case.json"}
    assert {path.name for path in out.iterdir()} == names | {"notes_case.json", "notes_label.nii.gz"}


def test_what_is_said_of_the_whole_dataset_is_kept(tmp_path):
    data = whole_heads(tmp_path / "data", 2)
    (data / "image" / "sample_1.nii.gz").unlink()
    table = prepare(settings(data), dataclasses.replace(HEADS, labels=(1, 2, 7)), tmp_path / "out")
    warnings = manifest.warnings(table)
    assert any("1 of 2 cases have no image" in warning for warning in warnings)
    assert any("no case has the label 7 that the model is shown" in warning for warning in warnings)


NAMES_2021 = {name: name for name in ("t1", "t1ce", "t2", "flair", "seg")}
NAMES_2023 = {"t1": "t1n", "t1ce": "t1c", "t2": "t2w", "flair": "t2f", "seg": "seg"}


def test_both_years_of_brats_end_at_the_same_case(tmp_path):
    """The enhancing tumour is 4 in the files of one, 3 in those of the other, and 3 to the model."""
    earlier = raw_brats(tmp_path / "2021", NAMES_2021, ["BraTS2021_00001"], enhancing=4)
    later = raw_brats(tmp_path / "2023", NAMES_2023, ["BraTS-GLI-00001-000"], enhancing=3, joint="-")
    goal = Goal((24, 24, 16), (1, 2, 3, 4), 4)
    cases_of = []
    for data in (earlier, later):
        table = prepare(settings(data), goal, tmp_path / f"out-{data.name}")
        (row,) = manifest.read(table)
        assert set(row.label_volumes_ml) == {1, 2, 3, 4}
        assert any("label 4 (rest of the brain) derived from" in change for change in row.changes)
        cases_of.append(load_case(table, row))
    np.testing.assert_array_equal(cases_of[0].label, cases_of[1].label)
    np.testing.assert_array_equal(cases_of[0].image, cases_of[1].image)


def test_bids_derivatives_are_prepared(tmp_path):
    for case in ("01", "02"):
        image, label = head(int(case))
        save(tmp_path / "data" / f"sub-{case}" / "anat" / f"sub-{case}_T1w.nii.gz", image)
        save(tmp_path / "data" / f"sub-{case}" / "anat" / f"sub-{case}_dseg.nii.gz", label)
    rows = manifest.read(prepare(settings(tmp_path / "data"), Goal((16, 16, 16), (1, 2), 1), tmp_path / "out"))
    assert [row.id for row in rows] == ["sub-01", "sub-02"]
    assert rows[0].files == {"label": "sub-01/anat/sub-01_dseg.nii.gz", "T1w": "sub-01/anat/sub-01_T1w.nii.gz"}


def test_hostile_names_are_printable_in_the_table(tmp_path):
    data = whole_heads(tmp_path / "data" / "y\n\x1b[31mred", 2)
    (data / "mask" / "sample_1.nii.gz").unlink()
    os.symlink(b"nowhere\xff", os.fsencode(data / "mask" / "sample_1.nii.gz"))
    table = prepare(settings(data.parent, on_bad_case="skip"), HEADS, tmp_path / "out")
    assert len(manifest.read_all(table)) == 2
    assert all(letter.isprintable() or letter in "\n\t" for letter in table.read_text(encoding="utf-8"))
