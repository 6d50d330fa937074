"""What a study asks of a cluster against what it has, the proposed block, and python -m meddpm slurm check."""

import dataclasses
import random
from pathlib import Path
from typing import Any

import pytest
import yaml
from rich.console import Console
from typer.testing import CliRunner, Result

from meddpm import study
from meddpm.cli import app
from meddpm.config import ConfigError, UserError, repository_root
from meddpm.report.site_table import print_check
from meddpm.slurm import command as slurm_command
from meddpm.slurm import site
from meddpm.slurm.check import CheckedRow, check
from meddpm.slurm.gpu_names import known
from meddpm.slurm.proposal import propose
from meddpm.slurm.request import feature_names
from meddpm.slurm.site import Partition
from tests.unit.slurm_fixture import DRIVER, MIXED, SITES, TIDY, UNTYPED, Commands, commands

__all__ = ["commands"]

ROOT = repository_root()
BASE = [ROOT / "config.yaml", ROOT / "study.yaml"]
STAGES = {"partition": "work", "cpus": 4, "mem": 16000, "runtime": 60}


def cluster(commands: Commands, text: str) -> dict[str, Partition]:
    """The partitions of a site."""
    commands.prints("sinfo", text)
    return site.query()


def checked(
    partitions: dict[str, Partition], stages: dict[str, Any] = STAGES, **gpus: dict[str, Any]
) -> list[CheckedRow]:
    """The rows of a study that has these rows of `gpus` and this `cluster.stages`."""
    config = study.read(BASE)
    config["gpus"] |= gpus
    config["study"]["gpus"] = list(gpus) or ["local"]
    config["cluster"] = {"stages": stages}
    return check(study.load(config, ROOT), partitions)


def findings(partitions: dict[str, Partition], **row: Any) -> list[str]:
    """What is wrong with one row, A."""
    usual = {"device": "cuda", "partition": "gpu", "cpus": 8, "mem": 32000, "runtime": 600}
    first, stages = checked(partitions, A=usual | row)
    assert stages.findings == ()
    return list(first.findings)


@pytest.fixture
def mixed(commands: Commands) -> dict[str, Partition]:
    return cluster(commands, MIXED)


def test_rows_that_fit_have_no_findings(mixed: dict[str, Partition]) -> None:
    for row in (
        {},
        {"gpu_model": "a100"},
        {"gpu_model": "a100", "cpus": 128, "mem": 1031000, "runtime": 2880},
        {"gres": "gpu:v100:1", "constraint": "skylake"},
        {"partition": None, "gpu_model": "v100"},
        {"partition": "gpu,gpu-debug", "gpu_model": "v100"},
        {"constraint": "v100|a100"},
        # a100 is a feature of other nodes alone.
        {"partition": "gpu-debug", "constraint": "v100|a100", "runtime": 30},
        {"device": "cpu", "partition": "work"},
        {"slurm_extra": "--gpus-per-node=a100:1"},
    ):
        assert findings(mixed, **row) == [], row


def test_rows_that_are_for_no_cluster_are_left_alone(mixed: dict[str, Partition]) -> None:
    rows = checked(mixed, A={"device": "auto"}, B={"device": "cpu"}, C={"device": "cuda"}, D={"partition": "work"})
    assert [row.name for row in rows] == ["C", "D", "stages"]
    assert rows[0].partition == "gpu (default)"
    assert rows[0].asks == "GPU of any type, 4 CPUs, 16000 MB, 60 min"


