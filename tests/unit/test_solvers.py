"""The solvers: against the golden trajectory, and on a Gaussian whose exact denoiser and solution are known."""

import dataclasses
import math
import subprocess
import sys

import numpy as np
import pytest
import torch

from meddpm.config import ConfigError, ModelConfig, SolverConfig, repository_root
from meddpm.diffusion import solvers
from meddpm.diffusion.schedule import cosine_schedule
from meddpm.diffusion.solver_table import KINDS, check, evaluations
from meddpm.model import PRESETS, build_model, weights

GOLDEN = repository_root().parent / "shared" / "golden"
DETERMINISTIC = [name for name, kind in KINDS.items() if not kind.draws_noise]
SKIPPING = [name for name, kind in KINDS.items() if kind.can_skip_first]

# numpy's notes to diffusers on converting tensors to arrays.
pytestmark = pytest.mark.filterwarnings("ignore:__array:DeprecationWarning")

MODEL = dataclasses.replace(PRESETS["demo"], prediction="epsilon")
MEAN, DEVIATION = 0.2, 0.1
"""Each voxel of the toy data is normal with these."""


def denoiser(model: ModelConfig, t: int, x: torch.Tensor) -> torch.Tensor:
    """The exact network for the toy data, in the model's prediction: x_0 is E[x_0 | x_t]."""
    acp = cosine_schedule(model.steps).alphas_cumprod[t].double()
    x = x.double()
    variance = acp * DEVIATION**2 + 1 - acp
    x0 = MEAN + acp.sqrt() * DEVIATION**2 / variance * (x - acp.sqrt() * MEAN)
    noise = (x - acp.sqrt() * x0) / (1 - acp).sqrt()
    return (noise if model.prediction == "epsilon" else acp.sqrt() * noise - (1 - acp).sqrt() * x0).float()


def draw(solver: solvers.Solver, model: ModelConfig = MODEL, voxels: int = 4096) -> tuple[torch.Tensor, torch.Tensor]:
    """A toy volume and the x_T it began from."""
    generator = torch.Generator().manual_seed(0)
    start = torch.randn((1, 1, 1, 1, voxels), generator=generator) * solver.initial_scale
    sample = start
    for index, t in enumerate(solver.timesteps):
        noise = torch.randn(start.shape, generator=generator) if solver.draws_noise else None
        sample = solver.step(index, denoiser(model, t, sample), sample, noise)
    return sample, start


def error(kind: str, count: int, skip_first: int = 0, prediction: str = "epsilon") -> float:
    """RMS distance from the exact solution of the probability-flow equation (Song et al. 2021, arXiv 2011.13456)."""
    model = dataclasses.replace(MODEL, prediction=prediction)
    solver = solvers.build(SolverConfig(kind, count, skip_first), model)
    sample, start = draw(solver, model)
    acp = cosine_schedule(model.steps).alphas_cumprod[solver.timesteps[0]]
    exact = MEAN + DEVIATION * (start - acp.sqrt() * MEAN) / (acp * DEVIATION**2 + 1 - acp).sqrt()
    return (sample - exact).square().mean().sqrt().item()


def test_trajectory_golden():
    if not (GOLDEN / "sampler_T10.npz").exists():
        pytest.skip("../shared is not here")
    data = {key: torch.from_numpy(value) for key, value in np.load(GOLDEN / "sampler_T10.npz").items()}
    model = ModelConfig((64, 64, 64), 1, (1, 2), (-1.0, 1.0), 32, (1, 2, 3, 4), 1, (4,), steps=10)
    network = build_model(model).eval()
    weights.fill(network, 0)
    solver = solvers.build(SolverConfig("ddpm"), model)
    sample = data["x_T"]
    for index, t in enumerate(solver.timesteps):
        with torch.no_grad():
            output = network(torch.cat([sample, data["cond"]], dim=1), torch.tensor([t]))
        sample = solver.step(index, output, sample, data["noise"][index])
        expected = data["trajectory"][index]
        assert ((sample - expected).norm() / expected.norm()).item() < 1e-5
    assert index == 9


