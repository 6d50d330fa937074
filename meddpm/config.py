"""The configuration as typed, frozen dataclasses: one for each stage, so that a key of one stage reruns no other.

Floor 0. Nothing here imports torch, and nothing here knows about Snakemake. Names (of presets, variants,
solvers) are resolved and checked against each other in `meddpm.study`; here are the shapes of the values alone.
"""

import dataclasses
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

# The variant that every other one is compared with; it switches nothing.
BASELINE = "fp32"


class UserError(Exception):
    """A fault that the user can mend: one or two lines that say what, where, the mend. Never shown as a traceback."""


class ConfigError(UserError):
    """A fault in config.yaml: the key, its value and what would be right."""


@dataclass(frozen=True)
class ModelConfig:
    """One row of the preset table: the network and the diffusion process of one model.

    `size` is (H, W, D) in voxels of the NIfTI array; tensors have the spatial axes reversed, (C, D, W, H).
    `condition_labels` are the label values that become one binary condition channel each, scaled to
    `condition_range`. `attention_factors` are the downsampling factors of the levels that attend (the middle
    block always does). `prediction` is what the network predicts: "epsilon" (the noise) or "v" (the velocity of
    Salimans and Ho 2022, arXiv 2202.00512).
    """

    size: tuple[int, int, int]
    image_channels: int
    condition_labels: tuple[int, ...]
    condition_range: tuple[float, float]
    base_channels: int
    channel_multipliers: tuple[int, ...]
    blocks_per_level: int
    attention_factors: tuple[int, ...]
    steps: int
    prediction: str = "epsilon"

    @property
    def in_channels(self) -> int:
        """Channels of the network's input: the noisy images, then the condition."""
        return self.image_channels + len(self.condition_labels)

    @property
    def shape(self) -> tuple[int, int, int, int]:
        """Shape (C, D, W, H) of one image tensor without the batch axis."""
        return (self.image_channels, *reversed(self.size))


@dataclass(frozen=True)
class VariantConfig:
    """What one variant switches. "default" leaves PyTorch's own setting alone."""

    conv_precision: str = "ieee"
    matmul_precision: str = "ieee"
    memory_format: str = "contiguous"
    autocast: str = "none"
    compile: str = "none"
    cudnn_benchmark: bool = False
    cuda_graph: bool = False


@dataclass(frozen=True)
class GpuConfig:
    """One row of the GPU matrix: `device` is auto, cuda or cpu; `device_name` a regular expression it must match."""

    device: str = "auto"
    device_name: str | None = None


@dataclass(frozen=True)
class RequestConfig:
    """What a cluster is asked for, for one job: of a row of the GPU matrix, or of a stage that needs no GPU.

    `mem` is in MB and `runtime` in minutes; both grow with each retry. `gpu_model` asks for a GPU by
    `--gpus=MODEL:1`, `gres` by `--gres=GRES` in its place (for sites that reject --gpus); a row of a GPU with neither
    asks by `--gpus=1`. It decides where a job runs and nothing that it computes: a change reruns nothing.
    """

    partition: str | None = None
    gpu_model: str | None = None
    gres: str | None = None
    constraint: str | None = None
    qos: str | None = None
    account: str | None = None
    slurm_extra: str | None = None
    cpus: int = 4
    mem: int = 16000
    runtime: int = 60


@dataclass(frozen=True)
class ClusterConfig:
    """How a SLURM cluster is used.

    `stages` is what the stages without a GPU ask for. Jobs of the stages in `exclusive` (train, sample, bench,
    profile) get their node alone. `warning_s` seconds before its time limit a job is sent SIGTERM, so that it saves
    what it has; 0: it is not.
    """

    stages: RequestConfig = RequestConfig()
    exclusive: tuple[str, ...] = ()
    warning_s: int = 120


@dataclass(frozen=True)
class SolverConfig:
    """One sampler. `evaluations` null means every step of the model; `skip_first` leaves out the noisiest steps."""

    kind: str = "ddpm"
    evaluations: int | None = None
    skip_first: int = 0