@pytest.mark.parametrize(
    ("row", "finding"),
    [
        (
            {"partition": "gpus"},
            "gpus.A.partition: this cluster has no partition gpus; did you mean gpu? "
            "Known: work, gpu, gpu-debug, old, empty",
        ),
        # sbatch refuses the list.
        (
            {"partition": "gpu,gpux"},
            "gpus.A.partition: this cluster has no partition gpux; did you mean gpu? "
            "Known: work, gpu, gpu-debug, old, empty",
        ),
        (
            {"partition": "old"},
            "gpus.A.partition: old takes no jobs now, or all of its nodes are down; "
            "right would be gpu, gpu-debug, or to wait",
        ),
        ({"partition": "work"}, "gpus.A.partition: work has no GPU; right would be gpu, gpu-debug, old"),
        (
            {"partition": "work", "gpu_model": "a100"},
            "gpus.A.partition: work has no GPU; right would be gpu",
        ),
        (
            {"gpu_model": "A100"},
            "gpus.A.gpu_model: gpu has no GPU A100; right would be a100, in these letters",
        ),
        ({"gres": "gpu:h100:1"}, "gpus.A.gres: gpu has no GPU h100; did you mean a100 or v100? Known: a100, v100, a30"),
        (
            {"slurm_extra": "--gpus-per-node=a10:1"},
            "gpus.A.slurm_extra: gpu has no GPU a10; did you mean a100? Known: a100, v100, a30",
        ),
        (
            {"partition": "gpu-debug", "gpu_model": "a100", "runtime": 30},
            "gpus.A.gpu_model: gpu-debug has no GPU a100; right would be one of its own, or the partition gpu",
        ),
        (
            {"gpu_model": "a30"},
            "gpus.A.partition: all nodes of gpu with a GPU a30 are down; wait, or ask the site",
        ),
        (
            {"constraint": "nvlinc"},
            "gpus.A.constraint: no node of gpu has the feature nvlinc; did you mean nvlink? "
            "Known: a100, a30, nvlink, rome, skylake, v100",
        ),
        # sbatch refuses a name that no node has, even where another one would do.
        (
            {"constraint": "a100|nvlinc"},
            "gpus.A.constraint: no node of gpu has the feature nvlinc; did you mean nvlink? "
            "Known: a100, a30, nvlink, rome, skylake, v100",
        ),
        (
            {"gpu_model": "v100", "constraint": "nvlink"},
            "gpus.A.constraint: no node of gpu with a GPU v100 is nvlink; right would be of skylake, v100",
        ),
        (
            {"gpu_model": "v100", "cpus": 64},
            "gpus.A.cpus: 64 is more than a node of gpu with a GPU v100 has; right would be 40 or less",
        ),
        (
            {"gpu_model": "v100", "mem": "400G"},
            "gpus.A.mem: 409600 MB is more than a node of gpu with a GPU v100 has; right would be 386000 or less",
        ),
        (
            {"device": "cpu", "partition": "work", "cpus": 200},
            "gpus.A.cpus: 200 is more than a node of work has; right would be 128 or less",
        ),
        ({"runtime": "3d"}, "gpus.A.runtime: 4320 min is more than gpu allows; right would be 2880 or less"),
    ],
)
def test_what_is_not_there_is_one_line_with_the_mend(
    mixed: dict[str, Partition], row: dict[str, Any], finding: str
) -> None:
    assert findings(mixed, **row) == [finding]


def test_every_fault_of_a_row_is_told(mixed: dict[str, Partition]) -> None:
    found = findings(mixed, gpu_model="t4", constraint="x", cpus=1000, mem="9T", runtime="99d")
    assert [line.split(":")[0] for line in found] == [
        f"gpus.A.{key}" for key in ("gpu_model", "constraint", "cpus", "mem", "runtime")
    ]


def test_of_several_partitions_one_must_fit(mixed: dict[str, Partition]) -> None:
    assert findings(mixed, partition="gpu-debug,gpu", gpu_model="a100", runtime=600) == []
    found = findings(mixed, partition="gpu-debug,gpu", gpu_model="v100", runtime=6000)
    assert [line.split(";")[0] for line in found] == [
        "gpus.A.runtime: 6000 min is more than gpu-debug allows",
        "gpus.A.runtime: 6000 min is more than gpu allows",
    ]


