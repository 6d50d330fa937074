"""The stages: what a cell leaves behind when it runs, and when it cannot."""

import csv
import json
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
import yaml

from meddpm import device, study, tables, variants
from meddpm.config import GpuConfig, UserError, VariantConfig, repository_root
from meddpm.model import build_model, weights
from meddpm.quality.metrics import ssim_map
from meddpm.stages import archive, bench, evaluate, network, prepare, profile, sample
from tests.unit.files_fixture import head, save, whole_heads

ROOT = repository_root()
CONFIG = yaml.safe_load((ROOT / "config.yaml").read_text(encoding="utf-8"))
for key, value in yaml.safe_load((ROOT / "tests/workflow/tiny.yaml").read_text(encoding="utf-8")).items():
    CONFIG[key] = {**CONFIG[key], **value}
CELL = {"model": "tiny", "gpu": "cpu"}
SAMPLE = {**CELL, "variant": "fp32", "solver": "ddpm"}


def settings(stage: str, changes: dict[str, Any] | None = None, **cell: str) -> str:
    """The settings of one job of the tiny study, some values of a section changed."""
    config = {name: {**section, **(changes or {}).get(name, {})} for name, section in CONFIG.items()}
    return study.load(config, ROOT).settings(stage, **cell)


@pytest.fixture(scope="module")
def cases(tmp_path_factory: pytest.TempPathFactory) -> Path:
    table = tmp_path_factory.mktemp("data") / "cases.tsv"
    prepare.run(settings("prepare", dataset="icbm152_tiny"), table, workers=1)
    return table


def draw(text: str, cases: Path, target: Path, weights_file: Path | None = None) -> None:
    sample.run(text, cases, weights_file, target, target.with_name("environment.csv"), threads=1)


def read_samples(path: Path) -> list[dict[str, str]]:
    with open(path, newline="", encoding="utf-8") as stream:
        return list(csv.DictReader(stream))


def test_volumes_that_are_no_numbers_are_a_failed_row(tmp_path: Path, cases: Path) -> None:
    tiny = study.load(CONFIG, ROOT).models["tiny"].config
    huge = {key: torch.full_like(value, 1e30) for key, value in build_model(tiny).state_dict().items()}
    weights.save(tmp_path / "weights.safetensors", huge, {})
    draw(settings("sample", **SAMPLE), cases, tmp_path / "samples.csv", tmp_path / "weights.safetensors")
    (row,) = read_samples(tmp_path / "samples.csv")
    assert row["status"] == "failed"
    assert "not finite" in row["reason"]
    assert not list(tmp_path.glob("*.nii.gz"))


def test_a_table_of_cases_that_lost_some_is_refused(tmp_path: Path, cases: Path) -> None:
    text = settings("sample", **SAMPLE).replace('"cases": 2', '"cases": 3')
    with pytest.raises(UserError, match=r"has 2 cases .* asks for 3; lower sample\.cases to 2"):
        draw(text, cases, tmp_path / "samples.csv")


@pytest.fixture
def drawn(tmp_path: Path, cases: Path) -> list[Path]:
    """The samples of two variants, as the evaluate stage finds them."""
    found = []
    for variant in ("fp32", "bf16"):
        found.append(tmp_path / "samples/tiny/cpu" / variant / "ddpm/samples.csv")
        draw(settings("sample", **{**SAMPLE, "variant": variant}), cases, found[-1])
    return found


def compare(drawn: list[Path], cases: Path, target: Path) -> list[tables.Row]:
    evaluate.run(settings("evaluate", model="tiny"), drawn, cases, target)
    return tables.read("quality", target)


def test_quality_names_the_environment_of_the_samples(tmp_path: Path, cases: Path, drawn: list[Path]) -> None:
    keys = {}
    for path in drawn:
        (environment,) = tables.read("environment", path.with_name("environment.csv"))
        keys[path.parts[-3]] = environment["environment"]
    rows = compare(drawn, cases, tmp_path / "quality.csv")
    assert all(row["environment"] == keys[row["variant"]] for row in rows)
    against_fp32 = [row for row in rows if row["reference"] == "fp32, same noise"]
    assert {row["variant"] for row in against_fp32} == {"bf16"}
    assert {row["metric"] for row in against_fp32} == {"ssim", "psnr_db", "relative_error", "max_abs_difference"}
    # One seed and one solver: nothing else to be compared with but the truth.
    others = {row["reference"] for row in rows} - {"fp32, same noise"}
    assert others == {"true image", "label map", "black, -1"}
    assert {row["variant"] for row in rows if row["reference"] in others} == {"fp32", "bf16"}