def test_ancestral_sampler_written_out():
    """Ho et al. 2020, algorithm 2, for one voxel in plain Python; the first x_0 is beyond the clamp."""
    model = dataclasses.replace(MODEL, steps=3)
    a = [math.cos((x / 4 + 0.008) / 1.008 * math.pi / 2) ** 2 for x in (0, 4 / 3, 8 / 3)]
    beta = [1 - a[1] / a[0], 1 - a[2] / a[1], 0.999]
    acp = [a[1] / a[0], a[2] / a[0], a[2] / a[0] * 0.001]
    outputs, noise = [-0.5, 0.3, 0.1], [0.7, -1.1, 5.0]
    x, clamped = 0.4, []
    for index, t in enumerate((2, 1, 0)):
        before = acp[t - 1] if t else 1.0
        x0 = (x - math.sqrt(1 - acp[t]) * outputs[index]) / math.sqrt(acp[t])
        clamped.append(abs(x0) > 1)
        x0 = max(-1.0, min(1.0, x0))
        mean = math.sqrt(before) * beta[t] * x0 + math.sqrt(1 - beta[t]) * (1 - before) * x
        x = mean / (1 - acp[t])
        if t:
            x += math.sqrt(beta[t] * (1 - before) / (1 - acp[t])) * noise[index]
    assert clamped[0]
    assert not clamped[2]

    solver = solvers.build(SolverConfig("ddpm"), model)
    assert solver.timesteps == [2, 1, 0]
    sample = torch.full((1, 1, 1, 1, 1), 0.4)
    for index in range(3):
        sample = solver.step(
            index, torch.full_like(sample, outputs[index]), sample, torch.full_like(sample, noise[index])
        )
    assert math.isclose(sample.item(), x, rel_tol=1e-5)


@pytest.mark.parametrize("prediction", ["epsilon", "v"])
@pytest.mark.parametrize(("kind", "bound"), [("ddim", 0.004), ("dpmpp_2m", 0.001), ("deis", 0.002), ("unipc", 0.001)])
def test_deterministic_solvers_converge(kind, bound, prediction):
    errors = [error(kind, count, prediction=prediction) for count in (5, 10, 250)]
    assert errors[0] > errors[1] > errors[2]
    assert errors[0] < 0.075
    assert errors[2] < bound


@pytest.mark.parametrize("kind", [kind for kind in SKIPPING if kind in DETERMINISTIC])
def test_converge_from_a_later_start(kind):
    assert error(kind, 245, skip_first=5) < 0.002


@pytest.mark.parametrize(("kind", "tolerance"), [("ddpm", 0.007), ("dpmpp_2m_sde", 0.002)])
def test_stochastic_solvers_reach_the_distribution(kind, tolerance):
    sample, _ = draw(solvers.build(SolverConfig(kind, 250), MODEL), voxels=20_000)
    assert abs(sample.mean().item() - MEAN) < 0.003
    # The ancestral sampler takes the smaller of the two variances, and falls short by a known 5 %.
    assert abs(sample.std().item() - DEVIATION) < tolerance


@pytest.mark.parametrize("kind", SKIPPING)
@pytest.mark.parametrize("skip_first", [0, 5])
def test_timesteps_for_every_count(kind, skip_first):
    for count in range(1, 251 - skip_first, 4):
        solver = solvers.build(SolverConfig(kind, count, skip_first), MODEL)
        assert len(solver.timesteps) == count
        assert solver.timesteps[0] == 249 - skip_first
        assert solver.timesteps == sorted(set(solver.timesteps), reverse=True)
        assert solver.timesteps[-1] >= 0


@pytest.mark.parametrize("kind", SKIPPING)
@pytest.mark.parametrize("count", [61, 122])
def test_counts_that_rounding_spoils(kind, count):
    """For these counts of 250 the library's own list has one timestep too many."""
    solver = solvers.build(SolverConfig(kind, count), MODEL)
    sample, _ = draw(solver)
    assert len(solver.timesteps) == count
    assert abs(sample.mean().item() - MEAN) < 0.005
    assert abs(sample.std().item() - DEVIATION) < 0.01