def test_gpus_without_a_type_cannot_be_asked_for_by_type(commands: Commands) -> None:
    untyped = cluster(commands, UNTYPED + "work*|up|idle|4|16000|infinite|(null)|(null)\n")
    (found,) = findings(untyped, partition="shared", gpu_model="l40s", mem=1)
    assert found.startswith("gpus.A.gpu_model: shared has no GPU l40s; its GPUs have no type: ask for any, by")
    assert findings(untyped, partition="shared", gres="gpu:1", mem=1) == []
    (found,) = findings(untyped, partition="misc", constraint="ib", mem=1)
    assert found == "gpus.A.constraint: no node of misc has the feature ib; its nodes have no features: leave it out"


def test_the_other_stages_are_checked_and_need_a_partition(commands: Commands) -> None:
    mixed = cluster(commands, MIXED)
    (row,) = checked(mixed, {"partition": "wrk", "runtime": 60})
    assert row.findings == (
        "cluster.stages.partition: this cluster has no partition wrk; did you mean work? "
        "Known: work, gpu, gpu-debug, old, empty",
    )
    assert checked(mixed, {"cpus": 4})[0].partition == "gpu (default)"
    without_default = cluster(commands, MIXED.replace("gpu*", "gpu"))
    (row,) = checked(without_default, {"cpus": 4})
    assert row.partition == "none"
    assert row.findings == (
        "cluster.stages.partition: none, and the cluster has no default; "
        "right would be one of work, gpu, gpu-debug, old, empty",
    )


@pytest.mark.parametrize("name", SITES)
def test_what_is_proposed_loads_and_fits(commands: Commands, tmp_path: Path, name: str) -> None:
    partitions = cluster(commands, SITES[name])
    file = tmp_path / "site.yaml"
    file.write_text(propose(partitions), encoding="utf-8")
    loaded = study.load(study.read([*BASE, file]), ROOT)
    rows = check(loaded, partitions)
    assert [row for row in rows if row.findings and "are down" not in str(row.findings)] == []
    assert [row.findings for row in rows if row.name in loaded.selection.gpus] == [()] * len(loaded.selection.gpus)
    # Every kind of GPU has its row, those that are down a commented one.
    kinds = {model for each in partitions.values() for model in each.gpus}
    assert len(rows) - 1 + propose(partitions).count("# Its nodes are down now:") >= len(kinds)


def test_it_is_as_well_commented_as_the_shipped_file(commands: Commands) -> None:
    shipped = (ROOT / "slurm/site.yaml").read_text(encoding="utf-8").splitlines()
    comments = [line for line in shipped if "#" in line and "hours on a CPU" not in line]
    assert len(comments) > 12
    lines = propose(cluster(commands, TIDY)).splitlines()
    assert [line for line in comments if line not in lines] == []
    assert max(map(len, lines)) <= 120
    for line in ("  exclusive: []", "  warning_s: 120"):
        assert line in shipped
        assert line in lines


# What the language of constraints, YAML, a shell or the plugin obeys.
ODD = [
    "&",
    "|",
    "[",
    "]",
    "*",
    "(",
    ")",
    ",",
    "=",
    "!",
    ":",
    "#",
    "'",
    '"',
    " ",
    "-J",
    "-",
    "%",
    "{",
    "}",
    "?",
    "\\",
    ";",
]
WORDS = [
    "a100",
    "l40s",
    "local",
    "null",
    "yes",
    "1e3",
    "0x1",
    "3090",
    "1g.5gb",
    "3g.\u0662gb",
    "x" * 200,
    "\u00e9",
    "~",
]
LIMITS = ["0:30", "0:00", "30:00", "1-00:00:00", "infinite", "UNLIMITED", "n/a", "", "9" * 5000 + ":00:00", "x"]
NUMBERS = ["0", "1", "64", "256000", "n/a", "", "9" * 5000, "32+"]