@dataclass(frozen=True)
class Icbm152Config:
    """A dataset of deformations of the ICBM 152 template. `remap` maps label values of the source.

    Every `lesion_every`-th case, from the second on, has lesions; 0: none.
    """

    source: str = "icbm152"
    cases: int = 2
    seed: int = 0
    remap: dict[int, int] = field(default_factory=dict)
    rotation_degrees: float = 8.0
    scaling: float = 0.08
    elastic_mm: float = 6.0
    lesion_every: int = 0


@dataclass(frozen=True)
class PreparationConfig:
    """How a case of files becomes what a model is shown. The steps, in their order:

    - `orientation`: the axes are turned to these codes (RAS: to the right, anterior, superior); nothing is resampled.
    - `remap`: label value of the file to label value of the model. `source_labels` are those that the files may hold
      beside 0, None: those of the models that use the dataset; a key of `remap` is known too. A label that is not
      known refuses the case, or with `unknown_labels: background` becomes 0.
    - `floor`: intensities below it become it; None: none do.
    - `derive`: voxels without a label become `derived_label` where the first image shows brain ("brain", for images
      without a skull) or head ("head", scalp included); "none": never. A map that has the label already is left.
    - `fit` to the size of the model: "crop_or_pad" about the centre, at `spacing_mm` (None: the file's); "stretch" the
      field of view to it, each axis by itself; "contain" all of it in cubic voxels.
    - `intensity`, of each image to [-1, 1]: "minmax", "percentile" (between `percentiles`, the rest is cut),
      "med_ddpm_per_slice" (by each slice along the last axis), "as_is" (refused where it is outside already).
    - `required_label`: a case without it is refused; None: any label will do.
    """

    orientation: str = "RAS"
    spacing_mm: tuple[float, float, float] | None = None
    fit: str = "contain"
    intensity: str = "minmax"
    percentiles: tuple[float, float] = (0.5, 99.5)
    floor: float | None = None
    remap: dict[int, int] = field(default_factory=dict)
    source_labels: tuple[int, ...] | None = None
    unknown_labels: str = "refuse"
    derive: str = "none"
    derived_label: int = 1
    required_label: int | None = None


@dataclass(frozen=True)
class FilesConfig:
    """A dataset of files below the folder, or listed in the TSV, `path`.

    `layout` is auto or a name of `meddpm.data.layouts`; `images` the images of a case that are taken, in the order of
    the model's channels, None: those of the layout; `cases` the first ones that are taken, None: all. `preparation` is
    a name of `meddpm.data.preparations`, None: that of the layout, and `changes` the keys that are laid over it.
    `on_bad_case` is stop or skip.
    """

    path: str
    source: str = "files"
    layout: str = "auto"
    images: tuple[str, ...] | None = None
    cases: int | None = None
    on_bad_case: str = "stop"
    preparation: str | None = None
    changes: dict[str, Any] = field(default_factory=dict)


DatasetConfig = Icbm152Config | FilesConfig


@dataclass(frozen=True)
class TrainConfig:
    """How weights are trained. Stops at `steps` optimiser steps or after `max_seconds`, whichever comes first.

    The defaults are the recipe of Med-DDPM (arXiv 2305.18453): L1, Adam, gradients of two batches of one accumulated,
    an average of the weights from step 2000 on. `loss` is l1 or l2, `optimizer` adam or adamw, `decay` of the learning
    rate none or cosine.
    """

    gpu: str | None = None
    variant: str = "fp32"
    steps: int = 1000
    max_seconds: float | None = None
    batch: int = 1
    accumulation: int = 2
    loss: str = "l1"
    optimizer: str = "adam"
    learning_rate: float = 1e-5
    weight_decay: float = 0.0
    warmup_steps: int = 0
    decay: str = "none"
    gradient_clip: float | None = None
    ema_decay: float = 0.995
    ema_every: int = 10
    ema_start: int = 2000
    ema_warmup: bool = False
    seed: int = 0
    checkpoint_every: int = 500
    keep_checkpoints: int = 2


