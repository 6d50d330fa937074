"""The operators of a step: how many calls each stands for, and each called again by itself."""

import json
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace

import pytest
import torch

from meddpm import variants
from meddpm.config import TrainConfig, VariantConfig
from meddpm.model import build_model, presets
from meddpm.profiling.tools.operators import Operators, again, longest
from meddpm.training.step import Step


def step(layer: torch.nn.Module, sizes: list[int]) -> None:
    for size in sizes:
        layer(torch.ones(1, 2, size)).sum().backward()


def seen_in(call) -> Operators:
    with Operators(lambda name: nullcontext()) as operators:
        call()
    return operators


def test_each_operator_and_shape_is_counted_and_has_a_context_around_it() -> None:
    layer = torch.nn.Conv1d(2, 3, 1)
    around: list[str] = []

    @contextmanager
    def noting(name: str) -> Iterator[None]:
        around.append(name)
        yield

    with Operators(noting) as operators:
        step(layer, [4, 4, 6])
    forward = {kind: name for name, kind in operators.kinds.items() if kind.startswith("aten.convolution.default")}
    assert sorted(forward) == ["aten.convolution.default 1", "aten.convolution.default 2"]
    assert [operators.calls[name] for name in forward.values()] == [2, 1]
    backward = [name for name, kind in operators.kinds.items() if kind.startswith("aten.convolution_backward")]
    assert [operators.calls[name] for name in backward] == [2, 1], "gradients are seen too"
    assert {name: around.count(name) for name in around} == operators.calls


def test_the_same_step_has_the_same_names() -> None:
    layer = torch.nn.Conv1d(2, 3, 1)
    step(layer, [4])
    first, second = (seen_in(lambda: step(layer, [4, 5])) for _ in range(2))
    assert (first.kinds, first.calls, first.described) == (second.kinds, second.calls, second.described)


@pytest.mark.parametrize(
    ("left", "right", "same"),
    [
        (torch.ones(2, 3), torch.zeros(2, 3), True),
        (torch.ones(2, 3), torch.ones(3, 2), False),
        (torch.ones(2, 3), torch.ones(3, 2).t(), False),
        (torch.ones(2, 3), torch.ones(2, 3, dtype=torch.float64), False),
    ],
)
def test_what_tells_two_calls_apart(left: torch.Tensor, right: torch.Tensor, same: bool) -> None:
    operators = seen_in(lambda: (torch.relu(left), torch.relu(right)))
    assert (len(operators.calls) == 1) is same


def test_a_number_of_the_step_is_no_other_shape_but_a_dimension_is() -> None:
    x = torch.ones(2, 2)

    def call() -> None:
        torch.ops.aten.mul.Scalar(x, 0.1)
        torch.ops.aten.mul.Scalar(x, 0.2)
        torch.ops.aten.sum.dim_IntList(x, [0])
        torch.ops.aten.sum.dim_IntList(x, [1])

    assert sorted(seen_in(call).calls.values()) == [1, 1, 2]


@pytest.mark.parametrize("variant", [VariantConfig(), VariantConfig(memory_format="channels_last_3d", autocast="bf16")])
def test_every_operator_of_a_training_step_can_be_called_again_by_itself(variant: VariantConfig) -> None:
    config = replace(presets.PRESETS["demo"], size=(16, 16, 16), channel_multipliers=(1, 1, 1), attention_factors=(2,))
    with variants.applied(variant, torch.device("cpu"), True) as applied:
        training = Step(build_model(config).train(), config, TrainConfig(accumulation=1), applied)
        image = applied.tensor(torch.randn(1, *config.shape))
        condition = applied.tensor(torch.randn(1, len(config.condition_labels), *config.shape[1:]))
        batch = (image, condition, torch.zeros(1, dtype=torch.long), image)
        training(lambda: batch)
        operators = seen_in(lambda: training(lambda: batch))
        described = json.loads(json.dumps(operators.described))
        for name, call in described.items():
            if not call["function"].startswith("profiler."):
                repeated = seen_in(again(call))
                assert operators.kinds[name].rpartition(" ")[0] in {
                    kind.rpartition(" ")[0] for kind in repeated.kinds.values()
                }
                assert call in repeated.described.values(), (operators.kinds[name], "the same shapes, strides, types")


def test_tensors_of_any_layout_are_made_again() -> None:
    expanded, integers = torch.ones(3, 1).expand(3, 4), torch.arange(4)
    operators = seen_in(lambda: (expanded + 1, torch.ops.aten.index.Tensor(torch.ones(5), [integers])))
    for described in operators.described.values():
        assert torch.isfinite(again(described)()).all()


def test_the_longest_operators_are_taken_until_their_share_is_reached() -> None:
    times = {"a": 10.0, "b": 80.0, "c": 9.0, "d": 1.0}
    assert longest(times, 0.5) == ["b"]
    assert longest(times, 0.9) == ["b", "a"]
    assert longest(times, 0.91) == ["b", "a", "c"]
    assert longest(times, 1.0) == ["b", "a", "c", "d"]
    assert longest({"a": 0.0}, 1.0) == ["a"]
