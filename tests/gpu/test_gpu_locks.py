"""Jobs on a machine of real GPUs: each has one of its own, and the next waits until the kernel frees a lock."""

import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
if not torch.cuda.is_available():
    pytest.skip("no NVIDIA GPU here", allow_module_level=True)

from meddpm.config import repository_root  # noqa: E402

# Claims a GPU, allocates on it, says which it is, and holds it until its input ends.
JOB = """
import sys
import torch
from meddpm import device, log
from meddpm.config import GpuConfig
with log.job(sys.argv[1]), device.claimed(GpuConfig(device="cuda")) as where:
    tensor = torch.ones(1 << 20, device=where)
    properties = torch.cuda.get_device_properties(tensor.device)
    print(tensor.device.index, properties.uuid, flush=True)
    sys.stdin.read()
"""


class Job:
    """A process that runs JOB."""

    def __init__(self, log: Path) -> None:
        self.log = log
        self.process = subprocess.Popen(
            [sys.executable, "-c", JOB, str(log)],
            cwd=repository_root(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def gpu(self) -> str:
        """The UUID of its GPU, once it has one."""
        return self.process.stdout.readline().split()[1]

    def waits(self) -> bool:
        """Whether it comes to wait within a minute."""
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            if self.log.is_file() and "waiting for a GPU" in self.log.read_text():
                return True
            time.sleep(0.1)
        return False


@pytest.fixture
def jobs(tmp_path: Path) -> Iterator[list[Job]]:
    """A job for each GPU of the machine."""
    started = [Job(tmp_path / f"{number}.log") for number in range(torch.cuda.device_count())]
    yield started
    for job in started:
        job.process.kill()
        job.process.wait()


def test_each_job_has_a_gpu_of_its_own_and_the_next_waits_until_one_is_killed(jobs: list[Job], tmp_path: Path) -> None:
    gpus = [job.gpu() for job in jobs]
    assert len(set(gpus)) == torch.cuda.device_count()
    late = Job(tmp_path / "late.log")
    jobs.append(late)
    assert late.waits(), late.log.read_text()
    assert re.search(rf"process {jobs[-2].process.pid} on ", late.log.read_text()), "it says who holds them"
    jobs[0].process.send_signal(signal.SIGKILL)
    assert late.gpu() == gpus[0]


def test_two_gpus_are_used_at_once(jobs: list[Job]) -> None:
    if torch.cuda.device_count() < 2:
        pytest.skip("this machine has one GPU")
    assert len({job.gpu() for job in jobs[:2]}) == 2
