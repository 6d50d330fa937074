"""python -m meddpm model: weights from one format to the other and back, and what a file of weights is."""

import dataclasses
import json
import re
import resource
import subprocess
import sys
from collections import OrderedDict
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from typer.testing import CliRunner

from meddpm.cli import app
from meddpm.config import UserError, repository_root, to_mapping
from meddpm.files import sha256
from meddpm.model import PRESETS, build_model, presets, weights
from meddpm.model.formats import conversion, fit, header, keys, packing
from tests.unit.weights_fixture import CARD, TINY, checkpoint, entries, equal, network, saved, with_code

GOLDEN = repository_root().parent / "shared" / "golden"
EMA = network(2).state_dict()
MODEL = network(1).state_dict()


@pytest.fixture(autouse=True)
def tiny_is_a_preset(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(presets.PRESETS, "tiny", TINY)


def content(path: Path) -> Any:
    return torch.load(path, weights_only=True)


def there_and_back(tmp_path: Path, what: Any) -> Any:
    """What a file of torch.save holds once it was safetensors in between."""
    saved(tmp_path / "before.pt", what)
    conversion.convert(tmp_path / "before.pt", tmp_path / "w.safetensors")
    conversion.convert(tmp_path / "w.safetensors", tmp_path / "after.pt")
    return content(tmp_path / "after.pt")


# --- convert ---


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16, torch.float64])
def test_a_published_checkpoint_comes_back_bit_by_bit(tmp_path: Path, dtype: torch.dtype) -> None:
    what = checkpoint(dtype=dtype)
    assert equal(there_and_back(tmp_path, what), what)
    network_of_it = network(seed=None)
    weights.load(tmp_path / "w.safetensors", network_of_it, TINY.steps)
    for key, tensor in network_of_it.state_dict().items():
        assert torch.equal(tensor, EMA[key].to(dtype).float())


@pytest.mark.parametrize(
    "what",
    [
        EMA,
        entries(EMA),
        {f"module.{key}": tensor for key, tensor in entries(EMA).items()},
        {"model": MODEL, "ema": EMA},
        {"step": 3, "model": entries(MODEL)},
        {"ema": None, "model": MODEL},
        {"ema": {**EMA, "out.2.bias": torch.tensor([-0.0]), "out.2.weight": EMA["out.2.weight"] * torch.nan}},
        {"ema": EMA, "steps": torch.tensor(7), "flags": torch.tensor([True, False]), "none": torch.zeros(0, 3)},
        {
            "ema": EMA,
            "optimizer": {
                "state": {0: {"step": torch.tensor(1.0), "exp_avg": torch.ones(2)}},
                "groups": [{"lr": 1e-5}],
            },
            "rate": (0.1, float("inf"), -0.0, True, None, "é\n", 2**70),
            "a.b": {"c": torch.zeros(1)},
            "a": {"b.c": torch.ones(1)},
        },
    ],
)
def test_whatever_a_checkpoint_holds_comes_back(tmp_path: Path, what: dict[str, Any]) -> None:
    assert equal(there_and_back(tmp_path, what), what)


def test_layouts_of_memory_do_not_matter(tmp_path: Path) -> None:
    shared = torch.arange(64.0).reshape(8, 8)
    what = {"ema": {key: tensor.clone() for key, tensor in EMA.items()}, "views": [shared[:, 1], shared.T, shared]}
    key = "input_blocks.0.0.weight"
    what["ema"][key] = what["ema"][key].to(memory_format=torch.channels_last_3d)
    back = there_and_back(tmp_path, OrderedDict(what))
    assert equal(back, what)


def test_the_converted_file_loads_and_says_what_it_is(tmp_path: Path) -> None:
    saved(tmp_path / "w.pt", checkpoint(step=12))
    done = conversion.convert(tmp_path / "w.pt", tmp_path / "w.safetensors")
    assert (done.kept, done.preset) == ("step, model, ema", "tiny")
    card = weights.read_card(tmp_path / "w.safetensors")
    assert card == {"preset": to_mapping(TINY), "preset_found_by": "shapes", "steps": 12}
    names = header.read(tmp_path / "w.safetensors").shapes
    assert set(EMA) | set(keys.SCHEDULE_BUFFERS) == {name for name in names if not name.startswith("checkpoint.")}
    assert {f"checkpoint.model.denoise_fn.{key}" for key in MODEL} < set(names)


