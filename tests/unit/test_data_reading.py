"""Volumes that came from anywhere: each kind is read as it is, each fault ends in one line."""

import gzip
import os
import shutil
import stat
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import nibabel
import numpy as np
import pytest

from meddpm.config import UserError
from meddpm.data import nifti, opening, volumes

SHARED = Path(__file__).resolve().parents[3] / "shared"
AFFINE = np.array([[-1.5, 0, 0, 20], [0, 1.25, 0, -30], [0, 0, 2, 4.5], [0, 0, 0, 1]])
NOBODY = 65534


def counting(*shape: int) -> np.ndarray:
    """Every voxel has a value of its own, so that any swapped or flipped axis shows."""
    return np.arange(np.prod(shape), dtype=np.float32).reshape(shape)


def odd(name: str) -> Path:
    path = SHARED / "data/odd" / name
    if not path.is_file():
        pytest.skip("../shared is not here")
    return path


def refused(path: Path, *words: str, read: Callable = volumes.load) -> None:
    with pytest.raises(UserError) as error:
        read(path)
    text = str(error.value)
    assert text.startswith(f"{path.parent}/")
    assert "\n" not in text
    for word in words:
        assert word in text


def saved(path: Path, array: np.ndarray | None = None, kind: type = nibabel.Nifti1Image, affine=AFFINE) -> Path:
    nibabel.save(kind(counting(3, 4, 5) if array is None else array, affine), path)
    return path


def with_header(path: Path, affine: np.ndarray = AFFINE, array: np.ndarray | None = None, **fields: object) -> Path:
    """A NIfTI-1 file, gzipped where its name says so, some of whose header is overwritten."""
    content = nibabel.Nifti1Image(counting(3, 4, 5) if array is None else array, affine).to_bytes()
    header = nibabel.Nifti1Header(content[:348], check=False)
    for name, value in fields.items():
        header[name] = value
    content = header.binaryblock + content[348:]
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)
    return path


def turned(degrees: float) -> np.ndarray:
    angle = np.radians(degrees)
    turn = np.eye(4)
    turn[:2, :2] = [[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]]
    return turn @ AFFINE


def agrees(volume: volumes.Volume, array: np.ndarray, affine: np.ndarray = AFFINE) -> None:
    np.testing.assert_array_equal(volume.array, array)
    np.testing.assert_allclose(volume.affine, affine, atol=1e-5)
    assert volume.array.dtype.isnative


# Kinds of files


@pytest.mark.parametrize("name", ["v.nii", "v.nii.gz", "V.NII.GZ"])
@pytest.mark.parametrize("kind", [nibabel.Nifti1Image, nibabel.Nifti2Image])
@pytest.mark.parametrize("dtype", [np.uint8, np.int16, np.uint16, np.float32, np.float64])
def test_single_files_keep_their_type(tmp_path: Path, name: str, kind: type, dtype: type) -> None:
    array = counting(3, 4, 5).astype(dtype)
    content = kind(array, AFFINE).to_bytes()
    path = tmp_path / name
    path.write_bytes(gzip.compress(content) if name.lower().endswith(".gz") else content)
    volume = volumes.load(path)
    agrees(volume, array)
    assert volume.array.dtype == dtype
    assert (volume.changes, volume.warnings) == ([], [])


@pytest.mark.parametrize("kind", [nibabel.Nifti1Image, nibabel.Nifti2Image])
@pytest.mark.parametrize("dtype", [">f4", ">i2", ">f8"])
def test_big_endian(tmp_path: Path, kind: type, dtype: str) -> None:
    header = kind.header_class(endianness=">")
    array = counting(3, 4, 5).astype(dtype)
    header.set_data_dtype(np.dtype(dtype))
    nibabel.save(kind(array, AFFINE, header), tmp_path / "v.nii")
    assert (tmp_path / "v.nii").read_bytes()[0] == 0
    volume = volumes.load(tmp_path / "v.nii")
    agrees(volume, counting(3, 4, 5))
    assert volume.array.dtype == np.dtype(dtype).newbyteorder("=")


