"""A checked configuration: what is studied, and what decides the result of each job."""

import dataclasses
import itertools
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from meddpm import provenance
from meddpm.config import (
    BASELINE,
    ArchiveConfig,
    BenchConfig,
    ClusterConfig,
    DatasetConfig,
    EvaluateConfig,
    FilesConfig,
    GpuConfig,
    ModelConfig,
    ProfileConfig,
    ReportConfig,
    RequestConfig,
    SampleConfig,
    SlowProfileConfig,
    SolverConfig,
    StudySelection,
    TrainConfig,
    VariantConfig,
    to_mapping,
)
from meddpm.data import tissues
from meddpm.data.tasks import Goal
from meddpm.model import presets

TRAIN, RANDOM, SHIPPED = "train", "random", "shipped"
# The stages whose jobs are the cells of the matrix; evaluate compares those of a model.
CELL_STAGES = ("sample", "bench", "profile", "counters", "timeline", "evaluate")


@dataclass(frozen=True)
class StudyModel:
    """One model of the study: its preset with the changes of config.yaml, its datasets, where its weights come from."""

    config: ModelConfig
    dataset: str
    weights: str
    preset: str
    training_dataset: str

    @property
    def trains(self) -> bool:
        """Whether the train stage makes the weights."""
        return self.weights == TRAIN

    @property
    def knows_whole_heads(self) -> bool:
        """Whether its labels are those of the published whole-head model, of which the first is a whole head.

        A model that is trained here learns the labels of its own cases.
        """
        published = presets.PRESETS[presets.WHOLE_HEAD]
        same = self.preset == presets.WHOLE_HEAD and self.config.condition_labels == published.condition_labels
        return same and not self.trains

    @property
    def datasets(self) -> list[str]:
        """The datasets that must be prepared for it: what it draws from and what it is trained on."""
        return [self.dataset, self.training_dataset] if self.trains else [self.dataset]

    @property
    def weights_file(self) -> str | None:
        """Path of the file of the weights, of the package or the user; None where they are trained or random."""
        if self.weights == SHIPPED:
            # From the folder of the run: a checkout that has moved asks for no other file.
            return os.path.relpath(presets.shipped(self.preset))
        return None if self.weights in (TRAIN, RANDOM) else self.weights


