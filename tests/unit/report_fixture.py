"""A made-up run for the report's tests: tables, samples, cases and a training record, with figures easy to check."""

import dataclasses
import json
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import yaml

from meddpm import tables
from meddpm.data import manifest, volumes
from meddpm.data.volumes import Case
from meddpm.report.inputs import ReportInputs

# ms a step; fp32 takes 200 ms in the first job and 1 ms more in each job after it.
STEP_MS = {"fp32": 200.0, "tf32": 91.0, "tf32_channels_last": 125.5, "bf16_compiled": 29.7}
SSIM = {"tf32": 0.99997, "tf32_channels_last": 0.99996, "bf16_compiled": 0.9871}
DICE = {"csf": 0.31, "grey": 0.74, "white": 0.82}
CATEGORIES = {
    "fp32": {"convolution": 144.2, "normalisation": 38.3, "elementwise": 13.3, "attention": 2.0},
    "tf32": {"convolution": 23.4, "normalisation": 38.3, "layout": 6.9, "elementwise": 14.0, "attention": 2.0},
    "tf32_channels_last": {"convolution": 23.6, "normalisation": 38.3, "layout": 49.3, "elementwise": 16.0},
    "bf16_compiled": {"convolution": 11.6, "normalisation": 6.7, "layout": 8.3, "elementwise": 0.8},
}
UNSUPPORTED = "compute capability 7.0 has no bf16 tensor cores"


@dataclass(frozen=True)
class Run:
    """What the made-up run consists of."""

    models: tuple[str, ...] = ("demo",)
    gpus: tuple[str, ...] = ("auto",)
    variants: tuple[str, ...] = tuple(STEP_MS)
    solvers: tuple[str, ...] = ("ddpm250",)
    phases: tuple[str, ...] = ("sample",)
    absent: dict[str, str] = field(default_factory=lambda: {"bf16_graph": "unsupported"})
    device_name: str = "Some CPU (2 cores)"
    capability: str | None = None
    weights: str = "train"
    side: int = 16
    cases: int = 2
    seeds: tuple[int, ...] = (0,)
    orientation: str = "RAS"
    training_steps: int = 40

    @property
    def all_variants(self) -> tuple[str, ...]:
        """Those with a time, then those that could not run."""
        return (*self.variants, *self.absent)


def write_run(root: Path, run: Run | None = None) -> ReportInputs:
    """Write the files of `run` under `root`/results as the stages do, and return the report's inputs."""
    run, results = run or Run(), root / "results"
    folder = results / "tables"
    tables.write("timing", timing_rows(run), folder / "timing.csv")
    tables.write("kernels", kernel_rows(run), folder / "kernels.csv")
    tables.write("quality", quality_rows(run), folder / "quality.csv")
    tables.write("environment", environment_rows(run), folder / "environment.csv")
    (results / "run_config.yaml").write_text(yaml.safe_dump(configuration(run), sort_keys=False), encoding="utf-8")
    cases = write_cases(results / "data" / "head", run)
    return ReportInputs(
        timing=folder / "timing.csv",
        kernels=folder / "kernels.csv",
        quality=folder / "quality.csv",
        environment=folder / "environment.csv",
        run_config=results / "run_config.yaml",
        figures=results / "figures",
        samples=write_samples(results / "samples", run),
        cases=dict.fromkeys(run.models, cases),
        datasets=[cases],
        training=[write_training(results / "train", run, model) for model in run.models]
        if run.weights == "train"
        else [],
        published=results / "published",
    )


def configuration(run: Run) -> dict:
    """The merged configuration."""
    return {
        "study": {
            "name": "made-up",
            "models": list(run.models),
            "gpus": list(run.gpus),
            "variants": list(run.all_variants),
            "solvers": list(run.solvers),
            "phases": list(run.phases),
        },
        "models": {model: {"preset": "demo", "dataset": "head", "weights": run.weights} for model in run.models},
        "datasets": {"head": {"source": "icbm152", "cases": run.cases}},
        "gpus": {gpu: {} for gpu in run.gpus},
        "variants": {variant: {} for variant in run.all_variants},
        "solvers": {solver: {} for solver in run.solvers},
    }


