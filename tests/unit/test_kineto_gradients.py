"""Kernels of the backward pass, by the range in which the operator was whose gradient they give."""

from pathlib import Path

import pytest
import torch

from meddpm.profiling.readers import kineto
from meddpm.profiling.trace import MarkedRange
from tests.unit.test_kineto import kernel, launch, mark, range_, write_trace

FORWARD, BACKWARD = 1, 2


def operator(name: str, start: float, end: float, number: int, tid: int = FORWARD) -> dict[str, object]:
    arguments = {"Sequence number": number, "Fwd thread id": 1 if tid == BACKWARD else 0}
    return range_(name, start, end - start, tid=tid, args=arguments)


# Two ranges of the forward pass; then, on a thread of its own, the gradients, the last first.
EVENTS = [
    mark("down", 0, 10),
    operator("aten::conv3d", 1, 5, 7),
    operator("aten::silu", 6, 8, 8),
    mark("up", 20, 30),
    operator("aten::conv3d", 21, 25, 9),
    mark("down", 40, 50),
    operator("aten::conv3d", 41, 45, 10),
    operator("ConvolutionBackward0", 100, 110, 10, BACKWARD),
    launch(101, 4, BACKWARD),
    operator("ConvolutionBackward0", 120, 130, 9, BACKWARD),
    launch(121, 1, BACKWARD),
    operator("SiluBackward0", 140, 150, 8, BACKWARD),
    launch(141, 2, BACKWARD),
    operator("ConvolutionBackward0", 160, 170, 7, BACKWARD),
    operator("autograd::engine::evaluate_function: ConvolutionBackward0", 159, 171, 7, BACKWARD),
    launch(161, 3, BACKWARD),
    kernel("dgrad of up", 200, 1000, 1),
    kernel("silu backward", 1300, 2000, 2),
    kernel("dgrad of down", 4000, 4000, 3),
    kernel("dgrad of down, again", 9000, 8000, 4),
]


def ranges(tmp_path: Path, events: list[dict[str, object]]) -> dict[str, MarkedRange]:
    return {each.name: each for each in kineto.read(write_trace(tmp_path / "trace.json", events)).ranges}


def test_gradients_are_in_the_range_of_their_operator(tmp_path: Path) -> None:
    found = ranges(tmp_path, EVENTS)
    assert found["down (backward)"] == MarkedRange("down (backward)", 2, 3, 14.0), "called twice, three kernels"
    assert found["up (backward)"] == MarkedRange("up (backward)", 1, 1, 1.0)
    assert found["down"].kernels == 0
    assert list(found) == ["down", "up", "down (backward)", "up (backward)"], "by their first start"


def test_of_operators_with_one_number_the_last_made_the_node(tmp_path: Path) -> None:
    """What needs no gradient has the number of the next operator that does."""
    found = ranges(tmp_path, [operator("aten::empty", 8, 9, 9), *EVENTS])
    assert (found["up (backward)"].kernels, found["down (backward)"].kernels) == (1, 3)


def test_a_number_that_two_threads_have_tells_nothing(tmp_path: Path) -> None:
    found = ranges(tmp_path, [*EVENTS, operator("aten::conv3d", 22, 26, 9, tid=3)])
    assert "up (backward)" not in found
    assert found["down (backward)"].kernels == 3


@pytest.mark.parametrize("arguments", [None, "text", {"Sequence number": "many"}, {"Sequence number": -1}, {}])
def test_operators_without_a_number_are_in_no_range(tmp_path: Path, arguments: object) -> None:
    plain = [event | {"args": arguments} if event["cat"] == "cpu_op" else event for event in EVENTS]
    assert list(ranges(tmp_path, plain)) == ["down", "up"]


def test_pytorch_numbers_operators_and_gradients_alike(tmp_path: Path) -> None:
    """On a CPU there are no kernels: one is put below the gradient of the second layer."""
    layers = [torch.nn.Conv3d(1, 2, 3), torch.nn.Conv3d(2, 1, 3)]
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profiler:
        values = torch.ones(1, 1, 8, 8, 8)
        for number, layer in enumerate(layers):
            with torch.profiler.record_function(f"layer {number}"):
                values = layer(values)
        values.sum().backward()
    profiler.export_chrome_trace(str(tmp_path / "plain.json"))
    events = kineto.chrome_trace.read(tmp_path / "plain.json", Kept).events
    gradients = [event for event in events if event.get("name") == "ConvolutionBackward0"]
    first = min(gradients, key=lambda event: event["ts"])  # of the last layer
    call = launch(float(first["ts"]) + float(first["dur"]) / 2, 1) | {"pid": first["pid"], "tid": first["tid"]}
    found = ranges(tmp_path, [*events, call, kernel("dgrad", float(first["ts"]), 5, 1)])
    assert {name: each.kernels for name, each in found.items()} == {
        "layer 0": 0,
        "layer 1": 0,
        "layer 1 (backward)": 1,
        "layer 0 (backward)": 0,
    }


class Kept:
    """All events of a file."""

    def __init__(self) -> None:
        self.events: list[dict[str, object]] = []
        self.devices: list[object] = []
        self.unclosed = False

    def add(self, event: dict[str, object]) -> None:
        self.events.append(event)