def odd_site(chance: random.Random) -> str:
    """What sinfo might print at worst."""

    def name() -> str:
        return "".join(chance.choice(chance.choice([ODD, WORDS])) for _ in range(chance.randint(1, 4)))

    def line() -> str:
        model = chance.choice(["", f":{name()}", f":{chance.choice(WORDS)}"])
        gres = chance.choice(["(null)", "", f"gpu{model}:{chance.choice(NUMBERS)}", f"gpu{model}"])
        features = ",".join(name() for _ in range(chance.randint(0, 3)))
        partition = chance.choice(["gpu", "work*", "a,b", name()]).replace("|", "")
        state = chance.choice(["idle", "idle", "down*", "n/a", ""])
        numbers = "|".join(chance.choice(each) for each in (NUMBERS, NUMBERS, LIMITS))
        return f"{partition}|{chance.choice(['up', 'up', 'down'])}|{state}|{numbers}|{gres.replace('|', '')}|{features}"

    return "ok|up|idle|4|4000|1:00:00|(null)|\n" + "\n".join(line() for _ in range(chance.randint(1, 6)))


@pytest.mark.parametrize("seed", range(40))
def test_whatever_sinfo_prints_the_proposal_loads_and_means_what_it_says(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, seed: int
) -> None:
    text = odd_site(random.Random(seed))
    monkeypatch.setattr(slurm_command, "run", lambda *words: text)
    partitions = site.query()
    file = tmp_path / "site.yaml"
    file.write_text(propose(partitions), encoding="utf-8")
    loaded = study.load(study.read([*BASE, file]), ROOT)
    for name, request in loaded.requests.items():
        if request.constraint:
            assert feature_names(request.constraint) == [request.constraint], name
        assert 1 <= request.runtime <= 720
        assert 1 <= request.cpus < 10**9
        assert 1 <= request.mem < 10**9
    assert loaded.gpus["local"].device == "auto", "the row of config.yaml is left alone"
    wrong = [finding for row in check(loaded, partitions) for finding in row.findings if " down" not in finding]
    assert wrong == []


def test_a_feature_that_a_constraint_cannot_name_is_told_and_left_out(commands: Commands) -> None:
    text = "a*|up|idle|8|8000|infinite|gpu:2|{}\n"
    for feature in ("a100&nvlink", "a100|x", "[a100]", "a100*2", "(a100)", "a100=1", "!a100"):
        partitions = cluster(commands, text.format(feature))
        (row,) = yaml.safe_load(propose(partitions))["gpus"].values()
        assert (row["device_name"], row.get("constraint")) == ("A100", None)
        assert f"    # its feature, {feature}, cannot be asked for by a constraint\n" in propose(partitions)
    # Another one of the same GPU can be.
    assert proposed(commands, text.format("a100=1,a100_80gb"))["gpus"]["A100"]["constraint"] == "a100_80gb"


@pytest.mark.parametrize(
    ("mem", "share"), [("0", 16000), ("n/a", 16000), ("9" * 5000, 16000), ("1", 1), ("8000", 4000)]
)
def test_memory_that_is_not_known_is_the_usual_one(commands: Commands, mem: str, share: int) -> None:
    partitions = cluster(commands, f"a*|up|idle|8|{mem}|0:30|gpu:a100:2|\nb|up|idle|8|{mem}|UNLIMITED|gpu:a100:2|\n")
    found = yaml.safe_load(propose(partitions))
    assert found["gpus"]["A100"] == gpu_row("A100", "b", 4, share, 720, gpu_model="a100"), "not in a, for 30 s"
    assert found["cluster"]["stages"]["partition"] == "b"
    asked = {"partition": "b", "gpu_model": "a100", "cpus": 4, "mem": share}
    stages = {"partition": "b", "mem": 1}
    (row, _) = checked(partitions, stages, A={"device": "cuda"} | asked)
    assert row.findings == ()
    (row, _) = checked(partitions, stages, A={"device": "cuda"} | asked | {"partition": "a", "runtime": 1})
    assert row.findings == ("gpus.A.partition: a gives a job less than a minute; right would be another one",)


