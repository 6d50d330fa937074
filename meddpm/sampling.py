"""The sampling loop: noise and a condition in, volumes out. Knows no files."""

from collections.abc import Callable, Iterable

import torch

from meddpm.diffusion.solvers import Solver

Noise = Callable[[int], torch.Tensor]
Progress = Callable[[list[int]], Iterable[int]]


def draw(
    network: Callable[[torch.Tensor, torch.Tensor], torch.Tensor],
    condition: torch.Tensor,
    solver: Solver,
    noise: Noise,
    progress: Progress = iter,
) -> torch.Tensor:
    """Draw volumes for `condition` (B, K, D, W, H); the result is (B, C, D, W, H) float32, clamped to [-1, 1].

    `network` takes [x_t, condition] concatenated on channels, and t (B,). `noise(0)` is x_T before scaling and
    `noise(i)` the noise of the i-th step taken, each (B, C, D, W, H): what is drawn depends on them alone.
    `progress` wraps the list of timesteps.
    """
    solver.reset()
    sample = noise(0) * solver.initial_scale
    with torch.no_grad():
        for index, timestep in enumerate(progress(solver.timesteps)):
            t = torch.full((len(condition),), timestep, device=condition.device)
            output = network(torch.cat([sample, condition], dim=1), t)
            sample = solver.step(index, output, sample, noise(index + 1) if solver.draws_noise else None)
    return sample.clamp(-1, 1)
