"""What a job asks of the cluster, and what is refused because a shell, sbatch or the plugin would trip over it."""

import shlex
from collections import UserDict
from dataclasses import replace
from types import SimpleNamespace

import pytest
from snakemake_executor_plugin_slurm.submit_string import get_submit_command
from snakemake_executor_plugin_slurm.utils import set_gres_string
from snakemake_executor_plugin_slurm.validation import get_forbidden_slurm_options, validate_slurm_extra

from meddpm.config import ClusterConfig, RequestConfig, UserError
from meddpm.slurm import site
from meddpm.slurm.request import NAMES, check_request, feature_names, has_features, resources
from meddpm.slurm.site import Partition
from tests.unit.slurm_fixture import MIXED, Commands, commands

__all__ = ["commands"]

ROW = RequestConfig(partition="gpu", cpus=8, mem=32000, runtime=600)
QUIET = ClusterConfig(warning_s=0)


def asked(
    request: RequestConfig,
    gpu: bool = True,
    attempt: int = 1,
    cluster: ClusterConfig = QUIET,
    stage: str = "bench",
    limits: dict[str, Partition] | None = None,
) -> dict[str, str | int]:
    """The resources that are asked for."""
    found = resources(request, gpu=gpu, attempt=attempt, cluster=cluster, stage=stage, limits=limits)
    assert tuple(found) == NAMES
    return {name: value for name, value in found.items() if value is not None}


def plain(**limits: int | None) -> dict[str, Partition]:
    """A cluster of one partition whose nodes are not known."""
    values = {"cpus": 64, "mem": 256000, "runtime": 1440} | limits
    return {"gpu": Partition("gpu", False, True, {"a100": 4}, frozenset(), **values)}


def test_a_row_becomes_resources() -> None:
    row = replace(ROW, account="lab", qos="long", constraint="a100|h100", slurm_extra="--reservation=study")
    assert asked(row) == {
        "slurm_partition": "gpu",
        "slurm_account": "lab",
        "gpu": 1,
        "constraint": "a100|h100",
        "qos": "long",
        "slurm_extra": "--reservation=study",
        "runtime": 600,
        "mem_mb": 32000,
        "cpus_per_task": 8,
    }


def test_a_gpu_is_asked_for_once() -> None:
    def gpu(**keys: str) -> dict[str, str | int]:
        found = asked(replace(ROW, **keys))
        return {name: found[name] for name in ("gpu", "gpu_model", "gres", "slurm_extra") if name in found}

    assert gpu() == {"gpu": 1}
    assert gpu(gpu_model="a100") == {"gpu": 1, "gpu_model": "a100"}
    # 0, for the plugin adds --gpus to --gres otherwise.
    assert gpu(gres="gpu") == {"gpu": 0, "gres": "gpu:1"}
    assert gpu(gres="gpu:1") == {"gpu": 0, "gres": "gpu:1"}
    assert gpu(gres="gpu:a100", gpu_model="a100") == {"gpu": 0, "gres": "gpu:a100:1"}
    assert gpu(gres="gpu:2080:1") == {"gpu": 0, "gres": "gpu:2080:1"}
    extra = "--gpus-per-node=nvidia_a100-sxm4-80gb:1"
    assert gpu(slurm_extra=extra) == {"gpu": 0, "slurm_extra": extra}


def test_a_job_without_a_gpu_asks_for_none() -> None:
    found = asked(replace(ROW, gpu_model="a100", gres="gpu:a100:1"), gpu=False)
    assert not {"gpu", "gpu_model", "gres"} & set(found)


@pytest.mark.parametrize("gres", ["gpu:2", "gpu:2080", "gpu:a100:2", "gpu:a:b:1", "gpu:", "mps:1", "gpus:1", "gpu:1\n"])
def test_another_gres_than_one_gpu_is_refused(gres: str) -> None:
    with pytest.raises(UserError, match=r"^gpus.A.gres: .* is not one GPU; right would be gpu:1 or gpu:a100:1"):
        check_request(replace(ROW, gres=gres), "gpus.A")


def test_memory_and_time_grow_up_to_what_the_partition_gives() -> None:
    def grown(attempt: int, limits: dict[str, Partition] | None, row: RequestConfig = ROW) -> tuple[int, int]:
        found = asked(row, attempt=attempt, limits=limits)
        return found["mem_mb"], found["runtime"]

    assert grown(3, None) == (96000, 1800)
    assert grown(2, plain()) == (64000, 1200)
    assert grown(3, plain()) == (96000, 1440)
    assert grown(3, plain(runtime=None, mem=70000)) == (70000, 1800)
    # What the row says is asked for, and sbatch says that it is too much.
    assert grown(1, plain(runtime=60, mem=16000)) == (32000, 600)
    assert grown(3, plain(runtime=60, mem=16000)) == (32000, 600)
    # Of several partitions what each of them gives; one that is not there has no say.
    both = plain() | {"short": replace(plain()["gpu"], name="short", runtime=700)}
    assert grown(2, both, replace(ROW, partition="gpu,short,none")) == (64000, 700)
    default = {"other": replace(plain(runtime=800)["gpu"], name="other", default=True)}
    assert grown(2, plain() | default, replace(ROW, partition=None)) == (64000, 800)