@dataclass(frozen=True)
class Study:
    """A checked configuration."""

    selection: StudySelection
    models: dict[str, StudyModel]
    datasets: dict[str, DatasetConfig]
    gpus: dict[str, GpuConfig]
    requests: dict[str, RequestConfig]
    cluster: ClusterConfig | None
    variants: dict[str, VariantConfig]
    solvers: dict[str, SolverConfig]
    train: TrainConfig
    sample: SampleConfig
    bench: BenchConfig
    profile: ProfileConfig
    counters: SlowProfileConfig
    timeline: SlowProfileConfig
    evaluate: EvaluateConfig
    report: ReportConfig
    archive: ArchiveConfig

    def training_cell(self, model: str) -> dict[str, str]:
        """The wildcards of the job that trains `model`."""
        return {"model": model, "gpu": self.train.gpu or self.selection.gpus[0], "variant": self.train.variant}

    def gpu_names(self) -> list[str]:
        """The rows of the GPU matrix that jobs run on, each once."""
        training = [self.training_cell(model)["gpu"] for model in self.trained_models()]
        return list(dict.fromkeys([*self.selection.gpus, *training]))

    def asks_for_gpu(self, gpu: str) -> bool:
        """Whether a row of the matrix asks a cluster for a GPU; one on the CPU does only where it names one."""
        request = self.requests[gpu]
        return self.gpus[gpu].device != "cpu" or bool(request.gpu_model or request.gres)

    def trained_models(self) -> list[str]:
        """The models of the study whose weights the train stage makes."""
        return [name for name in self.selection.models if self.models[name].trains]

    def dataset_names(self) -> list[str]:
        """The datasets of the study's models, each once."""
        return list(dict.fromkeys(name for model in self.selection.models for name in self.models[model].datasets))

    def dataset_size(self, dataset: str) -> tuple[int, int, int]:
        """(H, W, D) that `dataset` is prepared at: the size of the models that use it."""
        return next(
            self.models[name].config.size for name in self.selection.models if dataset in self.models[name].datasets
        )

    def dataset_goal(self, dataset: str) -> Goal:
        """What the models of the study that use `dataset` ask of it; nothing where none does."""
        users = [self.models[name] for name in self.selection.models if dataset in self.models[name].datasets]
        shown = [set(model.config.condition_labels) for model in users]
        every = set().union(*shown)
        return Goal(
            size=users[0].config.size if users else None,
            labels=tuple(sorted(every)),
            partly=tuple(sorted(label for label in every if not all(label in each for each in shown))),
            images=users[0].config.image_channels if users else None,
            whole_head=any(model.knows_whole_heads for model in users),
        )

    def cells(self, stage: str) -> list[dict[str, str]]:
        """The wildcards of every job of `stage` (one of CELL_STAGES) in the matrix."""
        chosen = self.selection
        phases = chosen.phases if stage == "bench" else self.profile.phases
        axes = {"model": chosen.models, "gpu": chosen.gpus, "variant": chosen.variants}
        axes |= {"solver": chosen.solvers} if stage == "sample" else {"phase": phases}
        if stage in ("counters", "timeline"):
            axes |= self._some(getattr(self, stage), axes)
        if stage == "evaluate":
            axes = {"model": chosen.models}
        if stage in ("sample", "evaluate") and not self.sample.enabled:
            axes |= {"model": ()}
        return [dict(zip(axes, names, strict=True)) for names in itertools.product(*axes.values())]

    def _some(self, of: SlowProfileConfig, axes: dict[str, Sequence[str]]) -> dict[str, Sequence[str]]:
        """What a slow profiler sees along each axis that it limits."""
        if not of.enabled:
            return {"model": ()}
        limits = {"model": of.models, "variant": of.variants, "phase": of.phases}
        return {
            axis: [name for name in axes[axis] if name in names] for axis, names in limits.items() if names is not None
        }

    def settings(self, stage: str, **cell: str) -> str:
        """What decides the result of one job of `stage`, with the digest of its code, as one JSON string.

        One string, because Snakemake compares a job's parameters as an unnamed set: two that swap would not be seen.
        """
        values: dict[str, Any] = {"code": provenance.code_digest(f"meddpm.stages.{stage}"), **cell}
        if "model" in cell:
            values["model_config"] = self.models[cell["model"]].config
        for key, table in (("variant", self.variants), ("gpu", self.gpus), ("solver", self.solvers)):
            if key in cell:
                values[f"{key}_config"] = table[cell[key]]
        values |= getattr(self, f"_{stage}_settings")(**cell)
        return json.dumps(values, sort_keys=True, default=to_mapping)

    def _prepare_settings(self, dataset: str) -> dict[str, Any]:
        config = self.datasets[dataset]
        # A dataset that is made is the same whatever its models are shown of it.
        goal = self.dataset_goal(dataset) if isinstance(config, FilesConfig) else Goal(self.dataset_size(dataset))
        return {"dataset_config": config, "goal": goal}

    def _data_qc_settings(self, dataset: str) -> dict[str, Any]:
        return {}

    def _train_settings(self, **cell: str) -> dict[str, Any]:
        # Where it runs is in the wildcards already.
        return {"train": dataclasses.replace(self.train, gpu=None, variant="")}

    def _sample_settings(self, **cell: str) -> dict[str, Any]:
        return {"sample": self.sample}

    def _bench_settings(self, phase: str, **cell: str) -> dict[str, Any]:
        solvers = {name: self.solvers[name] for name in self.selection.solvers} if phase == "sample" else {}
        return {"bench": self.bench, "baseline_config": self.variants[BASELINE], "solvers": solvers}

    def _profile_settings(self, **cell: str) -> dict[str, Any]:
        # Which cells are profiled does not change what one of them gives.
        return {"profile": dataclasses.replace(self.profile, phases=())}

    def _counters_settings(self, **cell: str) -> dict[str, Any]:
        return {**self._profile_settings(**cell), "limit_s": self.counters.limit_s}

    def _timeline_settings(self, **cell: str) -> dict[str, Any]:
        return {**self._profile_settings(**cell), "limit_s": self.timeline.limit_s}

    def _evaluate_settings(self, model: str) -> dict[str, Any]:
        every_step = (name for name in self.selection.solvers if self.solvers[name].kind == "ddpm")
        return {
            "evaluate": self.evaluate,
            "baseline": BASELINE,
            "full_solver": next(every_step, None),
            # Pairs, not a mapping: the order matters, and the keys of a mapping are sorted.
            "tissues": tissues(self.datasets[self.models[model].dataset]),
        }

    def _claims_settings(self) -> dict[str, Any]:
        return {}

    def _report_settings(self) -> dict[str, Any]:
        return {"report": self.report}

    def _archive_settings(self) -> dict[str, Any]:
        return {"archive": self.archive}