@pytest.mark.parametrize(
    ("kind", "count"),
    [("ddim", 10)] + [(kind, count) for kind in ("dpmpp_2m", "dpmpp_2m_sde", "unipc") for count in (10, 61)],
)
def test_last_step_ends_without_noise(kind, count):
    """The last step gives its x_0, here 1, and nothing of the volume before, here near -1."""
    solver = solvers.build(SolverConfig(kind, count), MODEL)
    sample = torch.zeros(1, 1, 1, 1, 1)
    for index in range(count):
        output = torch.full_like(sample, 1e6 if index < count - 1 else -1e6)
        sample = solver.step(index, output, sample, torch.zeros_like(sample) if solver.draws_noise else None)
    assert math.isclose(sample.item(), 1, abs_tol=1e-6)


@pytest.mark.parametrize("count", [1, 2, 5, 10, 25, 50, 125, 250])
def test_ddim_timesteps(count):
    stride = 250 // count
    solver = solvers.build(SolverConfig("ddim", count), MODEL)
    assert solver.timesteps == [250 - stride * i - 1 for i in range(count)]


def test_null_evaluations_mean_every_step():
    for kind in KINDS:
        assert solvers.build(SolverConfig(kind), MODEL).timesteps == list(range(249, -1, -1))
    assert evaluations(SolverConfig("unipc", None, 5), 250) == 245
    assert evaluations(SolverConfig("unipc", 20, 5), 250) == 20


@pytest.mark.parametrize("kind", list(KINDS))
def test_reset_forgets(kind):
    solver = solvers.build(SolverConfig(kind, 250 if kind == "ddpm" else 10), MODEL)
    first, _ = draw(solver)
    solver.reset()
    again, _ = draw(solver)
    assert torch.equal(first, again)
    fresh, _ = draw(solvers.build(SolverConfig(kind, 250 if kind == "ddpm" else 10), MODEL))
    assert torch.equal(first, fresh)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "ddpm"])
def test_steps_out_of_turn_are_refused(kind):
    solver = solvers.build(SolverConfig(kind, 10), MODEL)
    sample = torch.zeros(1, 1, 1, 1, 1)
    noise = sample if solver.draws_noise else None
    solver.step(0, sample, sample, noise)
    with pytest.raises(ValueError, match="step 0 is out of turn, step 1 comes next"):
        solver.step(0, sample, sample, noise)


@pytest.mark.parametrize("kind", list(KINDS))
def test_wild_output_is_clamped(kind):
    """A saturated x_0 of either sign ends at the end of the range, in float32, whatever type the output has."""
    solver = solvers.build(SolverConfig(kind, 250 if kind == "ddpm" else 10), MODEL)
    sample = torch.zeros(2, 1, 1, 1, 1)
    wild = torch.tensor([-1e4, 1e4]).reshape(2, 1, 1, 1, 1).bfloat16()
    for index in range(len(solver.timesteps)):
        sample = solver.step(index, wild, sample, torch.zeros_like(sample) if solver.draws_noise else None)
    assert sample.dtype == torch.float32
    # DEIS ends at the noise level of t = 0, not at zero.
    torch.testing.assert_close(sample.flatten(), torch.tensor([1.0, -1.0]), atol=0.01, rtol=0)


@pytest.mark.parametrize("kind", list(KINDS))
def test_batch_members_do_not_mix(kind):
    count = 250 if kind == "ddpm" else 5
    together = solvers.build(SolverConfig(kind, count), MODEL)
    alone = solvers.build(SolverConfig(kind, count), MODEL)
    generator = torch.Generator().manual_seed(1)
    pair = torch.randn((2, 1, 2, 2, 2), generator=generator)
    single = pair[1:]
    for index, t in enumerate(together.timesteps):
        noise = torch.randn(pair.shape, generator=generator) if together.draws_noise else None
        pair = together.step(index, denoiser(MODEL, t, pair), pair, noise)
        single = alone.step(index, denoiser(MODEL, t, single), single, None if noise is None else noise[1:])
    torch.testing.assert_close(pair[1:], single, atol=1e-6, rtol=0)