def test_memory_grows_to_that_of_a_node_that_can_run_the_job(commands: Commands) -> None:
    commands.prints("sinfo", MIXED)
    limits = site.query()

    def most(**keys: str) -> int:
        return asked(replace(ROW, mem=300000, **keys), attempt=9, limits=limits)["mem_mb"]

    assert most(gpu_model="a100") == 1031000
    assert most(gpu_model="v100") == 386000
    assert most(gres="gpu:a30:1") == 515000
    assert most(constraint="skylake") == 386000
    assert most() == 1031000


class Resources(UserDict):
    """As those of a job of Snakemake."""

    def __getattr__(self, name: str) -> str | int:
        return self.data[name]


def submitted(found: dict[str, str | int]) -> list[str]:
    """The options of sbatch that the plugin makes of these resources, without those that all jobs have."""
    job = SimpleNamespace(resources=Resources(found), threads=1)
    validate_slurm_extra(job)
    params = dict(run_uuid="u", slurm_logfile="l", comment_str="c", account="", partition="-p gpu", workdir=None)
    words = shlex.split(get_submit_command(job, params) + set_gres_string(job))
    return words[words.index("-p") :]


@pytest.mark.parametrize(
    ("keys", "gpu", "options"),
    [
        ({}, True, ["--gpus=1"]),
        ({"gpu_model": "a100"}, True, ["--gpus=a100:1"]),
        ({"gres": "gpu:a100", "gpu_model": "a100"}, True, ["--gres=gpu:a100:1"]),
        ({"slurm_extra": "--gpus-per-node=a-b:1"}, True, ["--gpus-per-node=a-b:1"]),
        ({"gres": "gpu:a100", "gpu_model": "a100"}, False, []),
    ],
)
def test_the_plugin_asks_sbatch_for_exactly_that(keys: dict[str, str], gpu: bool, options: list[str]) -> None:
    row = replace(ROW, constraint="a|b", **keys)
    words = submitted(asked(row, gpu=gpu, cluster=ClusterConfig(exclusive=("bench",))))
    assert [word for word in words if word.startswith(("--g", "-G"))] == options
    usual = ["-p", "gpu", "-t", "600", "-C", "a|b", "--mem", "32000", "--cpus-per-task=8"]
    added = {"--ntasks=1", "--exclusive", "--signal=TERM@120", *options}
    assert [word for word in words if word not in added] == usual
    assert {"--exclusive", "--signal=TERM@120"} <= set(words)


def test_stages_that_get_their_node_alone() -> None:
    cluster = replace(QUIET, exclusive=("bench", "train"))
    assert asked(ROW, cluster=cluster)["slurm_extra"] == "--exclusive"
    assert "slurm_extra" not in asked(ROW, cluster=cluster, stage="sample")
    for own in ("--exclusive", "--exclusive=user"):
        assert asked(replace(ROW, slurm_extra=own), cluster=cluster)["slurm_extra"] == own


def test_a_job_is_warned_before_its_limit_where_it_is_long_enough() -> None:
    cluster = ClusterConfig(warning_s=120)
    assert asked(ROW, cluster=cluster)["slurm_extra"] == "--signal=TERM@120"
    assert "slurm_extra" not in asked(replace(ROW, runtime=4), cluster=cluster)
    assert asked(replace(ROW, runtime=5), cluster=cluster)["slurm_extra"] == "--signal=TERM@120"
    assert asked(replace(ROW, runtime=4), cluster=cluster, attempt=2)["slurm_extra"] == "--signal=TERM@120"
    assert asked(replace(ROW, slurm_extra="--signal=B:USR1@60"), cluster=cluster)["slurm_extra"] == "--signal=B:USR1@60"
    both = asked(replace(ROW, slurm_extra="--nice"), cluster=replace(cluster, exclusive=("bench",)))
    assert both["slurm_extra"] == "--nice --exclusive --signal=TERM@120"


