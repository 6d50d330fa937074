"""The variants: the only place that touches a backend flag.

A variant is data (VariantConfig). `applied` switches its flags on for a block and gives the old ones back afterwards;
`Applied.network` wraps a module so that it runs under the variant; `check` turns an impossible request into a status
with the reason.

PyTorch allows TF32 for cuDNN convolutions by default and not for matrix products, so a baseline that sets nothing is
already TF32 for a convolutional network: fp32 sets both to "ieee". From torch 2.9 on the flags are the `fp32_precision`
of each backend; mixing them with the older allow_tf32 raises, so only the new ones are used.
"""

import dataclasses
import os
import shlex
import shutil
import sysconfig
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from meddpm.config import VariantConfig
from meddpm.status import UNAVAILABLE, UNSUPPORTED, CannotRun

Network = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]

MEMORY_FORMATS = {"contiguous": torch.contiguous_format, "channels_last_3d": torch.channels_last_3d}
AUTOCAST_TYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}
TENSOR_CORES_SINCE = (8, 0)  # TF32 and bf16; fp16 since 7.0
CAPTURE_WARMUP = 3  # calls before a capture, so that cuDNN has chosen and the allocator is settled


def check(variant: VariantConfig, device: torch.device, training: bool = False) -> None:
    """Raise CannotRun, with status and reason, if `variant` cannot run on `device`."""
    capability = torch.cuda.get_device_capability(device) if device.type == "cuda" else None
    tf32 = "tf32" in (variant.conv_precision, variant.matmul_precision)
    if capability is None:
        if tf32:
            raise CannotRun(UNSUPPORTED, "TF32 is a format of CUDA GPUs from compute capability 8.0 on; this is a CPU")
        if variant.autocast == "fp16":
            raise CannotRun(UNSUPPORTED, "fp16 on a CPU has no fast kernels: it would run hundreds of times slower")
        if variant.cuda_graph:
            raise CannotRun(UNSUPPORTED, "CUDA graphs need a CUDA GPU; this is a CPU")
    elif capability < TENSOR_CORES_SINCE and (tf32 or variant.autocast == "bf16"):
        precision = "TF32" if tf32 else "bf16"
        have = ".".join(str(part) for part in capability)
        raise CannotRun(UNSUPPORTED, f"{precision} needs compute capability 8.0, this GPU has {have}")
    if variant.cuda_graph and training:
        raise CannotRun(UNSUPPORTED, "a captured evaluation has no backward pass: cuda_graph is for sampling")
    if variant.cuda_graph and variant.compile != "none":
        raise CannotRun(UNSUPPORTED, "cuda_graph and compile together: the mode reduce-overhead captures already")
    if variant.compile != "none":
        _check_compiler(device)


def _check_compiler(device: torch.device) -> None:
    """torch.compile builds C++ on a CPU and Triton's launcher in C on a GPU, both against Python's headers."""
    if device.type == "cpu":
        wanted, kind = [os.environ.get("CXX", "g++")], "C++"
    else:
        wanted, kind = [os.environ["CC"]] if "CC" in os.environ else ["gcc", "clang", "cc"], "C"
    if not any(shutil.which(compiler) for compiler in wanted):
        raise CannotRun(UNAVAILABLE, f"torch.compile needs a {kind} compiler: no {' or '.join(wanted)} on the PATH")
    if not (Path(sysconfig.get_paths()["include"]) / "Python.h").is_file():
        raise CannotRun(UNAVAILABLE, "torch.compile needs Python's headers: Python.h is not there")


def note(variant: VariantConfig, device: torch.device) -> str | None:
    """A word on a variant that runs here but switches nothing, for the reason column of its row."""
    only_for_cuda = dataclasses.replace(variant, conv_precision="ieee", matmul_precision="ieee", cudnn_benchmark=False)
    if device.type == "cpu" and variant != VariantConfig() and only_for_cuda == VariantConfig():
        return "what it switches is CUDA's alone: here it is fp32"
    return None