@pytest.mark.parametrize("kind", [nibabel.Nifti1Pair, nibabel.Nifti2Pair])
@pytest.mark.parametrize("name", ["v.img", "v.hdr", "v.img.gz"])
def test_nifti_pair_by_either_name(tmp_path: Path, kind: type, name: str) -> None:
    ending = ".gz" if name.endswith(".gz") else ""
    saved(tmp_path / f"v.img{ending}", counting(3, 4, 5).astype(np.int16), kind)
    volume = volumes.load(tmp_path / name)
    agrees(volume, counting(3, 4, 5))
    assert volume.warnings == []
    assert opening.companions(tmp_path / name) == [tmp_path / f"v.hdr{ending}", tmp_path / f"v.img{ending}"]


def test_pair_whose_image_alone_is_gzipped(tmp_path: Path) -> None:
    saved(tmp_path / "v.img", kind=nibabel.Nifti1Pair)
    (tmp_path / "v.img.gz").write_bytes(gzip.compress((tmp_path / "v.img").read_bytes()))
    (tmp_path / "v.img").unlink()
    agrees(volumes.load(tmp_path / "v.hdr"), counting(3, 4, 5))
    agrees(volumes.load(tmp_path / "v.img.gz"), counting(3, 4, 5))


def test_pair_in_capitals(tmp_path: Path) -> None:
    saved(tmp_path / "v.img", kind=nibabel.Nifti1Pair)
    for ending in ("hdr", "img"):
        (tmp_path / f"v.{ending}").rename(tmp_path / f"V.{ending.upper()}")
    agrees(volumes.load(tmp_path / "V.IMG"), counting(3, 4, 5))


@pytest.mark.parametrize("name", ["v.img", "v.hdr"])
@pytest.mark.parametrize("endianness", ["<", ">"])
def test_analyze_pair_is_taken_as_las(tmp_path: Path, name: str, endianness: str, capfd) -> None:
    header = nibabel.Spm2AnalyzeImage.header_class(endianness=endianness)
    header.set_data_dtype(np.int16)
    header.set_data_shape((3, 4, 5))
    header.set_zooms((1.5, 1.25, 2))
    # Old files have negative edges, of which nibabel would tell the terminal.
    header["pixdim"][1] = -1.5
    header["origin"][:3] = (1, 2, 3)
    (tmp_path / "v.hdr").write_bytes(header.binaryblock)
    (tmp_path / "v.img").write_bytes(counting(3, 4, 5).astype(f"{endianness}i2").tobytes(order="F"))
    volume = volumes.load(tmp_path / name)
    agrees(volume, counting(3, 4, 5), np.array([[-1.5, 0, 0, 0], [0, 1.25, 0, -1.25], [0, 0, 2, -4], [0, 0, 0, 1]]))
    assert volume.array.dtype == np.int16
    assert volume.warnings == ["an Analyze header: left and right are not known from it, LAS is assumed"]
    assert capfd.readouterr() == ("", "")
    (tmp_path / "v.mat").write_bytes(b"an affine")
    assert volumes.load(tmp_path / name).warnings[1] == "the affine in v.mat beside it is not read"


@pytest.mark.parametrize(("dtype", "slope", "intercept"), [(np.int16, 0.25, -7.5), (">i2", 3, 0), (np.uint8, 1, 4)])
def test_slope_and_intercept(tmp_path: Path, dtype: str, slope: float, intercept: float) -> None:
    raw = counting(3, 4, 5).astype(dtype)
    header = nibabel.Nifti1Header(endianness=raw.dtype.byteorder)
    header.set_data_dtype(raw.dtype)
    content = nibabel.Nifti1Image(raw, AFFINE, header).to_bytes()
    header = nibabel.Nifti1Header(content[:348])
    header["scl_slope"], header["scl_inter"] = slope, intercept
    (tmp_path / "v.nii").write_bytes(header.binaryblock + content[348:])
    volume = volumes.load(tmp_path / "v.nii")
    agrees(volume, counting(3, 4, 5).astype(float) * slope + intercept)
    assert volume.array.dtype == np.float64


