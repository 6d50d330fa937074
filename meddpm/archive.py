"""The archive: one zip of the run's files with their checksums, the same bytes every time."""

import hashlib
import os
import zipfile
from pathlib import Path

from meddpm.config import ArchiveConfig, UserError
from meddpm.files import replacing

CHECKSUMS = "SHA256SUMS"
# The earliest time a zip can hold: a file's own time would change the bytes.
FIXED_TIME = (1980, 1, 1, 0, 0, 0)
REGULAR_FILE_644 = 0o100644 << 16
VOLUME_SUFFIXES = (".nii", ".nii.gz")
BLOCK = 1 << 20


def build(files: list[Path], root: Path, target: Path, settings: ArchiveConfig) -> Path:
    """Zip `files` into `target`, each under its path relative to `root`, and SHA256SUMS beside them.

    Without `settings.samples` the NIfTI volumes among `files` are left out; the tables that list them, with their
    checksums, stay. The order of `files` does not matter, and a file that is named twice is packed once.

    Raises UserError for a file that is not there, that lies outside `root`, or that is named SHA256SUMS at its top.
    """
    members: dict[str, Path] = {}
    for path in map(Path, files):
        name = _member_name(path, Path(root))
        if settings.samples or not name.lower().endswith(VOLUME_SUFFIXES):
            members[name] = path
    if CHECKSUMS in members:
        raise UserError(f"archive: {members[CHECKSUMS]} has the name of the archive's own list; give the file another")
    with replacing(target) as temporary, zipfile.ZipFile(temporary, "w") as archive:
        sums = "".join(f"{_pack(archive, name, path)}  {name}\n" for name, path in sorted(members.items())).encode()
        archive.writestr(_entry(CHECKSUMS, len(sums)), sums)
    return Path(target)


def _member_name(path: Path, root: Path) -> str:
    """`path` relative to `root` with forward slashes. Links are not followed: results/ may lie on another disk."""
    absolute, base = Path(os.path.abspath(path)), Path(os.path.abspath(root))
    if not absolute.is_relative_to(base):
        raise UserError(f"archive: {path} lies outside {root}; only files below it can be packed")
    if not absolute.is_file():
        raise UserError(f"archive: {path} is no file; run the stage that makes it first")
    return absolute.relative_to(base).as_posix()


def _pack(archive: zipfile.ZipFile, name: str, path: Path) -> str:
    """Write one file into the archive. Returns the SHA-256 of the bytes that were packed."""
    digest = hashlib.sha256()
    with open(path, "rb") as source, archive.open(_entry(name, path.stat().st_size), "w") as packed:
        while block := source.read(BLOCK):
            digest.update(block)
            packed.write(block)
    return digest.hexdigest()


def _entry(name: str, size: int) -> zipfile.ZipInfo:
    entry = zipfile.ZipInfo(name, FIXED_TIME)
    entry.compress_type = zipfile.ZIP_DEFLATED
    entry.create_system = 3  # Unix, whatever the archive is made on
    entry.external_attr = REGULAR_FILE_644
    entry.file_size = size
    return entry
