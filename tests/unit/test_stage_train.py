"""The train stage: what it leaves behind when it ends well, when it is stopped or killed, and when something fails."""

import contextlib
import dataclasses
import errno
import json
import logging
import math
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml
from safetensors.torch import load_file

from meddpm import interrupt, study, variants
from meddpm.config import GpuConfig, ModelConfig, TrainConfig, UserError, repository_root
from meddpm.data import manifest, volumes
from meddpm.data.volumes import Case
from meddpm.files import sha256, write_json
from meddpm.model import weights
from meddpm.model.checkpoints import Checkpoints
from meddpm.stages import train
from meddpm.stages.job import Job
from tests.unit.weights_fixture import equal

ROOT = repository_root()
CONFIG = yaml.safe_load((ROOT / "config.yaml").read_text(encoding="utf-8"))
for key, value in yaml.safe_load((ROOT / "tests/workflow/tiny.yaml").read_text(encoding="utf-8")).items():
    CONFIG[key] = {**CONFIG[key], **value}
CONFIG["models"]["tiny"]["size"] = [8, 8, 8]
CELL = {"model": "tiny", "gpu": "cpu", "variant": "fp32"}
# As few steps as show a difference, at a rate at which it is one; the average begins within them.
QUICK = {
    "recipe": "med_ddpm", "steps": 12, "batch": 2, "accumulation": 1, "learning_rate": 1e-3, "ema_start": 3,
    "ema_every": 2, "checkpoint_every": 5,
}  # fmt: skip
FILES = ("weights.safetensors", "loss.csv", "training.json")


def settings(variant: str = "fp32", **changes: Any) -> str:
    """The settings of the job that trains the tiny model, some keys of `train` changed."""
    config = {**CONFIG, "train": {**QUICK, **changes}}
    return study.load(config, ROOT).settings("train", **{**CELL, "variant": variant})


def with_value(text: str, key: str, value: Any) -> str:
    """Settings with a value of `train` that the schema would not let through."""
    values = json.loads(text)
    values["train"][key] = value
    return json.dumps(values)


def make_cases(folder: Path, count: int = 2, seed: int = 0, image: bool = True, images: int = 1) -> Path:
    """The table of a dataset of `count` cases, 8^3, each of `images` volumes or, without `image`, of none."""
    generator = np.random.default_rng(seed)
    rows = []
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(count):
        label = generator.integers(0, 5, (8, 8, 8), dtype=np.uint8)
        volume = (label / 2.5 - 1).astype(np.float32)
        if images > 1:
            volume = np.stack([volume / (1 + channel) for channel in range(images)], axis=-1)
        case = Case(f"case-{number}", volume if image else None, label, np.eye(4))
        paths = [folder / f"{case.id}_{kind}.nii.gz" for kind in ("image", "label")]
        if image:
            volumes.write(paths[0], case.image, case.affine)
        volumes.write(paths[1], case.label, case.affine)
        rows.append(manifest.describe(case, paths[0] if image else None, paths[1], folder, notes="made up"))
    manifest.write(folder / manifest.FILE_NAME, rows)
    return folder / manifest.FILE_NAME


@pytest.fixture(scope="module")
def cases(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_cases(tmp_path_factory.mktemp("data"))


def run(folder: Path, cases: Path, text: str) -> None:
    train.run(text, cases, *(folder / name for name in FILES), threads=1)


def status(folder: Path) -> dict[str, Any]:
    return json.loads((folder / train.STATUS_FILE).read_text(encoding="utf-8"))


def record(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "training.json").read_text(encoding="utf-8"))


def checkpoints(folder: Path) -> list[Path]:
    return sorted(folder.glob("checkpoints/*/step-*.pt"))


def state(path: Path) -> dict[str, Any]:
    """The state in a checkpoint, every weight in it a number."""
    found = torch.load(path, weights_only=True)
    assert all(torch.isfinite(tensor).all() for tensor in [*found["model"].values(), *found["ema"].values()])
    return found


def failed(folder: Path, cases: Path, text: str, *words: str) -> str:
    """What the user reads of a run that fails: a line, which status.json says too, with the last good checkpoint."""
    with pytest.raises(UserError) as caught:
        run(folder, cases, text)
    message = str(caught.value)
    assert "\n" not in message
    assert all(word in message for word in words), message
    said = status(folder)
    assert said["status"] == "failed"
    assert said["reason"] == message
    there = checkpoints(folder)
    assert said["checkpoint"] == (str(there[-1]) if there else None)
    assert (str(there[-1]) in message) if there else ("checkpoint" not in message)
    assert half_written(folder) == []
    return message