class Applied:
    """A variant that is switched on."""

    def __init__(self, variant: VariantConfig, device: torch.device) -> None:
        self.variant = variant
        self.device = device
        self.autocast_type = AUTOCAST_TYPES.get(variant.autocast)
        self.memory_format = MEMORY_FORMATS[variant.memory_format]

    def flags(self) -> dict[str, Any]:
        """The settings in effect now, read back from torch and not from the request."""
        return {
            "conv_fp32_precision": torch.backends.cudnn.conv.fp32_precision,
            "matmul_fp32_precision": torch.backends.cuda.matmul.fp32_precision,
            "cudnn_benchmark": torch.backends.cudnn.benchmark,
            "cudnn_deterministic": torch.backends.cudnn.deterministic,
            "memory_format": self.variant.memory_format,
            "autocast": self.variant.autocast,
            "compile": self.variant.compile,
            "cuda_graph": self.variant.cuda_graph,
        }

    def tensor(self, tensor: torch.Tensor) -> torch.Tensor:
        """A (B, C, D, W, H) tensor on the device, in the variant's memory format."""
        return tensor.to(self.device, memory_format=self.memory_format)

    def network(self, model: torch.nn.Module) -> Network:
        """`model` as a function (x, t) -> float32 output that runs under the variant.

        Moves the module to the device and converts the layout of its weights in place. x is (B, C, D, W, H) float32
        on the device, t (B,) on the device.
        """
        model.to(self.device, memory_format=self.memory_format)
        compiled = model
        if self.variant.compile != "none":
            _quote_library_path()
            mode = None if self.variant.compile == "default" else self.variant.compile
            compiled = torch.compile(model, mode=mode)

        def run(x: torch.Tensor, t: torch.Tensor) -> torch.Tensor:
            x = x.contiguous(memory_format=self.memory_format)
            enabled = self.autocast_type is not None
            with torch.autocast(self.device.type, dtype=self.autocast_type, enabled=enabled, cache_enabled=False):
                return compiled(x, t).float()

        return _captured(run) if self.variant.cuda_graph else run

    def scaler(self) -> torch.amp.GradScaler:
        """Scales the loss under fp16, whose gradients underflow otherwise; passes through under anything else."""
        return torch.amp.GradScaler(self.device.type, enabled=self.variant.autocast == "fp16")


def _quote_library_path() -> None:
    """Inductor quotes the include paths that it gives the C++ compiler, but not the path of torch's libraries."""
    from torch.utils import cpp_extension

    if Path(cpp_extension.TORCH_LIB_PATH).is_dir():  # not quoted yet
        cpp_extension.TORCH_LIB_PATH = shlex.quote(cpp_extension.TORCH_LIB_PATH)


def _captured(run: Network) -> Network:
    """`run` captured in a CUDA graph at the first call of each shape of x, and replayed from then on."""
    captures: dict[torch.Size, Network] = {}

    def replay(x: torch.Tensor, t: torch.Tensor) -> torch.Tensor:
        if x.shape not in captures:
            captures[x.shape] = _capture(run, x, t)
        return captures[x.shape](x, t)

    return replay


def _capture(run: Network, x: torch.Tensor, t: torch.Tensor) -> Network:
    held_x, held_t = x.clone(), t.clone()
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(CAPTURE_WARMUP):
            run(held_x, held_t)
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        output = run(held_x, held_t)

    def replay(x: torch.Tensor, t: torch.Tensor) -> torch.Tensor:
        held_x.copy_(x)
        held_t.copy_(t)
        graph.replay()
        return output.clone()

    return replay


@contextmanager
def applied(variant: VariantConfig, device: torch.device, training: bool = False) -> Iterator[Applied]:
    """Switch `variant` on for the block, and give the old flags back afterwards, also after an error.

    Raises CannotRun, with the reason, where the device or the host cannot.
    """
    check(variant, device, training)
    conv, matmul, cudnn = torch.backends.cudnn.conv, torch.backends.cuda.matmul, torch.backends.cudnn
    before = conv.fp32_precision, matmul.fp32_precision, cudnn.benchmark
    try:
        if variant.conv_precision != "default":
            conv.fp32_precision = variant.conv_precision
        if variant.matmul_precision != "default":
            matmul.fp32_precision = variant.matmul_precision
        cudnn.benchmark = variant.cudnn_benchmark
        yield Applied(variant, device)
    finally:
        conv.fp32_precision, matmul.fp32_precision, cudnn.benchmark = before