@pytest.mark.parametrize("slope", [0, np.nan, 1])
def test_a_header_that_scales_nothing_leaves_integers(tmp_path: Path, slope: float) -> None:
    path = with_header(tmp_path / "v.nii", array=counting(3, 4, 5).astype(np.int16), scl_slope=slope, scl_inter=0)
    volume = volumes.load(path)
    agrees(volume, counting(3, 4, 5))
    assert volume.array.dtype == np.int16


def test_an_offset_of_zero_is_the_end_of_the_header(tmp_path: Path) -> None:
    agrees(volumes.load(with_header(tmp_path / "v.nii", vox_offset=0)), counting(3, 4, 5))


def test_header_extension_is_passed_over(tmp_path: Path) -> None:
    image = nibabel.Nifti1Image(counting(3, 4, 5), AFFINE)
    image.header.extensions.append(nibabel.nifti1.Nifti1Extension("comment", b"x" * 5000))
    nibabel.save(image, tmp_path / "v.nii.gz")
    volume = volumes.load(tmp_path / "v.nii.gz")
    agrees(volume, counting(3, 4, 5))
    assert volume.warnings == []


@pytest.mark.parametrize(("shape", "axes"), [((3, 4, 5, 1), 4), ((3, 4, 5, 1, 1), 5)])
def test_one_volume_of_a_series_is_squeezed(tmp_path: Path, shape: tuple[int, ...], axes: int) -> None:
    volume = volumes.load(saved(tmp_path / "v.nii", counting(*shape)))
    agrees(volume, counting(3, 4, 5))
    assert volume.changes == [f"{axes}D with one volume: squeezed"]


def test_read_takes_four_axes_and_load_three(tmp_path: Path) -> None:
    path = saved(tmp_path / "v.nii.gz", counting(3, 4, 5, 2))
    array, affine = volumes.read(path)
    np.testing.assert_array_equal(array, counting(3, 4, 5, 2))
    np.testing.assert_allclose(affine, AFFINE)
    refused(path, "holds 2 volumes of a series", "take one out of it")


def test_companions_are_what_is_there(tmp_path: Path) -> None:
    assert opening.companions(tmp_path / "v.nii.gz") == []
    assert opening.companions(tmp_path / "v.hdr") == []
    path = saved(tmp_path / "v.nii.gz")
    assert opening.companions(path) == [path]
    (tmp_path / "v.img").touch()
    assert opening.companions(tmp_path / "v.hdr") == [tmp_path / "v.img"]


# The affine


def test_oblique(tmp_path: Path) -> None:
    volume = volumes.load(saved(tmp_path / "v.nii", affine=turned(20)))
    agrees(volume, counting(3, 4, 5), turned(20))


@pytest.mark.parametrize("form", ["sform", "qform"])
def test_one_form_alone_is_enough(tmp_path: Path, form: str) -> None:
    image = nibabel.Nifti1Image(counting(3, 4, 5), None)
    getattr(image, f"set_{form}")(turned(20), code=1)
    image.header[{"sform": "qform_code", "qform": "sform_code"}[form]] = 0
    nibabel.save(image, tmp_path / "v.nii")
    volume = volumes.load(tmp_path / "v.nii")
    agrees(volume, counting(3, 4, 5), turned(20))
    assert volume.warnings == []


def test_without_a_form_left_and_right_are_a_guess(tmp_path: Path) -> None:
    volume = volumes.load(with_header(tmp_path / "v.nii", qform_code=0, sform_code=0))
    assert nibabel.aff2axcodes(volume.affine) == ("L", "A", "S")
    np.testing.assert_allclose(nibabel.affines.voxel_sizes(volume.affine), [1.5, 1.25, 2])
    assert len(volume.warnings) == 1
    assert "left and right are not known" in volume.warnings[0]


@pytest.mark.parametrize(("shift", "warns"), [(0.9, False), (1.1, True)])
def test_forms_that_disagree_are_a_warning_and_the_sform_counts(tmp_path: Path, shift: float, warns: bool) -> None:
    image = nibabel.Nifti1Image(counting(3, 4, 5), None)
    moved = AFFINE.copy()
    moved[2, 3] += shift
    image.set_qform(moved, code=1)
    image.set_sform(AFFINE, code=1)
    nibabel.save(image, tmp_path / "v.nii")
    volume = volumes.load(tmp_path / "v.nii")
    agrees(volume, counting(3, 4, 5))
    assert volume.warnings == (["qform and sform place it 1.1 mm apart: the sform is taken"] if warns else [])


