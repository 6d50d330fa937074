"""The training loop: what is drawn, when it saves and stops, and that a run which was stopped goes on to the bit."""

import copy
import dataclasses
import functools
import logging
import math
import time
from pathlib import Path

import numpy as np
import pytest
import torch

from meddpm import training, variants
from meddpm.config import TrainConfig, VariantConfig
from meddpm.data import conditions
from meddpm.training.batches import Batches
from meddpm.training.cases import InMemory
from meddpm.training.loop import Diverged, State, Stopped, TrainingResult, train
from tests.unit.training_fixture import (
    CPU,
    FULL,
    PLAIN,
    TINY,
    copied,
    dataset,
    fresh,
    stopped,
    timeless,
    trained,
)
from tests.unit.weights_fixture import equal

# --- batches ---


def drawn_from(settings: TrainConfig, cases: int = 3) -> Batches:
    with variants.applied(VariantConfig(), CPU, training=True) as applied:
        return Batches(InMemory(*dataset(cases)), TINY, settings, applied)


def test_a_batch_is_whole_cases_with_their_own_conditions() -> None:
    images, labels = dataset(3)
    batches = drawn_from(TrainConfig(batch=4))
    seen = []
    for _ in range(8):
        image, condition, t, noise = batches()
        assert image.shape == noise.shape == (4, *TINY.shape)
        assert t.shape == (4,)
        for shown, channels in zip(image, condition, strict=True):
            (case,) = [number for number in range(3) if torch.equal(images[number], shown)]
            expected = conditions.encode(labels[case].numpy().T, TINY)
            assert channels.dtype == torch.float32
            np.testing.assert_array_equal(channels.numpy(), expected)
            seen.append(case)
    assert set(seen) == {0, 1, 2}
    assert any(len(set(seen[first : first + 4])) < 4 for first in range(0, 32, 4)), "drawn with replacement"


def test_a_batch_can_be_larger_than_the_dataset() -> None:
    image, *_ = drawn_from(TrainConfig(batch=7), cases=1)()
    assert len(image) == 7


def test_timesteps_and_noise_are_spread_as_they_should_be() -> None:
    batches = drawn_from(TrainConfig(batch=60))
    _, _, t, noise = batches()
    assert set(t.tolist()) == set(range(TINY.steps))
    assert abs(noise.mean().item()) < 0.05
    assert abs(noise.std().item() - 1) < 0.05
    assert not torch.equal(batches()[3], noise)


def test_batches_follow_from_their_seed() -> None:
    one, same, other = (drawn_from(TrainConfig(batch=4, seed=seed)) for seed in (5, 5, 6))
    for _ in range(3):
        first = one()
        assert all(map(torch.equal, first, same()))
        assert not torch.equal(first[3], other()[3])


def test_batches_go_on_from_their_random_state() -> None:
    batches = drawn_from(TrainConfig(batch=4))
    for _ in range(3):
        batches()
    state = copied(batches.state())
    expected = [batches() for _ in range(3)]
    again = drawn_from(TrainConfig(batch=4, seed=9))
    again.restore(state)
    for batch in expected:
        assert all(map(torch.equal, batch, again()))


# --- the loop ---


@functools.cache
def unbroken(settings: TrainConfig, variant: VariantConfig | None) -> tuple[TrainingResult, State]:
    """The result and the last state of a training that was never stopped."""
    run, result = trained(settings, variant)
    return result, timeless(copied(run.state()))


def test_training_lowers_the_loss() -> None:
    result, _ = unbroken(PLAIN, None)
    assert len(result.losses) == PLAIN.steps
    assert np.mean(result.losses[-10:]) < 0.8 * np.mean(result.losses[:10])


def test_a_training_follows_from_its_seed() -> None:
    first, state = unbroken(FULL, None)
    again, second = trained(FULL)
    assert second.losses == first.losses
    assert equal(timeless(copied(again.state())), state)
    assert trained(dataclasses.replace(FULL, steps=3, seed=1))[1].losses != first.losses[:3]


