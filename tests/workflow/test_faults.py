"""What goes wrong: a bad configuration is one line before the DAG, an interrupted run leaves nothing half-written."""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml

from meddpm import provenance
from tests.rows import rows
from tests.workflow.conftest import Checkout


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Checkout:
    return Checkout(tmp_path_factory.mktemp("faults") / "checkout")


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("phases: [sample, train]", "phases: [sample, train]\n  modles: [tiny]", ["study.modles", "unknown key"]),
        ("[fp32, tf32, bf16]", "[fp32, bf61]", ["study.variants", "bf61", "bf16"]),
        ("steps: 10", "steps: -10", ["models.tiny.steps", "-10", "1 or more"]),
        ("size: [16, 16, 16]", "size: [16, 17, 16]", ["models.tiny.size", "17"]),
        ("channel_multipliers: [1, 1]", "base_channels: 40", ["models.tiny.base_channels", "40", "32"]),
        ("weights: train", "weights: my.safetensors", ["models.tiny.weights", "my.safetensors", "not there"]),
    ],
)
def test_a_bad_configuration_is_one_line(checkout: Checkout, old: str, new: str, words: list[str]) -> None:
    text = (checkout.root / "tiny.yaml").read_text()
    assert old in text
    (checkout.root / "bad.yaml").write_text(text.replace(old, new))
    result = checkout.snakemake("-n", configfile="bad.yaml")
    printed = result.stdout + result.stderr
    assert result.returncode != 0
    lines = [line for line in printed.splitlines() if "config" in line and "profile" not in line]
    assert any(all(word in line for word in words) for line in lines), printed
    assert "Traceback" not in printed
    assert len(printed.splitlines()) <= 5, printed


def test_a_run_without_the_profile_is_planned(checkout: Checkout) -> None:
    """Nobody says then how many GPUs jobs may have at once."""
    command = [checkout.python, "-m", "snakemake", "-n", "--cores", "2", "--configfile", "tiny.yaml", "--config"]
    command += ["gpus={H200: {device: cuda}}", "study={gpus: [H200]}", "--", "results/tables/timing.csv"]
    result = subprocess.run(command, cwd=checkout.root, capture_output=True, text=True, timeout=300)
    assert result.returncode == 0, result.stdout + result.stderr
    assert "results/bench/tiny/H200/" in result.stdout + result.stderr


TRAINED = Path("results/train/tiny/cpu/fp32")
TRAINING_LOG = Path("results/logs/train/tiny/cpu/fp32.log")


