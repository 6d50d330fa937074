"""Layouts of datasets: which files are a case, and what their names alone show to be wrong."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from meddpm.config import UserError, repository_root
from meddpm.data import layouts, preparations
from meddpm.data.layouts import CaseFiles, Found, finding
from meddpm.data.layouts.table import LAYOUTS

SHARED = repository_root().parent / "shared" / "data"
OLD, NEW = ("t1", "t1ce", "t2", "flair"), ("t1n", "t1c", "t2w", "t2f")


def tree(root: Path, *names: str) -> Path:
    """Empty files below `root`; a name that ends in / is a folder."""
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        if name.endswith("/"):
            (root / name).mkdir(parents=True, exist_ok=True)
        else:
            (root / name).touch()
    return root


def brats(name: str, parts: tuple[str, ...] = (*OLD, "seg"), folder: str | None = None, end: str = "nii.gz"):
    return [f"{folder or name}/{name}_{part}.{end}" for part in parts]


def names(found: Found) -> dict[str, tuple[dict[str, str], str | None]]:
    """What each case is made of, as paths below the root."""

    def below(path: Path | None) -> str | None:
        return path and path.relative_to(found.root).as_posix()

    return {
        case.id: ({name: below(path) for name, path in case.images.items()}, below(case.label)) for case in found.cases
    }


def faults(found: Found) -> dict[str, list[str]]:
    return {case.id: case.faults for case in found.cases if case.faults}


def sound(found: Found) -> Found:
    assert (faults(found), found.warnings) == ({}, [])
    return found


def one_line(text: str, *words: str) -> None:
    assert "\n" not in text
    assert text.isprintable()
    assert text.endswith(".")
    for word in words:
        assert word in text, f"{word!r} is not in {text!r}"


def refused(path: Path, *words: str, **options) -> None:
    with pytest.raises(UserError) as error:
        layouts.find(path, **options)
    one_line(str(error.value), str(path), *words)


def only_fault(found: Found, case: str, *words: str) -> None:
    """One case is faulty, in one way."""
    assert list(faults(found)) == [case]
    (fault,) = faults(found)[case]
    one_line(fault, *words)


def shared(path: str) -> Path:
    if not (SHARED / path).is_dir():
        pytest.skip("../shared is not here")
    return SHARED / path


# --- the layouts ---


def test_names_are_those_of_the_schema_and_of_the_presets() -> None:
    schema = yaml.safe_load((repository_root() / "schemas/config.schema.yaml").read_text(encoding="utf-8"))
    enum = schema["$defs"]["files"]["properties"]["layout"]["enum"]
    assert list(finding.NAMES) == enum[1:] == list(preparations.OF_LAYOUT)
    assert enum[0] == finding.AUTO


EXAMPLES = {
    "med_ddpm_whole_head": ["mask/sample_3.nii.gz", "image/sample_3.nii.gz"],
    "med_ddpm_brats": [f"{part}/B_01_{part}.nii.gz" for part in (*OLD, "seg")],
    "brats2021": brats("BraTS2021_00001"),
    "brats2023": [f"BraTS-GLI-00001-000/BraTS-GLI-00001-000-{part}.nii.gz" for part in (*NEW, "seg")],
    "bids": ["sub-01/anat/sub-01_T1w.nii.gz", "sub-01/anat/sub-01_dseg.nii.gz"],
}


def test_images_are_in_the_order_of_the_published_model() -> None:
    assert LAYOUTS["med_ddpm_brats"].images == LAYOUTS["brats2021"].images == OLD
    assert LAYOUTS["brats2023"].images == NEW


def test_every_layout_has_an_example_here() -> None:
    assert EXAMPLES.keys() == LAYOUTS.keys()


@pytest.mark.parametrize("deeper", ["", "ASNR-MICCAI/Training/"])
@pytest.mark.parametrize("layout", EXAMPLES)
def test_a_layout_is_found_at_any_depth_with_its_images_in_order(tmp_path: Path, layout: str, deeper: str) -> None:
    root = tree(tmp_path, *(deeper + name for name in EXAMPLES[layout]))
    found = sound(layouts.find(root))
    assert (found.layout, found.root) == (layout, root)
    ((images, label),) = names(found).values()
    assert tuple(images) == LAYOUTS[layout].images
    assert sorted([*images.values(), label]) == sorted(deeper + name for name in EXAMPLES[layout])
    assert sound(layouts.find(root, layout)) == found


@pytest.mark.parametrize("layout", EXAMPLES)
def test_a_layout_that_is_named_is_the_only_one_tried(tmp_path: Path, layout: str) -> None:
    for other in EXAMPLES.keys() - {layout}:
        root = tree(tmp_path / other, *EXAMPLES[other])
        refused(root, LAYOUTS[layout].example, "found", layout=layout)


@pytest.mark.parametrize("layout", EXAMPLES)
def test_other_layouts_beside_it_are_named_and_can_be_left_out(tmp_path: Path, layout: str) -> None:
    for each in EXAMPLES:
        tree(tmp_path / each, *EXAMPLES[each])
    refused(tmp_path, *EXAMPLES, "`layout`")
    assert layouts.find(tmp_path / layout).layout == layout
    found = layouts.find(tmp_path, layout)
    assert len(found.cases) == 1
    one_line(found.warnings[0], "volumes of no case", "and")


def test_names_are_compared_in_any_case_and_with_any_extension(tmp_path: Path) -> None:
    root = tree(tmp_path, "A/A_T1.NII.GZ", "A/A_t1CE.nii", "A/A_T2.hdr", "A/A_T2.img", "A/A_FLAIR.img", "A/A_Seg.Nii")
    images, label = names(sound(layouts.find(root)))["A"]
    assert images == {"t1": "A/A_T1.NII.GZ", "t1ce": "A/A_t1CE.nii", "t2": "A/A_T2.hdr", "flair": "A/A_FLAIR.img"}
    assert label == "A/A_Seg.Nii"


def test_compressed_pairs_are_their_headers(tmp_path: Path) -> None:
    root = tree(tmp_path, "mask/1.hdr.gz", "mask/1.img.gz", "image/1.nii")
    assert names(sound(layouts.find(root))) == {"1": ({"image": "image/1.nii"}, "mask/1.hdr.gz")}


def test_cases_are_in_the_order_of_their_ids(tmp_path: Path) -> None:
    root = tree(tmp_path, *brats("C", folder="a"), *brats("A", folder="b"), *brats("B", folder="z/y"))
    assert [case.id for case in sound(layouts.find(root)).cases] == ["A", "B", "C"]


def test_the_root_can_be_one_case(tmp_path: Path) -> None:
    root = tree(tmp_path, *brats("A"))
    found = sound(layouts.find(root / "A"))
    assert names(found) == {"A": ({name: f"A_{name}.nii.gz" for name in OLD}, "A_seg.nii.gz")}


def test_paths_stay_as_they_are_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tree(tmp_path, *brats("A", ("t1", "t2", "seg"), folder="data/A"))
    monkeypatch.chdir(tmp_path)
    found = layouts.find("data")
    assert found.cases[0].label == Path("data/A/A_seg.nii.gz")
    only_fault(found, "A", "data/A: A lacks t1ce, flair", "`images`")


# --- images that are asked for ---


@pytest.mark.parametrize("layout", ["brats2021", "med_ddpm_brats"])
def test_images_picks_and_orders(tmp_path: Path, layout: str) -> None:
    root = tree(tmp_path, *EXAMPLES[layout])
    next(root.rglob("*_t1ce.nii.gz")).unlink()
    found = sound(layouts.find(root, images=("flair", "t1")))
    assert list(found.cases[0].images) == ["flair", "t1"]
    only_fault(layouts.find(root), found.cases[0].id, "lacks t1ce")


def test_images_that_the_layout_has_not_are_refused(tmp_path: Path) -> None:
    refused(tree(tmp_path / "b", *brats("A")), "T1w, t1n", "t1, t1ce, t2, flair", images=("t1", "T1w", "t1n"))
    root = tree(tmp_path / "s", "sub-1/anat/sub-1_T1w.nii", "sub-1/anat/sub-1_FLAIR.nii", "sub-1/anat/sub-1_dseg.nii")
    refused(root, "has no image T2w", "`images` can name FLAIR, T1w.", images=("T2w",))
    (root / "sub-1/anat/sub-1_T1w.nii").unlink()
    (root / "sub-1/anat/sub-1_FLAIR.nii").unlink()
    refused(root, "has no image T2w", "none at all", images=("T2w",))


# --- Med-DDPM's folders ---


@pytest.mark.parametrize(
    ("mask", "image"), [("mask_003", "img_3"), ("s3_mask", "s3_image"), ("0", "img_000"), ("a1_07", "b1_7x")]
)
def test_whole_head_pairs_by_the_numbers(tmp_path: Path, mask: str, image: str) -> None:
    root = tree(tmp_path, f"mask/{mask}.nii.gz", f"image/{image}.nii.gz", "mask/x_99.nii.gz", "image/y_99.nii.gz")
    assert names(sound(layouts.find(root)))[mask] == ({"image": f"image/{image}.nii.gz"}, f"mask/{mask}.nii.gz")


@pytest.mark.parametrize(
    ("mask", "image"),
    [
        ("p_001", "p_002_T1"),
        ("case_000", "case_001_0000"),
        ("sub-01_ses-1", "sub-02_ses-1"),
        ("s01_v2", "s99_v2"),
        ("BraTS2021_00001_seg", "BraTS2021_00007_t1"),
    ],
)
def test_whole_head_pairs_no_mask_with_the_image_of_somebody_else(tmp_path: Path, mask: str, image: str) -> None:
    found = faults(layouts.find(tree(tmp_path, f"mask/{mask}.nii.gz", f"image/{image}.nii.gz")))
    assert list(found) == [image]
    one_line(found[image][0], "no label map")


def test_whole_head_pairs_by_name_before_number(tmp_path: Path) -> None:
    root = tree(tmp_path, "mask/a_1.nii", "mask/b_1.nii", "mask/c.nii", "image/a_1.nii", "image/b_1.nii", "image/c.nii")
    assert {name: images for name, (images, _) in names(sound(layouts.find(root))).items()} == {
        name: {"image": f"image/{name}.nii"} for name in ("a_1", "b_1", "c")
    }


def test_whole_head_does_not_guess_by_a_number_that_two_masks_have(tmp_path: Path) -> None:
    root = tree(tmp_path, "mask/a_1.nii", "mask/b_1.nii", "image/c_1.nii", "mask/d_2.nii", "image/d_2.nii")
    found = layouts.find(root)
    only_fault(found, "c_1", "no label map")
    assert [case.id for case in found.cases if not case.images] == ["a_1", "b_1"]


def test_whole_head_does_not_give_a_second_image_to_a_mask_that_has_its_own(tmp_path: Path) -> None:
    root = tree(tmp_path, "mask/a_1.nii", "image/a_1.nii", "image/b_1.nii")
    only_fault(layouts.find(root), "b_1", "b_1 has no label map")


def test_whole_head_names_without_number_do_not_pair(tmp_path: Path) -> None:
    only_fault(layouts.find(tree(tmp_path, "mask/a.nii", "image/b.nii")), "b", "no label map")


def test_whole_head_pairs_within_one_folder(tmp_path: Path) -> None:
    root = tree(tmp_path, "x/mask/1.nii", "x/image/i1.nii", "y/mask/2.nii", "y/image/i1.nii")
    only_fault(layouts.find(root), "i1", "y: i1 has no label map")


def test_two_images_of_one_number_are_two_files_for_one(tmp_path: Path) -> None:
    root = tree(tmp_path, "mask/m_1.nii", "image/i_1.nii", "image/j_1.nii")
    only_fault(layouts.find(root), "m_1", "two files for image", "image/i_1.nii and", "image/j_1.nii", "keep one")


# --- BIDS ---


def anat(subject: str, *rest: str, top: str = "", session: str = "") -> list[str]:
    folder = f"{top}sub-{subject}/{session and session + '/'}anat"
    start = f"sub-{subject}" + (f"_{session}" if session else "")
    return [f"{folder}/{start}_{each}.nii.gz" for each in rest]


def test_bids_ids_are_the_joined_entities(tmp_path: Path) -> None:
    root = tree(
        tmp_path,
        *anat("01", "T1w", "dseg", session="ses-1"),
        *anat("01", "T1w", "dseg", session="ses-2"),
        *anat("02", "acq-a_run-1_T1w", "acq-a_run-1_dseg", "acq-a_run-2_T1w", "acq-a_run-2_dseg"),
    )
    found = sound(layouts.find(root))
    assert list(names(found)) == ["sub-01_ses-1", "sub-01_ses-2", "sub-02_acq-a_run-1", "sub-02_acq-a_run-2"]
    for case in found.cases:
        assert case.label.name.removesuffix("dseg.nii.gz") == case.images["T1w"].name.removesuffix("T1w.nii.gz")


def chosen(root: Path, images: tuple[str, ...] | None = None) -> tuple[dict[str, str], str]:
    """The names, without what all have, of the files of the only case."""
    (case,) = sound(layouts.find(root, images=images)).cases
    short = {name: path.name for name, path in {**case.images, "": case.label}.items()}
    return tuple(short[name].split("_", 1)[1].removesuffix(".nii.gz") for name in short)


def test_bids_takes_the_plainest_label_map_of_fmriprep(tmp_path: Path) -> None:
    space = "space-MNI152NLin2009cAsym_res-2"
    root = tree(
        tmp_path,
        *anat("01", "dseg", "desc-aseg_dseg", "desc-aparcaseg_dseg", "desc-brain_mask", "desc-preproc_T1w"),
        *anat("01", f"{space}_dseg", f"{space}_desc-brain_mask", f"{space}_desc-preproc_T1w", "label-GM_probseg"),
    )
    assert chosen(root) == ("desc-preproc_T1w", "dseg")
    (root / "sub-01/anat/sub-01_dseg.nii.gz").unlink()
    only_fault(layouts.find(root), "sub-01", "two files for the label map", "desc-aseg_dseg", "desc-aparcaseg_dseg")
    for kind in ("aseg", "aparcaseg"):
        (root / f"sub-01/anat/sub-01_desc-{kind}_dseg.nii.gz").unlink()
    assert chosen(root) == ("desc-preproc_T1w", "desc-brain_mask")
    (root / "sub-01/anat/sub-01_desc-brain_mask.nii.gz").unlink()
    assert chosen(root) == (f"{space}_desc-preproc_T1w", f"{space}_dseg")


def test_bids_takes_a_dseg_before_a_mask_of_a_shorter_name(tmp_path: Path) -> None:
    assert chosen(tree(tmp_path, *anat("1", "T1w", "mask", "desc-aseg_dseg"))) == ("T1w", "desc-aseg_dseg")


def test_bids_pairs_images_with_derivatives_in_another_folder(tmp_path: Path) -> None:
    root = tree(tmp_path, *anat("1", "T1w"), *anat("1", "dseg", top="derivatives/fmriprep/"))
    assert chosen(root) == ("T1w", "dseg")


@pytest.mark.parametrize(
    ("image", "label"),
    [
        ("run-1_T1w", "dseg"),
        ("T1w", "run-1_dseg"),
        ("acq-a_T1w", "run-1_dseg"),
        ("T1w", "space-X_dseg"),
        ("space-X_res-1_T1w", "space-X_dseg"),
        ("ce-gad_T1w", "desc-lesion_mask"),
    ],
)
def test_bids_pairs_what_agrees_as_far_as_both_name_it(tmp_path: Path, image: str, label: str) -> None:
    assert chosen(tree(tmp_path, *anat("1", image, label))) == (image, label)


@pytest.mark.parametrize(
    ("image", "label"), [("run-1_T1w", "run-2_dseg"), ("acq-a_T1w", "acq-b_dseg"), ("ses-1_T1w", "ses-2_dseg")]
)
def test_bids_does_not_pair_what_disagrees(tmp_path: Path, image: str, label: str) -> None:
    found = layouts.find(tree(tmp_path, *anat("1", image, label)))
    only_fault(found, f"sub-1_{image.split('_')[0]}", "no label map")
    one_line(found.warnings[0], "1 of 2 cases have no image", f"sub-1_{label.split('_')[0]}")


@pytest.mark.parametrize("order", [("A", "B"), ("B", "A")])
def test_bids_does_not_pair_two_spaces(tmp_path: Path, order: tuple[str, str]) -> None:
    image, label = order
    found = layouts.find(tree(tmp_path, *anat("1", f"space-{image}_T1w", f"space-{label}_dseg")))
    assert any("in another space than" in fault for fault in faults(found)["sub-1"])


def test_bids_label_without_a_run_is_of_each_run_but_not_of_one_with_a_label_of_its_own(tmp_path: Path) -> None:
    root = tree(tmp_path, *anat("1", "run-1_T1w", "run-2_T1w", "dseg", "run-2_dseg"))
    found = names(sound(layouts.find(root)))
    assert found["sub-1_run-1"][1] == "sub-1/anat/sub-1_dseg.nii.gz"
    assert found["sub-1_run-2"][1] == "sub-1/anat/sub-1_run-2_dseg.nii.gz"


def test_bids_images_of_other_suffixes(tmp_path: Path) -> None:
    root = tree(tmp_path, *anat("1", "T1w", "acq-space_FLAIR", "T2w", "dseg"))
    assert chosen(root, ("FLAIR", "T1w")) == ("acq-space_FLAIR", "T1w", "dseg")
    (root / "sub-1/anat/sub-1_T1w.nii.gz").unlink()
    tree(root, *anat("2", "T1w", "FLAIR", "dseg"))
    only_fault(layouts.find(root, images=("FLAIR", "T1w")), "sub-1_acq-space", "lacks T1w")


def test_bids_copies_of_one_image_in_two_folders_are_two_files(tmp_path: Path) -> None:
    root = tree(tmp_path, *anat("1", "T1w", "dseg"), *anat("1", "T1w", top="derivatives/x/"))
    only_fault(layouts.find(root), "sub-1", "two files for T1w", "derivatives/x/sub-1/anat/sub-1_T1w.nii.gz")


def test_bids_leaves_what_is_not_anatomy(tmp_path: Path) -> None:
    root = tree(tmp_path, *anat("1", "T1w", "dseg"), "sub-1/func/sub-1_task-rest_desc-brain_mask.nii.gz")
    found = layouts.find(root)
    assert names(found)["sub-1"][1] == "sub-1/anat/sub-1_dseg.nii.gz"
    one_line(found.warnings[0], "1 volume of no case", "sub-1/func/sub-1_task-rest_desc-brain_mask.nii.gz")


def test_bids_with_images_of_other_suffixes_only_says_which(tmp_path: Path) -> None:
    found = layouts.find(tree(tmp_path, *anat("1", "T2w", "FLAIR", "dseg", "label-GM_probseg")))
    assert names(found) == {"sub-1": ({}, "sub-1/anat/sub-1_dseg.nii.gz")}
    one_line(found.warnings[0], "no case has an image", "`images` can name FLAIR, T2w.")


def test_bids_folder_of_one_subjects_anatomy(tmp_path: Path) -> None:
    root = tree(tmp_path, *anat("1", "T1w", "dseg"))
    assert chosen(root / "sub-1/anat") == ("T1w", "dseg")


def test_bids_images_named_as_those_of_brats_are_no_second_layout(tmp_path: Path) -> None:
    assert layouts.find(tree(tmp_path, *anat("1", "T1w", "T1", "T2", "FLAIR", "dseg"))).layout == "bids"


def test_bids_entities_are_joined_from_image_and_label_map(tmp_path: Path) -> None:
    assert list(names(layouts.find(tree(tmp_path / "a", *anat("1", "T1w", "run-1_dseg"))))) == ["sub-1_run-1"]
    assert list(names(layouts.find(tree(tmp_path / "b", "Sub-1_T1w.nii", "Sub-1_dseg.nii")))) == ["sub-1"]
    root = tree(tmp_path / "c", *anat("1", "acq-a_T1w", "run-1_T2w", "run-2_dseg"))
    assert list(names(layouts.find(root, images=("T1w", "T2w")))) == ["sub-1_acq-a_run-1", "sub-1_run-2"]


def test_bids_images_with_and_without_a_run_are_two_cases(tmp_path: Path) -> None:
    found = names(sound(layouts.find(tree(tmp_path, *anat("1", "T1w", "run-1_T1w", "dseg", "run-1_dseg")))))
    assert {case: label for case, (_, label) in found.items()} == {
        "sub-1": "sub-1/anat/sub-1_dseg.nii.gz",
        "sub-1_run-1": "sub-1/anat/sub-1_run-1_dseg.nii.gz",
    }


def test_bids_without_an_image_that_is_asked_for_or_a_label_map_is_no_dataset(tmp_path: Path) -> None:
    refused(tree(tmp_path, *anat("1", "T2w")), "has no case", layout="bids")


# --- lists ---


def table(root: Path, text: str | bytes, name: str = "cases.tsv") -> Path:
    root.mkdir(parents=True, exist_ok=True)
    (root / name).write_bytes(text if isinstance(text, bytes) else text.encode())
    return root / name


def test_list_gives_cases(tmp_path: Path) -> None:
    tree(tmp_path, "a/l.nii.gz", "a/t1.nii", "elsewhere/l2.nii.gz")
    absolute = tmp_path / "elsewhere/l2.nii.gz"
    path = table(tmp_path / "a", f"flair\tid\tlabel\tt1\n\tone\tl.nii.gz\tt1.nii\n\n\t\t{absolute}\t\n")
    found = layouts.find(path, images=("t1",))
    assert (found.layout, found.root) == ("tsv", path.parent)
    assert found.cases == [
        CaseFiles("l2", {}, absolute),
        CaseFiles("one", {"t1": path.parent / "t1.nii"}, path.parent / "l.nii.gz"),
    ]
    one_line(found.warnings[0], "1 of 2 cases have no image", "(l2)")
    only_fault(layouts.find(path, "tsv"), "one", f"{path}, line 2: one lacks flair")


def test_list_images_are_in_the_order_of_its_columns_or_as_asked(tmp_path: Path) -> None:
    tree(tmp_path, "l.nii", "x.nii", "y.nii", "z.nii")
    path = table(tmp_path, "z\tlabel\tx\ty\nz.nii\tl.nii\tx.nii\ty.nii\n")
    assert list(sound(layouts.find(path)).cases[0].images) == ["z", "x", "y"]
    assert list(sound(layouts.find(path, images=("y", "z"))).cases[0].images) == ["y", "z"]
    refused(path, "has no image t1, t2", "z, x, y", images=("t1", "x", "t2"))


@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"])
@pytest.mark.parametrize("end", [b"\n", b"\r\n"])
def test_list_as_other_programs_write_it(tmp_path: Path, mark: bytes, end: bytes) -> None:
    tree(tmp_path, "l 1.nii")
    path = table(tmp_path, mark + end.join([b"Label\tID", b'"l 1.nii" \ta', b""]), "LIST.TSV")
    assert sound(layouts.find(path)).cases == [CaseFiles("a", {}, tmp_path / "l 1.nii")]


def test_bad_lines_of_a_list_are_faults_with_their_numbers(tmp_path: Path) -> None:
    tree(tmp_path, "l.nii", "i.nii")
    (tmp_path / "nowhere.nii").symlink_to("gone.nii")
    lines = ["id\tlabel\ti", "ok\tl.nii\ti.nii", "no\tgone.nii\ti.nii", "few\tl.nii", "none\t\ti.nii", "\t\ti.nii"]
    lines += ["many\tl.nii\ti.nii\tx", "a b\tl.nii\ti.nii", "link\tnowhere.nii\ti.nii"]
    path = table(tmp_path, "\n".join(lines))
    found = faults(layouts.find(path))
    expected = {
        "no": ("line 3", "no file", str(tmp_path / "gone.nii")),
        "few": ("line 4", "2 cells", "header has 3"),
        "none": ("line 5", "no label map"),
        "line-6": ("line 6", "no label map"),
        "many": ("line 7", "4 cells"),
        "a b": ("line 8", "the id 'a b'", "change the id"),
    }
    assert found.keys() == expected.keys()
    for case, words in expected.items():
        one_line(found[case][0], str(path), *words)
    assert len(found["few"]) == 1


def test_a_line_that_is_parted_by_spaces_has_one_fault(tmp_path: Path) -> None:
    tree(tmp_path, "l.nii", "i.nii")
    found = faults(layouts.find(table(tmp_path, "id\tlabel\ti\nfirst l.nii i.nii\nsecond\tl.nii\ti.nii")))
    assert list(found) == ["line-2"]
    assert len(found["line-2"]) == 1
    one_line(found["line-2"][0], "line 2", "1 cells", "part them by tabs")


def test_ids_that_a_list_has_twice_name_both_lines(tmp_path: Path) -> None:
    tree(tmp_path, "l.nii", "x/l.nii")
    found = layouts.find(table(tmp_path, "label\nl.nii\nx/l.nii\n"))
    assert [case.id for case in found.cases] == ["l", "l-2"]
    one_line(found.cases[0].faults[0], "line 2: the id 'l' stands also at", "line 3", "change one")
    one_line(found.cases[1].faults[0], "line 3: the id 'l' stands also at", "line 2")


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("", ("no column label", "none")),
        ("id\timage\na\tb\n", ("no column label", "'id', 'image'")),
        ("id,label\na,b\n", ("no column label", "'id,label'", "tabs")),
        ("id\tlabel\n\n\t\n", ("names no case",)),
        ("label\tt1\tT1\na\tb\tc\n", ("twice 't1'",)),
        ("label\t\na\tb\n", ("a column ''",)),
        ("label\tt1;x\na\tb\n", ("a column 't1;x'",)),
        ("label\té\n".encode("latin-1"), ("not UTF-8",)),
        ("label\n".encode("utf-16"), ("not UTF-8",)),
        ("label\n" + "a" * 200_000, ("cannot be read as a tab-separated list",)),
    ],
)
def test_lists_that_are_none_are_refused(tmp_path: Path, content: str | bytes, words: tuple[str, ...]) -> None:
    refused(table(tmp_path, content), *words)


# --- faults of cases ---


def test_missing_modalities_are_named(tmp_path: Path) -> None:
    root = tree(tmp_path, *brats("A"), *brats("B", ("t1", "flair", "seg")))
    only_fault(layouts.find(root), "B", str(root / "B"), "B lacks t1ce, t2")


def test_a_case_without_label_map(tmp_path: Path) -> None:
    found = layouts.find(tree(tmp_path, *brats("A"), *brats("B", OLD)))
    only_fault(found, "B", str(tmp_path / "B"), "no label map")
    assert found.cases[1].label is None


def test_one_case_without_label_map_is_a_case(tmp_path: Path) -> None:
    only_fault(layouts.find(tree(tmp_path / "a", *brats("B", OLD))), "B", "no label map")
    found = layouts.find(tree(tmp_path / "half", *brats("B", OLD[:2])))
    assert [len(case.faults) for case in found.cases] == [2]
    only_fault(layouts.find(tree(tmp_path / "b", "image/1.nii")), "1", "no label map")
    only_fault(layouts.find(tree(tmp_path / "c", *anat("1", "T1w"))), "sub-1", "no label map")


@pytest.mark.parametrize("part", ["t2", "seg"])
def test_two_files_for_one_are_both_named(tmp_path: Path, part: str) -> None:
    root = tree(tmp_path, *brats("A"), f"A/A_{part}.nii", *brats("B"))
    words = (f"A_{part}.nii and ", f"A_{part}.nii.gz", "keep one")
    only_fault(layouts.find(root), "A", "two files for " + ("the label map" if part == "seg" else part), *words)


def test_ids_in_two_folders_are_faults_of_both(tmp_path: Path) -> None:
    found = layouts.find(tree(tmp_path, *brats("A", folder="x"), *brats("A", folder="y"), *brats("A-2"), *brats("B")))
    assert [case.id for case in found.cases] == ["A", "A-2", "A-3", "B"]
    assert faults(found).keys() == {"A", "A-3"}
    for case in ("A", "A-3"):
        one_line(faults(found)[case][0], str(tmp_path / "x/A_seg.nii.gz"), str(tmp_path / "y/A_seg.nii.gz"), "'A'")


def test_ids_that_differ_only_in_case_are_faults_of_both(tmp_path: Path) -> None:
    found = layouts.find(tree(tmp_path, *brats("Abc"), *brats("aBC")))
    assert faults(found).keys() == {"Abc", "aBC"}
    one_line(faults(found)["Abc"][0], "the id 'Abc'", "aBC/aBC_seg.nii.gz (as aBC)")


@pytest.mark.parametrize("name", ["a b", "Zoë", "-a", "_x", "a+b", "a" * 101])
def test_ids_that_cannot_be_one_are_kept_and_refused(tmp_path: Path, name: str) -> None:
    found = layouts.find(tree(tmp_path, *brats(name), *brats("ok")))
    only_fault(found, name, f"the id '{name}' is not of letters", "rename", ".tsv")


@pytest.mark.parametrize("name", [b"a\nb", b"\xff\xfe", b"\x1b[31m"])
def test_names_that_are_no_text_become_printable(tmp_path: Path, name: bytes) -> None:
    tree(tmp_path, *brats(os.fsdecode(name), (*OLD[:2], "seg")), os.fsdecode(name) + ".nii")
    found = layouts.find(tmp_path)
    (case,) = found.cases
    assert case.id.isprintable()
    assert case.label.exists()
    assert len(case.faults) >= 2
    for text in [*case.faults, *found.warnings]:
        one_line(text)


# --- label maps without images ---


def test_label_maps_alone_are_no_fault(tmp_path: Path) -> None:
    found = sound(layouts.find(tree(tmp_path, *brats("A", ("seg",)), *brats("B", ("seg",)))))
    assert [case.images for case in found.cases] == [{}, {}]


def test_label_maps_alone_beside_images_are_a_warning(tmp_path: Path) -> None:
    found = layouts.find(tree(tmp_path, *brats("A", ("seg",)), *brats("B"), *brats("C", ("seg",))))
    assert faults(found) == {}
    (warning,) = found.warnings
    one_line(warning, str(tmp_path), "2 of 3 cases have no image", "only for sampling", "A, C")


# --- what lies below the folder ---


def test_hidden_files_and_folders_are_left_out(tmp_path: Path) -> None:
    root = tree(tmp_path, *brats("A"), "A/._A_t1.nii.gz", ".DS_Store", ".git/x.nii.gz", ".old/B/B_seg.nii.gz")
    assert list(names(sound(layouts.find(root)))) == ["A"]


def test_a_folder_named_like_a_volume_is_not_entered(tmp_path: Path) -> None:
    root = tree(tmp_path, *brats("A", ("t1ce", "t2", "flair", "seg")), "A/A_t1.nii.gz/x/B_seg.nii.gz")
    found = sound(layouts.find(root))
    assert [(case.id, case.images["t1"]) for case in found.cases] == [("A", root / "A/A_t1.nii.gz")]


def test_links_are_followed_without_end_or_loop(tmp_path: Path) -> None:
    root = tree(tmp_path / "root", *brats("A", ("t1ce", "t2", "flair", "seg")))
    tree(tmp_path / "outside", *brats("B"))
    (root / "A/up").symlink_to("..")
    (root / "self").symlink_to("self")
    (root / "B").symlink_to(tmp_path / "outside/B")
    (root / "A/A_t1.nii.gz").symlink_to("nowhere.nii.gz")
    found = sound(layouts.find(root))
    assert [case.id for case in found.cases] == ["A", "B"]
    assert found.cases[0].images["t1"] == root / "A/A_t1.nii.gz"
    assert found.cases[1].label == root / "B/B_seg.nii.gz"


def test_volumes_of_no_case_are_counted(tmp_path: Path) -> None:
    root = tree(tmp_path, *brats("A"), *(f"more/{n}.nii" for n in "abcde"), "notes.txt")
    (warning,) = layouts.find(root).warnings
    one_line(warning, str(root), "5 volumes of no case: more/a.nii, more/b.nii, more/c.nii and 2 more")


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that every user can reach, with this process a user that modes hold for."""
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o777)
    root = os.geteuid() == 0
    try:
        if root:
            os.seteuid(65534)
        yield folder
    finally:
        if root:
            os.seteuid(0)
        for path in folder.rglob("*"):
            if path.is_dir():
                path.chmod(0o700)
        shutil.rmtree(folder)