def test_a_broken_qform_beside_an_sform_is_a_warning(tmp_path: Path) -> None:
    volume = volumes.load(with_header(tmp_path / "v.nii", qform_code=1, sform_code=1, quatern_b=3))
    agrees(volume, counting(3, 4, 5))
    assert "the sform is taken" in volume.warnings[0]


def test_qfac_of_zero_is_one(tmp_path: Path) -> None:
    image = nibabel.Nifti1Image(counting(3, 4, 5), None)
    affine = np.abs(np.diag(np.diag(AFFINE)))
    image.set_qform(affine, code=1)
    fields = {name: image.header[name] for name in ("quatern_b", "quatern_c", "quatern_d")}
    pixdim = [0, 1.5, 1.25, 2, 1, 1, 1, 1]
    offsets = {"qoffset_x": 0, "qoffset_y": 0, "qoffset_z": 0}
    path = with_header(tmp_path / "v.nii", qform_code=1, sform_code=0, pixdim=pixdim, **fields, **offsets)
    agrees(volumes.load(path), counting(3, 4, 5), affine)


@pytest.mark.parametrize(
    "fields",
    [
        {"srow_z": 0},
        {"srow_x": [np.nan] * 4},
        {"srow_x": [np.inf, 0, 0, 0]},
        {"srow_y": [-3, 0, 0, 7]},
        {"srow_x": [1, 1, 0, 0], "srow_y": [1, 1, 0, 0]},
        {"srow_x": [1e9, 0, 0, 0]},
        {"sform_code": 0, "qform_code": 1, "quatern_b": 2},
        {"sform_code": 0, "qform_code": 1, "pixdim": [1, 0, 1, 1, 0, 0, 0, 0]},
        {"sform_code": 0, "qform_code": 0, "pixdim": 0},
    ],
    ids=str,
)
def test_an_affine_that_places_nothing_is_refused(tmp_path: Path, fields: dict) -> None:
    path = with_header(tmp_path / "v.nii", **{"sform_code": 1, "qform_code": 0, **fields})
    refused(path, "v.nii", "its affine does not place the voxels in space", "mend the header")


@pytest.mark.parametrize(("edge", "warns"), [(0.04, True), (0.06, False), (29, False), (31, True)])
def test_unusual_voxels_are_a_warning(tmp_path: Path, edge: float, warns: bool) -> None:
    volume = volumes.load(saved(tmp_path / "v.nii", affine=np.diag([1, edge, 2, 1])))
    assert volume.warnings == ([f"voxels of 1 x {edge} x 2 mm: is the header right?"] if warns else [])


@pytest.mark.parametrize(("unit", "word"), [("meter", "in metres"), ("micron", "in micrometres")])
def test_other_units_of_length_are_a_warning(tmp_path: Path, unit: str, word: str) -> None:
    image = nibabel.Nifti1Image(counting(3, 4, 5), AFFINE)
    image.header.set_xyzt_units(unit)
    nibabel.save(image, tmp_path / "v.nii")
    assert word in volumes.load(tmp_path / "v.nii").warnings[0]


# What stands in the way of opening a file


def test_missing(tmp_path: Path) -> None:
    refused(tmp_path / "none.nii.gz", "none.nii.gz: no such file", "check the path")
    refused(saved(tmp_path / "v.nii") / "none.nii", "cannot be read (Not a directory)")
    refused(tmp_path / ("x" * 300), "cannot be read (File name too long)")
    refused(tmp_path / "v\0.nii", "cannot be read", "check the path")


def test_links(tmp_path: Path) -> None:
    (tmp_path / "link.nii").symlink_to("../elsewhere/v.nii")
    refused(tmp_path / "link.nii", "link.nii: is a link to ../elsewhere/v.nii, which is not there", "mend the link")
    (tmp_path / "round.nii").symlink_to("round.nii")
    refused(tmp_path / "round.nii", "symbolic links")
    (tmp_path / "good.nii").symlink_to(saved(tmp_path / "v.nii"))
    agrees(volumes.load(tmp_path / "good.nii"), counting(3, 4, 5))