def test_the_card_has_the_steps_of_the_schedule_that_is_there(tmp_path: Path) -> None:
    saved(tmp_path / "w.pt", {"ema": entries(EMA, steps=9)})
    conversion.convert(tmp_path / "w.pt", tmp_path / "w.safetensors")
    assert weights.read_card(tmp_path / "w.safetensors")["preset"]["steps"] == 9


def test_weights_that_fit_no_preset_convert_without_one(tmp_path: Path) -> None:
    what = {"step": 1, "ema": entries(network(channel_multipliers=(1, 2)).state_dict())}
    assert equal(there_and_back(tmp_path, what), what)
    assert weights.read_card(tmp_path / "w.safetensors") == {}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_weights_with_a_card_come_back_bit_by_bit(tmp_path: Path, dtype: torch.dtype) -> None:
    weights.save(tmp_path / "w.safetensors", EMA, CARD, dtype)
    conversion.convert(tmp_path / "w.safetensors", tmp_path / "w.pth")
    conversion.convert(tmp_path / "w.pth", tmp_path / "back.safetensors")
    assert weights.read_card(tmp_path / "back.safetensors") == CARD
    before, after = (load_file(tmp_path / name) for name in ("w.safetensors", "back.safetensors"))
    assert equal(after, before)
    assert (tmp_path / "w.safetensors").read_bytes() == (tmp_path / "back.safetensors").read_bytes()


def test_weights_with_a_card_become_a_checkpoint_of_the_original_layout(tmp_path: Path) -> None:
    weights.save(tmp_path / "w.safetensors", EMA, CARD)
    conversion.convert(tmp_path / "w.safetensors", tmp_path / "w.pt")
    expected = {"step": 5, "model": entries(EMA), "ema": entries(EMA), "card": json.dumps(CARD, sort_keys=True)}
    assert equal(content(tmp_path / "w.pt"), expected)
    fresh = network(seed=None)
    assert weights.load(tmp_path / "w.pt", fresh, TINY.steps) == CARD == weights.read_card(tmp_path / "w.pt")


def test_a_checkpoint_with_a_card_that_was_changed_keeps_the_change(tmp_path: Path) -> None:
    weights.save(tmp_path / "w.safetensors", EMA, CARD)
    conversion.convert(tmp_path / "w.safetensors", tmp_path / "w.pt")
    for changes in (
        {"model": entries(MODEL)},
        {"step": 6},
        {"extra": 1},
        {"model": {**entries(EMA), "denoise_fn.out.2.bias": -EMA["out.2.bias"]}},
        {"ema": {**entries(EMA), "betas": entries(EMA)["betas"] * (1 + 1e-6)}},
    ):
        what = {**content(tmp_path / "w.pt"), **changes}
        folder = tmp_path / next(iter(changes)) / str(len(str(changes)))
        folder.mkdir(parents=True)
        assert equal(there_and_back(folder, what), what)
        assert weights.read_card(folder / "w.safetensors") == CARD


def test_safetensors_of_others_become_a_checkpoint(tmp_path: Path) -> None:
    save_file(EMA, tmp_path / "w.safetensors")
    conversion.convert(tmp_path / "w.safetensors", tmp_path / "w.pt")
    assert equal(content(tmp_path / "w.pt"), {"step": 0, "model": entries(EMA), "ema": entries(EMA), "card": "{}"})
    conversion.convert(tmp_path / "w.pt", tmp_path / "back.safetensors")
    assert equal(load_file(tmp_path / "back.safetensors"), load_file(tmp_path / "w.safetensors"))