@pytest.mark.parametrize("mode", [0o000, 0o444, 0o111])
def test_folders_that_may_not_be_entered(open_folder: Path, mode: int) -> None:
    root = tree(open_folder / "d", *brats("A"), *brats("B", folder="closed/B"))
    (root / "closed").chmod(mode)
    found = layouts.find(root)
    assert [case.id for case in found.cases] == ["A", "closed/"]
    one_line(found.cases[1].faults[0], str(root / "closed"), "cannot be entered", "Permission denied")
    refused(root / "closed", "cannot be entered")
    shutil.rmtree(root / "A")
    refused(root, "found no file", "1 folder could not be entered")


def test_paths_that_may_not_be_read(open_folder: Path) -> None:
    path = table(open_folder / "d", "label\nx.nii\n")
    path.chmod(0)
    refused(path, "cannot be read", "Permission denied")
    path.parent.chmod(0)
    refused(path, "cannot be looked at", "Permission denied")


@pytest.mark.parametrize("layout", ["auto", *finding.NAMES])
def test_paths_that_are_no_dataset(tmp_path: Path, layout: str) -> None:
    refused(tmp_path / "no", "no such folder", layout=layout)
    with pytest.raises(UserError, match="cannot be looked at"):
        layouts.find("a\0b", layout)
    refused(tmp_path / "no.tsv", "no such folder or file", layout=layout)
    (tmp_path / "gone").symlink_to("nowhere")
    refused(tmp_path / "gone", "no such folder", layout=layout)
    refused(tree(tmp_path, "a.nii.gz") / "a.nii.gz", "is no folder", ".tsv", layout=layout)


