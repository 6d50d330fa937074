"""The archive: the same bytes every time, names below the root, checksums that hold."""

import hashlib
import os
import zipfile
from pathlib import Path

import pytest

from meddpm import archive
from meddpm.config import ArchiveConfig, UserError


@pytest.fixture
def run(tmp_path):
    """A root with a table, a configuration and a volume."""
    texts = {"tables/timing.csv": "a,b\n1,2\n", "run_config.yaml": "x: 1\n", "samples/a.nii.gz": "volume"}
    for name, text in texts.items():
        path = tmp_path / "run" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return tmp_path / "run"


def files_of(root: Path) -> list[Path]:
    return sorted(path for path in root.rglob("*") if path.is_file())


def test_holds_the_files_under_their_paths_below_the_root(run, tmp_path):
    target = archive.build(files_of(run), run, tmp_path / "out" / "run.zip", ArchiveConfig(samples=True))
    with zipfile.ZipFile(target) as packed:
        assert packed.namelist() == ["run_config.yaml", "samples/a.nii.gz", "tables/timing.csv", "SHA256SUMS"]
        assert packed.read("tables/timing.csv") == b"a,b\n1,2\n"
        assert {entry.compress_type for entry in packed.infolist()} == {zipfile.ZIP_DEFLATED}
        assert {entry.date_time for entry in packed.infolist()} == {(1980, 1, 1, 0, 0, 0)}
        assert packed.testzip() is None


def test_checksums_are_those_of_the_packed_bytes(run, tmp_path):
    target = archive.build(files_of(run), run, tmp_path / "run.zip", ArchiveConfig(samples=True))
    with zipfile.ZipFile(target) as packed:
        lines = packed.read("SHA256SUMS").decode().splitlines()
        stated = {name: digest for digest, name in (line.split("  ", 1) for line in lines)}
        names = [name for name in packed.namelist() if name != "SHA256SUMS"]
        assert stated == {name: hashlib.sha256(packed.read(name)).hexdigest() for name in names}


def test_bytes_repeat_whatever_the_times_the_modes_and_the_order(run, tmp_path):
    first = archive.build(files_of(run), run, tmp_path / "1.zip", ArchiveConfig()).read_bytes()
    for path in files_of(run):
        os.utime(path, (1_700_000_000, 1_700_000_000))
        path.chmod(0o600)
    files = list(reversed(files_of(run)))
    again = archive.build(files + files[:1], run, tmp_path / "2.zip", ArchiveConfig()).read_bytes()
    assert again == first


def test_leaves_volumes_out_unless_asked(run, tmp_path):
    target = archive.build(files_of(run), run, tmp_path / "run.zip", ArchiveConfig(samples=False))
    with zipfile.ZipFile(target) as packed:
        assert "samples/a.nii.gz" not in packed.namelist()
        assert b"a.nii.gz" not in packed.read("SHA256SUMS")


def test_packs_a_link_under_its_own_name(run, tmp_path):
    elsewhere = tmp_path / "scratch.csv"
    elsewhere.write_text("c\n", encoding="utf-8")
    (run / "tables" / "link.csv").symlink_to(elsewhere)
    target = archive.build(files_of(run), run, tmp_path / "run.zip", ArchiveConfig())
    with zipfile.ZipFile(target) as packed:
        assert packed.read("tables/link.csv") == b"c\n"


@pytest.mark.parametrize("escape", ["../outside.csv", "tables/../../outside.csv"])
def test_refuses_a_path_that_escapes_the_root(run, tmp_path, escape):
    (tmp_path / "outside.csv").write_text("secret", encoding="utf-8")
    with pytest.raises(UserError, match="outside"):
        archive.build([run / escape], run, tmp_path / "run.zip", ArchiveConfig())
    assert not (tmp_path / "run.zip").exists()


def test_refuses_a_sibling_whose_name_begins_like_the_root(run, tmp_path):
    sibling = tmp_path / "run2" / "a.csv"
    sibling.parent.mkdir()
    sibling.write_text("a", encoding="utf-8")
    with pytest.raises(UserError, match="lies outside"):
        archive.build([sibling], run, tmp_path / "run.zip", ArchiveConfig())


@pytest.mark.parametrize("name", ["missing.csv", "tables"])
def test_names_what_is_no_file(run, tmp_path, name):
    with pytest.raises(UserError, match=f"{name} is no file"):
        archive.build([run / name], run, tmp_path / "run.zip", ArchiveConfig())


def test_refuses_a_file_with_the_name_of_the_list(run, tmp_path):
    (run / "SHA256SUMS").write_text("mine", encoding="utf-8")
    with pytest.raises(UserError, match="archive's own list"):
        archive.build([run / "SHA256SUMS"], run, tmp_path / "run.zip", ArchiveConfig())


def test_a_failure_leaves_the_old_archive_and_nothing_beside_it(run, tmp_path, monkeypatch):
    folder = tmp_path / "out"
    target = archive.build(files_of(run), run, folder / "run.zip", ArchiveConfig())
    before = target.read_bytes()

    def disk_full(*_: object) -> str:
        raise OSError("no space left on device")

    monkeypatch.setattr(archive, "_pack", disk_full)
    with pytest.raises(OSError, match="no space"):
        archive.build(files_of(run), run, target, ArchiveConfig())
    assert target.read_bytes() == before
    assert [path.name for path in folder.iterdir()] == ["run.zip"]
