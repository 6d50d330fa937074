"""One file of voxels, NIfTI-1, NIfTI-2 or Analyze 7.5: its header, its voxels, and each way that it can be broken.

nibabel reads both. It is handed what was judged here first, so that no file takes more memory than its header promises,
and a compressed one has been read to its end, where the checksum is. Sources: the NIfTI-1 and NIfTI-2
standards (nifti.nimh.nih.gov); Analyze 7.5 with the origin and scaling of SPM2.
"""

import gzip
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import BinaryIO

import nibabel
import numpy as np
from nibabel.analyze import AnalyzeHeader
from nibabel.arrayproxy import ArrayProxy
from nibabel.spatialimages import HeaderDataError

from meddpm.config import UserError
from meddpm.data.opening import faults, files, opened

MAX_VOXELS = 1024**3
# What may follow the last voxel before the size in the header is taken to be wrong.
MAX_TRAILING_BYTES = 1 << 20
# Deflate makes no more bytes of one (zlib's technical notes).
MAX_INFLATION = 1032
CHUNK_BYTES = 1 << 20
# Edges of a voxel in mm beyond which a header is doubted; beyond the last one no affine is one of a body.
USUAL_EDGES_MM = (0.05, 30.0)
MAX_MM = 1e6
FORMS_APART_MM = 1.0

_GZIP = b"\x1f\x8b"
# What else a file may be: where its mark stands, the mark, what it is, the mend.
_OTHER_KINDS = (
    (128, b"DICM", "a DICOM file", "convert its series to NIfTI (dcm2niix does)"),
    (0, b"NRRD", "an NRRD file", "convert it to NIfTI"),
    (0, b"ObjectType", "a MetaImage header", "convert it to NIfTI"),
    (0, b"\x89HDF", "an HDF5 file", "convert it to NIfTI"),
    (0, b"PK\x03\x04", "a ZIP archive", "unpack it"),
    (0, b"<", "a page of HTML or XML", "download the file again"),
)


@dataclass(frozen=True)
class Header:
    """What the header of a volume promises.

    `image` is the file of the voxels. `shape` is without axes of length 1 after the third, `file_shape` with them.
    The voxels are of `dtype`, from the byte `offset` on; values are voxels * `slope` + `intercept`. `affine` (4, 4)
    takes voxel indices to millimetres in RAS+. `warnings` are what a person should look at.
    """

    image: Path
    file_shape: tuple[int, ...]
    shape: tuple[int, ...]
    dtype: np.dtype
    offset: int
    slope: float
    intercept: float
    affine: np.ndarray
    warnings: list[str]


def read_header(path: Path | str, axes: tuple[int, ...] = (3,)) -> Header:
    """The header of the volume at `path`, a single file or either file of a pair.

    Raises UserError where a file is missing or cannot be opened, where it is no NIfTI or Analyze volume, and where
    the header promises what is no volume: another number of axes than one of `axes`, voxels that are not real
    numbers, more voxels than the file has or than 1024 cubed, an affine that does not place them.
    """
    path = Path(path)
    header_file, image_file = files(path)
    raw = _raw_header(header_file, pair=header_file != image_file)
    file_shape = _shape(path, raw)
    shape = file_shape
    while len(shape) > 3 and shape[-1] == 1:
        shape = shape[:-1]
    _require_volume(path, shape, axes)
    dtype = _dtype(path, raw)
    offset = _offset(path, raw, single=header_file == image_file)
    _require_bytes(path, image_file, shape, offset, prod(shape) * dtype.itemsize)
    slope, intercept = _scaling(path, raw)
    affine, warnings = _affine(path, raw, shape)
    if not isinstance(raw, nibabel.Nifti1Header) and header_file.with_suffix(".mat").is_file():
        warnings.append(f"the affine in {header_file.with_suffix('.mat').name} beside it is not read")
    return Header(image_file, file_shape, shape, dtype, offset, slope, intercept, affine, warnings)


def read_voxels(header: Header) -> np.ndarray:
    """The voxels of `header.shape`, in this machine's byte order and the order of the file, first axis fastest.

    Integers stay as they are where the header scales nothing. Raises UserError where the file ends too early, goes on
    for too long, or is damaged. Bytes after the last voxel add to `header.warnings`.
    """
    path, size = header.image, prod(header.shape) * header.dtype.itemsize
    layout = (header.shape, header.dtype, header.offset, header.slope, header.intercept)
    with faults(path), opened(path) as stream:
        try:
            with np.errstate(over="ignore", invalid="ignore"):
                values = np.asanyarray(ArrayProxy(stream, layout, mmap=False))
        except OSError as error:
            if error.errno is not None or isinstance(error, gzip.BadGzipFile):
                raise
            raise UserError(f"{path}: {_promise(header.shape, size)} has fewer; replace the file.") from error
        # To the end of a compressed file, where its checksum is; a bomb is left at once.
        trailing = _skip(stream, MAX_TRAILING_BYTES + 1)
    if trailing > MAX_TRAILING_BYTES:
        raise UserError(f"{path}: {_promise(header.shape, size)} goes on after them; mend the header's size.")
    if trailing:
        header.warnings.append(f"{trailing} bytes after the last voxel are not read")
    return values.astype(values.dtype.newbyteorder("="), copy=False)