def in_order(weights: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return dict(sorted(weights.items()))


def identity(cases: Path, text: str) -> str:
    """The name of the folder of a training's checkpoints."""
    job = Job.parse("train", text)
    return train._identity(job, job.get("train", TrainConfig), manifest.read(cases))


def half_written(folder: Path) -> list[Path]:
    return list(folder.rglob(".*"))


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory: pytest.TempPathFactory, cases: Path) -> Path:
    """The folder of a training that was never stopped."""
    folder = tmp_path_factory.mktemp("unbroken")
    run(folder, cases, settings())
    return folder


def assert_same_end(folder: Path, other: Path) -> None:
    """Both trainings ended with the same weights, losses and optimiser, to the bit."""
    assert equal(*(load_file(each / "weights.safetensors") for each in (folder, other)))
    assert (folder / "loss.csv").read_text() == (other / "loss.csv").read_text()
    ends = [state(checkpoints(each)[-1]) for each in (folder, other)]
    for end in ends:
        del end["seconds"]
    assert equal(*ends)


@contextmanager
def failing_at(step: int, error: BaseException, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The network raises `error` when it is called the `step`-th time."""
    honest, calls = variants.Applied.network, 0

    def network_of(self: variants.Applied, model: torch.nn.Module) -> variants.Network:
        inner = honest(self, model)

        def outer(x: torch.Tensor, t: torch.Tensor) -> torch.Tensor:
            nonlocal calls
            calls += 1
            if calls == step:
                raise error
            return inner(x, t)

        return outer

    with monkeypatch.context() as patched:
        patched.setattr(variants.Applied, "network", network_of)
        yield


# --- an end ---


def test_a_training_leaves_weights_losses_facts_and_a_status(unbroken: Path) -> None:
    assert status(unbroken) == {"status": "ok", "reason": "", "step": 12}
    facts = record(unbroken)
    assert (facts["steps"], facts["continued_after_step"], facts["cases"], facts["note"]) == (12, 0, 2, "")
    losses = [float(line.split(",")[1]) for line in (unbroken / "loss.csv").read_text().splitlines()[1:]]
    assert len(losses) == 12
    assert facts["loss_last"] == pytest.approx(np.mean(losses[-3:]), abs=1e-5) != facts["loss_first"]
    assert weights.read_card(unbroken / "weights.safetensors") == facts
    assert [path.name for path in checkpoints(unbroken)] == ["step-000000010.pt", "step-000000012.pt"]
    average = state(checkpoints(unbroken)[-1])["ema"]
    assert equal(in_order(load_file(unbroken / "weights.safetensors")), in_order(average))
    assert half_written(unbroken) == []


def test_earlier_weights_are_kept_when_others_are_trained(tmp_path: Path, cases: Path) -> None:
    run(tmp_path, cases, settings(steps=1))
    first = (tmp_path / "weights.safetensors").read_bytes()
    (tmp_path / "weights.safetensors").unlink()  # as Snakemake does before it runs a job again
    run(tmp_path, cases, settings(steps=2))
    kept = [path.read_bytes() for path in tmp_path.glob("kept/*/weights.safetensors")]
    assert len(kept) == 2
    assert first in kept
    assert (tmp_path / "weights.safetensors").read_bytes() in kept
    assert record(tmp_path)["steps"] == 2


def test_a_dataset_of_one_case_is_trained_with_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    one = make_cases(tmp_path / "data", 1)
    with caplog.at_level(logging.WARNING, logger="meddpm"):
        run(tmp_path / "run", one, settings(steps=2))
    assert status(tmp_path / "run")["status"] == "ok"
    assert [entry.getMessage() for entry in caplog.records] == [f"{one}: {train.ONE_CASE}"]
    assert record(tmp_path / "run")["note"] == train.ONE_CASE
    assert record(tmp_path / "run")["cases"] == 1


# --- going on ---


def stop_at(step: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Be asked to stop during step `step`, once."""
    before = 2  # it is asked before each of the two cases is read, too
    asked = iter([False] * (before + step - 1) + [True])

    @contextmanager
    def noted() -> Iterator[Callable[[], bool]]:
        yield lambda: next(asked, False)

    monkeypatch.setattr(interrupt, "noted", noted)


def test_a_stopped_training_goes_on_to_the_bit(
    tmp_path: Path, cases: Path, unbroken: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    stop_at(7, monkeypatch)
    failed(tmp_path, cases, settings(), "tiny: stopped at step 7 of 12", "the same command goes on from there")
    assert not list(tmp_path.rglob("*.safetensors"))
    assert [path.name for path in checkpoints(tmp_path)] == ["step-000000005.pt", "step-000000007.pt"]
    with caplog.at_level(logging.INFO, logger="meddpm"):
        run(tmp_path, cases, settings())
    assert "going on after step 7 of 12" in caplog.text
    assert_same_end(tmp_path, unbroken)
    assert status(tmp_path)["status"] == "ok"
    assert record(tmp_path)["continued_after_step"] == 7


@pytest.mark.parametrize(
    ("before", "changes", "goes_on"),
    [
        ({}, {}, True),
        ({}, {"steps": 4}, True),
        ({}, {"checkpoint_every": 1}, True),
        ({}, {"keep_checkpoints": 5}, True),
        ({}, {"max_seconds": 1000.0}, True),
        ({}, {"learning_rate": 2e-3}, False),
        ({}, {"seed": 1}, False),
        ({}, {"ema_decay": 0.5}, False),
        ({}, {"warmup_steps": 1}, False),
        ({"decay": "cosine"}, {}, True),
        ({"decay": "cosine"}, {"steps": 4}, False),
    ],
)
def test_a_checkpoint_is_continued_by_the_same_training_alone(
    tmp_path: Path, cases: Path, before: dict[str, Any], changes: dict[str, Any], goes_on: bool
) -> None:
    run(tmp_path, cases, settings(**{"steps": 2, **before}))
    run(tmp_path, cases, settings(**{"steps": 2, **before, **changes}))
    assert record(tmp_path)["continued_after_step"] == (2 if goes_on else 0)
    assert len(list((tmp_path / "checkpoints").iterdir())) == (1 if goes_on else 2)


def test_other_data_and_another_variant_begin_anew(tmp_path: Path, cases: Path) -> None:
    run(tmp_path, cases, settings(steps=2))
    for text, table in ((settings("bf16", steps=2), cases), (settings(steps=2), make_cases(tmp_path / "d", seed=1))):
        run(tmp_path, table, text)
        assert record(tmp_path)["continued_after_step"] == 0


def test_a_training_is_not_continued_on_another_kind_of_device(cases: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The random state of one is none of the other: a row `device: auto` may find either."""
    here = identity(cases, settings())
    monkeypatch.setattr(train.device, "kind", lambda gpu: "cuda")
    assert identity(cases, settings()) != here


def test_more_steps_are_the_steps_of_a_longer_training(tmp_path: Path, cases: Path, unbroken: Path) -> None:
    run(tmp_path, cases, settings(steps=3))
    run(tmp_path, cases, settings())
    assert record(tmp_path)["continued_after_step"] == 3
    assert_same_end(tmp_path, unbroken)


def test_a_checkpoint_beyond_the_steps_is_not_used(tmp_path: Path, cases: Path) -> None:
    run(tmp_path, cases, settings(steps=4, checkpoint_every=10))
    run(tmp_path, cases, settings(steps=2, checkpoint_every=10))
    assert record(tmp_path)["continued_after_step"] == 0
    run(tmp_path / "alone", cases, settings(steps=2))
    assert equal(*(load_file(each / "weights.safetensors") for each in (tmp_path, tmp_path / "alone")))


def test_a_damaged_checkpoint_is_passed_over(
    tmp_path: Path, cases: Path, unbroken: Path, caplog: pytest.LogCaptureFixture
) -> None:
    shutil.copytree(unbroken / "checkpoints", tmp_path / "checkpoints")
    newest = checkpoints(tmp_path)[-1]
    newest.write_bytes(newest.read_bytes()[:-100])
    run(tmp_path, cases, settings())
    assert f"{newest.name} cannot be read" in caplog.text
    assert record(tmp_path)["continued_after_step"] == 10
    assert_same_end(tmp_path, unbroken)


# --- signals to a process of its own ---

# The script of the workflow, as Snakemake runs it.
PROCESS = """
import runpy, sys, types
log, script, settings, cases, weights, curve, record = sys.argv[1:]
output = types.SimpleNamespace(weights=weights, curve=curve, record=record)
job = types.SimpleNamespace(
    log=[log], params=types.SimpleNamespace(settings=settings), input=types.SimpleNamespace(cases=cases), output=output,
    threads=1,
)
runpy.run_path(script, {"snakemake": job})
"""
LONG = {"steps": 30, "checkpoint_every": 2, "learning_rate": 1e-4}


@pytest.fixture(scope="module")
def unbroken_long(tmp_path_factory: pytest.TempPathFactory, cases: Path) -> Path:
    folder = tmp_path_factory.mktemp("long")
    run(folder, cases, settings(**LONG))
    return folder


def reached(folder: Path, step: int) -> bool:
    return any(path.name >= f"step-{step:09d}.pt" for path in checkpoints(folder))


def ended(folder: Path, cases: Path, number: signal.Signals, step: int = 2, wait_s: float = 0.0) -> tuple[int, str]:
    """Exit code and errors of a process that got a signal `wait_s` seconds after the checkpoint of `step`."""
    log = folder / "train.log"
    words = [str(log), str(ROOT / "workflow_scripts/train.py"), settings(**LONG), str(cases)]
    process = subprocess.Popen(
        [sys.executable, "-c", PROCESS, *words, *(str(folder / name) for name in FILES)],
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        # A shell starts what runs in its background deaf to Ctrl-C, and the tests may be there.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    try:
        deadline = time.monotonic() + 60
        while not reached(folder, step) and process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.002)
        time.sleep(wait_s)
        process.send_signal(number)
        _, errors = process.communicate(timeout=60)
    finally:
        process.kill()
        process.wait()
    return process.returncode, errors


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_the_training_with_a_line_and_a_checkpoint(
    tmp_path: Path, cases: Path, unbroken_long: Path, number: signal.Signals, caplog: pytest.LogCaptureFixture
) -> None:
    code, errors = ended(tmp_path, cases, number)
    assert code == 1, errors
    (line,) = errors.splitlines()
    last = checkpoints(tmp_path)[-1]
    step = state(last)["step"]
    assert line.startswith(f"tiny: stopped at step {step} of 30; the same command goes on from there")
    assert str(last) in line
    assert status(tmp_path) == {"status": "failed", "reason": line, "checkpoint": str(last)}
    assert "Traceback" not in (tmp_path / "train.log").read_text()
    assert not list(tmp_path.rglob("*.safetensors"))
    assert half_written(tmp_path) == []
    with caplog.at_level(logging.INFO, logger="meddpm"):
        run(tmp_path, cases, settings(**LONG))
    assert f"going on after step {step} of 30" in caplog.text
    assert_same_end(tmp_path, unbroken_long)


def test_a_killed_training_goes_on_from_its_last_whole_checkpoint(
    tmp_path: Path, cases: Path, unbroken_long: Path
) -> None:
    moment = random.randint(2, 14), random.uniform(0, 0.04)
    print(f"step and seconds after it: {moment}")  # pytest shows it where the test fails
    code, errors = ended(tmp_path, cases, signal.SIGKILL, *moment)
    assert code == -signal.SIGKILL, errors
    assert not (tmp_path / train.STATUS_FILE).exists()
    step = state(checkpoints(tmp_path)[-1])["step"]
    assert step % 2 == 0
    run(tmp_path, cases, settings(**LONG))
    assert record(tmp_path)["continued_after_step"] == step
    assert_same_end(tmp_path, unbroken_long)
    assert half_written(tmp_path) == []


# --- what fails ---


def test_a_loss_that_is_no_number_says_what_to_change(tmp_path: Path, cases: Path) -> None:
    text = with_value(settings(), "learning_rate", 1e30)
    failed(tmp_path, cases, text, "tiny: the loss is nan at step", "lower train.learning_rate in config.yaml")
    assert checkpoints(tmp_path) == []
    assert not list(tmp_path.rglob("*.safetensors"))


def test_a_loss_that_explodes_says_what_to_change_and_where_it_was_good(tmp_path: Path, cases: Path) -> None:
    text = settings(steps=200, loss="l2", learning_rate=1.0, checkpoint_every=20)
    failed(tmp_path, cases, text, "tiny: the loss rose from", "lower train.learning_rate in config.yaml")
    assert state(checkpoints(tmp_path)[-1])["step"] < 100
    assert not list(tmp_path.rglob("*.safetensors"))


def test_weights_that_are_no_numbers_are_not_saved(tmp_path: Path, cases: Path) -> None:
    text = with_value(settings(steps=1), "learning_rate", math.inf)
    failed(tmp_path, cases, text, "the weights are no longer finite at step 1", "lower train.learning_rate")
    assert checkpoints(tmp_path) == []
    assert not list(tmp_path.rglob("*.safetensors"))


def test_out_of_memory_leaves_the_last_checkpoint_to_go_on_from(
    tmp_path: Path, cases: Path, unbroken: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    error = torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 9 GiB.\nmore")
    with failing_at(9, error, monkeypatch):
        failed(
            tmp_path, cases, settings(), "tiny cannot be trained here: out of memory: CUDA out of memory. Tried",
            "see train.gpu, train.variant and train.batch in config.yaml",
        )  # fmt: skip
    assert state(checkpoints(tmp_path)[-1])["step"] == 5
    run(tmp_path, cases, settings())
    assert_same_end(tmp_path, unbroken)


def test_a_batch_that_no_machine_holds_is_out_of_memory(tmp_path: Path, cases: Path) -> None:
    # 8 bytes for each number of a case: more than a process can address.
    failed(tmp_path, cases, settings(batch=10**17), "tiny cannot be trained here: out of memory", "train.batch")


def test_a_device_that_cannot_train_says_so(tmp_path: Path, cases: Path) -> None:
    with pytest.raises(UserError, match=r"tiny cannot be trained here: TF32 .* see train\.gpu, train\.variant and"):
        run(tmp_path, cases, settings("tf32"))
    assert status(tmp_path)["status"] == "unsupported"
    assert "TF32" in status(tmp_path)["reason"]


def test_a_training_on_a_device_that_is_not_its_rows_fails(tmp_path: Path, cases: Path) -> None:
    values = json.loads(settings())
    values["gpu_config"]["device_name"] = "A100"
    failed(
        tmp_path, cases, json.dumps(values), "gpus.cpu: the job got ", "does not match device_name A100; right would"
    )


def test_a_training_that_waits_for_a_gpu_can_be_stopped(
    tmp_path: Path, cases: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    @contextmanager
    def claimed(gpu: GpuConfig, row: str, between: Callable[[], None]) -> Iterator[torch.device]:
        between()
        yield torch.device("cpu")

    monkeypatch.setattr(train.device, "claimed", claimed)
    monkeypatch.setattr(interrupt, "noted", lambda: contextlib.nullcontext(lambda: "SIGTERM"))
    failed(tmp_path, cases, settings(), "tiny: stopped while it waited for a GPU; the same command goes on from there")


def test_a_fault_of_the_program_is_not_hidden_and_leaves_no_status(
    tmp_path: Path, cases: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_json(tmp_path / train.STATUS_FILE, {"status": "ok"})
    with failing_at(1, RuntimeError("shapes differ"), monkeypatch), pytest.raises(RuntimeError, match="shapes differ"):
        run(tmp_path, cases, settings())
    assert not (tmp_path / train.STATUS_FILE).exists(), "that of an earlier run would be taken for this one's"


def test_a_case_without_an_image_is_refused(tmp_path: Path) -> None:
    table = make_cases(tmp_path / "data", image=False)
    write_json(tmp_path / "run" / train.STATUS_FILE, {"status": "ok"})
    failed(tmp_path / "run", table, settings(), f"{table}: case-0 has no image; a training needs one for each case")


def test_cases_of_another_size_are_refused(tmp_path: Path, cases: Path) -> None:
    values = json.loads(settings())
    values["model_config"]["size"] = [16, 8, 8]
    failed(tmp_path, cases, json.dumps(values), f"{cases}: case-0: ", "8x8x8 voxels does not fit a model of 16x8x8")


# --- many cases, and several images of each ---


def with_images(images: int) -> str:
    """The settings of a training whose model takes so many images."""
    values = json.loads(settings(steps=2))
    values["model_config"]["image_channels"] = images
    return json.dumps(values)


def with_memory_for(cases: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """So much memory is left that half of it holds so many cases of 8^3."""
    monkeypatch.setattr(train.memory, "available", lambda: 2 * cases * 8**3 * 5)


def test_cases_read_from_disk_train_the_same_weights(
    tmp_path: Path, cases: Path, unbroken: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with_memory_for(1, monkeypatch)
    with caplog.at_level(logging.INFO, logger="meddpm"):
        run(tmp_path, cases, settings())
    assert len([line for line in caplog.messages if "read from disk when they are needed" in line]) == 1
    assert_same_end(tmp_path, unbroken)


@pytest.mark.parametrize("memory", [(1, 1), (1, 2), (2, 1)])
def test_a_training_goes_on_wherever_its_cases_lie(
    tmp_path: Path, cases: Path, unbroken: Path, monkeypatch: pytest.MonkeyPatch, memory: tuple[int, int]
) -> None:
    with_memory_for(memory[0], monkeypatch)
    run(tmp_path, cases, settings(steps=7))
    with_memory_for(memory[1], monkeypatch)
    run(tmp_path, cases, settings())
    assert record(tmp_path)["continued_after_step"] == 7
    assert_same_end(tmp_path, unbroken)


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-8])


@pytest.mark.parametrize(
    ("file", "harm", "words"),
    [
        ("image", Path.unlink, "no such file, though cases.tsv names it; prepare the dataset again"),
        ("label", Path.unlink, "no such file, though cases.tsv names it; prepare the dataset again"),
        ("image", cut, "has changed since cases.tsv was written; prepare the dataset again"),
    ],
)
def test_a_case_that_is_harmed_under_way_ends_the_training_in_a_line(
    tmp_path: Path, unbroken: Path, monkeypatch: pytest.MonkeyPatch, file: str, harm: Callable[[Path], None], words: str
) -> None:
    table = make_cases(tmp_path / "data")
    harmed = tmp_path / f"data/case-1_{file}.nii.gz"
    whole, honest = harmed.read_bytes(), Checkpoints.save

    def save(self: Checkpoints, number: int, state: dict[str, Any]) -> Path:
        harm(harmed)
        return honest(self, number, state)

    with monkeypatch.context() as patched:
        with_memory_for(1, patched)
        patched.setattr(Checkpoints, "save", save)
        failed(tmp_path / "run", table, settings(), f"{harmed}: {words}")
    assert [path.name for path in checkpoints(tmp_path / "run")] == ["step-000000005.pt"]
    harmed.write_bytes(whole)
    run(tmp_path / "run", table, settings())
    assert record(tmp_path / "run")["continued_after_step"] == 5
    assert_same_end(tmp_path / "run", unbroken)


def test_a_disk_that_cannot_be_read_is_a_line(tmp_path: Path, cases: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def load_case(*_: Any) -> Case:
        raise OSError(errno.EIO, os.strerror(errno.EIO), "/mnt/case-0_image.nii.gz")

    monkeypatch.setattr(train.data, "load_case", load_case)
    failed(tmp_path, cases, settings(), "/mnt/case-0_image.nii.gz: case-0 cannot be read (Input/output error); mend")


def test_several_images_of_a_case_are_the_channels_of_the_network(tmp_path: Path) -> None:
    table = make_cases(tmp_path / "data", images=3)
    run(tmp_path / "run", table, with_images(3))
    assert record(tmp_path / "run")["preset"]["image_channels"] == 3
    rows = manifest.read(table)
    config = Job.parse("train", with_images(3)).get("model_config", ModelConfig)
    with train._gathered(table, rows, config, lambda: None, 1) as shown:
        images, labels = shown.take([1, 0])
    assert (images.shape, labels.shape) == ((2, 3, 8, 8, 8), (2, 8, 8, 8))
    for channel in range(3):
        expected = np.stack([manifest.load_case(table, rows[number]).image[..., channel].T for number in (1, 0)])
        np.testing.assert_array_equal(images[:, channel].numpy(), expected)
    torch.testing.assert_close(labels / 2.5 - 1, images[:, 0])


@pytest.mark.parametrize(("has", "takes"), [(1, 3), (3, 1), (2, 3)])
@pytest.mark.parametrize("room", [1, 100])
def test_another_number_of_images_than_the_model_takes_is_refused(
    tmp_path: Path, has: int, takes: int, room: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_memory_for(room, monkeypatch)
    table = make_cases(tmp_path / "data", images=has)
    words = (
        f"{table}: the number of images of case-0 is {has}, but the model takes {takes}; name as many under `images:`"
    )
    failed(tmp_path / "run", table, with_images(takes), words, "of the dataset in config.yaml, or train another model")


def no_image(row: manifest.CaseRow) -> manifest.CaseRow:
    return dataclasses.replace(row, image="", image_sha256="")


def other_size(row: manifest.CaseRow) -> manifest.CaseRow:
    return dataclasses.replace(row, shape=(8, 8, 16))


def two_images(row: manifest.CaseRow) -> manifest.CaseRow:
    return dataclasses.replace(row, files={"t1": "a.nii", "t2": "b.nii", "label": "c.nii"})


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (no_image, "case-1 has no image"),
        (other_size, "case-1: a case of 8x8x16 voxels does not fit a model of 8x8x8"),
        (two_images, "the number of images of case-1 is 2, but the model takes 1"),
    ],
)
def test_what_the_table_says_is_refused_before_a_volume_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: Callable[[manifest.CaseRow], manifest.CaseRow], words: str
) -> None:
    table = make_cases(tmp_path / "data")
    first, second = manifest.read(table)
    manifest.write(table, [first, change(second)])
    monkeypatch.setattr(train.data, "load_case", lambda *_: pytest.fail("a volume is read"))
    failed(tmp_path / "run", table, settings(), words)


def test_images_named_in_the_table_that_fit_are_trained(tmp_path: Path) -> None:
    table = make_cases(tmp_path / "data", images=2)
    manifest.write(table, map(two_images, manifest.read(table)))
    run(tmp_path / "run", table, with_images(2))
    assert status(tmp_path / "run")["status"] == "ok"


def test_other_data_keeps_the_weights_before_under_another_name(tmp_path: Path, cases: Path) -> None:
    run(tmp_path, cases, settings())
    run(tmp_path, make_cases(tmp_path / "other", seed=5), settings())
    assert len(list((tmp_path / "kept").iterdir())) == 2


def test_the_card_says_what_every_case_is_and_where_the_data_is_from(tmp_path: Path) -> None:
    table = make_cases(tmp_path / "mine", count=3)
    rows = manifest.read(table)
    manifest.write(table, [*rows[:2], dataclasses.replace(rows[2], notes="with a lesion")])
    run(tmp_path, table, settings())
    card = weights.read_card(tmp_path / "weights.safetensors")
    assert card["dataset"] == "2 of 3 cases: made up; 1 of 3 cases: with a lesion"
    assert (card["dataset_name"], card["cases_sha256"]) == ("mine", sha256(table))


def test_an_empty_table_is_refused_and_the_status_of_before_does_not_stay(tmp_path: Path, cases: Path) -> None:
    run(tmp_path, cases, settings())
    table = make_cases(tmp_path / "none", count=0)
    with pytest.raises(UserError, match=r"cases\.tsv: lists no case"):
        run(tmp_path, table, settings())
    assert status(tmp_path)["status"] == "failed"


def test_too_little_memory_for_the_cases_is_a_line(
    tmp_path: Path, cases: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def load_case(*_: Any) -> Case:
        raise MemoryError

    monkeypatch.setattr(train.data, "load_case", load_case)
    failed(tmp_path, cases, settings(), "tiny cannot be trained here: out of memory")


def test_a_stop_while_the_cases_are_read_is_one_line(
    tmp_path: Path, cases: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stop_at(0, monkeypatch)
    failed(tmp_path, cases, settings(), "stopped after 1 of 2 cases were read")


def test_what_a_killed_run_left_of_its_weights_is_removed(tmp_path: Path, cases: Path) -> None:
    gone = subprocess.Popen(["true"])
    gone.wait()
    (tmp_path / f".{gone.pid}.weights.safetensors").write_bytes(b"half")
    run(tmp_path, cases, settings())
    assert half_written(tmp_path) == []


def test_a_table_that_is_not_there_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"cases\.tsv: no such table of cases"):
        run(tmp_path, tmp_path / "cases.tsv", settings())


# --- a full disk ---

MIB = 2**20
FULL_DISK = ("No space left on device", "make room or mend the permissions")


@contextmanager
def disk_of(size: int, folder: Path) -> Iterator[Path]:
    """A file system of `size` bytes; the test skips where mounting one is refused."""
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)]
    try:
        subprocess.run(command, check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("mounting a small disk is refused here")
    try:
        yield folder
    finally:
        subprocess.run(["umount", str(folder)], check=True)


def test_a_disk_that_fills_up_keeps_the_checkpoint_before(tmp_path: Path, cases: Path, unbroken: Path) -> None:
    size = checkpoints(unbroken)[0].stat().st_size
    with disk_of(int(1.8 * size), tmp_path / "disk") as disk:
        failed(disk, cases, settings(), *FULL_DISK, "checkpoints")
        assert [path.name for path in checkpoints(disk)] == ["step-000000005.pt"]
        assert state(checkpoints(disk)[0])["step"] == 5
        shutil.copytree(disk, tmp_path / "larger")
    run(tmp_path / "larger", cases, settings())
    assert_same_end(tmp_path / "larger", unbroken)


def test_a_disk_that_is_full_at_the_end_keeps_the_checkpoint_of_the_end(
    tmp_path: Path, cases: Path, unbroken: Path
) -> None:
    size = checkpoints(unbroken)[0].stat().st_size
    with disk_of(size + MIB, tmp_path / "disk") as disk:
        failed(disk, cases, settings(checkpoint_every=100), *FULL_DISK)
        assert state(checkpoints(disk)[-1])["step"] == 12
        assert not list(disk.rglob("*.safetensors"))


def full_device(target: Path) -> None:
    """What is written before it becomes `target` goes to a device that is always full."""
    if not Path("/dev/full").exists():
        pytest.skip("no /dev/full here")
    target.parent.mkdir(parents=True, exist_ok=True)
    target.with_name(f".{os.getpid()}.{target.name}").symlink_to("/dev/full")


def test_a_checkpoint_on_a_full_device_ends_the_training_in_a_line(
    tmp_path: Path, cases: Path, unbroken: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = settings(keep_checkpoints=1)
    folder = tmp_path / "checkpoints" / identity(cases, text)
    honest = Checkpoints.save

    def save(self: Checkpoints, number: int, state: dict[str, Any]) -> Path:
        if number == 10:
            full_device(folder / "step-000000010.pt")
        return honest(self, number, state)

    with monkeypatch.context() as patched:
        patched.setattr(Checkpoints, "save", save)
        failed(tmp_path, cases, text, *FULL_DISK, str(folder))
    assert [path.name for path in checkpoints(tmp_path)] == ["step-000000005.pt"]
    run(tmp_path, cases, settings())
    assert record(tmp_path)["continued_after_step"] == 5
    assert_same_end(tmp_path, unbroken)


def test_a_run_is_known_by_what_its_cases_are_not_by_where_they_came_from(tmp_path: Path, cases: Path) -> None:
    rows = manifest.read(cases)
    elsewhere = [dataclasses.replace(row, files={"label": "x"}, changes=("moved",), warnings=("look",)) for row in rows]
    other = [dataclasses.replace(rows[0], label_sha256="0" * 64), *rows[1:]]
    digests = [train._digest(settings(), each) for each in (rows, elsewhere, other, rows[::-1])]
    assert digests[0] == digests[1]
    assert len(set(digests)) == 3


@pytest.mark.parametrize("file", ["kept", "weights", "loss.csv"])
def test_an_end_on_a_full_device_is_a_line_and_can_be_made_up(
    tmp_path: Path, cases: Path, unbroken: Path, file: str
) -> None:
    text = settings()
    kept = tmp_path / "kept" / train._digest(text, manifest.read(cases)) / "weights.safetensors"
    target = {"kept": kept, "weights": tmp_path / "weights.safetensors", "loss.csv": tmp_path / "loss.csv"}[file]
    full_device(target)
    failed(tmp_path, cases, text, *FULL_DISK)
    assert not target.exists()
    assert state(checkpoints(tmp_path)[-1])["step"] == 12
    with contextlib.suppress(FileNotFoundError):
        (tmp_path / "weights.safetensors").unlink()  # as Snakemake does where a job failed
    run(tmp_path, cases, text)
    assert record(tmp_path)["continued_after_step"] == 12
    assert_same_end(tmp_path, unbroken)
    assert status(tmp_path)["status"] == "ok"
