"""What a cluster has, from what sinfo prints."""

import time

import pytest

from meddpm.config import UserError
from meddpm.slurm import command, site
from meddpm.slurm.command import NoCluster
from tests.unit.slurm_fixture import DRIVER, MIXED, TIDY, UNTYPED, Commands, commands

__all__ = ["commands"]


def query(commands: Commands, text: str) -> dict[str, site.Partition]:
    commands.prints("sinfo", text)
    return site.query()


def test_a_partition_for_each_gpu(commands: Commands) -> None:
    found = query(commands, TIDY)
    assert list(found) == ["cpu", "gpu-v100", "gpu-a100", "gpu-h100"]
    a100 = found["gpu-a100"]
    assert (a100.name, a100.default, a100.up) == ("gpu-a100", False, True)
    assert (a100.gpus, a100.features, a100.cpus, a100.mem, a100.runtime) == (
        {"a100": 4},
        frozenset({"a100"}),
        64,
        512000,
        1440,
    )
    assert found["cpu"].default
    assert (found["cpu"].gpus, found["cpu"].features) == ({}, frozenset())
    assert found["gpu-h100"].runtime == 720


def test_nodes_of_several_kinds_are_one_partition(commands: Commands) -> None:
    gpu = query(commands, MIXED)["gpu"]
    assert gpu.default
    assert gpu.gpus == {"a100": 4, "v100": 2, "a30": 2}  # neither mps nor shard nor nvme
    assert gpu.features == {"a100", "nvlink", "rome", "v100", "skylake", "a30"}
    assert (gpu.cpus, gpu.mem, gpu.runtime) == (128, 1031000, 2880)
    assert [(list(node.gpus), node.cpus, node.usable) for node in gpu.nodes] == [
        (["a100"], 128, True),
        (["a100"], 128, False),
        (["v100"], 40, True),
        (["a30"], 64, False),
    ]


def test_a_partition_is_up_where_it_takes_jobs_and_a_node_is_up(commands: Commands) -> None:
    up = {name: each.up for name, each in query(commands, MIXED).items()}
    assert up == {"work": True, "gpu": True, "gpu-debug": True, "old": False, "empty": False}
    rows = ["a|up|drained", "a|up|idle*", "b|inact|idle"]
    text = "".join(f"{row}|4|4|infinite|(null)|(null)\n" for row in rows)
    assert [each.up for each in query(commands, text).values()] == [False, False]


@pytest.mark.parametrize(
    ("limit", "minutes"),
    [
        *(("infinite", None), ("UNLIMITED", None), ("n/a", None), ("", None), ("9" * 5000 + "-00:00:00", None)),
        *(("0:30", 0), ("30:00", 30), ("1:00:00", 60), ("7-00:00:00", 10080), ("4-12:30:59", 6510)),
    ],
)
def test_time_limits(commands: Commands, limit: str, minutes: int | None) -> None:
    assert query(commands, f"a|up|idle|4|4|{limit}|(null)|(null)\n")["a"].runtime == minutes


def test_gpus_as_sites_write_them(commands: Commands) -> None:
    found = query(commands, DRIVER)
    assert found["batch"].gpus == {"nvidia_a100_80gb_pcie": 8, "nvidia_a100-sxm4-80gb": 8}
    assert found["slices"].gpus == {"a100_3g.20gb": 4, "a100_1g.5gb": 2}
    assert found["2024"].gpus == {"3090": 2, "volta": 1, "weird type": 1}
    assert {name: each.gpus for name, each in query(commands, UNTYPED).items()} == {
        "shared": {"": 4},
        "v100s": {"": 2},
        "misc": {"": 1},
    }
    split = "a|up|idle|4|4|infinite|gpu:a100:2(S:0),gpu:a100:2(S:1),gpu:0|x\n"
    assert query(commands, split)["a"].gpus == {"a100": 4}


HUGE = "9" * 5000


@pytest.mark.parametrize(
    ("row", "cpus", "mem", "gpus"),
    [
        ("idle|8|0|1:00:00|gpu:a:2|x", 8, 0, {"a": 2}),
        (f"idle|{HUGE}|{HUGE}|1:00:00|gpu:a:{HUGE}|x", 0, 0, {"a": 1}),
        ("idle|n/a|n/a|n/a|gpu:a:2|x", 0, 0, {"a": 2}),
        ("idle|||||", 0, 0, {}),
        ("|4|4|||", 4, 4, {}),
        ("idle|32+|64+|infinite|n/a|n/a", 32, 64, {}),
        ("idle|\u0663|\u0663|\u0663:00:00|gpu:a:\u0663|x", 0, 0, {"a": 1}),
    ],
)
def test_odd_fields_are_not_known(commands: Commands, row: str, cpus: int, mem: int, gpus: dict[str, int]) -> None:
    (found,) = query(commands, f"a|up|{row}\n*|up|idle|1|1|1:00|(null)|(null)\n").values()
    assert (found.name, found.up, found.cpus, found.mem, found.gpus) == ("a", True, cpus, mem, gpus)
    assert found.features == ({"x"} if row.endswith("x") else set())


def test_one_call_of_sinfo_whatever_the_user_has_set(commands: Commands, monkeypatch: pytest.MonkeyPatch) -> None:
    commands.script("sinfo", 'printf "%s|up|idle|4|4|infinite|(null)|(null)\\n" "a${SINFO_PARTITION}${SINFO_ALL}"')
    monkeypatch.setenv("SINFO_PARTITION", "mine")
    monkeypatch.setenv("SINFO_ALL", "1")
    assert list(site.query()) == ["a"]
    assert commands.called("sinfo") == [f"--noheader --exact --noconvert --format {site.FORMAT}"]


def test_what_a_terminal_would_obey_is_taken_out(commands: Commands) -> None:
    (found,) = query(commands, "a\x1b[31m|up|idle|4|4|infinite|gpu:\x07x:1|b\x85,c\n").values()
    assert (found.name, found.gpus, found.features) == ("a?[31m", {"?x": 1}, frozenset({"b?", "c"}))


def test_no_sinfo_is_told(commands: Commands) -> None:
    assert site.partitions() is None
    with pytest.raises(NoCluster, match=r"^sinfo: cannot be run \(No such file or directory\); right would be a login"):
        site.query()
    assert issubclass(NoCluster, UserError)


def test_a_controller_that_is_down_is_told(commands: Commands) -> None:
    commands.script("sinfo", 'echo "slurm_load_partitions: Unable to contact slurm controller" >&2; exit 1')
    with pytest.raises(
        NoCluster, match=r"^sinfo: failed \(slurm_load_partitions: Unable to contact slurm controller\);"
    ):
        site.query()
    assert site.partitions() is None


def test_no_answer_in_time_is_told_and_all_that_was_started_ends(
    commands: Commands, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command, "TIMEOUT_S", 0.2)
    commands.script("sinfo", "sleep 60\necho late")  # a wrapper, whose child has its output
    start = time.monotonic()
    with pytest.raises(NoCluster, match="sinfo: no answer in 0 s"):
        site.query()
    assert time.monotonic() - start < 10


@pytest.mark.parametrize("text", ["", "\n", "PARTITION AVAIL\nno such format\n"])
def test_an_answer_without_partitions_is_told(commands: Commands, text: str) -> None:
    with pytest.raises(NoCluster, match="lists no partition"):
        query(commands, text)
