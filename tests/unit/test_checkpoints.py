"""Checkpoints: the newest few, whole or not there, and what cannot be read is passed over."""

import errno
import io
import logging
import math
import os
import subprocess
import zipfile
from pathlib import Path
from typing import Any

import pytest
import torch

from meddpm.model.checkpoints import Checkpoints
from meddpm.model.formats import torch_file
from tests.unit.weights_fixture import equal, with_code


def state(step: int) -> dict[str, Any]:
    """A state in the types of a training's: tensors, numbers, texts, nested."""
    return {
        "step": step,
        "seconds": 1.5,
        "losses": torch.arange(float(step)),
        "model": {"weight": torch.full((2, 3), float(step)), "bias": torch.rand(3)},
        "optimizer": {"state": {0: {"step": torch.tensor(1.0)}}, "param_groups": [{"betas": (0.9, 0.99), "x": None}]},
        "random": {"order": torch.Generator().get_state()},
    }


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def name(step: int) -> str:
    return f"step-{step:09d}.pt"


def test_a_state_comes_back_to_the_bit(tmp_path: Path) -> None:
    kept = Checkpoints(tmp_path / "run", keep=2)
    assert kept.newest(100) is None
    assert kept.last is None
    written = state(7)
    assert kept.save(7, written) == kept.last == tmp_path / "run" / name(7)
    assert equal(kept.newest(100), written)
    assert names(tmp_path / "run") == [name(7)]


@pytest.mark.parametrize("keep", [1, 3])
def test_the_newest_few_stay(tmp_path: Path, keep: int) -> None:
    kept = Checkpoints(tmp_path, keep)
    for step in (1, 2, 9, 10, 100):
        kept.save(step, state(step))
    assert names(tmp_path) == [name(step) for step in (1, 2, 9, 10, 100)[-keep:]]
    assert kept.newest(100)["step"] == 100


def test_checkpoints_beyond_the_limit_are_neither_used_nor_removed(tmp_path: Path) -> None:
    Checkpoints(tmp_path, 5).save(50, state(50))
    kept = Checkpoints(tmp_path, 1)
    assert kept.newest(49) is None
    kept.save(10, state(10))
    kept.save(20, state(20))
    assert names(tmp_path) == [name(20), name(50)]
    assert kept.newest(49)["step"] == 20
    assert kept.newest(50)["step"] == 50


def damage_nothing_left(path: Path) -> None:
    path.write_bytes(b"")


def damage_truncated(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-200])


def damage_half(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def damage_garbage(path: Path) -> None:
    path.write_bytes(bytes(range(256)) * 8)


def damage_one_byte(path: Path) -> None:
    content = path.read_bytes()
    losses = torch.arange(4.0).numpy().tobytes()
    assert content.count(losses) == 1
    path.write_bytes(content.replace(losses, losses[:-1] + b"\0"))


def damage_pickle(path: Path) -> None:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("archive/data.pkl", b"\x80\x02.")  # pops from an empty stack


@pytest.mark.parametrize(
    "damage",
    [damage_nothing_left, damage_truncated, damage_half, damage_garbage, damage_one_byte, damage_pickle],
)
def test_a_damaged_one_is_passed_over_with_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, damage: Any
) -> None:
    kept = Checkpoints(tmp_path, 3)
    for step in (4, 10):
        kept.save(step, {**state(step), "losses": torch.arange(4.0)})
    damage(tmp_path / name(10))
    with caplog.at_level(logging.WARNING, logger="meddpm"):
        assert kept.newest(100)["step"] == 4
    (record,) = caplog.records
    assert record.levelname == "WARNING"
    assert f"{name(10)} cannot be read" in record.getMessage()
    assert "\n" not in record.getMessage()
    damage(tmp_path / name(4))
    assert kept.newest(100) is None


