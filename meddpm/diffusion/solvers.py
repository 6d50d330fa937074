"""Solvers: from the network's output at one step to the volume at the next.

A solver is built once and runs one volume (or batch) at a time: `reset`, then `step` with index 0, 1, ... The kinds
are listed, with their sources, in `solver_table`. ddpm is the exact ancestral sampler of the published models; the
others are schedulers of the diffusers library, fed with the schedule of the model.
"""

from abc import ABC, abstractmethod
from typing import Any

import torch
from torch import Tensor

from meddpm.config import ModelConfig, SolverConfig
from meddpm.diffusion import process
from meddpm.diffusion.schedule import Schedule, cosine_betas, cosine_schedule
from meddpm.diffusion.solver_table import KINDS, check, evaluations


class Solver(ABC):
    """What every solver offers.

    timesteps: the step t of each network evaluation, in the order taken.
    draws_noise: whether `step` needs noise.
    initial_scale: standard deviation of the Gaussian noise sampling starts from.
    """

    timesteps: list[int]
    draws_noise: bool
    initial_scale: float = 1.0

    def __init__(self, model: ModelConfig) -> None:
        self.prediction = model.prediction
        self._schedule = cosine_schedule(model.steps)

    @abstractmethod
    def step(self, index: int, output: Tensor, sample: Tensor, noise: Tensor | None) -> Tensor:
        """The volume after the `index`-th step (from 0), (B, C, D, W, H), float32.

        `output` is what the network gave for `sample` at t = timesteps[index], in its own prediction and any
        floating type. `noise` is standard normal, shaped like `sample`, or None where `draws_noise` is false.
        """

    @abstractmethod
    def reset(self) -> None:
        """Forget the volume under way: the next `step` has index 0."""

    def _on(self, device: torch.device) -> Schedule:
        """The schedule on `device`; moved there once."""
        if self._schedule.betas.device != device:
            self._schedule = self._schedule.to(device)
        return self._schedule

    def _steps_of(self, index: int, sample: Tensor) -> Tensor:
        """t of the `index`-th evaluation for each volume of the batch, filled on the device without a copy."""
        return torch.full((sample.shape[0],), self.timesteps[index], dtype=torch.long, device=sample.device)


class AncestralSolver(Solver):
    """Every step of the model with fresh noise (Ho et al. 2020, algorithm 2), x_0 clamped to [-1, 1]."""

    draws_noise = True

    def __init__(self, model: ModelConfig) -> None:
        super().__init__(model)
        self.timesteps = list(range(model.steps - 1, -1, -1))

    def step(self, index: int, output: Tensor, sample: Tensor, noise: Tensor | None) -> Tensor:
        if noise is None:
            raise ValueError("the ancestral solver needs noise")
        t = self._steps_of(index, sample)
        return process.ancestral_step(self._on(sample.device), self.prediction, output, sample, t, noise)

    def reset(self) -> None:
        """Nothing to forget: each step depends on its arguments alone."""


class DiffusersSolver(Solver):
    """A scheduler of diffusers, given x_0 (clamped to [-1, 1]) in place of the network's raw output.

    Reading x_0 from the output here, not in the scheduler, has two reasons. The clamp is needed: near t = T a small
    error of the noise is a huge one of x_0. And the schedulers' own static clip, thresholding with sample_max_value
    1, sorts the whole volume for a quantile that it then ignores, and torch.quantile refuses more than 2^24 voxels,
    fewer than BraTS volumes have.
    """

    def __init__(self, solver: SolverConfig, model: ModelConfig) -> None:
        super().__init__(model)
        self.draws_noise = KINDS[solver.kind].draws_noise
        self._evaluations = evaluations(solver, model.steps)
        self._scheduler = _scheduler(solver, model.steps)
        # UniPC computes with noise levels on the sample's device and would copy each, and wait, at every step (its
        # corrector's small linear system still makes it wait once). The others compute with them on the CPU and hand
        # the kernels plain numbers.
        self._levels_on_device = solver.kind == "unipc"
        self.initial_scale = float(self._scheduler.init_noise_sigma)
        self.reset()
        self.timesteps = self._scheduler.timesteps.tolist()

    def step(self, index: int, output: Tensor, sample: Tensor, noise: Tensor | None) -> Tensor:
        if index != self._next:
            raise ValueError(f"step {index} is out of turn, step {self._next} comes next; reset begins a new volume")
        t = self._steps_of(index, sample)
        x0 = process.predict_x0(self._on(sample.device), self.prediction, output, sample, t).clamp(-1, 1)
        options: dict[str, Any] = {}
        if self.draws_noise:
            if noise is None:
                raise ValueError("this solver needs noise")
            # Without it the scheduler would draw noise of its own, which differs between machines.
            options["variance_noise"] = noise
        if self._levels_on_device:
            self._scheduler.sigmas = self._scheduler.sigmas.to(sample.device)
        self._next += 1
        return self._scheduler.step(x0, self.timesteps[index], sample, return_dict=False, **options)[0]

    def reset(self) -> None:
        self._next = 0
        scheduler, count = self._scheduler, self._evaluations
        scheduler.set_timesteps(count, device="cpu")
        # For some counts (61 of 250) rounding makes the library's list one timestep too long, ending in t = -1.
        scheduler.timesteps = scheduler.timesteps[:count]
        scheduler.num_inference_steps = count
        if hasattr(scheduler, "sigmas"):
            # One noise level for each timestep, then the one that the last step ends at.
            scheduler.sigmas = torch.cat([scheduler.sigmas[:count], scheduler.sigmas[-1:]])
        if hasattr(scheduler, "set_begin_index"):
            # Else the scheduler looks the first timestep up in a tensor.
            scheduler.set_begin_index(0)


def build(solver: SolverConfig, model: ModelConfig) -> Solver:
    """The solver of a configuration. Raises ConfigError if its settings are impossible for `model`."""
    check(solver, model.steps, "solvers")
    return AncestralSolver(model) if solver.kind == "ddpm" else DiffusersSolver(solver, model)


def _scheduler(solver: SolverConfig, steps: int) -> Any:
    """The diffusers scheduler of a kind, on the model's betas without the skipped noisiest ones."""
    from diffusers import (
        DDIMScheduler,
        DEISMultistepScheduler,
        DPMSolverMultistepScheduler,
        UniPCMultistepScheduler,
    )

    remaining = steps - solver.skip_first
    common = {
        "num_train_timesteps": remaining,
        "trained_betas": cosine_betas(steps)[:remaining].tolist(),
        "prediction_type": "sample",
        # "leading" would leave out the noisiest steps, where sampling starts.
        "timestep_spacing": "trailing",
    }
    if solver.kind == "ddim":
        # set_alpha_to_one: the last step ends at the clean volume.
        return DDIMScheduler(**common, clip_sample=False, set_alpha_to_one=True)
    if solver.kind == "dpmpp_2m":
        return DPMSolverMultistepScheduler(**common, algorithm_type="dpmsolver++", solver_order=2)
    if solver.kind == "dpmpp_2m_sde":
        return DPMSolverMultistepScheduler(**common, algorithm_type="sde-dpmsolver++", solver_order=2)
    if solver.kind == "deis":
        return DEISMultistepScheduler(**common, solver_order=2)
    return UniPCMultistepScheduler(**common, solver_order=2, predict_x0=True)