def test_safetensors_that_say_no_steps_are_refused(tmp_path: Path) -> None:
    state = network(channel_multipliers=(1, 2)).state_dict()
    save_file(state, tmp_path / "w.safetensors")
    with pytest.raises(UserError, match="number of diffusion steps is not known"):
        conversion.convert(tmp_path / "w.safetensors", tmp_path / "w.pt")
    save_file(entries(state, steps=9), tmp_path / "w.safetensors")
    conversion.convert(tmp_path / "w.safetensors", tmp_path / "w.pt")
    written, expected = content(tmp_path / "w.pt")["ema"], entries(state, steps=9)
    assert equal({key: written[key] for key in expected}, expected)  # in the file's order: no preset says another
    assert written.keys() == expected.keys()
    mine = dataclasses.replace(TINY, channel_multipliers=(1, 2), steps=11)
    weights.save(tmp_path / "w.safetensors", state, {"preset": to_mapping(mine)})
    conversion.convert(tmp_path / "w.safetensors", tmp_path / "w.pt", force=True)
    assert equal(content(tmp_path / "w.pt")["ema"], entries(state, steps=11))


def test_the_golden_layout_is_what_safetensors_become(tmp_path: Path) -> None:
    if not (GOLDEN / "checkpoint_layout.json").exists():
        pytest.skip("../shared is not here")
    layout = json.loads((GOLDEN / "checkpoint_layout.json").read_text())
    shapes = json.loads((GOLDEN / "state_dict_keys.json").read_text())["whole_head_128"]["state_dict"]
    state = {key: torch.zeros(shape, dtype=torch.float16) for key, shape in shapes.items()}
    weights.save(tmp_path / "w.safetensors", state, {"preset": to_mapping(PRESETS["whole_head_128"])})
    conversion.convert(tmp_path / "w.safetensors", tmp_path / "w.pt")
    written = content(tmp_path / "w.pt")
    assert list(written) == [*layout["top_level"], "card"]
    assert list(written["ema"]) == list(written["model"])
    assert len(written["ema"]) == layout["n_keys"]
    assert list(written["ema"])[: len(layout["ema_keys_first"])] == layout["ema_keys_first"]
    assert list(written["ema"])[13:] == [layout["unet_prefix"] + key for key in shapes]


@pytest.mark.parametrize(
    ("source", "target", "words"),
    [
        ("w.pt", "w.pt", "is the file to convert"),
        ("w.pt", "link.safetensors", "is the file to convert"),
        ("w.pt", "there.safetensors", "is there already; give another path, or --force"),
        ("w.pt", "folder.safetensors", "is a folder"),
        ("w.pt", "w.onnx", "no format has the suffix '.onnx'; use .safetensors, .pt or .pth"),
        ("w.pt", "w", "no format has the suffix ''"),
        ("w.pt", "other.pth", "is a file of torch.save already; copy it"),
        ("w.safetensors", "other.safetensors", "is a file of safetensors already; copy it"),
        ("absent.pt", "other.safetensors", "there is no such file"),
        ("evil.pt", "other.safetensors", "holds code (posix.mkdir), which is not run"),
        ("odd.pt", "other.safetensors", "a.0 is a complex, which safetensors cannot hold"),
        ("w.pt", "w.pt/other.safetensors", "cannot be written"),
        ("outline.safetensors", "other.pt", "the outline of its checkpoint is damaged"),
        ("w.pt", "x" * 300 + ".safetensors", "File name too long"),
        ("x" * 300, "other.safetensors", "cannot be read (File name too long)"),
        ("surrogate.pt", "other.safetensors", "holds what other.safetensors cannot"),
        ("complex.pt", "other.safetensors", "holds what other.safetensors cannot (torch.complex128)"),
        ("metadata.pt", "other.safetensors", "cannot be written so that it can be read"),
        ("long.pt", "other.safetensors", "cannot be written so that it can be read"),
    ],
)
def test_what_cannot_be_converted_is_one_line(tmp_path: Path, source: str, target: str, words: str) -> None:
    saved(tmp_path / "w.pt", checkpoint())
    weights.save(tmp_path / "w.safetensors", EMA, CARD)
    weights.save(
        tmp_path / "outline.safetensors", EMA, {}, texts={"checkpoint": '{"dict": [["ema", {"tensor": "no"}]]}'}
    )
    (tmp_path / "there.safetensors").write_text("mine")
    (tmp_path / "folder.safetensors").mkdir()
    (tmp_path / "link.safetensors").symlink_to(tmp_path / "w.pt")
    with_code(tmp_path / "evil.pt", tmp_path / "trap")
    saved(tmp_path / "odd.pt", {"ema": EMA, "a": [1j]})
    saved(tmp_path / "surrogate.pt", {"ema": {**EMA, "\ud800": torch.zeros(1)}})
    saved(tmp_path / "complex.pt", {"ema": EMA, "a": torch.zeros(1, dtype=torch.complex128)})
    saved(tmp_path / "metadata.pt", {"ema": {"__metadata__": torch.zeros(1)}})
    saved(tmp_path / "long.pt", {"ema": EMA, "losses": "x" * header.HEADER_LIMIT})
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir() if path.is_file()}
    for force in ([], ["--force"]):
        if force and source == "w.pt" and target == "there.safetensors":
            continue
        result = CliRunner().invoke(app, ["model", "convert", str(tmp_path / source), str(tmp_path / target), *force])
        assert isinstance(result.exception, UserError)
        assert words in str(result.exception)
        assert len(str(result.exception).splitlines()) == 1
        assert {path.name: path.read_bytes() for path in tmp_path.iterdir() if path.is_file()} == before
    assert not (tmp_path / "trap").exists()