def test_code_in_a_checkpoint_is_not_executed(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    kept = Checkpoints(tmp_path, 3)
    kept.save(4, state(4))
    with_code(tmp_path / name(5), tmp_path / "trap")
    assert kept.newest(100)["step"] == 4
    assert not (tmp_path / "trap").exists()
    assert f"{name(5)} cannot be read" in caplog.text


def test_files_of_other_names_are_left_alone(tmp_path: Path) -> None:
    for other in ("step-5.pt", "step-000000009.pt.bak", "notes.txt"):
        (tmp_path / other).write_text("mine")
    kept = Checkpoints(tmp_path, 1)
    assert kept.newest(100) is None
    kept.save(1, state(1))
    assert len(names(tmp_path)) == 4


def test_what_a_killed_run_left_half_written_goes_with_the_next_one(tmp_path: Path) -> None:
    gone = subprocess.Popen(["true"])
    gone.wait()
    for process in (gone.pid, os.getpid()):
        (tmp_path / f".{process}.{name(3)}").write_bytes(b"half")
    assert Checkpoints(tmp_path, 2).newest(100) is None
    assert names(tmp_path) == [f".{os.getpid()}.{name(3)}"], "that of a living run stays"


def test_the_last_one_is_the_last_that_is_whole_for_certain(tmp_path: Path) -> None:
    Checkpoints(tmp_path, 3).save(4, state(4))
    (tmp_path / name(9)).write_bytes(b"no checkpoint")
    kept = Checkpoints(tmp_path, 3)
    kept.newest(100)
    assert kept.last == tmp_path / name(4)
    kept.save(5, state(5))
    assert kept.last == tmp_path / name(5)


@pytest.mark.parametrize(
    "other", [{"step": 10}, torch.zeros(3), {"model": {"a": torch.tensor([math.nan])}, "ema": {}, "step": 10}]
)
def test_what_is_no_state_is_passed_over(tmp_path: Path, caplog: pytest.LogCaptureFixture, other: Any) -> None:
    kept = Checkpoints(tmp_path, 3)
    whole = {"step": 4, "model": {"a": torch.zeros(2)}, "ema": {"a": torch.zeros(2)}}
    kept.save(4, whole)
    kept.save(10, other)
    assert kept.newest(100, ("step", "model", "ema"))["step"] == 4
    assert f"{name(10)} cannot be read" in caplog.text


def test_a_folder_of_the_name_of_a_checkpoint_is_none(tmp_path: Path) -> None:
    (tmp_path / name(1)).mkdir()
    kept = Checkpoints(tmp_path, 1)
    for step in (2, 3):
        kept.save(step, state(step))
    assert kept.newest(100)["step"] == 3


def test_too_little_memory_is_no_damage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = Checkpoints(tmp_path, 1)
    kept.save(2, state(2))

    def load(*_: Any, **__: Any) -> Any:
        raise MemoryError

    monkeypatch.setattr(torch, "load", load)
    with pytest.raises(MemoryError):
        kept.newest(100)


class HalfWritten(io.FileIO):
    """A stream to a disk that is full once half of what is asked for is on it."""

    def write(self, content: Any) -> int:
        super().write(content[: len(content) // 2])
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def fill_half_way(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch_file, "open", HalfWritten, raising=False)


def fill_the_device(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if not Path("/dev/full").exists():
        pytest.skip("no /dev/full here")
    path.with_name(f".{os.getpid()}.{path.name}").symlink_to("/dev/full")


@pytest.mark.parametrize("fill", [fill_half_way, fill_the_device])
def test_a_full_disk_leaves_the_ones_before_and_no_half(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fill: Any
) -> None:
    kept = Checkpoints(tmp_path, 1)
    written = state(3)
    kept.save(3, written)
    fill(tmp_path / name(4), monkeypatch)
    with pytest.raises(OSError, match="No space left") as caught:
        kept.save(4, state(4))
    assert caught.value.errno == errno.ENOSPC
    assert names(tmp_path) == [name(3)]
    assert equal(kept.newest(100), written)
