"""One step: the recipe's loss, optimiser, learning rate and gradient, and the average of the weights after it."""

import copy
import dataclasses
import math
from functools import partial

import pytest
import torch
from torch.nn import functional

from meddpm import variants
from meddpm.config import TrainConfig, VariantConfig
from meddpm.diffusion.schedule import cosine_schedule
from meddpm.model import build_model
from meddpm.status import CannotRun
from meddpm.training.average import MovingAverage
from meddpm.training.step import Batch, Step, learning_rate
from tests.unit.training_fixture import CPU, FULL, PLAIN, TINY, by_step, trained

ONE = TrainConfig(accumulation=1)


def batch(size: int, seed: int = 0) -> Batch:
    """`size` volumes with condition, timesteps and noise."""
    generator = torch.Generator().manual_seed(seed)
    image = torch.rand((size, *TINY.shape), generator=generator) * 2 - 1
    condition = torch.randint(2, (size, 2, *TINY.shape[1:]), generator=generator) * 2.0 - 1
    return image, condition, torch.arange(size) % TINY.steps, torch.randn((size, *TINY.shape), generator=generator)


def network() -> torch.nn.Module:
    torch.manual_seed(0)
    return build_model(TINY).train()


def stepped(settings: TrainConfig, *batches: Batch, number: int = 1) -> tuple[torch.nn.Module, Step, float]:
    """The network after one step on `batches`, the step, and its loss."""
    model = network()
    with variants.applied(VariantConfig(), CPU, training=True) as applied:
        step = Step(model, TINY, settings, applied)
        loss = step(partial(next, iter(batches)), number)
    return model, step, loss.item()


def error_by_hand(model: torch.nn.Module, shown: Batch) -> torch.Tensor:
    """Output minus target, the target being v (Salimans and Ho 2022)."""
    image, condition, t, noise = shown
    acp = cosine_schedule(TINY.steps).alphas_cumprod[t].reshape(-1, 1, 1, 1, 1)
    noisy = acp.sqrt() * image + (1 - acp).sqrt() * noise
    with torch.no_grad():
        return model(torch.cat([noisy, condition], 1), t) - (acp.sqrt() * noise - (1 - acp).sqrt() * image)


def largest_change(model: torch.nn.Module) -> float:
    pairs = zip(model.parameters(), network().parameters(), strict=True)
    return max((after - before).abs().max().item() for after, before in pairs)


def test_the_default_is_the_recipe_of_the_original() -> None:
    assert TrainConfig() == TrainConfig(
        batch=1, accumulation=2, loss="l1", optimizer="adam", learning_rate=1e-5, weight_decay=0.0, warmup_steps=0,
        decay="none", gradient_clip=None, ema_decay=0.995, ema_every=10, ema_start=2000, ema_warmup=False,
    )  # fmt: skip
    one, two = batch(1), batch(1, seed=1)
    model, step, loss = stepped(TrainConfig(), one, two)
    assert type(step.optimizer) is torch.optim.Adam
    errors = [error_by_hand(network(), shown).abs().mean().item() for shown in (one, two)]
    assert loss == pytest.approx(sum(errors) / 2)
    assert largest_change(model) == pytest.approx(1e-5, rel=0.01), "the first step of Adam is the learning rate"


def test_l2_is_the_mean_squared_error() -> None:
    shown = batch(2)
    _, _, loss = stepped(dataclasses.replace(ONE, loss="l2"), shown)
    assert loss == pytest.approx(error_by_hand(network(), shown).square().mean().item())


def test_accumulated_batches_are_one_large_batch() -> None:
    whole = batch(4)
    one, step, loss = stepped(ONE, whole)
    halves = [tuple(part[half] for part in whole) for half in (slice(0, 2), slice(2, 4))]
    two, _, same = stepped(TrainConfig(accumulation=2), *halves)
    assert same == pytest.approx(loss)
    assert all(parameter.grad is not None for parameter in step.parameters)
    for (name, left), right in zip(one.named_parameters(), two.parameters(), strict=True):
        torch.testing.assert_close(left.grad, right.grad, rtol=1e-3, atol=1e-6, msg=name)


WARM = TrainConfig(learning_rate=0.4, steps=12, warmup_steps=4)
COSINE = dataclasses.replace(WARM, decay="cosine")


