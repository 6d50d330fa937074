"""The operators of PyTorch that a step calls: how often each with which shapes, and each again by itself.

Counters of a kernel are the same at each call of an operator with the same arguments but for the values of its tensors.
A profiler that is slow then has to see one call of each, and the counts scale it up. Grid and block alone would not do:
cuDNN launches a convolution of 128 channels and one of 64 by the same kernel, grid and block, and one takes twice as
long as the other. Called again by itself, an operator has little memory around it, which such a profiler saves and
restores for each pass over each kernel.
"""

import itertools
from collections import defaultdict
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

PREFIX = "operator "
TENSOR, LIST, TORCH = "tensor", "list", "torch"


class Operators(TorchDispatchMode):
    """Within the block, notes the operators that are called; `around(name)` gives a context for each call.

    `calls` has for each operator and shape, by its name ("operator 12", numbered as they first come), how often it was
    called; `kinds` what it is: "aten.convolution.default 3", the third shape of its kind; `described` the call, for
    `again`. Steps that do the same give the same names. What no operator launches is not seen: kernels of a compiled
    network, say.
    """

    def __init__(self, around: Callable[[str], AbstractContextManager[object]]) -> None:
        super().__init__()
        self.calls: dict[str, int] = {}
        self.kinds: dict[str, str] = {}
        self.described: dict[str, dict[str, Any]] = {}
        self._around = around
        self._names: dict[Any, str] = {}
        self._shapes: dict[str, int] = defaultdict(int)

    def __torch_dispatch__(
        self, function: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Run one operator."""
        key = (function, _shape(args), _shape(kwargs or {}))
        if key not in self._names:
            name = self._names[key] = f"{PREFIX}{len(self._names)}"
            self._shapes[str(function)] += 1
            self.kinds[name] = f"{function} {self._shapes[str(function)]}"
            self.described[name] = {
                "function": str(function),
                "args": [_described(each) for each in args],
                "kwargs": {key: _described(each) for key, each in (kwargs or {}).items()},
            }
            self.calls[name] = 0
        name = self._names[key]
        self.calls[name] += 1
        with self._around(name):
            return function(*args, **(kwargs or {}))


def again(described: dict[str, Any]) -> Callable[[], object]:
    """The call that `Operators.described` has, with tensors of the same shapes, strides and types.

    Numbers in them are random (normal) where they are of a floating-point type, else zero. The tensors are made now.
    """
    function: Any = torch.ops
    for part in described["function"].split("."):
        function = getattr(function, part)
    args = [_made(each) for each in described["args"]]
    kwargs = {key: _made(each) for key, each in described["kwargs"].items()}

    def call() -> object:
        with torch.no_grad():
            return function(*args, **kwargs)

    return call


def longest(times: dict[str, float], share: float) -> list[str]:
    """The names that take at least the part `share` (0 to 1) of all time, as few as possible, the longest first."""
    names = sorted(times, key=lambda name: -times[name])
    sums = list(itertools.accumulate(times[name] for name in names))
    needed = next((index for index, sum_ in enumerate(sums) if sum_ >= share * sums[-1]), len(names) - 1)
    return names[: needed + 1]


def _shape(value: Any) -> Any:
    """What decides which kernels run, of the arguments of an operator; hashable."""
    if isinstance(value, torch.Tensor):
        return (tuple(value.shape), value.stride(), value.dtype, value.device)
    if isinstance(value, dict):
        return tuple((name, _shape(each)) for name, each in sorted(value.items()))
    if isinstance(value, float):
        return float  # the learning rate of this step, say
    if isinstance(value, str) or not isinstance(value, Iterable):
        return str(value)
    return tuple(_shape(each) for each in value)


def _described(value: Any) -> Any:
    """An argument as JSON can hold it."""
    if isinstance(value, torch.Tensor):
        how = {"shape": list(value.shape), "stride": list(value.stride()), "dtype": str(value.dtype)}
        return {TENSOR: how | {"device": value.device.type}}
    if isinstance(value, list | tuple):
        return {LIST: [_described(each) for each in value]}
    if value is None or isinstance(value, bool | int | float | str):
        return value
    return {TORCH: str(value)}  # a type, a layout, a memory format, a device


def _made(described: Any) -> Any:
    """An argument from what `_described` gave."""
    if not isinstance(described, dict):
        return described
    ((kind, value),) = described.items()
    if kind == LIST:
        return [_made(each) for each in value]
    if kind == TORCH:
        return getattr(torch, value.removeprefix("torch.")) if value.startswith("torch.") else torch.device(value)
    dtype = getattr(torch, value["dtype"].removeprefix("torch."))
    made = torch.empty_strided(value["shape"], value["stride"], dtype=dtype, device=value["device"])
    # All of its memory, so that a tensor whose elements overlap (an expanded one) can be filled too.
    memory = torch.empty(0, dtype=dtype, device=value["device"]).set_(made.untyped_storage())
    if dtype.is_floating_point or dtype.is_complex:
        memory.normal_()
    else:
        memory.zero_()
    return made
