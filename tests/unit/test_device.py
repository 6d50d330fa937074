"""Which device a job gets: the one of its row, a GPU of its own, or a reason."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from meddpm import device, gpu_lock
from meddpm.config import GpuConfig, UserError
from meddpm.device import WrongDevice
from meddpm.status import CannotRun


class Machine:
    """GPUs as torch would list them, and which of them was made the current one."""

    def __init__(self, names: list[str]) -> None:
        self.names = names
        self.current: int | None = None

    def use(self, index: int) -> None:
        self.current = index

    def properties(self, index: int) -> SimpleNamespace:
        return SimpleNamespace(uuid=f"uuid-{index}")


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Machine:
    """A machine without SLURM; a test puts its GPUs into `names`."""
    made = Machine([])
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: bool(made.names))
    monkeypatch.setattr(torch.cuda, "device_count", lambda: len(made.names))
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda index: made.names[index])
    monkeypatch.setattr(torch.cuda, "get_device_properties", made.properties)
    monkeypatch.setattr(torch.cuda, "set_device", made.use)
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: None)
    monkeypatch.setattr(gpu_lock, "shared_folder", lambda: tmp_path / "locks")
    return made


def test_auto_falls_back_to_the_cpu_and_cuda_is_unavailable_without_one(machine: Machine) -> None:
    with device.claimed(GpuConfig()) as where:
        assert where.type == "cpu"
    with pytest.raises(CannotRun) as caught, device.claimed(GpuConfig(device="cuda")):
        pass
    assert caught.value.status == "unavailable"
    assert [device.kind(GpuConfig(device=each)) for each in ("auto", "cpu", "cuda")] == ["cpu", "cpu", "none"]
    machine.names = ["A"]
    assert [device.kind(GpuConfig(device=each)) for each in ("auto", "cpu", "cuda")] == ["cuda", "cpu", "cuda"]


def test_a_job_of_slurm_that_asked_for_a_gpu_and_sees_none_fails(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    monkeypatch.setenv("SLURMD_NODENAME", "node-3")
    with pytest.raises(WrongDevice) as caught, device.claimed(GpuConfig(device="cuda"), "A100"):
        pass
    assert str(caught.value).startswith("gpus.A100: the job got no CUDA device that torch can use on node node-3; ")
    assert "right would be" in str(caught.value)


@pytest.mark.parametrize("slurm", [True, False])
def test_a_job_on_a_device_of_another_name_fails_and_gives_no_figure(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, slurm: bool
) -> None:
    machine.names = ["Tesla V100-SXM2-32GB"]
    if slurm:
        monkeypatch.setenv("SLURM_JOB_ID", "7")
    with pytest.raises(UserError) as caught, device.claimed(GpuConfig(device="cuda", device_name="A100"), "A100"):
        pass
    assert "gpus.A100: the job got Tesla V100-SXM2-32GB on node " in str(caught.value)
    assert "does not match device_name A100; right would be a " in str(caught.value)
    assert ("gpu_model" in str(caught.value)) == slurm
    assert not isinstance(caught.value, CannotRun), "a row would never be tried again"
    assert machine.current is None
    with device.claimed(GpuConfig(device="cuda", device_name="V100")) as where:
        assert where.type == "cuda"


def test_the_name_of_a_cpu_is_held_against_its_row_too(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device, "processor_name", lambda: "EPYC (4 cores)")
    with pytest.raises(WrongDevice, match="EPYC"), device.claimed(GpuConfig(device="cpu", device_name="Xeon")):
        pass
    with device.claimed(GpuConfig(device="cpu", device_name="EPYC")) as where:
        assert where.type == "cpu"


def test_two_jobs_get_a_gpu_each_and_one_that_is_free_again(machine: Machine) -> None:
    machine.names = ["H200", "H200"]
    gpu = GpuConfig(device="cuda")
    with device.claimed(gpu) as where:
        assert (where.type, machine.current) == ("cuda", 0)
        with device.claimed(gpu):
            assert machine.current == 1
        with device.claimed(gpu):
            assert machine.current == 1
    with device.claimed(gpu):
        assert machine.current == 0


def test_the_name_picks_among_different_gpus(machine: Machine) -> None:
    machine.names = ["T4", "A100", "T4"]
    with device.claimed(GpuConfig(device="cuda", device_name="A100")):
        assert machine.current == 1
    with device.claimed(GpuConfig(device="cuda", device_name="T4")), device.claimed(GpuConfig(device_name="T4")):
        assert machine.current == 2


def test_the_same_gpu_has_one_lock_whichever_others_are_seen(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    @contextmanager
    def held(ids: list[str], between: object) -> Iterator[int]:
        asked.append(ids)
        yield len(ids) - 1

    monkeypatch.setattr(gpu_lock, "held", held)
    machine.names = ["T4", "A100", "A100"]
    with device.claimed(GpuConfig(device="cuda", device_name="A100")):
        assert asked == [["uuid-1", "uuid-2"]]
        assert machine.current == 2


def test_the_one_gpu_that_slurm_gave_is_not_locked_and_several_are(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    machine.names = ["H200"]
    with device.claimed(GpuConfig(device="cuda")):
        assert machine.current == 0
    assert not (tmp_path / "locks").exists()
    machine.names = ["H200", "H200"]  # as in an interactive job
    with device.claimed(GpuConfig(device="cuda")), device.claimed(GpuConfig(device="cuda")):
        assert machine.current == 1


def test_visible_devices_are_never_changed(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3,5")
    machine.names = ["H200", "H200"]
    with device.claimed(GpuConfig(device="cuda")):
        import os

        assert os.environ["CUDA_VISIBLE_DEVICES"] == "3,5"


def test_who_waits_for_a_gpu_can_be_stopped(machine: Machine) -> None:
    machine.names = ["H200"]

    def stop() -> None:
        raise KeyboardInterrupt

    with (
        device.claimed(GpuConfig(device="cuda")),
        pytest.raises(KeyboardInterrupt),
        device.claimed(GpuConfig(device="cuda"), between=stop),
    ):
        pass
