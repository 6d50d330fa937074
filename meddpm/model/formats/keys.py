"""How weights are named in files: prefixes, schedule buffers, what else a file may hold. Imports no torch."""

import re
from collections.abc import Iterable

SCHEDULE_BUFFERS = (
    "betas",
    "alphas_cumprod",
    "alphas_cumprod_prev",
    "sqrt_alphas_cumprod",
    "sqrt_one_minus_alphas_cumprod",
    "log_one_minus_alphas_cumprod",
    "sqrt_recip_alphas_cumprod",
    "sqrt_recipm1_alphas_cumprod",
    "posterior_variance",
    "posterior_log_variance_clipped",
    "posterior_mean_coef1",
    "posterior_mean_coef2",
    "posterior_mean_coef3",
)
"""The buffers of the published checkpoints, in their order: the fields of meddpm.diffusion.schedule.Schedule."""

NETWORK_PREFIX = "denoise_fn."
"""What stands before the network's keys in the published checkpoints."""

REST_PREFIX = "checkpoint."
"""Before what a converted checkpoint held beside its weights, in a safetensors file. Loading leaves it out."""

# DataParallel and torch.compile put a prefix of their own before or behind that of the checkpoint.
_PREFIXES = re.compile(r"^(?:(?:denoise_fn|module|_orig_mod)\.)+")
_SHOWN_AT_MOST = 80


def bare(key: str) -> str:
    """The network's own name for a key of a file: without the prefixes that wrappers give it."""
    return _PREFIXES.sub("", key)


def sort(keys: Iterable[str]) -> tuple[dict[str, str], dict[str, str]]:
    """The network's weights and the schedule's buffers among `keys`, each as bare key -> key in the file.

    Keys under REST_PREFIX are left out. Raises ValueError, in words for a message, if two keys are one weight.
    """
    weights: dict[str, str] = {}
    buffers: dict[str, str] = {}
    for key in keys:
        if key.startswith(REST_PREFIX):
            continue
        name = bare(key)
        chosen = buffers if name in SCHEDULE_BUFFERS else weights
        if name in chosen:
            raise ValueError(f"{shown(chosen[name])} and {shown(key)} are the same weight")
        chosen[name] = key
    return weights, buffers


def shown(text: str) -> str:
    """A text of a file as it may stand in a message: one short line without control characters."""
    text = text if text.isprintable() else ascii(text)[1:-1]
    return text if len(text) <= _SHOWN_AT_MOST else text[: _SHOWN_AT_MOST - 3] + "..."