def test_the_state_is_saved_every_so_many_steps_and_at_the_end() -> None:
    with fresh(dataclasses.replace(PLAIN, steps=8, checkpoint_every=3)) as run:
        saved: list[tuple[int, int, int]] = []
        train(run, lambda number, state: saved.append((number, state["step"], len(state["losses"]))))
    assert saved == [(3, 3, 3), (6, 6, 6), (8, 8, 8)]


def test_training_stops_after_its_seconds_which_add_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("meddpm.training.loop.LOOK_EVERY_S", 0.05)
    settings = dataclasses.replace(PLAIN, steps=100_000, max_seconds=0.3)
    saved = {}
    with fresh(settings) as run:
        result = train(run, lambda number, state: saved.update({number: copied(state)}))
    assert 0 < len(result.losses) < 100_000
    assert 0.3 <= result.seconds < 5
    assert list(saved) == [len(result.losses)], "the state at the end is saved"
    with fresh(settings) as run:
        run.restore(saved[len(result.losses)])
        again = train(run)
    assert again.losses == result.losses, "its seconds are used up"
    assert equal(dict(again.weights), dict(result.weights))
    with fresh(dataclasses.replace(settings, max_seconds=0.3 + result.seconds)) as run:
        run.restore(saved[len(result.losses)])
        begun = time.monotonic()
        longer = train(run)
    assert longer.losses[: len(result.losses)] == result.losses
    assert len(longer.losses) > len(result.losses)
    assert longer.seconds - (time.monotonic() - begun) > result.seconds / 2, "those of the first run count"