def timing_rows(run: Run) -> list[tables.Row]:
    """A row for every cell; training steps take six times as long as evaluations."""
    rows = []
    for model, gpu, phase in ((m, g, p) for m in run.models for g in run.gpus for p in run.phases):
        cell = {"model": model, "gpu": gpu, "phase": phase}
        factor = 1.0 if phase == "sample" else 6.0
        for job, variant in enumerate(run.all_variants):
            for solver in run.solvers if phase == "sample" else (None,):
                names = {**cell, "variant": variant, "solver": solver}
                if variant in run.absent:
                    rows.append({**names, "status": run.absent[variant], "reason": UNSUPPORTED})
                    continue
                median, baseline = factor * STEP_MS[variant], factor * (STEP_MS["fp32"] + job)
                evaluations = (250, 25)[run.solvers.index(solver) % 2] if solver else None
                rows.append(
                    {
                        **names,
                        "device_name": run.device_name,
                        "evaluations": evaluations,
                        "shape": f"1x{run.side}x{run.side}x{run.side}",
                        "batch": 1,
                        "repeats": 10,
                        "step_ms_median": median,
                        "step_ms_p05": 0.97 * median,
                        "step_ms_p95": 1.06 * median,
                        "fp32_step_ms_median": baseline,
                        "speedup": baseline / median,
                        "volume_s": evaluations * median / 1000 if evaluations else None,
                        "peak_memory_gib": 3.7 - 0.2 * job,
                        "energy_j_per_volume": None if run.capability is None else 60 * median,
                        "setup_s": 2.0,
                        "environment": "e0123456789a",
                        "status": "ok",
                    }
                )
    return rows


def kernel_rows(run: Run) -> list[tables.Row]:
    """A row for every category of every variant, and one for those that could not be profiled."""
    rows = []
    for model, gpu, phase in ((m, g, p) for m in run.models for g in run.gpus for p in run.phases):
        cell = {"model": model, "gpu": gpu, "phase": phase, "profiler": "torch"}
        for variant in run.variants:
            total = sum(CATEGORIES[variant].values())
            rows += [
                {
                    **cell,
                    "variant": variant,
                    "kernel": f"{category}_kernel",
                    "category": category,
                    "calls": 10,
                    "time_ms": time_ms,
                    "share": time_ms / total,
                    "environment": "e0123456789b",
                    "status": "ok",
                }
                for category, time_ms in CATEGORIES[variant].items()
            ]
        for variant, status in run.absent.items():
            row = {**cell, "variant": variant, "kernel": "", "category": "", "status": status, "reason": UNSUPPORTED}
            rows.append(row)
    return rows


def quality_rows(run: Run) -> list[tables.Row]:
    """Every variant against fp32, the truth, another seed and the first solver, as the evaluate stage has them."""
    rows = []
    cells = [(m, g, v, s) for m in run.models for g in run.gpus for v in run.all_variants for s in run.solvers]
    for model, gpu, variant, solver in cells:
        cell = {"model": model, "gpu": gpu, "variant": variant, "solver": solver}
        references = ["fp32, same noise"] if variant != "fp32" else []
        references += ["true image", "another seed, same mask"]
        references += [f"{run.solvers[0]}, same noise and mask"] if solver != run.solvers[0] else []
        for reference in references:
            row = {**cell, "reference": reference, "metric": "ssim"}
            if variant in run.absent:
                rows.append({**row, "region": "whole", "status": run.absent[variant], "reason": UNSUPPORTED})
            elif reference == "fp32, same noise":
                rows += same_noise_rows(cell, run)
            elif reference == "true image":
                rows += truth_rows(cell, run)
            else:
                value, n = (0.41, 1) if reference.startswith("another seed") else (0.62, run.cases * len(run.seeds))
                rows.append({**row, "region": "mask", "value": value, "n": n, "status": "ok"})
    return rows


