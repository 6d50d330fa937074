"""Made-up tables for the tests of the claims: what one GPU gave, close to an H200, in figures easy to check."""

from typing import Any

from meddpm.tables import Row

MODEL, GPU, DEVICE = "head", "h200", "NVIDIA H200"
FORWARD, TRAIN = "convolution forward", "convolution weight gradient"
# ms a step, by phase.
STEP_MS = {
    "sample": {"fp32": 198.0, "tf32": 90.0, "channels_last": 255.5, "tf32_channels_last": 126.0},
    "train": {"fp32": 1250.0, "tf32": 232.0, "channels_last": 1393.0, "tf32_channels_last": 331.0},
}
# Kernels a step and their time (ms), twice as many in training; idle share, share of layout conversions and copies (%).
TRACED = {
    "fp32": (400, 196.0, 1.0, 0.0),
    "tf32": (572, 83.0, 8.0, 8.0),
    "channels_last": (440, 250.0, 2.0, 20.0),
    "tf32_channels_last": (520, 127.0, 3.0, 39.0),
}
# SM active and elapsed cycles, instructions, tensor-pipe use of active cycles and of elapsed time (%), IPC.
COUNTED = {
    "fp32": (4.25e10, 4.4e10, 1.40e11, 0.2, 0.19, 3.29),
    "tf32": (1.45e10, 1.6e10, 2.01e10, 29.1, 26.0, 1.39),
    "channels_last": (5.1e10, 5.5e10, 1.5e11, 0.15, 0.14, 2.9),
    "tf32_channels_last": (2.39e10, 2.7e10, 1.92e10, 13.0, 12.0, 0.80),
}
# Of one operator: SM active cycles and instructions.
OPERATORS = {
    "aten.convolution.default 1": {"fp32": (8.0e9, 4.0e10), "tf32": (4.0e8, 3.9e8)},
    "aten.native_group_norm.default 2": {"fp32": (1.0e9, 2.0e9), "tf32": (1.0e9, 2.0e9)},
}


def tables(phases: tuple[str, ...] = ("sample", "train"), device: str = DEVICE) -> dict[str, list[Row]]:
    """The rows of timing, kernels, counters, quality and environment, with the columns that the claims read."""
    found: dict[str, list[Row]] = {"timing": [], "kernels": [], "counters": [], "quality": []}
    found["environment"] = [environment(device)]
    for phase in phases:
        for variant, step in STEP_MS[phase].items():
            cell = {"model": MODEL, "gpu": GPU, "variant": variant, "phase": phase}
            baseline = STEP_MS[phase]["fp32"]
            for solver in ("ddpm", "dpmpp_20") if phase == "sample" else (None,):
                found["timing"].append(
                    ok(cell, "t1", device_name=device, solver=solver, step_ms_median=step, speedup=baseline / step)
                )
            found["kernels"] += _kernels(cell, phase, variant)
            found["counters"] += _counters(cell, phase, variant)
    for variant in ("tf32", "channels_last"):
        cell = {"model": MODEL, "gpu": GPU, "variant": variant}
        for solver, ssim, psnr in (("ddpm", 0.9991, 52.0), ("dpmpp_20", 0.9975, 47.5)):
            shared = {"solver": solver, "reference": "fp32, same noise", "region": "whole", "n": 4}
            for metric, value in (("ssim", ssim), ("psnr_db", psnr)):
                values = {"metric": metric, "value": value, "ci_low": value * 0.999, "ci_high": value * 1.0005}
                found["quality"].append(ok(cell, "q1", **shared, **values))
    return found


def environment(device: str | None) -> Row:
    """What the kernels' environment says of the device."""
    known = {"python": "3.12", "torch": "2.11", "code_digest": "c", "device_name": device}
    return ok({"model": MODEL, "gpu": GPU}, "k1", **known)


def ok(cell: dict[str, str], environment: str, **values: Any) -> Row:
    """A row that was measured."""
    return {**cell, **values, "environment": environment, "status": "ok", "reason": None}


def _kernels(cell: dict[str, str], phase: str, variant: str) -> list[Row]:
    precision = "tf32" if variant.startswith("tf32") else "fp32"
    gemm = [FORWARD] + ([TRAIN] if phase == "train" else [])
    rows = [(category, precision, "implicit GEMM", 65, 120.0) for category in gemm]
    rows += [(TRAIN, precision, "direct", 2, 20.0)] if phase == "train" else []
    rows += [("normalisation", "fp32", None, 39, 38.0), ("elementwise", "fp32", None, 200, 14.0)]
    # In % of all the time.
    layout = TRACED[variant][3]
    moved = layout / (100 - layout) * sum(time for *_, time in rows)
    rows += [("layout conversion", "fp32", None, 9, moved / 10), ("copy and cast", "fp32", None, 90, moved * 9 / 10)]
    names = ("category", "precision", "detail", "calls", "time_ms")
    return [
        ok(
            cell,
            "k1",
            profiler="torch",
            kernel=f"k{number}",
            launch="(1,1,1)x(1,1,1)",
            **dict(zip(names, row, strict=True)),
        )
        for number, row in enumerate(rows)
    ]


def _counters(cell: dict[str, str], phase: str, variant: str) -> list[Row]:
    many = 2 if phase == "train" else 1
    kernels, time, idle, layout = TRACED[variant]
    traced = {
        "kernels a step": many * kernels,
        "kernel time a step": many * time,
        "idle share": idle,
        "share of layout conversions": layout / 10,
        "share of copies and casts": layout * 9 / 10,
        "tensor-core share of convolution time": 99.0 if variant.startswith("tf32") else 0.0,
        "FLOP utilisation of the tf32 ceiling"
        if variant.startswith("tf32")
        else "FLOP utilisation of the fp32 ceiling": 56.0,
    }
    names = ("SM active cycles", "SM elapsed cycles", "executed instructions")
    names += ("tensor-pipe use", "tensor-pipe use of elapsed time", "IPC")
    counted = dict(zip(names, COUNTED[variant], strict=True))
    rows = [ok(cell, "c1", scope="total", metric=name, value=value, unit="") for name, value in traced.items()]
    rows += [ok(cell, "n1", scope="total", metric=name, value=value, unit="") for name, value in counted.items()]
    for operator, of_variants in OPERATORS.items():
        for metric, value in zip(
            ("SM active cycles", "executed instructions"), of_variants.get(variant, ()), strict=False
        ):
            rows.append(ok(cell, "n1", scope=f"operator:{operator}", metric=metric, value=value, unit=""))
    return rows


def config(weights: str = "shipped") -> dict[str, Any]:
    """The merged configuration, as far as the claims read it."""
    return {"study": {"models": [MODEL], "gpus": [GPU]}, "models": {MODEL: {"weights": weights}}}