def test_a_row_on_the_cpu_that_names_a_gpu_asks_for_one(mixed: dict[str, Partition]) -> None:
    small = {"device": "cpu", "runtime": 5}
    rows = checked(
        mixed,
        A=small | {"partition": "gpu", "gpu_model": "v100"},
        B=small | {"gres": "gpu:1"},
        C=small | {"partition": "work"},
        D=small | {"partition": "work", "gpu_model": "v100"},
        E={"device": "auto", "gpu_model": "v100"},
    )
    unused = " (device: cpu does not use it), 4 CPUs, 16000 MB, 5 min"
    assert [row.name for row in rows] == ["A", "B", "C", "D", "E", "stages"]
    assert [row.asks for row in rows[:3]] == [f"GPU v100{unused}", f"GPU gpu:1{unused}", "4 CPUs, 16000 MB, 5 min"]
    assert [row.findings for row in rows if row.name != "D"] == [()] * 5
    assert rows[3].findings == (
        "gpus.D.partition: work has no GPU; right would be gpu, gpu-debug",
        "gpus.D.gpu_model: asks for a GPU, which device: cpu does not use; leave it out for none",
    )


def proposed(commands: Commands, text: str) -> dict[str, Any]:
    return yaml.safe_load(propose(cluster(commands, text)))


def test_a_row_is_one_share_of_a_node(commands: Commands) -> None:
    assert proposed(commands, TIDY) == {
        "gpus": {
            "V100": gpu_row("V100", "gpu-v100", 10, 96000, 720, gpu_model="v100"),
            "A100": gpu_row("A100", "gpu-a100", 16, 128000, 720, gpu_model="a100"),
            "H100": gpu_row("H100", "gpu-h100", 12, 128000, 720, gpu_model="h100"),
        },
        "cluster": cluster_of(partition="cpu", cpus=4, mem=16000, runtime=60),
    }


def cluster_of(**stages: Any) -> dict[str, Any]:
    return {"stages": stages, "exclusive": [], "warning_s": 120}


def gpu_row(pattern: str, partition: str, cpus: int, mem: int, runtime: int, **more: str) -> dict[str, Any]:
    usual = {"device": "cuda", "device_name": pattern, "partition": partition}
    return usual | {"cpus": cpus, "mem": mem, "runtime": runtime} | more


def test_the_share_is_that_of_the_node_with_the_gpu(commands: Commands) -> None:
    found = proposed(commands, MIXED)
    assert found["gpus"]["A100"] == gpu_row("A100", "gpu", 32, 257750, 720, gpu_model="a100")
    # In gpu, not in gpu-debug, which ends after half an hour.
    assert found["gpus"]["V100"] == gpu_row("V100", "gpu", 20, 193000, 720, gpu_model="v100")
    # Those whose nodes are down would be picked, and wait.
    assert list(found["gpus"]) == ["A100", "V100"]
    assert "  # Its nodes are down now:\n  # A30:\n  #   device: cuda\n" in propose(cluster(commands, MIXED))
    assert found["cluster"]["stages"]["partition"] == "work"
    down = cluster(commands, "a*|up|down|8|8000|infinite|gpu:a30:2|\n")
    assert list(yaml.safe_load(propose(down))["gpus"]) == ["A30"], "where all are down none is left out"