@pytest.mark.parametrize(
    ("settings", "number", "rate"),
    [
        (TrainConfig(learning_rate=0.4), 1, 0.4),
        (TrainConfig(learning_rate=0.4), 10**6, 0.4),
        (WARM, 1, 0.1),
        (WARM, 3, 0.3),
        (WARM, 4, 0.4),
        (WARM, 5, 0.4),
        (WARM, 12, 0.4),
        (COSINE, 4, 0.4),
        (COSINE, 5, 0.4),
        (COSINE, 7, 0.2 * (1 + math.sqrt(0.5))),
        (COSINE, 9, 0.2),
        (COSINE, 12, 0.2 * (1 + math.cos(math.pi * 7 / 8))),
        (COSINE, 13, 0.0),
        (COSINE, 99, 0.0),
        (dataclasses.replace(COSINE, warmup_steps=12), 12, 0.4),
        (dataclasses.replace(COSINE, warmup_steps=20), 12, 0.24),
    ],
)
def test_the_learning_rate_rises_stays_and_falls(settings: TrainConfig, number: int, rate: float) -> None:
    assert learning_rate(settings, number) == pytest.approx(rate)


def test_a_step_is_taken_at_its_own_learning_rate() -> None:
    settings = dataclasses.replace(ONE, learning_rate=1e-3, warmup_steps=4)
    for number, rate in ((1, 0.25e-3), (3, 0.75e-3)):
        model, _, _ = stepped(settings, batch(2), number=number)
        assert largest_change(model) == pytest.approx(rate, rel=0.01)


def test_adamw_shrinks_the_weights_beside_the_gradient() -> None:
    settings = dataclasses.replace(ONE, optimizer="adamw", learning_rate=1e-2)
    plain, _, _ = stepped(settings, batch(2))
    shrunk, _, _ = stepped(dataclasses.replace(settings, weight_decay=0.5), batch(2))
    for start, one, other in zip(network().parameters(), plain.parameters(), shrunk.parameters(), strict=True):
        torch.testing.assert_close(one - other, 1e-2 * 0.5 * start.detach(), rtol=1e-3, atol=1e-6)


def gradient_norm(model: torch.nn.Module) -> float:
    return torch.cat([parameter.grad.flatten() for parameter in model.parameters()]).norm().item()


def test_the_gradient_is_cut_to_its_largest_norm() -> None:
    free, _, _ = stepped(ONE, batch(2))
    assert gradient_norm(free) > 0.1
    cut, _, _ = stepped(dataclasses.replace(ONE, gradient_clip=0.1), batch(2))
    assert gradient_norm(cut) == pytest.approx(0.1, rel=1e-3)
    for one, other in zip(free.parameters(), cut.parameters(), strict=True):
        torch.testing.assert_close(other.grad, one.grad * (0.1 / gradient_norm(free)), rtol=1e-3, atol=1e-7)
    kept, _, _ = stepped(dataclasses.replace(ONE, gradient_clip=1e3), batch(2))
    assert gradient_norm(kept) == pytest.approx(gradient_norm(free)), "a small gradient is not made larger"


def test_every_switch_together_learns_under_bf16() -> None:
    settings = dataclasses.replace(FULL, steps=40)
    run, result = trained(settings, VariantConfig(autocast="bf16"))
    assert sum(result.losses[-10:]) < 0.8 * sum(result.losses[:10])
    assert {value.dtype for value in run.model.state_dict().values()} == {torch.float32}
    _, fp32 = trained(dataclasses.replace(settings, steps=1))
    assert result.losses[0] != fp32.losses[0]
    assert result.losses[0] == pytest.approx(fp32.losses[0], rel=0.05)


class Follower:
    """A moving average of one weight, fed with a value a step."""

    def __init__(self, settings: TrainConfig) -> None:
        self.model = torch.nn.Linear(1, 1, bias=False).double()
        self.set(-1.0)
        self.average = MovingAverage(self.model, settings)

    def set(self, value: float) -> None:
        with torch.no_grad():
            self.model.weight.fill_(value)

    def after(self, number: int, value: float) -> float:
        self.set(value)
        self.average.update(number, self.model)
        return self.average.weights["weight"].item()

    def result(self, number: int) -> float:
        return self.average.result(number, self.model)["weight"].item()


