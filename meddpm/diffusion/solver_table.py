"""The solvers by name, and what makes a solver's settings possible. Imports neither torch nor diffusers."""

from dataclasses import dataclass

from meddpm.config import ConfigError, SolverConfig


@dataclass(frozen=True)
class SolverKind:
    """What a kind of solver can do. `draws_noise`: it adds noise at each step. `source`: where it is described."""

    draws_noise: bool
    any_evaluations: bool
    """Whether it takes any number of evaluations up to the model's steps; else see `check`."""
    can_skip_first: bool
    source: str


KINDS: dict[str, SolverKind] = {
    # Every step of the model, with fresh noise: how the published volumes were drawn.
    "ddpm": SolverKind(True, False, False, "Ho et al. 2020, arXiv 2006.11239, algorithm 2"),
    # First order, deterministic. It strides through the steps, so that its evaluations divide them.
    "ddim": SolverKind(False, False, False, "Song et al. 2020, arXiv 2010.02502"),
    # Second order, multistep, deterministic; and the same with fresh noise at each step.
    "dpmpp_2m": SolverKind(False, True, True, "Lu et al. 2022, arXiv 2211.01095"),
    "dpmpp_2m_sde": SolverKind(True, True, True, "Lu et al. 2022, arXiv 2211.01095"),
    # Exponential integrator, second order, deterministic.
    "deis": SolverKind(False, True, True, "Zhang and Chen 2022, arXiv 2204.13902"),
    # Predictor and corrector, second order, deterministic.
    "unipc": SolverKind(False, True, True, "Zhao et al. 2023, arXiv 2302.04867"),
}


def evaluations(solver: SolverConfig, steps: int) -> int:
    """Network evaluations a volume takes: as configured, or one for each step that is not skipped."""
    return steps - solver.skip_first if solver.evaluations is None else solver.evaluations


def check(solver: SolverConfig, steps: int, where: str) -> None:
    """Raise ConfigError, in one line that begins with `where`, if `solver` cannot run on a model of `steps` steps."""
    if solver.kind not in KINDS:
        raise ConfigError(f"{where}.kind: there is no solver {solver.kind!r}; use {', '.join(KINDS)}")
    if not 0 <= solver.skip_first < steps:
        raise ConfigError(
            f"{where}.skip_first: {solver.skip_first} of {steps} steps cannot be skipped; use 0 to {steps - 1}"
        )
    if solver.skip_first and not KINDS[solver.kind].can_skip_first:
        able = ", ".join(name for name, kind in KINDS.items() if kind.can_skip_first)
        raise ConfigError(
            f"{where}.skip_first: {solver.kind} starts at the first step; use 0, or one of {able} as the kind"
        )
    count, available = evaluations(solver, steps), steps - solver.skip_first
    if not 1 <= count <= available:
        skipped = f" after skipping {solver.skip_first}" if solver.skip_first else ""
        raise ConfigError(
            f"{where}.evaluations: {count} is impossible; the model has {steps} steps{skipped}, use 1 to {available}"
        )
    if solver.kind == "ddpm" and count != steps:
        raise ConfigError(f"{where}.evaluations: ddpm takes every step, {count} is not {steps}; use {steps} or null")
    if solver.kind == "ddim" and steps % count:
        divisors = ", ".join(str(n) for n in range(1, steps + 1) if steps % n == 0)
        raise ConfigError(f"{where}.evaluations: ddim strides evenly, {count} does not divide {steps}; use {divisors}")