def same_noise_rows(cell: tables.Row, run: Run) -> list[tables.Row]:
    """SSIM and relative error of a variant, whole and inside the mask, against fp32."""
    rows, similarity = [], SSIM[cell["variant"]]
    for region, value in (("whole", similarity**0.5), ("mask", similarity)):
        shared = {**cell, "region": region, "reference": "fp32, same noise", "n": run.cases * len(run.seeds)}
        distance = 1 - value
        span = {"ci_low": 1 - 1.3 * distance, "ci_high": 1 - 0.7 * distance}
        rows.append({**shared, "metric": "ssim", "value": value, **span, "status": "ok"})
        span = {"ci_low": 0.7 * 3 * distance, "ci_high": 1.3 * 3 * distance}
        rows.append({**shared, "metric": "relative_error", "value": 3 * distance, **span, "status": "ok"})
    return rows


def truth_rows(cell: tables.Row, run: Run) -> list[tables.Row]:
    """Every figure of a variant against the truth, and those of the truth itself."""
    figures = [("true image", "ssim", region, value) for region, value in (("whole", 0.88), ("mask", 0.71))]
    figures += [("label map", f"dice_{tissue}", "mask", value) for tissue, value in DICE.items()]
    figures += [("label map", f"dice_{tissue}_over_true_image", "mask", value / 0.9) for tissue, value in DICE.items()]
    figures += [("label map", "tissue_order", "mask", 0.75)]
    figures += [("black, -1", "background_mean", "background", -0.97)]
    figures += [("black, -1", "background_offset_max", "background", 0.043)]
    figures += [
        ("true image", "ssim_of_label_means", region, value) for region, value in (("whole", 0.96), ("mask", 0.87))
    ]
    figures += [("label map", f"dice_{tissue}_of_true_image", "mask", 0.9) for tissue in DICE]
    keys = ("reference", "metric", "region", "value")
    shared = {**cell, "n": run.cases * len(run.seeds), "status": "ok"}
    return [{**shared, **dict(zip(keys, figure, strict=True))} for figure in figures]


def environment_rows(run: Run) -> list[tables.Row]:
    """Two jobs of one machine: their code and temperature differ."""
    shared = {
        "python": "3.11.9",
        "torch": "2.13.0",
        "cuda": "13.0" if run.capability else None,
        "cudnn": "91900" if run.capability else None,
        "driver": "580.1" if run.capability else None,
        "device_name": run.device_name,
        "capability": run.capability,
        "clocks": "SM 1980 MHz, memory 3201 MHz" if run.capability else None,
        "snakemake": "9.27.1",
        "git_commit": "0123abcd",
        "status": "ok",
    }
    return [
        {
            **shared,
            "model": model,
            "gpu": gpu,
            "environment": f"e0123456789{job}",
            "code_digest": f"c{job}",
            "temperature": degrees if run.capability else None,
        }
        for model in run.models
        for gpu in run.gpus
        for job, degrees in (("a", 34.0), ("b", 41.0))
    ]


def head(run: Run, shift: float = 0.0) -> tuple[np.ndarray, np.ndarray]:
    """A ball with a nose and a spot, as (image, label) in RAS order: the nose in front, the spot up on the right."""
    grid = np.stack(np.meshgrid(*[np.linspace(-1, 1, run.side)] * 3, indexing="ij"))
    radius = np.sqrt((grid**2).sum(axis=0)) + shift * grid[2]
    label = (radius < 0.75).astype(np.uint8)
    nose = (np.abs(grid[0]) < 0.15) & (np.abs(grid[2]) < 0.15) & (grid[1] > 0.5) & (grid[1] < 0.95)
    label[nose] = 1
    label[np.sqrt((grid[0] - 0.3) ** 2 + grid[1] ** 2 + (grid[2] - 0.4) ** 2) < 0.2] = 2
    image = np.where(label == 0, -1.0, np.where(label == 2, 0.9, 0.4 * np.cos(6 * radius))).astype(np.float32)
    return image, label


