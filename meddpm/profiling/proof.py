"""Whether the kernels that ran are those that the flags ask for: the precision of a figure is proved, not believed."""

import re
from collections.abc import Iterable, Mapping
from typing import Any

from meddpm.status import FAILED, CannotRun
from meddpm.tables import Row

CONVOLUTIONS = ("convolution forward", "convolution input gradient", "convolution weight gradient")
PRODUCTS = ("matrix product",)
# cuDNN names the tensors of a convolution too: volta_fp16_scudnn_fp16_... multiplies fp16 tensors in fp32.
TENSORS = {"fp16": re.compile(r"(?<!b)f(?:p|loat)?16|half"), "bf16": re.compile(r"bf(?:loat)?16")}
# Below this share of the time of its kind a kernel is no evidence: a helper whose name has a type in it.
MATTERS = 0.01


def require(flags: Mapping[str, Any], kernels: Iterable[Row]) -> None:
    """Raise CannotRun, failed, where there is a `contradiction`."""
    why = contradiction(flags, kernels)
    if why:
        raise CannotRun(FAILED, why)


def contradiction(flags: Mapping[str, Any], kernels: Iterable[Row]) -> str | None:
    """Why the flags in effect and the kernels' names cannot both be true; None where they agree.

    `flags` are those of `variants.Applied.flags`; `kernels` are rows of the kernel table with category, precision and
    time_ms. Kernels whose name tells no precision prove nothing.
    """
    rows = [row for row in kernels if row["precision"] and row["time_ms"]]
    autocast = flags["autocast"]
    for what, categories, flag in (
        ("convolution", CONVOLUTIONS, "conv_fp32_precision"),
        ("matrix product", PRODUCTS, "matmul_fp32_precision"),
    ):
        times: dict[str, float] = {}
        names: dict[str, str] = {}
        for row in rows:
            if row["category"] in categories:
                times[row["precision"]] = times.get(row["precision"], 0.0) + row["time_ms"]
                names.setdefault(row["precision"], row["kernel"])
        total = sum(times.values())
        seen = {precision for precision, time in times.items() if time >= MATTERS * total}
        if not seen:
            continue
        allowed = _allowed(autocast, flags[flag])
        wrong = sorted(seen - allowed)
        if wrong:
            asked = f"autocast {autocast}" if autocast != "none" else f"{flag} {flags[flag]}"
            return f"{asked}, but a {what} ran in {wrong[0]}: {names[wrong[0]][:120]}"
        wanted = autocast if autocast != "none" else "tf32" if flags[flag] == "tf32" else None
        # A matrix product may be too small for tensor cores.
        if wanted and what == "convolution" and wanted not in seen and not _on_tensors_of(wanted, rows):
            return f"{wanted} was asked for, but no {what} ran in it: they ran in {', '.join(sorted(seen))}"
    return None


def _on_tensors_of(wanted: str, rows: Iterable[Row]) -> bool:
    """Whether a convolution has tensors of the 16-bit type `wanted`, by its name."""
    convolutions = (row["kernel"].lower() for row in rows if row["category"] in CONVOLUTIONS)
    return wanted in TENSORS and any(TENSORS[wanted].search(name) for name in convolutions)


def _allowed(autocast: str, fp32: str) -> set[str]:
    """The precisions that may be seen. Some gradients of 16-bit tensors cuDNN computes in TF32, whatever the flag."""
    if autocast != "none":
        return {autocast, "fp32", "tf32"}
    return {"fp32"} if fp32 == "ieee" else {"fp32", "tf32"}