def test_seeds_and_solvers_are_yardsticks(tmp_path: Path, cases: Path) -> None:
    drawn = []
    for variant in ("fp32", "bf16", "tf32"):
        for solver in ("ddpm", "dpmpp_2m_sde_5"):
            drawn.append(tmp_path / "samples/tiny/cpu" / variant / solver / "samples.csv")
            text = settings("sample", {"sample": {"seeds": [3, 1]}}, **CELL, variant=variant, solver=solver)
            draw(text, cases, drawn[-1])
    rows = compare(drawn, cases, tmp_path / "quality.csv")
    for solver in ("ddpm", "dpmpp_2m_sde_5"):
        references = ["fp32, same noise", "true image", "another seed, same mask"]
        references += ["ddpm, same noise and mask"] if solver != "ddpm" else []
        for variant in ("fp32", "bf16"):
            cell = [row for row in rows if (row["variant"], row["solver"]) == (variant, solver)]
            assert {row["status"] for row in cell} == {"ok"}
            expected = set(references) - ({"fp32, same noise"} if variant == "fp32" else set())
            assert {row["reference"] for row in cell} == expected | {"label map", "black, -1"}
        absent = [row for row in rows if (row["variant"], row["solver"]) == ("tf32", solver)]
        assert [row["reference"] for row in absent] == references
        assert {(row["status"], row["value"], row["n"]) for row in absent} == {("unsupported", None, None)}

    def one(variant: str, solver: str, reference: str, metric: str, region: str = "mask") -> tables.Row:
        wanted = (variant, solver, reference, metric, region)
        keys = ("variant", "solver", "reference", "metric", "region")
        (row,) = [row for row in rows if tuple(row[key] for key in keys) == wanted]
        return row

    # 2 cases with 2 seeds each: 4 volumes, 2 pairs of seeds, 2 true images.
    assert one("fp32", "ddpm", "true image", "ssim")["n"] == 4
    assert one("fp32", "ddpm", "another seed, same mask", "ssim")["n"] == 2
    assert one("bf16", "dpmpp_2m_sde_5", "ddpm, same noise and mask", "ssim", "whole")["n"] == 4
    assert one("bf16", "ddpm", "true image", "ssim_of_label_means")["n"] == 2
    assert one("fp32", "ddpm", "label map", "dice_white_of_true_image")["n"] == 2
    assert one("fp32", "ddpm", "label map", "tissue_order")["n"] == 4

    # The figures are those of the volumes named.
    folder = tmp_path / "samples/tiny/cpu/fp32"
    drawings = [(case, seed) for case in ("icbm152-000", "icbm152-001") for seed in (3, 1)]

    def volume(solver: str, case: str, seed: int) -> np.ndarray:
        return sample.volumes.read_image(folder / solver / f"{case}_seed{seed}.nii.gz")[0]

    def ssim(one: np.ndarray, other: np.ndarray) -> float:
        return ssim_map(one[None], other[None], 7)[0]

    seeds = one("fp32", "ddpm", "another seed, same mask", "ssim", "whole")
    expected = [ssim(volume("ddpm", case, 1), volume("ddpm", case, 3)) for case in ("icbm152-000", "icbm152-001")]
    assert seeds["value"] == pytest.approx(np.mean(expected))
    solvers = one("fp32", "dpmpp_2m_sde_5", "ddpm, same noise and mask", "ssim", "whole")
    expected = [ssim(volume("dpmpp_2m_sde_5", *each), volume("ddpm", *each)) for each in drawings]
    assert solvers["value"] == pytest.approx(np.mean(expected))
    labels = {case: sample.volumes.read_label(cases.parent / f"{case}_label.nii.gz")[0] for case, _ in drawings}
    offsets = [abs(volume("ddpm", case, seed)[labels[case] == 0].mean() + 1) for case, seed in drawings]
    background = one("fp32", "ddpm", "black, -1", "background_offset_max", "background")
    assert background["value"] == pytest.approx(max(offsets), rel=1e-5)