@pytest.mark.parametrize("kind", list(KINDS))
def test_noise_is_ours_alone(kind):
    """No solver draws from torch's generator; a stochastic one without noise raises."""
    solver = solvers.build(SolverConfig(kind, 250 if kind == "ddpm" else 10), MODEL)
    sample = torch.zeros(1, 1, 1, 1, 4)
    before = torch.random.get_rng_state()
    if KINDS[kind].draws_noise:
        quiet = solver.step(0, sample, sample, torch.zeros_like(sample))
        solver.reset()
        assert not torch.equal(solver.step(0, sample, sample, torch.ones_like(sample)), quiet)
        solver.reset()
        with pytest.raises(ValueError, match="needs noise"):
            solver.step(0, sample, sample, None)
    else:
        solver.step(0, sample, sample, None)
    assert torch.equal(torch.random.get_rng_state(), before)


@pytest.mark.parametrize("kind", list(KINDS))
def test_step_reads_no_value(kind):
    """On the meta device, reading a tensor's value, as a host synchronisation does, would raise."""
    solver = solvers.build(SolverConfig(kind, 250 if kind == "ddpm" else 10), MODEL)
    sample = torch.empty(1, 1, 2, 2, 2, device="meta")
    for index in range(4):
        sample = solver.step(index, sample, sample, sample if solver.draws_noise else None)
    assert sample.device.type == "meta"


def test_clip_needs_no_quantile(monkeypatch):
    """torch.quantile refuses volumes of more than 2^24 voxels, which BraTS volumes have."""
    monkeypatch.delattr(torch, "quantile")
    for kind in DETERMINISTIC:
        draw(solvers.build(SolverConfig(kind, 5), MODEL), voxels=8)


@pytest.mark.parametrize(
    ("solver", "text"),
    [
        (
            SolverConfig("euler"),
            "s.kind: there is no solver 'euler'; use ddpm, ddim, dpmpp_2m, dpmpp_2m_sde, deis, unipc",
        ),
        (SolverConfig("ddpm", 50), "s.evaluations: ddpm takes every step, 50 is not 250; use 250 or null"),
        (SolverConfig("ddim", 20), "s.evaluations: .* 20 does not divide 250; use 1, 2, 5, 10, 25, 50, 125, 250"),
        (SolverConfig("unipc", 0), "s.evaluations: 0 is impossible; the model has 250 steps, use 1 to 250"),
        (SolverConfig("unipc", 251), "s.evaluations: 251 is impossible"),
        (SolverConfig("unipc", 246, 5), "s.evaluations: 246 is impossible; .* after skipping 5, use 1 to 245"),
        (SolverConfig("unipc", 5, -1), "s.skip_first: -1 of 250 steps cannot be skipped; use 0 to 249"),
        (SolverConfig("unipc", 5, 250), "s.skip_first: 250 of 250"),
        (SolverConfig("ddim", 5, 5), "s.skip_first: ddim .*; use 0, or one of dpmpp_2m, dpmpp_2m_sde, deis, unipc"),
        (SolverConfig("ddpm", None, 5), "s.skip_first: ddpm"),
    ],
)
def test_impossible_settings(solver, text):
    with pytest.raises(ConfigError, match=f"^{text}") as caught:
        check(solver, 250, "s")
    assert "\n" not in str(caught.value)
    with pytest.raises(ConfigError):
        solvers.build(solver, MODEL)


def test_imports_only_what_is_needed():
    code = (
        "import sys; from meddpm.diffusion.solver_table import check; a = 'torch' in sys.modules; "
        "from meddpm.diffusion import solvers; from meddpm.config import SolverConfig; "
        "from meddpm.model import PRESETS; solvers.build(SolverConfig('ddpm'), PRESETS['demo']); "
        "print(a, 'diffusers' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=repository_root(), capture_output=True, text=True)
    assert done.stdout.strip() == "False False", done.stderr