def corners_apart(first: np.ndarray, second: np.ndarray, shape: tuple[int, ...]) -> float:
    """The largest distance in mm between where two affines put the same corner voxel of a grid of `shape` (H, W, D)."""
    corners = np.stack(np.meshgrid(*[(0, n - 1) for n in shape[:3]], [1], indexing="ij")).reshape(4, -1)
    return float(np.linalg.norm(((first - second) @ corners)[:3], axis=0).max())


def by(shape: tuple[int, ...]) -> str:
    """A shape in words: 128x128x64."""
    return "x".join(map(str, shape))


def _skip(stream: BinaryIO, count: int) -> int:
    """Read up to `count` bytes and forget them; how many there were."""
    left = count
    while left and (chunk := stream.read(min(left, CHUNK_BYTES))):
        left -= len(chunk)
    return count - left


def _raw_header(path: Path, pair: bool) -> AnalyzeHeader:
    """The fields of the header in `path`, unchecked but for what kind of header they are."""
    with faults(path):
        with open(path, "rb") as stream:
            start = stream.read(1024)
        if start.startswith(b"version https://git-lfs"):
            raise UserError(f"{path}: is a pointer of Git LFS, not the volume; fetch it with git lfs pull.")
        named = path.suffix.lower() == ".gz"
        if named and not start.startswith(_GZIP):
            raise UserError(
                f"{path}: is not gzipped, though its name ends in .gz; rename it if it is a volume or replace the file."
            )
        if not named and start.startswith(_GZIP):
            raise UserError(f"{path}: is gzipped; rename it to {path.name}.gz.")
        with opened(path) as stream:
            block = stream.read(1024)
    kinds: list[tuple[bool, type[AnalyzeHeader], int]] = [
        (block[4:7] in (b"n+2", b"ni2"), nibabel.Nifti2Header, 540),
        (block[344:347] in (b"n+1", b"ni1"), nibabel.Nifti1Header, 348),
        (pair and 348 in _sizes(block).values(), nibabel.Spm2AnalyzeImage.header_class, 348),
    ]
    for matches, kind, size in kinds:
        if matches and len(block) >= size:
            order = next((order for order, value in _sizes(block).items() if value == size), None)
            return kind(block[:size], endianness=order, check=False)
    raise UserError(f"{path}: is not a NIfTI volume{_kind(block)}.")


def _sizes(block: bytes) -> dict[str, int]:
    """The size of the header as it states it, by byte order."""
    return {"<": int.from_bytes(block[:4], "little"), ">": int.from_bytes(block[:4], "big")}


def _kind(block: bytes) -> str:
    """What a file is that is no volume, where that can be told, and the mend: the end of a sentence."""
    for offset, mark, what, mend in _OTHER_KINDS:
        if block[offset:].startswith(mark):
            return f" but {what}; {mend}"
    printable = all(byte in b"\t\n\r\f" or byte >= 32 for byte in block)
    return f"{' but text' if printable else ''}; replace the file"


def _shape(path: Path, raw: AnalyzeHeader) -> tuple[int, ...]:
    axes = int(raw["dim"][0])
    if not 1 <= axes <= 7:
        raise UserError(f"{path}: its header promises {axes} axes, which no volume has; replace the file.")
    return tuple(int(n) for n in raw["dim"][1 : axes + 1])


def _require_volume(path: Path, shape: tuple[int, ...], axes: tuple[int, ...]) -> None:
    if min(shape) < 1:
        raise UserError(f"{path}: its header promises {by(shape)} voxels, which is no size; replace the file.")
    if prod(shape) > MAX_VOXELS:
        raise UserError(
            f"{path}: its header promises {by(shape)} voxels, more than 1024x1024x1024; mend the header or crop it."
        )
    if len(shape) in axes:
        return
    if len(shape) == 4:
        raise UserError(f"{path}: holds {shape[3]} volumes of a series; take one out of it and name that file.")
    what = " (vectors or several maps perhaps)" if len(shape) > 4 else ""
    raise UserError(f"{path}: holds {len(shape)} axes, {by(shape)}{what}; a volume has 3, so take one out.")