@pytest.mark.parametrize("layout", ["auto", *LAYOUTS])
def test_folders_of_no_case_name_what_was_looked_for_and_what_is_there(tmp_path: Path, layout: str) -> None:
    examples = [each.example for name, each in LAYOUTS.items() if layout in ("auto", name)]
    refused(tree(tmp_path / "a", "x/"), *examples, "found no file", layout=layout)
    refused(tmp_path / "a", *examples, layout=layout, images=("T2w",))
    root = tree(tmp_path / "b", "p/T1.nii.gz", "a.dcm", "b.mha", "c.txt")
    refused(root, *examples, "found p/T1.nii.gz, a.dcm, b.mha and 1 more", layout=layout)


def test_layouts_that_do_not_go_with_the_path(tmp_path: Path) -> None:
    refused(tmp_path, "is a folder", ".tsv", layout="tsv")
    refused(table(tmp_path, "label\nx\n"), "is a file", "layout bids", layout="bids")
    with pytest.raises(UserError, match="layout braats: there is no such layout; take auto, med_ddpm_whole_head, "):
        layouts.find(tmp_path, "braats")


# --- real datasets ---


def test_real_whole_head() -> None:
    found = layouts.find(shared("med-ddpm/whole_head"))
    assert found.layout == "med_ddpm_whole_head"
    assert {case.id: list(case.images) for case in found.cases} == {
        "sample_0": [],
        "sample_1": [],
        "sample_3": ["image"],
    }
    assert faults(found) == {}