def test_folder(tmp_path: Path) -> None:
    (tmp_path / "v.nii.gz").mkdir()
    refused(tmp_path / "v.nii.gz", "v.nii.gz: is a folder", "name the file in it")


def test_a_pipe_is_never_opened(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "v.nii")
    refused(tmp_path / "v.nii", "v.nii: is a pipe", "name a file")


@contextmanager
def as_nobody() -> Iterator[None]:
    """Root may read every file, so it is nobody meanwhile; any other user stays who they are."""
    root = os.geteuid() == 0
    try:
        if root:
            os.seteuid(NOBODY)
    except OSError:
        pytest.skip("root may read every file, and cannot be anybody else here")
    try:
        yield
    finally:
        if root:
            os.seteuid(0)


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that everybody may enter, unlike `tmp_path`."""
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o755)
    yield folder
    for path in folder.iterdir():
        path.chmod(stat.S_IRWXU)
    shutil.rmtree(folder)


@pytest.mark.parametrize(
    ("locked", "name"),
    [("v.nii", "v.nii"), ("inside", "inside/v.nii"), ("pair.img", "pair.hdr"), ("pair.hdr", "pair.hdr")],
)
def test_no_permission(open_folder: Path, locked: str, name: str) -> None:
    (open_folder / "inside").mkdir()
    for each in ("v.nii", "inside/v.nii"):
        saved(open_folder / each)
    saved(open_folder / "pair.img", kind=nibabel.Nifti1Pair)
    (open_folder / locked).chmod(0)
    with as_nobody():
        refused(open_folder / name, locked, "no permission to read it", "change its mode")


def test_zero_bytes(tmp_path: Path) -> None:
    for name in ("v.nii", "v.nii.gz"):
        (tmp_path / name).touch()
        refused(tmp_path / name, f"{name}: is empty (0 bytes)", "replace the file")


@pytest.mark.parametrize(("present", "missing", "word"), [("hdr", "img", "image"), ("img", "hdr", "header")])
def test_half_a_pair(tmp_path: Path, present: str, missing: str, word: str) -> None:
    saved(tmp_path / "v.img", kind=nibabel.Nifti1Pair)
    (tmp_path / f"v.{missing}").unlink()
    refused(
        tmp_path / f"v.{present}", f"v.{present}: is one file of a pair without its {word}; put v.{missing} beside it"
    )
    (tmp_path / f"v.{missing}").symlink_to("gone")
    refused(tmp_path / f"v.{present}", f"v.{missing}: is a link to gone")
    (tmp_path / f"v.{missing}").unlink()
    (tmp_path / f"v.{missing}").mkdir()
    refused(tmp_path / f"v.{present}", f"v.{missing}: is a folder")


# What a file may be instead of a volume


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"not a volume\nat all", "but text"),
        (bytes(range(256)) * 8, "replace the file"),
        (bytes(128) + b"DICM" + bytes(3000), "but a DICOM file; convert its series to NIfTI"),
        (b"NRRD0004\n" + bytes(900), "but an NRRD file; convert it"),
        (b"PK\x03\x04" + bytes(900), "but a ZIP archive; unpack it"),
        (b"<!DOCTYPE html>" + b" " * 900, "but a page of HTML or XML; download the file again"),
        (b"\x5c\x01", "replace the file"),
    ],
    ids=range(7),
)
@pytest.mark.parametrize("name", ["v.nii", "v.nii.gz"])
def test_another_kind_of_file(tmp_path: Path, content: bytes, words: str, name: str) -> None:
    (tmp_path / name).write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    refused(tmp_path / name, f"{name}: is not a NIfTI volume", words)


def test_gzip_and_name_do_not_agree(tmp_path: Path) -> None:
    plain = saved(tmp_path / "v.nii")
    packed = saved(tmp_path / "w.nii.gz")
    refused(plain.rename(tmp_path / "v.nii.gz"), "v.nii.gz: is not gzipped, though its name ends in .gz; rename it")
    refused(packed.rename(tmp_path / "w.nii"), "w.nii: is gzipped; rename it to w.nii.gz")


@pytest.mark.parametrize("name", ["v.nii", "v.nii.gz", "v.hdr"])
def test_a_pointer_of_git_lfs(tmp_path: Path, name: str) -> None:
    (tmp_path / "v.img").write_bytes(b"x")
    (tmp_path / name).write_bytes(b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n")
    refused(tmp_path / name, f"{name}: is a pointer of Git LFS", "git lfs pull")


# Damage


def damaged(path: Path, change: Callable[[bytes], bytes]) -> Path:
    saved(path, np.random.default_rng(0).random((16, 16, 16), np.float32))
    path.write_bytes(change(path.read_bytes()))
    return path


def overwritten(content: bytes, at: int, new: bytes) -> bytes:
    return content[:at] + new + content[at + len(new) :]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda whole: whole[:9], "end too early"),
        (lambda whole: whole[: len(whole) // 2], "end too early"),
        (lambda whole: whole[:-1], "end too early"),
        (lambda whole: overwritten(whole, len(whole) // 2, b"\xff" * 4000), "are damaged"),
        (lambda whole: overwritten(whole, 12, b"\xff" * 99), "are damaged (Error -3"),
        (lambda whole: overwritten(whole, len(whole) - 8, b"abcd"), "are damaged (CRC check failed"),
        (lambda whole: overwritten(whole, len(whole) - 4, b"abcd"), "are damaged (Incorrect length"),
        (lambda whole: whole + b"abcd" * 200, "are damaged (Not a gzipped file"),
        (lambda whole: gzip.compress(gzip.decompress(whole)[:-1]), "has fewer"),
        (lambda whole: gzip.compress(gzip.decompress(whole)[:352]), "has fewer"),
    ],
    ids=range(10),
)
@pytest.mark.parametrize("read", [volumes.load, volumes.read])
def test_damaged_gzip(tmp_path: Path, change: Callable, words: str, read: Callable) -> None:
    refused(damaged(tmp_path / "v.nii.gz", change), "v.nii.gz", words, "replace the file", read=read)


def test_gzip_of_several_parts_is_whole(tmp_path: Path) -> None:
    content = nibabel.Nifti1Image(counting(3, 4, 5), AFFINE).to_bytes()
    (tmp_path / "v.nii.gz").write_bytes(gzip.compress(content[:400]) + gzip.compress(content[400:]))
    agrees(volumes.load(tmp_path / "v.nii.gz"), counting(3, 4, 5))


def test_a_file_that_was_cut_short(tmp_path: Path) -> None:
    path = damaged(tmp_path / "v.nii", lambda whole: whole[:-100])
    refused(path, "its header promises 16x16x16 voxels, 16384 bytes, and the file has 16284", "replace the file")
    saved(tmp_path / "w.img", kind=nibabel.Nifti1Pair)
    (tmp_path / "w.img").write_bytes(b"x")
    refused(tmp_path / "w.hdr", "w.hdr: its header promises 3x4x5 voxels, 240 bytes, and the file has 1;")


@pytest.mark.parametrize("name", ["v.nii", "v.nii.gz"])
def test_bytes_after_the_last_voxel(tmp_path: Path, name: str) -> None:
    def longer(count: int) -> Path:
        content = nibabel.Nifti1Image(counting(3, 4, 5), AFFINE).to_bytes() + bytes(count)
        (tmp_path / name).write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
        return tmp_path / name

    volume = volumes.load(longer(10))
    agrees(volume, counting(3, 4, 5))
    assert volume.warnings == ["10 bytes after the last voxel are not read"]
    refused(longer(nifti.MAX_TRAILING_BYTES + 1), name, "its header promises 3x4x5 voxels", "mend the header's size")


def test_a_bomb_is_left_where_its_header_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    content = nibabel.Nifti1Image(counting(3, 4, 5), AFFINE).to_bytes()
    (tmp_path / "v.nii.gz").write_bytes(gzip.compress(content) + 8 * gzip.compress(bytes(8 << 20)))
    seen = []
    honest = gzip.GzipFile.read

    def counted(self: gzip.GzipFile, size: int = -1) -> bytes:
        got = honest(self, size)
        seen.append(len(got))
        return got

    monkeypatch.setattr(gzip.GzipFile, "read", counted)
    refused(tmp_path / "v.nii.gz", "goes on after them")
    assert 0 < sum(seen) < 3 << 20


@pytest.mark.parametrize("name", ["v.nii", "v.nii.gz"])
def test_absurd_promises_take_no_memory(tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(np, "empty", lambda *_: pytest.fail("memory was taken"))
    cases = [
        ({"dim": [3, 32767, 32767, 32767, 1, 1, 1, 1]}, "more than 1024x1024x1024"),
        ({"dim": [3, 1024, 1024, 1025, 1, 1, 1, 1]}, "more than 1024x1024x1024"),
        ({"dim": [3, 1024, 1024, 1024, 1, 1, 1, 1]}, "replace the file"),
        ({"vox_offset": 1e30}, "replace the file"),
        ({"vox_offset": 1e7}, "replace the file"),
        ({"vox_offset": np.nan}, "where none can be"),
        ({"vox_offset": 100}, "where none can be"),
        ({"dim": [3, 3, -4, 5, 1, 1, 1, 1]}, "3x-4x5 voxels, which is no size"),
        ({"dim": [3, 3, 0, 5, 1, 1, 1, 1]}, "which is no size"),
        ({"dim": [0] * 8}, "0 axes"),
        ({"dim": [9] * 8}, "9 axes"),
    ]
    for fields, words in cases:
        refused(with_header(tmp_path / name, **fields), name, words)


def test_no_memory_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = saved(tmp_path / "v.nii")

    def full(*_: object, **__: object) -> None:
        raise MemoryError

    monkeypatch.setattr(nifti, "ArrayProxy", full)
    refused(path, "v.nii: does not fit into memory")


# What is a file of voxels but no volume


def test_a_number_of_axes_that_no_volume_has(tmp_path: Path) -> None:
    refused(saved(tmp_path / "five.nii", counting(2, 2, 2, 1, 2)), "five.nii: holds 5 axes, 2x2x2x1x2", "has 3")
    refused(saved(tmp_path / "five.nii", counting(2, 2, 2, 2, 2)), "holds 5 axes", read=volumes.read)
    refused(saved(tmp_path / "four.nii", counting(2, 2, 2, 20)), "four.nii: holds 20 volumes of a series", "take one")
    refused(saved(tmp_path / "two.nii", counting(2, 2)), "two.nii: holds 2 axes, 2x2; a volume has 3")


@pytest.mark.parametrize(
    ("dtype", "word"),
    [
        (np.dtype([("R", "u1"), ("G", "u1"), ("B", "u1")]), "RGB"),
        (np.dtype([("R", "u1"), ("G", "u1"), ("B", "u1"), ("A", "u1")]), "RGB"),
        (np.complex64, "complex"),
        (np.complex128, "complex"),
    ],
)
def test_voxels_that_are_not_real_numbers(tmp_path: Path, dtype: np.dtype, word: str) -> None:
    refused(saved(tmp_path / "v.nii", np.zeros((3, 4, 5), dtype)), f"v.nii: its voxels are {word}, not real numbers")


@pytest.mark.parametrize("code", [0, 1, 77])
def test_voxels_of_a_type_that_nobody_knows(tmp_path: Path, code: int) -> None:
    refused(with_header(tmp_path / "v.nii", datatype=code), f"its voxels are unknown (data type {code})")


def test_a_scale_that_is_no_number(tmp_path: Path) -> None:
    refused(with_header(tmp_path / "v.nii", scl_slope=2, scl_inter=np.inf), "v.nii", "mend the header")


# Every byte


@pytest.mark.parametrize(
    ("name", "kind", "inside"),
    [
        ("v.nii", nibabel.Nifti1Image, False),
        ("v.nii.gz", nibabel.Nifti1Image, False),
        ("v.nii.gz", nibabel.Nifti1Image, True),
        ("v.nii", nibabel.Nifti2Image, False),
        ("v.hdr", nibabel.Nifti1Pair, False),
        ("v.hdr", nibabel.Spm2AnalyzeImage, False),
    ],
)
def test_whatever_the_bytes_are_there_is_a_volume_or_one_line(
    tmp_path: Path, name: str, kind: type, inside: bool
) -> None:
    """`inside`: the bytes are changed before they are compressed, so that the checksum does not give them away."""
    path = tmp_path / name
    saved(path.with_suffix(".img") if name == "v.hdr" else path, counting(3, 4, 5).astype(np.int16), kind)
    whole = gzip.decompress(path.read_bytes()) if inside else path.read_bytes()
    random = np.random.default_rng(8)
    read, refusals = 0, []
    for trial in range(600):
        content = bytearray(whole)
        for at in random.integers(len(whole), size=random.integers(1, 4)):
            content[at] = random.integers(256)
        if trial % 5 == 0:
            del content[random.integers(len(whole)) :]
        path.write_bytes(gzip.compress(content) if inside else content)
        try:
            volume = volumes.load(path)
        except UserError as error:
            refusals.append(str(error))
        else:
            read += 1
            assert volume.array.ndim == 3
            assert np.isfinite(volume.affine).all()
    assert min(read, len(refusals)) > 5
    assert [text for text in refusals if "\n" in text or not text.startswith(f"{tmp_path}/v.")] == []


# The files that trip readers


def test_odd_nifti2() -> None:
    volume = volumes.load(odd("nifti2_avg152T1.nii.gz"))
    assert (volume.array.shape, volume.array.dtype) == ((91, 109, 91), np.float32)
    assert nibabel.aff2axcodes(volume.affine) == ("L", "A", "S")
    assert volume.warnings == []


@pytest.mark.parametrize("ending", ["hdr", "img"])
def test_odd_analyze(ending: str, capfd) -> None:
    path = odd(f"analyze_avg152T1.{ending}")
    volume = volumes.load(path)
    assert volume.array.shape == (91, 109, 91)
    assert nibabel.aff2axcodes(volume.affine) == ("L", "A", "S")
    assert volume.changes == ["4D with one volume: squeezed"]
    assert "left and right" in volume.warnings[0]
    assert opening.companions(path) == [path.with_suffix(".hdr"), path.with_suffix(".img")]
    assert capfd.readouterr() == ("", "")
    np.testing.assert_allclose(volume.array, nibabel.load(path).get_fdata()[..., 0])


@pytest.mark.parametrize("name", ["be_4d_singleton_LPI.nii.gz", "with_extension.nii.gz", "oblique_t1_head.nii.gz"])
def test_odd_files_that_are_whole(name: str) -> None:
    volume = volumes.load(odd(name))
    by_nibabel = nibabel.load(odd(name))
    np.testing.assert_array_equal(volume.array, np.asarray(by_nibabel.dataobj).squeeze())
    np.testing.assert_allclose(volume.affine, by_nibabel.affine)
    assert len(volume.changes) == by_nibabel.ndim - 3
    assert volume.warnings == []


def test_odd_nan_is_for_who_examines() -> None:
    volume = volumes.load(odd("nan_voxels.nii"))
    assert np.isnan(volume.array).any()
    refused(odd("nan_voxels.nii"), "NaN or infinite", read=volumes.read_image)


def test_odd_series_is_scaled() -> None:
    refused(odd("int16_slope_intercept_4d.nii"), "holds 20 volumes of a series")
    array, _ = volumes.read(odd("int16_slope_intercept_4d.nii"))
    np.testing.assert_allclose(array, nibabel.load(odd("int16_slope_intercept_4d.nii")).get_fdata())


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("5d.nii.gz", "holds 5 axes, 256x256x170x1x3"),
        ("header_without_img.hdr", "without its image; put header_without_img.img beside it"),
        ("not_nifti.nii", "is not a NIfTI volume"),
        ("truncated.nii.gz", "end too early"),
    ],
)
def test_odd_files_that_are_refused(name: str, words: str) -> None:
    refused(odd(name), name, words)