def test_force_replaces_and_the_command_says_what_it_wrote(tmp_path: Path) -> None:
    saved(tmp_path / "w.pt", checkpoint())
    (tmp_path / "w.safetensors").write_text("mine")
    result = CliRunner().invoke(
        app, ["model", "convert", str(tmp_path / "w.pt"), str(tmp_path / "w.safetensors"), "--force"]
    )
    assert result.exit_code == 0
    assert (
        result.stdout == f"{tmp_path}/w.safetensors: 5.6 MB, holds step, model, ema; the weights fit the preset tiny\n"
    )
    weights.load(tmp_path / "w.safetensors", network(seed=None))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["w.pt", "w.safetensors"]


def test_a_failed_write_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    weights.save(tmp_path / "w.safetensors", EMA, CARD)
    (tmp_path / "w.pt").write_text("mine")

    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(torch, "save", full)
    with pytest.raises(UserError, match=r"w\.pt: cannot be written \(.*No space left"):
        conversion.convert(tmp_path / "w.safetensors", tmp_path / "w.pt", force=True)
    assert (tmp_path / "w.pt").read_text() == "mine"
    assert len(list(tmp_path.iterdir())) == 2


def test_what_the_system_says_of_a_failed_write_is_said(tmp_path: Path) -> None:
    weights.save(tmp_path / "w.safetensors", EMA, CARD)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, limits[1]))
    try:
        with pytest.raises(UserError, match=r"w\.pt: cannot be written \(.*File too large"):
            conversion.convert(tmp_path / "w.safetensors", tmp_path / "w.pt")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert len(list(tmp_path.iterdir())) == 1


@pytest.mark.parametrize(
    "outline",
    [
        {},
        {"tensor": "absent"},
        {"value": [1]},
        {"dict": [["a"]]},
        {"dict": [[["a"], {"value": 1}]]},
        {"list": {}},
        None,
        [],
    ],
)
def test_a_damaged_outline_is_a_fault(outline: Any) -> None:
    with pytest.raises(ValueError, match="outline is damaged"):
        packing.unpack(outline, {})


# --- inspect ---


def test_halving_rounds_the_weights_and_keeps_the_card(tmp_path: Path) -> None:
    weights.save(tmp_path / "w.safetensors", network(2), CARD)
    result = CliRunner().invoke(
        app, ["model", "halve", str(tmp_path / "w.safetensors"), str(tmp_path / "h.safetensors")]
    )
    assert result.exit_code == 0
    assert "fp16" in result.output
    halved = load_file(tmp_path / "h.safetensors")
    assert {tensor.dtype for tensor in halved.values()} == {torch.float16}
    for key, tensor in EMA.items():
        torch.testing.assert_close(halved[key].float(), tensor, rtol=1e-3, atol=1e-6)
    assert weights.read_card(tmp_path / "h.safetensors") == {**CARD, "stored": "fp16"}