@pytest.mark.parametrize(
    ("folder", "layout", "case"),
    [
        ("med-ddpm/brats2021", "med_ddpm_brats", "BraTS2021_01306"),
        ("brats_raw", "brats2021", "BraTS2021_90001"),
        ("brats_raw/BraTS2021_90001", "brats2021", "BraTS2021_90001"),
    ],
)
def test_real_brats(folder: str, layout: str, case: str) -> None:
    found = sound(layouts.find(shared(folder)))
    assert found.layout == layout
    assert [(each.id, tuple(each.images)) for each in found.cases] == [(case, OLD)]
    assert all(path.is_file() for path in [found.cases[0].label, *found.cases[0].images.values()])


@pytest.mark.parametrize("folder", ["open_ms", "odd"])
def test_real_folders_of_no_layout(folder: str) -> None:
    refused(shared(folder), "found")


def test_real_folder_of_several() -> None:
    refused(shared(""), "med_ddpm_whole_head, med_ddpm_brats, brats2021")


def test_real_list(tmp_path: Path) -> None:
    folder = shared("open_ms") / "patient19"
    path = table(tmp_path, f"id\tlabel\tT1\nms19\t{folder}/lesions.nii.gz\t{folder}/T1.nii.gz\n")
    assert sound(layouts.find(path)).cases == [
        CaseFiles("ms19", {"T1": folder / "T1.nii.gz"}, folder / "lesions.nii.gz")
    ]