def test_the_shell_reads_slurm_extra_as_it_is_meant() -> None:
    extra = """--exclude=node[01-04] --mail-user "a b" -x 'n*' --wckey=~#!{a,b}"""
    found = asked(replace(ROW, slurm_extra=extra))["slurm_extra"]
    assert shlex.split(found) == shlex.split(extra)
    for word in ("'--exclude=node[01-04]'", "'n*'", "'--wckey=~#!{a,b}'"):
        assert word in found


@pytest.mark.parametrize("bad", [*";&|<>()$`", "\n", "\r", "\0", "\x1b", "\u2028"])
@pytest.mark.parametrize("quote", ["", "'"])
def test_what_a_shell_obeys_is_refused(bad: str, quote: str) -> None:
    row = replace(ROW, slurm_extra=f"--wckey={quote}a{bad}b{quote}")
    with pytest.raises(UserError, match=r"^gpus.A.slurm_extra: .*, which a shell obeys; right would be") as told:
        check_request(row, "gpus.A")
    assert str(told.value).isprintable()
    with pytest.raises(UserError, match=r"^the request of bench.slurm_extra: "):
        asked(row)


def managed_by_the_plugin() -> list[str]:
    """Each option that the plugin refuses, as a user would write it."""
    patterns = [part for pattern in get_forbidden_slurm_options() for part in pattern.split("|")]
    options = [pattern.removesuffix(r"[=\s]").removesuffix(r"\s?").removesuffix(r"\s") for pattern in patterns]
    return [f"{option}=x" if option.startswith("--") else f"{option} x" for option in options]


@pytest.mark.parametrize("extra", managed_by_the_plugin())
def test_what_the_plugin_refuses_is_refused_first(extra: str) -> None:
    with pytest.raises(UserError, match=r"^gpus.A.slurm_extra: -\S+ is not for here; (the key|Snakemake sets it)"):
        check_request(replace(ROW, slurm_extra=f"--nice {extra}"), "gpus.A")


@pytest.mark.parametrize(
    ("extra", "words"),
    [
        ("--mem=4G", "--mem is not for here; the key mem sets it"),
        ("-t 60", "-t is not for here; the key runtime sets it"),
        ("-pcpu", "the key partition sets it"),
        ("--part=cpu", "--part is not for here; the key partition sets it"),
        ("--gpus-per-task=1", "the key gpu_model sets it"),
        ("-G2", "the key gpu_model sets it"),
        ("--gpus-per-n=2", "the key gpu_model sets it"),
        ("--wrap=x", "Snakemake sets it"),
        ("--array=1-9", "Snakemake sets it"),
        ("-D /tmp", "Snakemake sets it"),
        ("--gpus-per-node=2", "is not one GPU of a type"),
        ("--gpus-per-node=a100:2", "is not one GPU of a type"),
        ("--gpus-per-node a100:1", "is not one GPU of a type"),
        ("script.sh", "script.sh is no option of sbatch"),
        ("--nice=5 script.sh", "script.sh is no option of sbatch"),
        ("--nice -- script.sh", "-- is no option of sbatch"),
        ("--reservation=GPU-Jan", "has -J, which Snakemake takes for an option"),
        ("--exclude=node-c", "has -c, which Snakemake takes for an option"),
        ("--wckey='a", "cannot be split into words"),
    ],
)
def test_options_that_break_a_job_are_refused(extra: str, words: str) -> None:
    with pytest.raises(UserError) as told:
        check_request(replace(ROW, slurm_extra=extra), "gpus.A")
    assert words in str(told.value)


def test_a_gpu_is_not_asked_for_twice_nor_where_none_is_needed() -> None:
    row = replace(ROW, slurm_extra="--gpus-per-node=a-b:1")
    check_request(row, "gpus.A")
    with pytest.raises(UserError, match="and the keys gres and gpu_model say the same"):
        check_request(replace(row, gpu_model="a100"), "gpus.A")
    with pytest.raises(UserError, match=r"^stages.slurm_extra: --gpus-per-node asks for a GPU"):
        check_request(row, "stages", gpu=False)


@pytest.mark.parametrize(
    "extra", [None, "", "--reservation=x", "-x node1", "--mem-bind=local", "--time-min=5", "--nodelist=a", "--nice -H"]
)
def test_other_options_are_let_through(extra: str | None) -> None:
    check_request(replace(ROW, slurm_extra=extra), "gpus.A")


def test_constraints_are_read() -> None:
    assert feature_names(None) == []
    assert feature_names("[rack1*2|rack2]&!old&a100*4,a100") == ["rack1", "rack2", "a100"]
    has = frozenset({"a100", "ib"})
    assert has_features("a100&ib", has)
    assert not has_features("a100&nvlink", has)
    assert has_features("h100|a100", has)
    assert not has_features("h100|v100", has)
    assert has_features(None, has)