def test_the_settings_say_which_labels_are_tissues_and_which_solver_takes_every_step() -> None:
    tiny = json.loads(settings("evaluate", model="tiny"))
    assert tiny["tissues"] == [["csf", 1], ["grey", 2], ["white", 3]]
    assert tiny["full_solver"] == "ddpm"
    one_label = {"datasets": {"icbm152_tiny": {**CONFIG["datasets"]["icbm152_tiny"], "remap": {1: 1, 2: 1, 3: 1}}}}
    assert json.loads(settings("evaluate", one_label, model="tiny"))["tissues"] == []
    renamed = {"study": {"solvers": ["dpmpp_2m_sde_5", "all"]}, "solvers": {"all": {"kind": "ddpm"}}}
    assert json.loads(settings("evaluate", renamed, model="tiny"))["full_solver"] == "all"
    without = {"study": {"solvers": ["dpmpp_2m_sde_5"]}}
    assert json.loads(settings("evaluate", without, model="tiny"))["full_solver"] is None


def test_each_volume_is_read_once(
    tmp_path: Path, cases: Path, drawn: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    honest, read = evaluate.drawn.volumes.read_image, []
    monkeypatch.setattr(evaluate.drawn.volumes, "read_image", lambda path: read.append(path) or honest(path))
    compare(drawn, cases, tmp_path / "quality.csv")
    samples = [path for path in read if tmp_path in path.parents]
    assert len(samples) == len(set(samples)) == 4


def test_samples_of_a_case_that_is_gone_are_refused(tmp_path: Path, cases: Path, drawn: list[Path]) -> None:
    for path in drawn:
        path.write_text(path.read_text().replace("icbm152-001,", "icbm152-009,"))
    with pytest.raises(UserError, match=r"cases\.tsv: lacks the case icbm152-009"):
        compare(drawn, cases, tmp_path / "quality.csv")


def test_a_volume_that_was_swapped_is_not_compared(tmp_path: Path, cases: Path, drawn: list[Path]) -> None:
    first, second = sorted(drawn[1].parent.glob("*.nii.gz"))
    first.write_bytes(second.read_bytes())
    with pytest.raises(UserError, match=r"has changed since samples\.csv was written"):
        compare(drawn, cases, tmp_path / "quality.csv")


@pytest.mark.parametrize(("old", "new"), [("icbm152-000_seed0.nii.gz", "/etc/hostname"), (",ok,", "")])
def test_a_damaged_list_of_samples_is_one_line(
    tmp_path: Path, cases: Path, drawn: list[Path], old: str, new: str
) -> None:
    drawn[1].write_text(drawn[1].read_text().replace(old, new))
    with pytest.raises(UserError, match="is no list of samples"):
        compare(drawn, cases, tmp_path / "quality.csv")


@pytest.mark.parametrize(("kept", "words"), [(0, "lists no volume"), (1, "do not list the same volumes")])
def test_a_list_of_samples_that_lost_some_is_refused(
    tmp_path: Path, cases: Path, drawn: list[Path], kept: int, words: str
) -> None:
    drawn[1].write_text("".join(drawn[1].read_text().splitlines(keepends=True)[: 1 + kept]))
    with pytest.raises(UserError, match=f"bf16/ddpm/samples.csv:? {words}; draw them again"):
        compare(drawn, cases, tmp_path / "quality.csv")


def test_the_archive_packs_what_the_tables_name(tmp_path: Path, drawn: list[Path]) -> None:
    (drawn[0].parent / "secret.txt").write_text("left here")
    (drawn[0].parent / "icbm152-009_seed9.nii.gz").write_bytes(b"of an earlier run")
    figures = tmp_path / "figures"
    figures.mkdir()
    for name in ("a.svg", ".snakemake_timestamp"):
        (figures / name).touch()
    text = settings("archive", {"archive": {"samples": True}})
    archive.run(text, [], figures, drawn, tmp_path / "all.zip")
    with zipfile.ZipFile(tmp_path / "all.zip") as packed:
        names = packed.namelist()
    assert sorted(Path(name).name for name in names if "bf16" in name) == [
        "environment.csv",
        "flags.json",
        "icbm152-000_seed0.nii.gz",
        "icbm152-001_seed0.nii.gz",
        "samples.csv",
    ]
    assert "figures/a.svg" in names
    assert not [name for name in names if "secret" in name or "seed9" in name or "timestamp" in name]


def test_a_batch_of_two_draws_what_a_batch_of_one_draws(tmp_path: Path, cases: Path) -> None:
    digests = {}
    for batch in (1, 2):
        target = tmp_path / str(batch) / "samples.csv"
        draw(settings("sample", {"sample": {"batch": batch}}, **SAMPLE), cases, target)
        rows = read_samples(target)
        assert [row["status"] for row in rows] == ["ok", "ok"]
        digests[batch] = [sample.volumes.read_image(target.parent / row["file"])[0] for row in rows]
    for one, two in zip(digests[1], digests[2], strict=True):
        torch.testing.assert_close(torch.from_numpy(one), torch.from_numpy(two), rtol=1e-3, atol=1e-3)


def test_a_cell_that_cannot_run_is_a_row_without_a_volume(tmp_path: Path, cases: Path) -> None:
    target = tmp_path / "samples.csv"
    sample.run(
        settings("sample", **{**SAMPLE, "variant": "tf32"}),
        cases,
        None,
        target,
        target.with_name("environment.csv"),
        threads=1,
    )
    (row,) = read_samples(target)
    assert (row["status"], row["file"]) == ("unsupported", "")
    assert "TF32" in row["reason"]


def test_weights_of_another_network_are_refused_in_one_line(tmp_path: Path, cases: Path) -> None:
    path = tmp_path / "weights.safetensors"
    weights.save(path, build_model("demo"), {})
    with pytest.raises(UserError, match=r"weights differ .* they fit the preset demo") as caught:
        sample.run(
            settings("sample", **SAMPLE), cases, path, tmp_path / "samples.csv", tmp_path / "environment.csv", threads=1
        )
    assert "\n" not in str(caught.value)


@pytest.fixture
def broken(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Variants that use bf16 give what `broken["network"]` says, or raise `broken["error"]`."""
    faults: dict[str, Any] = {}
    honest = variants.Applied.network

    def network_of(self: variants.Applied, model: torch.nn.Module) -> variants.Network:
        run = honest(self, model)
        if self.variant == VariantConfig():
            return run

        def wrong(x: torch.Tensor, t: torch.Tensor) -> torch.Tensor:
            if "error" in faults:
                raise faults["error"]
            return faults["network"](run(x, t))

        return wrong

    monkeypatch.setattr(variants.Applied, "network", network_of)
    return faults


def run_bench(folder: Path, phase: str) -> list[tables.Row]:
    text = settings("bench", **CELL, variant="bf16", phase=phase)
    bench.run(text, folder / "timing.csv", folder / "environment.csv", threads=1)
    return tables.read("timing", folder / "timing.csv")


@pytest.mark.parametrize("wrong", [lambda y: y * 1.5, lambda y: y * float("nan"), torch.zeros_like])
def test_a_wrong_result_is_failed_and_not_timed(broken: dict[str, Any], tmp_path: Path, wrong: Any) -> None:
    broken["network"] = wrong
    rows = run_bench(tmp_path, "sample")
    assert {row["solver"] for row in rows} == {"ddpm", "dpmpp_2m_sde_5"}
    for row in rows:
        assert row["status"] == "failed"
        assert "wrong result" in row["reason"]
        assert row["step_ms_median"] is row["speedup"] is None
        assert row["device_name"]


@pytest.mark.parametrize("phase", ["sample", "train"])
@pytest.mark.parametrize(
    ("error", "words"),
    [
        (torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 9 GiB.\nmore"), "out of memory: CUDA out of"),
        (torch.AcceleratorError("CUDA error: an illegal memory access"), "the device failed: CUDA error"),
    ],
)
def test_an_error_of_the_device_is_a_row(
    broken: dict[str, Any], tmp_path: Path, phase: str, error: Exception, words: str
) -> None:
    broken["error"] = error
    rows = run_bench(tmp_path, phase)
    assert {row["status"] for row in rows} == {"failed"}
    assert all(words in row["reason"] and "\n" not in row["reason"] for row in rows)


def test_a_fault_of_the_program_is_not_hidden_in_a_row(broken: dict[str, Any], tmp_path: Path) -> None:
    broken["error"] = RuntimeError("shapes differ")
    with pytest.raises(RuntimeError, match="shapes differ"):
        run_bench(tmp_path, "sample")
    assert not (tmp_path / "timing.csv").exists()


def test_an_error_of_the_compiler_is_known_by_its_module() -> None:
    compiler_error = type("InductorError", (RuntimeError,), {"__module__": "torch._inductor.exc"})
    with pytest.raises(network.CannotRun, match=r"torch\.compile failed: no g"), network.device_errors():
        raise compiler_error("no g++\nlong text")


def measure(stage: ModuleType, folder: Path, changes: dict[str, Any] | None = None) -> None:
    """Run the stage bench or profile on the cell in fp32."""
    name = stage.__name__.rpartition(".")[2]
    text = settings(name, changes, **CELL, variant="fp32", phase="sample")
    target = folder / "table.csv" if stage is bench else {name: folder / f"{name}.csv" for name in profile.TABLES}
    stage.run(text, target, folder / "environment.csv", threads=1)


@pytest.mark.parametrize("stage", [bench, profile])
def test_a_cell_on_a_device_that_is_not_its_rows_fails_and_leaves_no_row(stage: ModuleType, tmp_path: Path) -> None:
    changes = {"gpus": {"cpu": {"device": "cpu", "device_name": "A100"}}}
    with pytest.raises(UserError, match=r"gpus\.cpu: the job got .*, which does not match device_name A100; right"):
        measure(stage, tmp_path, changes)
    assert not list(tmp_path.glob("*.csv")), "a run after it would take the cell as done"


@pytest.mark.parametrize("stage", [bench, profile])
def test_the_device_is_the_cells_own_as_long_as_it_is_used(
    stage: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    holders, used, applied = [], [], variants.applied

    @contextmanager
    def claimed(gpu: GpuConfig, row: str) -> Iterator[torch.device]:
        holders.append(row)
        yield torch.device(gpu.device)
        holders.clear()

    @contextmanager
    def watched(*arguments: Any, **keywords: Any) -> Iterator[variants.Applied]:
        with applied(*arguments, **keywords) as what:
            used.append(list(holders))
            yield what
            used.append(list(holders))

    monkeypatch.setattr(device, "claimed", claimed)
    monkeypatch.setattr(variants, "applied", watched)
    measure(stage, tmp_path)
    assert used
    assert all(each == ["cpu"] for each in used)


@pytest.mark.parametrize(
    ("old", "new"),
    [("speedup", "spedup"), (",ok,", ",super,"), ("sample", "sampled"), ("1x16x16x16,1,", "1x16x16x16,one,")],
)
def test_a_damaged_table_is_one_line(tmp_path: Path, old: str, new: str) -> None:
    run_bench(tmp_path, "sample")
    path = tmp_path / "timing.csv"
    path.write_text(path.read_text().replace(old, new))
    with pytest.raises(UserError, match=r"timing\.csv: is no timing table") as caught:
        tables.concatenate("timing", [path], tmp_path / "all.csv")
    assert "\n" not in str(caught.value)


def test_a_table_that_lost_its_rows_is_refused(tmp_path: Path) -> None:
    tables.write("timing", [], tmp_path / "timing.csv")
    with pytest.raises(UserError, match="has no row, and every cell has one"):
        tables.concatenate("timing", [tmp_path / "timing.csv"], tmp_path / "all.csv")


HEAVY = {"torch", "numpy", "nibabel", "nilearn", "matplotlib", "diffusers", "skimage", "pandas"}


@pytest.mark.parametrize("module", ["meddpm.study", "meddpm.cli", "meddpm.tables"])
def test_what_the_snakefile_and_the_command_line_read_is_light(module: str) -> None:
    script = f"import sys, {module}; print(*{HEAVY!r} & set(sys.modules))"
    printed = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True)
    assert printed.stdout.split() == []


def test_what_a_person_should_look_at_is_said_where_the_workflow_was_started(tmp_path, capsys) -> None:
    """A mask of the size of a brain for a model of whole heads."""
    data = whole_heads(tmp_path / "data", 2)
    _, label = head(0)
    label[:, :, 4:] = 0
    save(data / "mask" / "sample_1.nii.gz", label)
    config = {name: dict(section) for name, section in CONFIG.items()}
    config["datasets"]["icbm152_tiny"] = {"source": "files", "path": str(data), "fit": "contain"}
    prepare.run(study.load(config, ROOT).settings("prepare", dataset="icbm152_tiny"), tmp_path / "cases.tsv", 1)
    told = capsys.readouterr().err
    assert "WARNING: look at the dataset icbm152_tiny" in told
    assert "sample_1: label 1 holds" in told
    assert "the size of a brain, not of a head" in told
    assert "sample_0" not in told