def test_the_average_of_the_original_begins_at_step_2000_and_moves_every_tenth() -> None:
    follower = Follower(TrainConfig())
    seen = {number: follower.after(number, float(number)) for number in range(1, 2031)}
    assert seen[9] == -1
    assert seen[10] == seen[19] == 10, "a copy before its start"
    assert seen[1990] == seen[1999] == 1990
    expected = 1990.0
    for number in (2000, 2010, 2020):
        expected += 0.005 * (number - expected)
        assert seen[number] == seen[number + 9] == pytest.approx(expected, abs=1e-9)


def test_a_warm_up_lets_the_decay_of_the_average_rise() -> None:
    follower = Follower(TrainConfig(ema_decay=0.3, ema_every=2, ema_start=4, ema_warmup=True))
    values = {number: follower.after(number, 10.0 * number) for number in range(1, 11)}
    assert values[3] == 20
    fourth = 2 / 11 * 20 + 9 / 11 * 40
    sixth = 3 / 12 * fourth + 9 / 12 * 60
    eighth = 0.3 * sixth + 0.7 * 80  # 4 / 13 is more than the decay asked for
    tenth = 0.3 * eighth + 0.7 * 100
    assert [values[number] for number in (4, 6, 8, 10)] == pytest.approx([fourth, sixth, eighth, tenth])


@pytest.mark.parametrize(("start", "number"), [(100, 15), (100, 99), (0, 9), (11, 19)])
def test_before_its_first_update_the_average_is_the_newest_weights(start: int, number: int) -> None:
    follower = Follower(TrainConfig(ema_start=start, ema_warmup=True))
    for step in range(1, number + 1):
        follower.after(step, float(step))
    assert follower.result(number) == number


def test_after_its_first_update_the_average_is_given_as_it_is() -> None:
    follower = Follower(TrainConfig(ema_start=10, ema_decay=0.5))
    for step in range(1, 16):
        follower.after(step, float(step))
    assert follower.result(15) == (-1 + 10) / 2


def test_an_average_goes_on_from_where_it_was() -> None:
    settings = TrainConfig(ema_decay=0.9, ema_every=1, ema_start=0, ema_warmup=True)
    one, other = Follower(settings), Follower(settings)
    one.after(1, 5.0)
    other.average.restore(copy.deepcopy(one.average.weights), one.average.updates)
    assert other.after(2, 7.0) == one.after(2, 7.0) != 7.0
    other.average.restore({"weight": torch.tensor([[-0.0]], dtype=torch.double)}, 2)
    assert math.copysign(1, other.average.weights["weight"].item()) == -1, "to the bit"


def test_a_training_averages_the_weights_of_its_own_steps() -> None:
    settings = dataclasses.replace(PLAIN, steps=5, ema_decay=0.5, ema_every=1, ema_start=2, checkpoint_every=1)
    states, result = by_step(settings)
    expected = states[1]["model"]
    for number in range(2, 6):
        expected = {key: (value + states[number]["model"][key]) / 2 for key, value in expected.items()}
    for key, value in expected.items():
        torch.testing.assert_close(result.weights[key], value)
    assert not torch.equal(result.weights["out.2.bias"], states[5]["model"]["out.2.bias"])
    assert functional.l1_loss(result.weights["out.2.bias"], states[5]["model"]["out.2.bias"]) < 1e-2


@pytest.mark.parametrize(("depth", "autocast", "wrong"), [(4, "bf16", True), (8, "bf16", False), (4, "none", False)])
def test_gradients_that_would_be_garbage_are_not_trained_with(depth: int, autocast: str, wrong: bool) -> None:
    """Two levels halve the depth once: the inner one of 4 voxels is 2 deep, where bf16 is wrong on a CPU."""
    config = dataclasses.replace(TINY, size=(8, 8, depth))
    variant = VariantConfig(autocast=autocast)
    with variants.applied(variant, torch.device("cpu"), training=True) as applied:
        if wrong:
            with pytest.raises(CannotRun, match="2 voxels deep"):
                Step(build_model(config), config, TrainConfig(), applied)
        else:
            Step(build_model(config), config, TrainConfig(), applied)