def test_types_that_drivers_write(commands: Commands) -> None:
    gpus = proposed(commands, DRIVER)["gpus"]
    assert gpus["A100"]["gpu_model"] == "nvidia_a100_80gb_pcie"
    # The same GPU once more; the plugin cannot spell its type.
    other = gpus["nvidia_a100-sxm4-80gb"]
    assert (other["device_name"], other["slurm_extra"]) == ("A100", "--gpus-per-node=nvidia_a100-sxm4-80gb:1")
    assert "gpu_model" not in other
    assert gpus["A100_3g.20gb"]["device_name"] == r"A100.*MIG 3g\.20gb"
    assert gpus["A100_1g.5gb"] == gpu_row(r"A100.*MIG 1g\.5gb", "slices", 10, 85833, 120, gpu_model="a100_1g.5gb")
    assert (gpus["3090"]["partition"], gpus["3090"]["gpu_model"]) == ("2024", "3090")
    assert "device_name" not in gpus["volta"]
    # That of config.yaml is another row.
    assert list(proposed(commands, "a*|up|idle|8|8000|infinite|gpu:local:1|\n")["gpus"]) == ["local_2"]
    assert "gpu_model" not in gpus["weird_type"]


def test_gpus_without_a_type_are_told_by_features_or_partitions(commands: Commands) -> None:
    gpus = proposed(commands, UNTYPED)["gpus"]
    assert gpus == {
        "L40S": gpu_row("L40S", "shared", 16, 1, 720, constraint="l40s"),
        "RTX6000": gpu_row("RTX 6000", "shared", 12, 1, 720, constraint="rtx6000"),
        "V100S": gpu_row("V100S", "v100s", 16, 1, 720),
        "GPU": {"device": "cuda", "partition": "misc", "cpus": 8, "mem": 1, "runtime": 720},
    }


def test_a_cluster_without_gpus_gets_the_stages_alone(commands: Commands) -> None:
    text = "on*|up|idle|2|8000|20:00|(null)|(null)\n_odd|up|idle|64|64000|infinite|gpu:a100:1|(null)\n"
    # _odd is a name that the schema does not take.
    assert proposed(commands, text) == {"cluster": cluster_of(partition="on", cpus=2, mem=8000, runtime=20)}
    nothing = "_odd*|up|idle|64|64000|infinite|(null)|\na,b|up|idle|4|4|infinite|(null)|\n"
    assert proposed(commands, nothing) == {"cluster": cluster_of(cpus=4, mem=16000, runtime=60)}


@pytest.mark.parametrize(
    ("text", "row", "pattern"),
    [
        ("a100", "A100", "A100"),
        ("nvidia_a100_80gb_pcie", "A100", "A100"),
        ("tesla_v100-sxm2-32gb", "V100", "V100"),
        ("v100sxm2", "V100", "V100"),
        ("a100l", "A100", "A100"),
        ("nvidia_h100_80gb_hbm3", "H100", "H100"),
        ("h200", "H200", r"\bH200"),
        ("gh200", "GH200", "GH200"),
        ("a10", "A10", r"A10\b"),
        ("a30", "A30", "A30"),
        ("l4", "L4", r"L4\b"),
        ("l40s", "L40S", "L40S"),
        ("mi250", "MI250", "MI250"),
        ("amd_instinct_mi300x", "MI300X", "MI300X"),
        ("rtx_6000", "RTX6000", "RTX 6000"),
        ("nvidia_rtx_6000_ada_generation", "RTX6000Ada", "RTX 6000 Ada"),
        ("rtx_a6000", "A6000", "A6000"),
        ("2080ti", "2080Ti", "2080 Ti"),
        ("nvidia_geforce_rtx_2080_ti", "RTX2080Ti", "RTX 2080 Ti"),
        ("titan_rtx", "TITAN_RTX", "TITAN RTX"),
        ("1g.5gb", "MIG_1g.5gb", r"MIG 1g\.5gb"),
        ("gpu-a100", "A100", "A100"),
    ],
)
def test_names_of_gpus(text: str, row: str, pattern: str) -> None:
    assert known(text) == (row, pattern)


@pytest.mark.parametrize("text", ["", "gpu", "volta", "32gb", "c6420", "intel8160", "x86_64_v4", "node2024", "hbm2"])
def test_other_names_are_no_gpu(text: str) -> None:
    assert known(text) is None