@dataclass(frozen=True)
class SampleConfig:
    """Which volumes a cell draws, if `enabled`: the first `cases` cases of the dataset, once with each seed.

    `original_grid`: those of a dataset of files are written a second time, on the grid of their label map's file.
    """

    enabled: bool = True
    cases: int = 2
    seeds: tuple[int, ...] = (0,)
    batch: int = 1
    original_grid: bool = True


@dataclass(frozen=True)
class BenchConfig:
    """How a cell is timed: `rounds` times, fp32 and the variant in turn, `repeats` steps each after `warmup`."""

    warmup: int = 2
    repeats: int = 5
    rounds: int = 2
    batch: int = 1
    max_relative_error: float = 0.1


@dataclass(frozen=True)
class ProfileConfig:
    """What is profiled: `active` evaluations or training steps after `warmup` ones."""

    phases: tuple[str, ...] = ("sample",)
    warmup: int = 1
    active: int = 1


@dataclass(frozen=True)
class SlowProfileConfig:
    """Which cells a slow profiler sees, if `enabled`, and the seconds that a job of it may take.

    None along an axis takes all of the study's, of the phases those of `profile`.
    """

    enabled: bool = False
    models: tuple[str, ...] | None = None
    variants: tuple[str, ...] | None = None
    phases: tuple[str, ...] | None = None
    limit_s: int = 600


@dataclass(frozen=True)
class EvaluateConfig:
    """How pictures are compared: SSIM window (odd, voxels) and bootstrap resamples of the mean over the volumes."""

    ssim_window: int = 7
    bootstrap: int = 1000
    confidence: float = 0.95


@dataclass(frozen=True)
class ReportConfig:
    """What the page shows."""

    title: str = "What Med-DDPM costs"
    slices_per_cell: int = 2
    published: bool = True


@dataclass(frozen=True)
class ArchiveConfig:
    """What the zip holds beside tables, figures, configuration and environment."""

    samples: bool = False


@dataclass(frozen=True)
class StudySelection:
    """Which of the defined models, GPUs, variants, solvers and phases make the matrix."""

    name: str
    models: tuple[str, ...]
    gpus: tuple[str, ...]
    variants: tuple[str, ...]
    solvers: tuple[str, ...]
    phases: tuple[str, ...]


Settings = TypeVar("Settings")


def from_mapping(cls: type[Settings], mapping: dict[str, Any]) -> Settings:
    """Build the dataclass `cls` from a mapping as YAML or JSON gives it: lists become tuples, label keys integers."""

    def value(name: str, raw: Any) -> Any:
        if isinstance(raw, list):
            return tuple(raw)
        if name == "remap":
            return {int(key): int(label) for key, label in raw.items()}
        return raw

    return cls(**{name: value(name, raw) for name, raw in mapping.items()})


def dataset_from_mapping(mapping: dict[str, Any]) -> DatasetConfig:
    """Build the settings of a dataset from a row of `datasets`, or from what `to_mapping` made of them.

    Keys of the preparation stand beside the others in a row; they become `changes`.
    """
    if mapping.get("source", Icbm152Config.source) == Icbm152Config.source:
        return from_mapping(Icbm152Config, mapping)
    keys = {each.name for each in dataclasses.fields(PreparationConfig)}
    changes = {name: raw for name, raw in mapping.items() if name in keys} | mapping.get("changes", {})
    own = {name: raw for name, raw in mapping.items() if name not in keys}
    return from_mapping(FilesConfig, {**own, "changes": changes})


def to_mapping(settings: Any) -> dict[str, Any]:
    """The dataclass as plain, JSON-ready values."""
    return json.loads(json.dumps(dataclasses.asdict(settings)))


def repository_root() -> Path:
    """The checkout that this package lies in: where schemas/, envs/ and results/published/ are found."""
    return Path(__file__).resolve().parent.parent