def test_progress_is_a_line_with_step_loss_rate_and_time_left(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("meddpm.training.loop.LOG_EVERY_S", 0.0)
    settings = dataclasses.replace(PLAIN, accumulation=1, checkpoint_every=15)
    with caplog.at_level(logging.INFO, logger="meddpm"), fresh(settings) as run:
        begun = time.monotonic()
        train(run)
    seconds = time.monotonic() - begun
    lines = [record.getMessage().split(", ") for record in caplog.records]
    loss, rate, left = next(line[1:] for line in lines if line[0] == "training step 15/30")
    assert loss == f"loss {np.mean(run.losses[:15]):.4f}"
    assert 15 / seconds <= float(rate.split()[0]) * 1.01
    assert float(left.split()[0]) == pytest.approx(15 / float(rate.split()[0]), abs=0.6)
    assert lines[-1][0] == "training step 30/30"
    assert lines[-1][-1] == "0 s left"


# --- a training that is lost ---


def test_a_loss_that_is_no_number_ends_the_training() -> None:
    saved: list[int] = []
    settings = dataclasses.replace(PLAIN, learning_rate=1e30, checkpoint_every=5)
    with fresh(settings) as run, pytest.raises(Diverged, match=r"the loss is nan at step \d"):
        train(run, lambda number, state: saved.append(number))
    assert saved == []


def test_a_loss_that_explodes_but_stays_finite_ends_the_training() -> None:
    settings = dataclasses.replace(PLAIN, steps=200, accumulation=1, learning_rate=1.0, loss="l2", checkpoint_every=1)
    with fresh(settings) as run, pytest.raises(Diverged, match=r"the loss rose from 0\.\d+ to [\d.e+]+ by step \d+"):
        train(run)
    assert run.number < 100
    assert all(map(math.isfinite, run.losses))


@pytest.mark.parametrize(
    ("losses", "lost"),
    [
        ([1.0] * 30 + [9.9] * 20, False),
        ([1.0] * 30 + [10.1] * 20, True),
        ([1.0] + [50.0] * 60, True),
        ([1.0] + [50.0] * 10 + [2.0] * 40, False),
        ([1.0] * 30 + [math.inf], True),
        ([1.0] * 30 + [math.nan], True),
        ([math.nan], True),
        ([1.0, 50.0], False),
    ],
)
def test_a_loss_is_lost_when_it_is_tenfold_for_long(losses: list[float], lost: bool) -> None:
    with fresh(PLAIN) as run:
        run.number = len(losses)
        run.losses = losses[:-1]
        if lost:
            with pytest.raises(Diverged):
                run.look(losses[-1:])
        else:
            run.look(losses[-1:])


def test_the_step_of_a_loss_that_is_no_number_is_named_though_others_follow() -> None:
    with fresh(PLAIN) as run:
        run.number = 10
        with pytest.raises(Diverged, match="the loss is nan at step 8"):
            run.look([1.0, 1.0, math.nan, 1.0, 1.0])


@pytest.mark.parametrize("what", ["model", "average"])
def test_weights_that_are_no_numbers_are_not_saved(what: str) -> None:
    saved: list[int] = []
    rate = math.inf if what == "model" else 1e-3
    with fresh(dataclasses.replace(PLAIN, steps=2, checkpoint_every=1, learning_rate=rate)) as run:
        if what == "average":
            run.average.weights["out.2.bias"].fill_(math.inf)
        with pytest.raises(Diverged, match="the weights are no longer finite at step 1"):
            train(run, lambda number, state: saved.append(number))
    assert saved == []


# --- stopped, and going on ---


def test_a_stop_saves_and_says_where() -> None:
    saved: list[int] = []
    with fresh(PLAIN) as run, pytest.raises(Stopped, match="stopped at step 7 of 30"):
        train(run, lambda number, state: saved.append(number), stop=lambda: run.number >= 7)
    assert saved == [7]


def test_a_stop_during_the_last_step_is_an_end() -> None:
    with fresh(dataclasses.replace(PLAIN, steps=3)) as run:
        result = train(run, stop=lambda: run.number == 3)
    assert len(result.losses) == 3


CHANNELS_LAST = VariantConfig(memory_format="channels_last_3d")
RUNS = {
    "as the original": (PLAIN, None, [13]),
    "stopped twice": (PLAIN, None, [5, 13]),
    "all switches": (FULL, None, [1, 13]),
    "channels last": (FULL, CHANNELS_LAST, [13]),
    "bf16": (FULL, VariantConfig(autocast="bf16"), [13]),
}


@pytest.mark.parametrize("name", RUNS)
def test_a_run_that_was_stopped_goes_on_to_the_bit(name: str) -> None:
    settings, variant, stops = RUNS[name]
    expected, last = unbroken(settings, variant)
    saved = None
    for number in stops:
        saved = stopped(settings, number, saved, variant)
        assert saved["step"] == number
    with fresh(dataclasses.replace(settings, checkpoint_every=7), variant) as second:
        second.restore(saved)
        result = train(second)
    assert result.losses == expected.losses
    assert equal(dict(result.weights), dict(expected.weights))
    assert equal(timeless(copied(second.state())), last)
    assert not equal(dict(result.weights), dict(second.model.state_dict())), "the average is a part of its own"


def test_a_state_holds_nothing_but_tensors_and_plain_values() -> None:
    with fresh(FULL) as run:
        run.step(run.batches, 1)
        state = run.state()
        assert equal(copied(state), copy.deepcopy(state))


def test_the_scale_of_fp16_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(variants, "check", lambda *_: None)  # which refuses fp16 on a CPU, for its slow kernels
    fp16 = VariantConfig(autocast="fp16")
    with fresh(FULL, fp16) as run, fresh(FULL, fp16) as second:
        fallen = {**run.step.scaler.state_dict(), "scale": 2.0**15, "_growth_tracker": 7}
        run.step.scaler.load_state_dict(fallen)
        second.restore(copied(run.state()))
        assert second.state()["scaler"] == fallen


def test_saving_changes_no_step() -> None:
    _, often = trained(dataclasses.replace(FULL, checkpoint_every=1))
    never, _ = unbroken(FULL, None)
    assert often.losses == never.losses
    assert equal(dict(often.weights), dict(never.weights))


def test_the_training_knows_no_files() -> None:
    for path in Path(training.__file__).parent.glob("*.py"):
        source = path.read_text(encoding="utf-8")
        assert "open(" not in source, path
        assert "Path" not in source, path