@pytest.mark.parametrize(
    ("target", "words"), [("h.pt", "are written as .safetensors"), ("w.safetensors", "file to convert")]
)
def test_halving_refuses_another_format_and_its_own_file(tmp_path: Path, target: str, words: str) -> None:
    weights.save(tmp_path / "w.safetensors", network(2), CARD)
    with pytest.raises(UserError, match=words):
        conversion.halve(tmp_path / "w.safetensors", tmp_path / target)


def test_halving_refuses_what_half_precision_cannot_hold(tmp_path: Path) -> None:
    state = {**EMA, "out.2.bias": torch.full_like(EMA["out.2.bias"], 1e6)}
    weights.save(tmp_path / "w.safetensors", state, CARD)
    with pytest.raises(UserError, match=r"out\.2\.bias has values that fp16 cannot hold"):
        conversion.halve(tmp_path / "w.safetensors", tmp_path / "h.safetensors")
    assert not (tmp_path / "h.safetensors").exists()


def test_halving_refuses_what_half_precision_is_not_made_of(tmp_path: Path) -> None:
    float4 = torch.zeros(1, dtype=torch.uint8).view(torch.float4_e2m1fn_x2)
    for name, tensor in (("a", float4), ("\ud800", torch.zeros(1)), ("a", torch.zeros(1, dtype=torch.complex128))):
        saved(tmp_path / "w.pt", {name: tensor})
        with pytest.raises(UserError, match=r"^\S+/w\.pt: holds what h\.safetensors cannot .*$"):
            conversion.halve(tmp_path / "w.pt", tmp_path / "h.safetensors")


def test_halving_keeps_the_schedule(tmp_path: Path) -> None:
    saved(tmp_path / "w.pt", {"step": 12, "ema": entries(EMA, steps=9)})
    conversion.halve(tmp_path / "w.pt", tmp_path / "h.safetensors")
    halved = load_file(tmp_path / "h.safetensors")
    buffers = entries({}, steps=9)
    assert all(equal(halved[name], tensor) for name, tensor in buffers.items())
    assert {halved[key].dtype for key in EMA} == {torch.float16}
    with pytest.raises(UserError, match="9 diffusion steps, and the model 7"):
        weights.load(tmp_path / "h.safetensors", network(seed=None), TINY.steps)
    weights.load(tmp_path / "h.safetensors", network(seed=None), 9)
    preset = {**to_mapping(TINY), "steps": 9}
    card = {"preset": preset, "preset_found_by": "shapes", "steps": 12, "stored": "fp16"}
    assert weights.read_card(tmp_path / "h.safetensors") == card


def test_halving_gives_safetensors_of_others_a_card(tmp_path: Path) -> None:
    save_file(EMA, tmp_path / "w.safetensors")
    conversion.halve(tmp_path / "w.safetensors", tmp_path / "h.safetensors")
    card = {"preset": to_mapping(TINY), "preset_found_by": "shapes", "stored": "fp16"}
    assert weights.read_card(tmp_path / "h.safetensors") == card


def test_halving_refuses_another_schedule(tmp_path: Path) -> None:
    saved(tmp_path / "w.pt", {**entries(EMA), "betas": torch.linspace(1e-4, 0.02, TINY.steps)})
    with pytest.raises(UserError, match="not the cosine schedule"):
        conversion.halve(tmp_path / "w.pt", tmp_path / "h.safetensors")
    assert not (tmp_path / "h.safetensors").exists()


def meddpm(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "meddpm", *words]
    return subprocess.run(command, cwd=repository_root(), capture_output=True, text=True)