def _dtype(path: Path, raw: AnalyzeHeader) -> np.dtype:
    """The type of a voxel, in the byte order of the file."""
    code = int(raw["datatype"])
    try:
        dtype = raw.get_data_dtype()
    except (HeaderDataError, KeyError):
        dtype = np.dtype("V")
    if dtype.kind in "iuf" and dtype.itemsize:
        return dtype
    kinds = {"c": "complex", "V": "RGB" if dtype.names else f"unknown (data type {code})"}
    kind = kinds.get(dtype.kind, f"unknown (data type {code})")
    mend = {
        "complex": "save its magnitude as a volume of its own",
        "RGB": "it is a picture in colours, so take the scan or the labels that it was made from",
    }.get(kind, "convert it to numbers of 16 or 32 bits, or replace the file")
    raise UserError(f"{path}: its voxels are {kind}, not real numbers; {mend}.")


def _offset(path: Path, raw: AnalyzeHeader, single: bool) -> int:
    """The byte where the voxels begin."""
    offset = float(raw["vox_offset"])
    # After the header come four bytes that announce extensions. Some writers leave the offset out.
    first = raw.sizeof_hdr + 4 if single else 0
    if offset == 0:
        return first
    if not (np.isfinite(offset) and first <= offset):
        raise UserError(f"{path}: its header puts the voxels at byte {offset:g}, where none can be; replace the file.")
    return int(offset)


def _require_bytes(path: Path, image: Path, shape: tuple[int, ...], offset: int, size: int) -> None:
    """Refuse a promise that the file cannot keep, before any memory is taken for it."""
    packed, there = image.suffix.lower() == ".gz", image.stat().st_size
    if offset + size > there * (MAX_INFLATION if packed else 1):
        left = "far fewer" if packed else max(there - offset, 0)
        raise UserError(f"{path}: {_promise(shape, size)} has {left}; copy it again or replace the file.")


def _promise(shape: tuple[int, ...], size: int) -> str:
    return f"its header promises {by(shape)} voxels, {size} bytes, and the file"


def _scaling(path: Path, raw: AnalyzeHeader) -> tuple[float, float]:
    """Slope and intercept; 1 and 0 where the header scales nothing."""
    try:
        slope, intercept = raw.get_slope_inter()
    except HeaderDataError as error:
        raise UserError(f"{path}: its header scales the voxels by no number ({error}); mend the header.") from error
    return (1.0, 0.0) if slope is None else (float(slope), float(intercept or 0))


def _affine(path: Path, raw: AnalyzeHeader, shape: tuple[int, ...]) -> tuple[np.ndarray, list[str]]:
    """The affine that the header gives, sform before qform before pixdim, and what is doubtful about it."""
    # Negative edges are a habit of old Analyze files; the standard takes a qfac that is not -1 as 1.
    raw["pixdim"][1:4] = np.abs(raw["pixdim"][1:4])
    nifti = isinstance(raw, nibabel.Nifti1Header)
    warnings = []
    with np.errstate(all="ignore"):
        sform = raw.get_sform() if nifti and raw["sform_code"] > 0 else None
        qform = _qform(raw) if nifti and raw["qform_code"] > 0 else None
        if sform is not None:
            affine = sform
        elif qform is not None:
            affine = qform
        elif nifti:
            affine = raw.get_base_affine()
            warnings.append("neither qform nor sform: left and right are not known from the header, LAS is assumed")
        else:
            affine = raw.get_best_affine()
            warnings.append("an Analyze header: left and right are not known from it, LAS is assumed")
        if not _places(affine):
            raise UserError(f"{path}: its affine does not place the voxels in space; mend the header.")
        if sform is not None and qform is not None:
            apart = corners_apart(sform, qform, shape)
            if not apart <= FORMS_APART_MM:
                warnings.append(f"qform and sform place it {apart:.1f} mm apart: the sform is taken")
    edges = nibabel.affines.voxel_sizes(affine)
    if edges.min() < USUAL_EDGES_MM[0] or edges.max() > USUAL_EDGES_MM[1]:
        warnings.append(f"voxels of {' x '.join(f'{edge:.3g}' for edge in edges)} mm: is the header right?")
    unit = {1: "metres", 3: "micrometres"}.get(int(raw["xyzt_units"]) & 7) if nifti else None
    if unit:
        warnings.append(f"its header gives lengths in {unit}: they are read as mm")
    return affine, warnings


def _qform(raw: nibabel.Nifti1Header) -> np.ndarray:
    """The affine of the qform, NaN where its quaternion is none."""
    if raw["pixdim"][0] != -1:
        raw["pixdim"][0] = 1
    try:
        return raw.get_qform()
    except (HeaderDataError, ValueError):
        return np.full((4, 4), np.nan)


def _places(affine: np.ndarray) -> bool:
    """Whether an affine puts each voxel at a place of its own, on a scale of bodies."""
    if not np.isfinite(affine).all() or np.abs(affine).max() > MAX_MM:
        return False
    edges = nibabel.affines.voxel_sizes(affine)
    return bool(edges.min() > 1 / MAX_MM and abs(np.linalg.det(affine[:3, :3])) > 1e-6 * edges.prod())