def command(*words: str | Path) -> Result:
    """The result of the command; a fault that the user can mend is raised."""
    result = CliRunner().invoke(app, ["slurm", "check", *map(str, words)])
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def site_file(folder: Path, **row: Any) -> Path:
    path = folder / "site.yaml"
    usual = {"device": "cuda", "partition": "gpu-a100", "gpu_model": "a100", "cpus": 8, "mem": "32G", "runtime": "12h"}
    settings = {
        "study": {"gpus": ["A100"]},
        "gpus": {"A100": usual | row},
        "cluster": {"stages": {"partition": "cpu"}},
    }
    path.write_text(yaml.safe_dump(settings), encoding="utf-8")
    return path


def test_the_command_says_ok_and_proposes_where_it_is_asked_to(commands: Commands, tmp_path: Path) -> None:
    commands.prints("sinfo", TIDY)
    result = command("--site", site_file(tmp_path))
    assert result.exit_code == 0
    assert [line.split() for line in result.stdout.splitlines()][1:] == [
        ["A100", "gpu-a100", "GPU", "a100,", "8", "CPUs,", "32768", "MB,", "720", "min", "ok"],
        ["stages", "cpu", "4", "CPUs,", "16000", "MB,", "60", "min", "ok"],
    ]
    result = command("--site", site_file(tmp_path), "--propose")
    assert result.exit_code == 0
    assert result.stdout.endswith(propose(site.query()))


def test_the_command_says_what_is_wrong_and_proposes_a_file_to_copy(commands: Commands, tmp_path: Path) -> None:
    commands.prints("sinfo", TIDY)
    result = command("--site", site_file(tmp_path, partition="gpu-a10"))
    assert result.exit_code == 1
    assert (
        "gpus.A100.partition: this cluster has no partition gpu-a10; did you mean gpu-a100? "
        "Known: cpu, gpu-v100, gpu-a100, gpu-h100\n"
    ) in result.stdout
    block = result.stdout[result.stdout.index("# slurm/site.yaml") :]
    assert block == propose(site.query())


def test_a_file_that_cannot_be_read_is_told_beside_the_proposal(
    commands: Commands, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    commands.prints("sinfo", TIDY)
    result = CliRunner().invoke(app, ["slurm", "check", "--site", str(tmp_path / "none.yaml")])
    assert isinstance(result.exception, ConfigError)
    assert propose(site.query()) in result.stdout
    with pytest.raises(ConfigError, match=r"site.yaml: gpus.A100.partition: .* is not allowed"):
        command("--site", site_file(tmp_path, partition="a;b"))


def test_without_sinfo_the_command_is_one_line(commands: Commands, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"^sinfo: cannot be run"):
        command("--site", site_file(tmp_path))


def test_the_table_fits_a_terminal_and_text_from_outside_does_nothing(tmp_path: Path) -> None:
    rows = [
        CheckedRow("A" * 40, "a-partition-with-a-long-name", "GPU x, [red]8 CPUs[/], \x1b[31m" + "x" * 90, ()),
        CheckedRow("B", "b", "4 CPUs", ("gpus.B.partition: \x1b]0;title\x07 " + "long " * 40,)),
    ]
    with open(tmp_path / "out.txt", "w+", encoding="utf-8") as stream:
        print_check(rows, Console(file=stream, width=80))
        stream.seek(0)
        text = stream.read()
    table, _, below = text.partition("\n\n")
    assert max(map(len, table.splitlines())) <= 80
    assert "ok" in table.splitlines()[1]
    assert "wrong" in table
    assert "[red]" in text
    assert below.count("\n") == 1
    assert text.replace("\n", "").isprintable()


def test_findings_change_nothing(mixed: dict[str, Partition]) -> None:
    before = {name: dataclasses.asdict(each) for name, each in mixed.items()}
    findings(mixed, partition="gpu", gpu_model="t4")
    assert {name: dataclasses.asdict(each) for name, each in mixed.items()} == before