def inspected(path: Path, *words: str) -> tuple[int, str]:
    """Exit code and output of inspect in a terminal of 80 columns, runs of spaces made one."""
    result = CliRunner(env={"COLUMNS": "80"}).invoke(app, ["model", "inspect", str(path), *words])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.exit_code, re.sub(r"\s+", " ", result.stdout)


def test_a_published_checkpoint_is_described(tmp_path: Path) -> None:
    path = saved(tmp_path / "w.pt", checkpoint(step=250_000, dtype=torch.float16))
    code, text = inspected(path, "--against", "tiny")
    assert code == 0
    count = sum(tensor.numel() for tensor in EMA.values())
    for words in (
        f"format torch.save, {path.stat().st_size / 1e6:.1f} MB",
        f"sha256 {sha256(path)}",
        "holds step, model, ema (the weights are those of ema)",
        "trained 250,000 steps",
        f"weights 126 tensors of float16, {count:,} parameters",
        "schedule 7 diffusion steps",
        "fits preset tiny, every key and shape",
        "card none",
        "time_embed 4 20,736",
        "The weights fit tiny.",
    ):
        assert words in text


def test_weights_with_a_card_are_described(tmp_path: Path) -> None:
    weights.save(tmp_path / "w.safetensors", EMA, {**CARD, "dataset": "of\x1b[31m two [bold] brains", "cases": 4})
    code, text = inspected(tmp_path / "w.safetensors")
    assert code == 0
    for words in (
        "format safetensors",
        "trained 5 steps",
        "model 8x8x8 voxels, labels 1, 2 in -1 and 1, predicts epsilon",
        "data of?[31m two [bold] brains",
        "cases 4",
    ):
        assert words in text
    assert "holds" not in text


def test_a_converted_checkpoint_is_described_as_one(tmp_path: Path) -> None:
    saved(tmp_path / "w.pt", checkpoint())
    conversion.convert(tmp_path / "w.pt", tmp_path / "w.safetensors")
    _, text = inspected(tmp_path / "w.safetensors")
    assert "holds step, model, ema (the weights are those of ema)" in text
    assert "trained 12 steps" in text
    assert "(a guess, by the shapes)" in text


def test_what_fits_no_preset_is_compared_with_the_closest_and_read_off(tmp_path: Path) -> None:
    other = dataclasses.replace(PRESETS["whole_head_128"], image_channels=2, channel_multipliers=(1, 1, 2, 3, 3))
    shapes = fit.shapes(other)
    path = saved(tmp_path / "w.pt", {key: torch.zeros(shape, dtype=torch.float16) for key, shape in shapes.items()})
    different = fit.differences(shapes, fit.shapes(PRESETS["whole_head_128"]))
    code, text = inspected(path)
    assert code == 0
    assert f"no preset; the closest is whole_head_128, from which {len(different)} of 246 weights differ:" in text
    assert different[0] in text
    assert f"and {len(different) - 5} more" in text
    assert (
        "as a row image_channels: 2, condition_labels: 2 of them, base_channels: 64, channel_multipliers: "
        "[1, 1, 2, 3, 3], blocks_per_level: 1, attention_factors: [8]"
    ) in text


def test_against_a_preset_that_does_not_fit(tmp_path: Path) -> None:
    path = saved(tmp_path / "w.pt", checkpoint())
    code, text = inspected(path, "--against", "brats_192")
    assert code == 1
    assert "The weights do not fit brats_192: in_channels 3, not 8 image_channels 1, not 4" in text
    result = meddpm("model", "inspect", str(path), "--against", "brats")
    assert result.returncode == 1
    assert result.stderr.startswith("brats is no preset; did you mean brats_192? Known: whole_head_128, ")
    assert len(result.stderr.splitlines()) == 1


def test_against_a_preset_that_fits_by_its_shapes_alone(tmp_path: Path) -> None:
    weights.save(tmp_path / "w.safetensors", EMA, {"preset": {**CARD["preset"], "prediction": "v"}})
    code, text = inspected(tmp_path / "w.safetensors", "--against", "tiny")
    assert code == 1
    assert 'its card says prediction "v", not "epsilon"' in text
    code, text = inspected(saved(tmp_path / "w.pt", entries(EMA, steps=9)), "--against", "tiny")
    assert code == 1
    assert "its schedule has 9 diffusion steps, not 7" in text


