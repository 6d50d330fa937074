"""The memory that is left to a process: of the machine, or of the control groups that it lies in."""

from pathlib import Path

import pytest

from meddpm import memory

KIB, GIB = 2**10, 2**30
V1, V2 = "sys/fs/cgroup/memory", "sys/fs/cgroup"
MEMINFO = "MemTotal: 67108864 kB\nMemFree: 1048576 kB\nMemAvailable: 33554432 kB\nHugePages_Total: 0\n"  # 32 GiB left


def machine(root: Path, cgroup: str = "", files: dict[str, str] | None = None) -> Path:
    for name, text in {"proc/meminfo": MEMINFO, "proc/self/cgroup": cgroup, **(files or {})}.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text, encoding="utf-8")
    return root


def group(folder: str, limit: str, used: int, cached: int = 0) -> dict[str, str]:
    names = ["memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"]
    if not folder.startswith(V1):
        names = ["memory.max", "memory.current", "inactive_file"]
    stat = f"anon 5\n{names[2]} {cached}\nactive_file 7\n"
    return {f"{folder}/{names[0]}": f"{limit}\n", f"{folder}/{names[1]}": f"{used}\n", f"{folder}/memory.stat": stat}


CASES = {
    "no groups": ("", {}, 32),
    "v2, no limit": ("0::/user.slice\n", group(f"{V2}/user.slice", "max", GIB), 32),
    "v2, container": ("0::/\n", group(V2, str(8 * GIB), 3 * GIB), 5),
    "v2, pages of files are free": ("0::/\n", group(V2, str(8 * GIB), 3 * GIB, 2 * GIB), 7),
    "v2, more than the machine has": ("0::/\n", group(V2, str(100 * GIB), GIB), 32),
    "v2, the job limits its step": (
        "0::/slurm/job_1/step_0\n",
        {**group(f"{V2}/slurm/job_1/step_0", "max", GIB), **group(f"{V2}/slurm/job_1", str(4 * GIB), GIB)},
        3,
    ),
    "v2, the tightest of several": (
        "0::/slurm/job_1\n",
        {**group(f"{V2}/slurm", str(2 * GIB), GIB), **group(f"{V2}/slurm/job_1", str(4 * GIB), GIB)},
        1,
    ),
    "v1": (
        "9:memory:/job_1\n3:cpuset:/other\n0::/\n",
        {**group(f"{V1}/job_1", str(6 * GIB), 4 * GIB, GIB), **group(f"{V1}/other", str(GIB), 0)},
        3,
    ),
    "v1, shared controller": ("9:cpu,memory:/job_1\n", group(f"{V1}/job_1", str(6 * GIB), 4 * GIB), 2),
    "v1, no limit": ("9:memory:/\n", group(V1, "9223372036854771712", GIB), 32),
    "v1, a container that sees the path outside": ("9:memory:/docker/abc\n", group(V1, str(2 * GIB), GIB), 1),
    "more used than allowed": ("0::/\n", group(V2, str(GIB), 2 * GIB), 0),
}


@pytest.mark.parametrize("name", CASES)
def test_what_is_left_is_that_of_the_machine_or_of_a_tighter_group(tmp_path: Path, name: str) -> None:
    cgroup, files, expected = CASES[name]
    assert memory.available(machine(tmp_path, cgroup, files)) == expected * GIB


def test_a_kernel_that_does_not_say_is_asked_for_its_free_pages(tmp_path: Path) -> None:
    assert 0 < memory.available(tmp_path) < 2**50


def test_this_machine_has_memory_left() -> None:
    total = int(Path("/proc/meminfo").read_text(encoding="utf-8").split()[1]) * KIB
    assert 2**20 < memory.available() <= total