def train_for(checkout: Checkout, steps: int) -> list[str]:
    """The words of a command that trains for `steps` steps."""
    text = (checkout.root / "tiny.yaml").read_text()
    assert "train: {steps: 3" in text
    (checkout.root / "long.yaml").write_text(text.replace("train: {steps: 3", f"train: {{steps: {steps}"))
    return ["snakemake", "--profile", "local", "--cores", "2", str(TRAINED / "weights.safetensors"),
            "--configfile", "long.yaml"]  # fmt: skip


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_training_that_is_interrupted_leaves_a_checkpoint_and_a_second_run_goes_on(
    checkout: Checkout, study: Checkout, number: signal.Signals
) -> None:
    shutil.copytree(study.root / "results/data", checkout.root / "results/data", dirs_exist_ok=True)
    for old in (TRAINED, TRAINING_LOG.parent):
        shutil.rmtree(checkout.root / old, ignore_errors=True)
    log = checkout.root / TRAINING_LOG
    run = subprocess.Popen(
        [str(checkout.python), "-m", *train_for(checkout, 100_000)],
        cwd=checkout.root,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        # A shell starts what runs in its background deaf to Ctrl-C, and the tests may be there.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    try:
        deadline = time.monotonic() + 120
        while time.monotonic() < deadline and not (log.is_file() and "training step" in log.read_text()):
            time.sleep(0.2)
        assert "training step" in log.read_text(), "the training did not begin"
        os.killpg(run.pid, number)  # SIGINT is what Ctrl-C in a terminal does, SIGTERM what a scheduler does
        _, errors = run.communicate(timeout=60)
        assert run.returncode != 0
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(run.pid, signal.SIGKILL)
    assert not list((checkout.root / "results/train").rglob("*.safetensors"))
    newest = max((checkout.root / TRAINED).glob("checkpoints/*/*"))
    step = int(newest.stem.removeprefix("step-"))
    said = f"tiny: stopped at step {step} of 100000; the same command goes on from there"
    assert said in errors, "a line for the user"
    assert "Traceback" not in log.read_text()
    assert said in json.loads((checkout.root / TRAINED / "status.json").read_text())["reason"]
    second = subprocess.run(
        [str(checkout.python), "-m", *train_for(checkout, step + 3)],
        cwd=checkout.root,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert second.returncode == 0, second.stdout + second.stderr
    assert f"going on after step {step} of {step + 3}" in log.read_text()
    record = json.loads((checkout.root / TRAINED / "training.json").read_text())
    assert (record["steps"], record["continued_after_step"]) == (step + 3, step)
    assert json.loads((checkout.root / TRAINED / "status.json").read_text())["status"] == "ok"
    assert not list((checkout.root / TRAINED).rglob(".*.*.pt"))


def test_failed_cells_are_rows_of_a_page_that_is_made_and_are_tried_again(study: Checkout, tmp_path: Path) -> None:
    root = tmp_path / "a run"
    shutil.copytree(study.root, root, symlinks=True)
    checkout = Checkout.__new__(Checkout)
    checkout.root, checkout.python = root, root / ".venv/bin/python"
    changes = {
        "study": {"gpus": ["cpu", "other"], "variants": ["fp32"], "phases": ["sample"]},
        "gpus": {"cpu": {"device": "cpu"}, "other": {"device": "cpu", "device_name": "no such processor"}},
    }
    tiny = yaml.safe_load((root / "tiny.yaml").read_text())

    def configure(**gpus: dict[str, str]) -> None:
        merged = {**tiny, "study": tiny["study"] | changes["study"], "gpus": changes["gpus"] | gpus}
        (root / "two.yaml").write_text(yaml.safe_dump(merged))

    page = "results/report/index.html"
    configure()
    # A pattern that names no processor: the jobs of the row fail, as on a cluster that gives another GPU.
    result = checkout.snakemake("--", page, configfile="two.yaml")
    printed = result.stdout + result.stderr
    assert result.returncode == 1, printed
    reason = "does not match device_name no such processor"
    told, again = (line for line in printed.splitlines() if line.startswith("  bench tiny other fp32 sample: "))
    assert told == again, "before the page is made, and at the end"
    assert reason in told
    for table in ("timing", "kernels", "quality"):
        found = {(row["gpu"], row["status"]) for row in rows(root / f"results/tables/{table}.csv")}
        assert found == {("cpu", "ok"), ("other", "failed")}, table
        assert all(
            reason in row["reason"] for row in rows(root / f"results/tables/{table}.csv") if row["gpu"] == "other"
        )
    assert reason in (root / "results/report/index.html").read_text()
    assert not (root / "results/bench/tiny/other").exists() or not list(
        (root / "results/bench/tiny/other").rglob("*.csv")
    )
    command = [checkout.python, "-m", "meddpm", "status", "--failed"]
    status = subprocess.run(
        command, cwd=root, capture_output=True, text=True, env=os.environ | {"PYTHONPATH": str(root)}
    )
    assert status.returncode == 1, status.stderr
    assert "4 failed" in status.stdout
    assert reason in " ".join(status.stdout.split())

    assert checkout.snakemake("--", page, configfile="two.yaml").returncode == 1, "it fails again"
    status = subprocess.run(
        command, cwd=root, capture_output=True, text=True, env=os.environ | {"PYTHONPATH": str(root)}
    )
    assert "4 failed" in status.stdout
    assert "not started" not in status.stdout, "the page of before is that of now"

    tried = checkout.planned("--", page, configfile="two.yaml")
    assert {rule: tried[rule] for rule in ("sample", "bench", "profile")} == {"sample": 2, "bench": 1, "profile": 1}
    assert "train" not in tried
    assert "prepare" not in tried
    configure(other={"device": "cpu"})
    again = checkout.snakemake("--", page, configfile="two.yaml")
    assert again.returncode == 0, again.stdout + again.stderr
    assert {row["status"] for row in rows(root / "results/tables/timing.csv")} == {"ok"}
    assert reason not in (root / "results/report/index.html").read_text()


def test_a_page_is_made_elsewhere_and_where_nothing_could_be_measured(tmp_path: Path) -> None:
    checkout = Checkout(tmp_path / "checkout")
    root = checkout.root
    tiny = yaml.safe_load((root / "tiny.yaml").read_text())
    study = tiny["study"] | {"gpus": ["other"], "variants": ["fp32"], "phases": ["sample"]}
    gpus = {"other": {"device": "cpu", "device_name": "no such processor"}}
    (root / "none.yaml").write_text(yaml.safe_dump({**tiny, "study": study, "gpus": gpus}))
    elsewhere = tmp_path / "else where"
    result = checkout.snakemake("--directory", str(elsewhere), configfile="none.yaml")
    printed = result.stdout + result.stderr
    assert result.returncode == 1, printed
    assert "Traceback" not in printed
    assert {row["status"] for row in rows(elsewhere / "results/tables/timing.csv")} == {"failed"}
    assert "does not match device_name" in (elsewhere / "results/report/index.html").read_text()
    assert not (root / "results/run").exists(), "nothing is left where the command was typed"


def test_a_study_without_pictures_is_timed_and_has_its_page(tmp_path: Path) -> None:
    checkout = Checkout(tmp_path / "checkout")
    root = checkout.root
    tiny = yaml.safe_load((root / "tiny.yaml").read_text())
    tiny["study"] |= {"variants": ["fp32"], "phases": ["sample"]}
    tiny["models"]["tiny"]["weights"] = "random"
    tiny["sample"]["enabled"] = False
    (root / "undrawn.yaml").write_text(yaml.safe_dump(tiny))
    result = checkout.snakemake(configfile="undrawn.yaml")
    assert result.returncode == 0, result.stdout + result.stderr
    assert not (root / "results/samples").exists()
    assert rows(root / "results/tables/quality.csv") == []
    (timed,) = {(row["status"], row["environment"]) for row in rows(root / "results/tables/timing.csv")}
    environments = {row["environment"] for row in rows(root / "results/tables/environment.csv")}
    assert timed[0] == "ok"
    assert timed[1] in environments
    assert "#samples" not in (root / "results/report/index.html").read_text()
    assert (root / "results/archive/tiny.zip").is_file()


def test_a_job_is_refused_when_its_code_was_edited_in_the_queue(checkout: Checkout) -> None:
    def digest() -> str:
        script = "from meddpm import provenance; print(provenance.code_digest('meddpm.stages.sample'))"
        command = [sys.executable, "-c", script]
        return subprocess.run(command, cwd=checkout.root, capture_output=True, text=True, check=True).stdout.strip()

    assert digest() == provenance.code_digest("meddpm.stages.sample"), "a copy elsewhere has the same digest"
    path = checkout.root / "meddpm/sampling.py"
    before = path.read_text()
    script = (
        "import json; from meddpm.config import UserError; from meddpm.stages.job import Job\n"
        "try: Job.parse('sample', json.dumps({'code': CODE}))\n"
        "except UserError as error: print(error)"
    ).replace("CODE", repr(digest()))
    try:
        path.write_text(before.replace("solver.reset()", "solver.reset(), 1"))
        command = [sys.executable, "-c", script]
        printed = subprocess.run(command, cwd=checkout.root, capture_output=True, text=True, check=True).stdout
    finally:
        path.write_text(before)
    assert "edited after this job was planned" in printed


def test_no_shipped_file_names_a_machine(checkout: Checkout) -> None:
    for path in Path(checkout.root).rglob("*.yaml"):
        assert str(Path.home()) not in path.read_text(encoding="utf-8")