def test_what_a_job_would_refuse_is_said(tmp_path: Path) -> None:
    path = saved(tmp_path / "w.pt", {**EMA, "out.2.bias": torch.tensor([torch.nan])})
    code, text = inspected(path)
    assert code == 0
    assert "A job would refuse it: 1 of 126 weights hold NaN" in text
    assert inspected(path, "--against", "tiny")[0] == 1
    save_file({**EMA, "betas": torch.zeros(7)}, tmp_path / "w.safetensors")
    assert "A job would refuse it: its betas are not the cosine schedule" in inspected(tmp_path / "w.safetensors")[1]


def test_entries_whose_names_are_no_texts_are_described(tmp_path: Path) -> None:
    path = saved(tmp_path / "w.pt", {"ema": EMA, 5: 1, None: 2, ("a", 1): 3})
    code, text = inspected(path)
    assert code == 0
    assert "holds ema, 5, None, ('a', 1) (the weights are those of ema)" in text


def test_a_schedule_with_gradients_is_described(tmp_path: Path) -> None:
    what = {"ema": {key: torch.nn.Parameter(tensor) for key, tensor in entries(EMA).items()}}
    code, text = inspected(saved(tmp_path / "w.pt", what))
    assert code == 0
    assert "schedule 7 diffusion steps" in text
    assert "A job would refuse it" not in text


def test_every_shape_is_listed_on_demand(tmp_path: Path) -> None:
    path = saved(tmp_path / "w.pt", EMA)
    _, text = inspected(path, "--shapes")
    for key, tensor in EMA.items():
        assert f" {key} {list(tensor.shape)} float32" in text
    listed = re.findall(r"(?:input|output)_blocks\.\d+", text)
    assert listed == sorted(listed)
    assert "input_blocks.0.0.weight" not in inspected(path)[1]


def test_weights_that_are_no_network_are_described_too(tmp_path: Path) -> None:
    code, text = inspected(
        saved(tmp_path / "w.pt", {"a.10": torch.zeros(2), "a.9": torch.zeros(3), "b\x1b": torch.ones(1)})
    )
    assert code == 0
    assert "3 tensors of float32, 6 parameters" in text
    assert "fits no preset" in text
    assert "\x1b" not in text


@pytest.mark.parametrize("content", [b"", b"no weights", b"PK\x03\x04", b"\x80\x02", b"\xff" * 8 + b"{"])
def test_what_cannot_be_read_is_one_line_and_exit_code_1(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "w.pt").write_bytes(content)
    result = CliRunner().invoke(app, ["model", "inspect", str(tmp_path / "w.pt")])
    assert isinstance(result.exception, UserError)
    (line,) = str(result.exception).splitlines()
    assert line.startswith(f"{tmp_path}/w.pt: ")


def test_the_command_line_ends_in_one_line_and_exit_code_1(tmp_path: Path) -> None:
    for words in (["inspect", "w.pt"], ["convert", "w.pt", "w.safetensors"]):
        result = meddpm("model", *words)
        assert result.returncode == 1
        assert result.stdout == ""
        assert result.stderr == "w.pt: there is no such file; check the path of the weights\n"


def test_a_preset_of_the_package_is_described_in_80_columns(tmp_path: Path) -> None:
    weights.save(
        tmp_path / "w.safetensors", build_model("demo"), {"preset": to_mapping(PRESETS["demo"])}, torch.float16
    )
    (tmp_path / "w.safetensors").rename(tmp_path / "w.st")
    result = CliRunner(env={"COLUMNS": "80", "FORCE_COLOR": "1"}).invoke(
        app, ["model", "inspect", str(tmp_path / "w.st")]
    )
    lines = re.sub(r"\x1b\[[0-9;]*m", "", result.stdout).splitlines()
    assert len(lines) > 10
    assert all(len(line) <= 80 for line in lines[1:])