def to_orientation(array: np.ndarray, orientation: str) -> tuple[np.ndarray, np.ndarray]:
    """A RAS array stored in another order of axes, as (array, affine) with voxels of 2 mm."""
    import nibabel

    target = nibabel.orientations.axcodes2ornt(orientation)
    change = nibabel.orientations.ornt_transform(nibabel.orientations.axcodes2ornt("RAS"), target)
    affine = np.diag([2.0, 2.0, 2.0, 1.0]) @ nibabel.orientations.inv_ornt_aff(change, array.shape)
    return nibabel.orientations.apply_orientation(array, change), affine


def write_cases(folder: Path, run: Run) -> Path:
    """The cases' images and labels, and cases.tsv."""
    rows = []
    for number in range(run.cases):
        image, label = head(run, 0.1 * number)
        stored, affine = to_orientation(image, run.orientation)
        stored_label, _ = to_orientation(label, run.orientation)
        case = Case(f"case{number}", stored, stored_label, affine)
        paths = folder / f"{case.id}_image.nii.gz", folder / f"{case.id}_label.nii.gz"
        volumes.write(paths[0], case.image, affine)
        volumes.write(paths[1], case.label, affine)
        rows.append(manifest.describe(case, *paths, folder))
    manifest.write(folder / "cases.tsv", rows)
    return folder / "cases.tsv"


def write_samples(folder: Path, run: Run) -> list[Path]:
    """samples.csv and the volumes of every cell: the case's image with noise, less of it where SSIM is higher."""
    written = []
    cells = [(m, g, v, s) for m in run.models for g in run.gpus for v in run.all_variants for s in run.solvers]
    for model, gpu, variant, solver in cells:
        target = folder / model / gpu / variant / solver / "samples.csv"
        target.parent.mkdir(parents=True, exist_ok=True)
        lines = ["case,seed,file,sha256,seconds,status,reason"]
        if variant in run.absent:
            lines.append(f",,,,,{run.absent[variant]},{UNSUPPORTED}")
        else:
            for number, seed in ((n, s) for n in range(run.cases) for s in run.seeds):
                noise = np.random.default_rng([number, seed]).normal(size=(run.side,) * 3)
                change = np.random.default_rng(7).normal(size=noise.shape) * 5 * (1 - SSIM.get(variant, 1))
                image = np.clip(head(run, 0.1 * number)[0] + 0.15 * noise + change, -1, 1).astype(np.float32)
                file = target.parent / f"case{number}_seed{seed}.nii.gz"
                volumes.write(file, *to_orientation(image, run.orientation))
                lines.append(f"case{number},{seed},{file.name},{'0' * 64},1.5,ok,")
        target.write_text("\n".join(lines) + "\n", encoding="utf-8")
        written.append(target)
    return written


def write_training(folder: Path, run: Run, model: str) -> Path:
    """training.json and loss.csv of one model."""
    target = folder / model / run.gpus[0] / "fp32" / "training.json"
    target.parent.mkdir(parents=True, exist_ok=True)
    losses = [0.1 + 0.9 * 0.95**step + 0.03 * np.sin(step) for step in range(run.training_steps)]
    record = {
        "model": model,
        "gpu": run.gpus[0],
        "variant": "fp32",
        "steps": run.training_steps,
        "seconds": 61.5,
        "batch": 2,
        "loss_first": losses[0],
        "loss_last": losses[-1],
        "device_name": run.device_name,
        "dataset": "head: deformations of ICBM 152",
        "dataset_name": "head",
    }
    target.write_text(json.dumps(record), encoding="utf-8")
    curve = "".join(f"{step},{loss:.6f}\n" for step, loss in enumerate(losses, 1))
    target.with_name("loss.csv").write_text("step,loss\n" + curve, encoding="utf-8")
    return target


def replaced(inputs: ReportInputs, **changes: object) -> ReportInputs:
    """The inputs with some of them changed."""
    return dataclasses.replace(inputs, **changes)
