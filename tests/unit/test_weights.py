"""Files of weights: what is read, what is refused and how, what config.yaml may say of them."""

import dataclasses
import gzip
import json
import logging
import os
import pickle
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from meddpm import study
from meddpm.config import ConfigError, UserError, repository_root, to_mapping
from meddpm.diffusion.schedule import Schedule, cosine_schedule
from meddpm.model import PRESETS, build_model, presets, weights
from meddpm.model.formats import architecture, card, fit, header, keys
from meddpm.stages import network as job
from tests.unit.test_config import CONFIG, ROOT, changed
from tests.unit.weights_fixture import CARD, TINY, State, Trap, checkpoint, entries, network, saved, with_code

GOLDEN = repository_root().parent / "shared" / "golden"
EMA = network(2).state_dict()
FLOAT4 = torch.zeros(1, dtype=torch.uint8).view(torch.float4_e2m1fn_x2)


def loaded(path: Path, steps: int | None = TINY.steps) -> State:
    model = network(seed=None)
    weights.load(path, model, steps)
    return model.state_dict()


def assert_loads_ema(path: Path) -> None:
    state = loaded(path)
    assert all(torch.equal(state[key], tensor) for key, tensor in EMA.items())


def refused(path: Path, *words: str, steps: int | None = TINY.steps) -> str:
    """The one line in which the file is refused; it names the file, has the words, and the network is untouched."""
    model = network(0)
    before = {key: tensor.clone() for key, tensor in model.state_dict().items()}
    with pytest.raises(UserError) as caught:
        weights.load(path, model, steps)
    text = str(caught.value)
    assert text.startswith(f"{path}: ")
    assert "\n" not in text
    assert len(text) < 600
    for word in words:
        assert word in text, text
    assert all(torch.equal(tensor, before[key]) for key, tensor in model.state_dict().items())
    return text


# --- what is read ---


def test_the_moving_average_of_a_published_checkpoint_is_read(tmp_path: Path) -> None:
    path = saved(tmp_path / "model250.pt", checkpoint())
    assert_loads_ema(path)
    assert weights.read_card(path) == {}


def test_without_a_moving_average_the_model_is_read(tmp_path: Path) -> None:
    content = checkpoint()
    model = {**content, "ema": content["model"]}
    for absent in ({}, {"ema": None}, {"ema": {}}):
        path = saved(tmp_path / "model.pt", {"step": 1, "model": content["model"], **absent})
        state = loaded(path)
        assert all(torch.equal(state[key], model["ema"]["denoise_fn." + key]) for key in state)


@pytest.mark.parametrize(
    "content",
    [
        EMA,
        entries(EMA),
        entries(EMA, prefix=""),
        entries(EMA, prefix="module.denoise_fn."),
        entries(EMA, prefix="denoise_fn.module."),
        {f"module.{key}": tensor for key, tensor in entries(EMA).items()},
        {f"_orig_mod.{key}": tensor for key, tensor in EMA.items()},
        {"ema": EMA},
        {"model": EMA},
        {"ema": entries(EMA, prefix=""), "optimizer": {"state": {0: {"lr": 1e-5}}}},
        {"betas": cosine_schedule(TINY.steps).betas, **EMA},
        {key: torch.nn.Parameter(tensor) for key, tensor in EMA.items()},
        {key: tensor.double() for key, tensor in EMA.items()},
    ],
)
def test_other_layouts_are_read(tmp_path: Path, content: dict[str, Any]) -> None:
    assert_loads_ema(saved(tmp_path / "w.pt", content))


def test_the_old_format_of_torch_save_is_read(tmp_path: Path) -> None:
    path = tmp_path / "old.pt"
    torch.save(checkpoint(), path, _use_new_zipfile_serialization=False)
    assert header.kind(path) == header.TORCH_LEGACY
    assert_loads_ema(path)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_becomes_the_type_of_the_network(tmp_path: Path, dtype: torch.dtype) -> None:
    state = loaded(saved(tmp_path / "half.pt", checkpoint(dtype=dtype)))
    for key, tensor in EMA.items():
        assert state[key].dtype == torch.float32
        assert torch.equal(state[key], tensor.to(dtype).float())


def test_the_content_decides_and_not_the_suffix(tmp_path: Path) -> None:
    weights.save(tmp_path / "w.safetensors", EMA, CARD)
    shutil.move(tmp_path / "w.safetensors", tmp_path / "w.pt")
    assert_loads_ema(tmp_path / "w.pt")
    assert weights.read_card(tmp_path / "w.pt") == CARD
    assert_loads_ema(saved(tmp_path / "w.pth", checkpoint()).rename(tmp_path / "zip.safetensors"))


def test_safetensors_without_a_card_are_read_with_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "others.safetensors"
    for state in (EMA, entries(EMA)):
        caplog.clear()
        save_file(state, path, metadata={"format": "pt"})
        with caplog.at_level(logging.WARNING, "meddpm"):
            assert_loads_ema(path)
        assert "has no card" in caplog.text
        assert weights.read_card(path) == {}


def test_a_card_is_read_without_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    weights.save(tmp_path / "w.safetensors", EMA, CARD)
    with caplog.at_level(logging.WARNING, "meddpm"):
        assert weights.load(tmp_path / "w.safetensors", network(seed=None), TINY.steps) == CARD
    assert not caplog.text


def test_the_golden_layout_is_read(tmp_path: Path) -> None:
    """Keys of the published checkpoint; the values are of the recipe that fills a network."""
    if not (GOLDEN / "checkpoint_layout.json").exists():
        pytest.skip("../shared is not here")
    layout = json.loads((GOLDEN / "checkpoint_layout.json").read_text())
    shapes = json.loads((GOLDEN / "state_dict_keys.json").read_text())["whole_head_128"]["state_dict"]
    assert tuple(layout["schedule_buffers"]) == keys.SCHEDULE_BUFFERS
    assert layout["unet_prefix"] == keys.NETWORK_PREFIX
    state = {layout["unet_prefix"] + key: torch.full(shape, 0.5, dtype=torch.float16) for key, shape in shapes.items()}
    section = {**{key: getattr(cosine_schedule(250), key) for key in layout["schedule_buffers"]}, **state}
    assert len(section) == layout["n_keys"]
    assert list(section)[: len(layout["ema_keys_first"])] == layout["ema_keys_first"]
    values = {"step": 1, "model": {}, "ema": section}
    path = saved(tmp_path / "golden.pt", {key: values[key] for key in layout["top_level"]})
    model = build_model("whole_head_128")
    weights.load(path, model, 250)
    assert all((tensor == 0.5).all() for tensor in model.state_dict().values())


def test_the_names_of_the_buffers_are_those_of_the_schedule() -> None:
    assert [field.name for field in dataclasses.fields(Schedule)] == list(keys.SCHEDULE_BUFFERS)


def test_a_job_takes_both_formats(tmp_path: Path) -> None:
    weights.save(tmp_path / "w.safetensors", EMA, CARD)
    for path in (tmp_path / "w.safetensors", saved(tmp_path / "w.pt", checkpoint())):
        model = job.load(TINY, path)
        assert not model.training
        assert all(torch.equal(tensor, EMA[key]) for key, tensor in model.state_dict().items())


# --- what is refused ---


def test_another_schedule_is_refused(tmp_path: Path) -> None:
    path = saved(tmp_path / "w.pt", entries(EMA, steps=9))
    refused(path, "9 diffusion steps, and the model 7", "set steps: 9")
    assert loaded(path, steps=None).keys() == EMA.keys()  # of a length that nobody asked for, but ours
    linear = {**entries(EMA), "betas": torch.linspace(1e-4, 0.02, TINY.steps)}
    refused(saved(path, linear), "not the cosine schedule", steps=None)
    close = entries(EMA)
    close["betas"] = close["betas"].half()
    assert_loads_ema(saved(path, close))
    close["betas"] = entries(EMA)["betas"] + 1.1e-3
    refused(saved(path, close), "not the cosine schedule")
    refused(saved(path, {**close, "betas": torch.full((TINY.steps,), torch.nan)}), "not the cosine schedule")
    refused(saved(path, {**close, "betas": torch.zeros(0)}), "0 diffusion steps")


def test_the_schedule_in_safetensors_is_verified_too(tmp_path: Path) -> None:
    weights.save(tmp_path / "w.safetensors", entries(EMA, steps=9), {})
    refused(tmp_path / "w.safetensors", "9 diffusion steps")


def test_other_channels_are_refused_with_the_keys_and_the_preset(tmp_path: Path) -> None:
    wide = network(condition_labels=(1, 2, 3)).state_dict()
    refused(
        saved(tmp_path / "w.pt", entries(wide)),
        "1 of 126 weights differ (input_blocks.0.0.weight is [32, 4, 3, 3, 3], not [32, 3, 3, 3, 3])",
        "they fit no preset",
    )
    brats = {key: torch.zeros(shape, dtype=torch.float16) for key, shape in fit.shapes(PRESETS["brats_192"]).items()}
    refused(saved(tmp_path / "b.pt", brats), "weights differ (", "they fit the preset brats_192")


@pytest.mark.parametrize("bad", [torch.nan, torch.inf, -torch.inf])
def test_weights_that_are_not_finite_are_refused(tmp_path: Path, bad: float) -> None:
    state = {key: tensor.clone() for key, tensor in EMA.items()}
    state["out.2.bias"][0] = bad
    weights.save(tmp_path / "w.safetensors", state, {})
    saved(tmp_path / "w.pt", {"ema": entries(state)})
    saved(tmp_path / "half.pt", {key: tensor.half() for key, tensor in state.items()})
    for name in ("w.safetensors", "w.pt", "half.pt"):
        refused(tmp_path / name, "1 of 126 weights hold NaN", "out.2.bias", "use other weights")
    # What is not read may hold anything.
    assert_loads_ema(saved(tmp_path / "model.pt", {"model": state, "ema": EMA}))


def test_numbers_that_float32_cannot_hold_and_whole_numbers_are_refused(tmp_path: Path) -> None:
    for key, value in (("out.2.bias", torch.tensor([1e300]).double()), ("out.2.bias", torch.tensor([1]))):
        refused(saved(tmp_path / "w.pt", {**EMA, key: value}), "no floating-point numbers", key)


def test_code_is_refused_and_not_run(tmp_path: Path) -> None:
    trap = tmp_path / "trap"
    for path in (with_code(tmp_path / "evil.pt", trap), with_code(tmp_path / "evil.safetensors", trap)):
        refused(path, "holds code (posix.mkdir)", "which is not run")
    pickle.loads(pickle.dumps(Trap(trap)))
    trap.rmdir()
    for protocol in range(2, 5):
        (tmp_path / "plain.pt").write_bytes(pickle.dumps({"ema": Trap(trap)}, protocol))
        refused(tmp_path / "plain.pt", "is a pickle, which can hold code and is not run")
    torch.save({"ema": Trap(trap)}, tmp_path / "old.pt", _use_new_zipfile_serialization=False)
    refused(tmp_path / "old.pt", "holds code (posix.mkdir)")
    with zipfile.ZipFile(tmp_path / "script.pt", "w") as archive:
        for name in ("data.pkl", "constants.pkl", "code/__torch__.py"):
            archive.writestr(f"script/{name}", b"")
    refused(tmp_path / "script.pt", "holds code", "TorchScript")
    assert not trap.exists()
    refused(saved(tmp_path / "model.pt", network()), "holds code (meddpm.model.unet.UNet)", "which is not run")
    refused(saved(tmp_path / "numpy.pt", {"ema": EMA, "loss": torch.zeros(1).numpy()[0]}), "holds code (numpy")


def cut(path: Path, share: float) -> Path:
    content = path.read_bytes()
    path.write_bytes(content[: int(len(content) * share)])
    return path


@pytest.mark.parametrize("share", [0.0001, 0.01, 0.5, 0.999, 0.9999])
def test_a_file_that_was_cut_off_is_refused(tmp_path: Path, share: float) -> None:
    refused(cut(saved(tmp_path / "w.pt", checkpoint()), share), "fetch it again")
    torch.save(checkpoint(), tmp_path / "old.pt", _use_new_zipfile_serialization=False)
    refused(cut(tmp_path / "old.pt", share), "fetch it again")
    weights.save(tmp_path / "w.safetensors", EMA, CARD)
    refused(cut(tmp_path / "w.safetensors", share), "not a readable safetensors file")


def test_what_is_no_checkpoint_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "w.pt"
    refused(path, "there is no such file")
    refused(tmp_path, "is a folder")
    path.write_bytes(b"")
    refused(path, "is empty")
    path.write_text("step,loss\n1,0.5\n")
    refused(path, "is no file of weights")
    path.write_text("<!DOCTYPE html><html>Google Drive - Virus scan warning")
    refused(path, "is a web page")
    path.write_text("version https://git-lfs.github.com/spec/v1\noid sha256:0\n")
    refused(path, "Git LFS pointer")
    path.write_bytes(gzip.compress(b"weights"))
    refused(path, "gzip")
    path.write_bytes(os.urandom(1000).replace(b"P", b"Q"))
    refused(path)


def test_a_name_that_is_too_long_is_one_line(tmp_path: Path) -> None:
    refused(tmp_path / ("x" * 300), "cannot be read (File name too long)")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may enter every folder")
def test_a_folder_that_may_not_be_entered_is_one_line(tmp_path: Path) -> None:
    path = saved(tmp_path / "w.pt", EMA)
    tmp_path.chmod(0)
    try:
        refused(path, "cannot be read (Permission denied)")
    finally:
        tmp_path.chmod(0o700)


def test_a_pipe_is_refused_and_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "w.pt")
    # Opened for both, so that it is a wrong answer and no endless wait where the pipe is read.
    end = os.open(tmp_path / "w.pt", os.O_RDWR)
    os.write(end, b"x" * 64)
    refused(tmp_path / "w.pt", "is a pipe or a device")
    os.close(end)


def test_a_name_that_is_not_utf8_is_read(tmp_path: Path) -> None:
    assert_loads_ema(saved(tmp_path / "w.pt", checkpoint()).rename(tmp_path / os.fsdecode(b"\xff.pt")))


def test_a_zip_of_other_things_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "w.pt"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("weights/model250.pt", "x")
    refused(path, "is a zip of other things (weights/model250.pt)", "unpack it")
    with zipfile.ZipFile(path, "w"):
        pass
    refused(path, "is a zip of other things")
    saved(tmp_path / "plain.pt", EMA)
    with zipfile.ZipFile(tmp_path / "plain.pt") as plain, zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as packed:
        for member in plain.namelist():
            packed.writestr(member, plain.read(member))
    refused(path, "packed anew")


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ([torch.zeros(1)], ["is no checkpoint", "list"]),
        (torch.zeros(1), ["is no checkpoint", "Tensor"]),
        (7, ["is no checkpoint", "int"]),
        ({}, ["is no checkpoint", "holds nothing"]),
        ({"step": 7, "loss": 0.5}, ["step is of type int, not a tensor", "{step, model, ema}"]),
        ({"ema": {"out.0.bias": [1.0]}}, ["ema.out.0.bias is of type list, not a tensor"]),
        ({"ema": {3: torch.zeros(1)}}, ["ema.3", "is no checkpoint"]),
        ({**EMA, "module.out.0.bias": EMA["out.0.bias"]}, ["out.0.bias and module.out.0.bias are the same weight"]),
        ({**EMA, "a\nb\x1b[31m": torch.zeros(1)}, ["1 of 126 weights differ (a\\nb\\x1b[31m is unknown)"]),
        ({**EMA, "out.2.bias": torch.zeros(1).to_sparse()}, ["out.2.bias is no plain tensor"]),
        ({**EMA, "out.2.bias": torch.nested.nested_tensor([torch.ones(1)])}, ["out.2.bias is no plain tensor"]),
        ({**EMA, "out.2.bias": FLOAT4}, ["no floating-point numbers", "out.2.bias"]),
        ({**entries(EMA), "betas": FLOAT4.repeat(TINY.steps)}, ["its betas are of type torch.float4_e2m1fn_x2"]),
        ({**entries(EMA), "betas": torch.zeros(TINY.steps, requires_grad=True)}, ["not the cosine schedule"]),
        ({**EMA, "out.2.bias": torch.zeros(1, device="meta")}, ["out.2.bias is no plain tensor"]),
        ({**EMA, "out.2.bias": torch.zeros(1).expand(10**13)}, ["out.2.bias is no plain tensor"]),
        ({"ema": EMA, "card": "[1]"}, ["its card is no JSON object"]),
        ({"ema": EMA, "card": {"steps": 1}}, ["its card is a dict"]),
    ],
)
def test_contents_that_are_no_weights_are_refused(tmp_path: Path, content: Any, words: list[str]) -> None:
    refused(saved(tmp_path / "w.pt", content), *words)


def test_a_content_without_an_end_is_refused(tmp_path: Path) -> None:
    endless: dict[str, Any] = {"ema": EMA}
    endless["self"] = endless
    refused(saved(tmp_path / "w.pt", endless), "nested more than")
    many: list[Any] = [1] * 10
    for _ in range(8):
        many = [many] * 10
    refused(saved(tmp_path / "w.pt", {"ema": EMA, "many": many}), "holds more than 1000000 values")
    many = []  # no value at all
    for _ in range(8):
        many = [many] * 10
    refused(saved(tmp_path / "w.pt", {"ema": EMA, "many": many}), "holds more than 1000000 values")
    deep: list[Any] = []
    for _ in range(5000):
        deep = [deep]
    with zipfile.ZipFile(tmp_path / "deep.pt", "w") as archive:
        archive.writestr("archive/data.pkl", b"\x80\x02" + b"]" * 5000 + b"a" * 4999 + b".")
        archive.writestr("archive/version", "3\n")
    refused(tmp_path / "deep.pt")


def raw(path: Path, table: Any, data: bytes = b"", length: int | None = None) -> Path:
    """A safetensors file with this header."""
    text = table if isinstance(table, bytes) else json.dumps(table).encode()
    path.write_bytes((len(text) if length is None else length).to_bytes(8, "little") + text + data)
    return path


ONE = {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}


@pytest.mark.parametrize(
    ("table", "data", "length", "words"),
    [
        ({"a": ONE}, b"1234", 10**15, "its header would have 1000000000000000 bytes"),
        ({"a": ONE}, b"", 2**64 - 1, "its header would have"),
        ({"a": ONE}, b"1234", 10_000_000, "ends within its header"),
        (b"{not JSON", b"", None, "no JSON"),
        (b'{"a":' + b"[" * 100_000 + b"}", b"", None, "no JSON"),
        (b'{"\xff": 1}', b"", None, "no JSON"),
        ({"a": 1}, b"", None, "does not list tensors"),
        ({"a": {**ONE, "shape": [-1]}}, b"1234", None, "does not list tensors"),
        ({"a": {**ONE, "shape": [2]}}, b"1234", None, "does not list tensors"),
        ({"a": {**ONE, "dtype": "Q9"}}, b"1234", None, "does not list tensors"),
        ({"a": {**ONE, "dtype": ["F32"]}}, b"1234", None, "does not list tensors"),
        ({"a": {**ONE, "shape": [1] * 17}}, b"1234", None, "does not list tensors"),
        ({"a": {**ONE, "shape": [2**63, 0], "data_offsets": [0, 0]}}, b"", None, "does not list tensors"),
        ({"a": {**ONE, "shape": [10**12], "data_offsets": [0, 4 * 10**12]}}, b"1234", None, "4 bytes of tensors"),
        ({"a": ONE}, b"12345678", None, "8 bytes of tensors are there, and its header lists 4"),
        ({"a": ONE, "b": ONE}, b"1234", None, "not a readable safetensors file"),
        ({"__metadata__": {"card": 1}}, b"", None, "metadata"),
        ({"__metadata__": [], "a": ONE}, b"1234", None, "metadata"),
        ({"__metadata__": {"card": "[1]"}, "a": ONE}, b"1234", None, "its card is no JSON object"),
        ({"__metadata__": {"card": "{"}, "a": ONE}, b"1234", None, "its card is no JSON object"),
        ({"__metadata__": {"card": "[" * 100_000}, "a": ONE}, b"1234", None, "its card is no JSON object"),
        ({"a": ONE}, b"1234", None, "127 of 126 weights differ"),
        ({}, b"", None, "126 of 126 weights differ"),
    ],
)
def test_hostile_safetensors_are_refused(
    tmp_path: Path, table: Any, data: bytes, length: int | None, words: str
) -> None:
    refused(raw(tmp_path / "w.safetensors", table, data, length), words)


def test_a_card_that_speaks_of_another_model_stops_the_job(tmp_path: Path) -> None:
    weights.save(tmp_path / "w.safetensors", EMA, {**CARD, "preset": {**CARD["preset"], "prediction": "v"}})
    with pytest.raises(UserError, match=r'is for prediction "v", not "epsilon"; right would be'):
        job.load(TINY, tmp_path / "w.safetensors")
    with pytest.raises(UserError, match="7 diffusion steps, and the model 8"):
        job.load(dataclasses.replace(TINY, steps=8), saved(tmp_path / "w.pt", checkpoint()))


@pytest.mark.parametrize("dtype", [torch.float8_e4m3fnuz, torch.float8_e5m2fnuz, torch.float8_e8m0fnu])
def test_what_is_saved_can_be_read(tmp_path: Path, dtype: torch.dtype) -> None:
    weights.save(tmp_path / "w.safetensors", {"a": torch.ones(2, dtype=torch.uint8).view(dtype)}, CARD)
    assert header.read(tmp_path / "w.safetensors").shapes == {"a": (2,)}


@pytest.mark.parametrize(
    ("state", "said", "words"),
    [
        ({"__metadata__": torch.zeros(1)}, {}, "its metadata are no texts"),
        ({"a": FLOAT4}, {}, "does not list tensors"),
        ({"a": torch.zeros((1,) * 17)}, {}, "does not list tensors"),
        ({"a": torch.zeros(1)}, {"note": "x" * header.HEADER_LIMIT}, "10000000 are the most"),
    ],
)
def test_what_could_not_be_read_is_not_saved(tmp_path: Path, state: State, said: dict[str, Any], words: str) -> None:
    weights.save(tmp_path / "w.safetensors", EMA, CARD)
    with pytest.raises(UserError, match=rf"^{tmp_path}/w\.safetensors: cannot be written so that .*{words}.*$"):
        weights.save(tmp_path / "w.safetensors", state, said)
    assert_loads_ema(tmp_path / "w.safetensors")
    assert len(list(tmp_path.iterdir())) == 1


# --- cards and shapes ---


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"condition_labels": (1, 3)}, "condition_labels [1, 2], not [1, 3]"),
        ({"condition_labels": (2, 1)}, "condition_labels [1, 2], not [2, 1]"),
        ({"condition_range": (0.0, 1.0)}, "condition_range [-1.0, 1.0], not [0.0, 1.0]"),
        ({"attention_factors": ()}, "attention_factors [2], not []"),
        ({"prediction": "v"}, 'prediction "epsilon", not "v"'),
        ({"steps": 8}, "steps 7, not 8"),
        ({"blocks_per_level": 2}, "blocks_per_level 1, not 2"),
        ({"size": (16, 8, 8)}, None),
        ({}, None),
    ],
)
def test_where_a_card_disagrees(change: dict[str, Any], words: str | None) -> None:
    model = dataclasses.replace(TINY, **change)
    assert card.disagreements(CARD, model) == ([words] if words else [])
    # A preset that a conversion found by the shapes says nothing about the rest.
    assert card.disagreements({**CARD, **card.FOUND_BY_SHAPES}, model) == []


def test_a_card_may_say_little() -> None:
    for said in ({}, {"preset": "small"}, {"preset": {"steps": TINY.steps}}):
        assert card.disagreements(said, TINY) == []
        assert card.configuration(said) is None
    assert card.configuration(CARD) == TINY
    for field, value in (("steps", "7"), ("steps", 0), ("condition_range", ["a", "b"]), ("size", [8.5]), ("who", 1)):
        assert card.configuration({"preset": {**CARD["preset"], field: value}}) is None
    both = dataclasses.replace(TINY, attention_factors=(2, 1))
    assert card.disagreements({"preset": {"attention_factors": [1, 2]}}, both) == []


@pytest.mark.parametrize("name", PRESETS)
def test_the_network_is_read_off_the_shapes_of_a_preset(name: str) -> None:
    model = PRESETS[name]
    shapes = fit.shapes(model)
    assert architecture.read_off(shapes) == architecture.Architecture.of(model)
    assert fit.fitting(shapes) == fit.closest(shapes) == name
    assert architecture.disagreements(shapes, model) == []


@pytest.mark.parametrize(
    "change",
    [
        {"attention_factors": (1, 2)},
        {"channel_multipliers": (1, 2, 2), "blocks_per_level": 2},
        {"image_channels": 3},
        {"base_channels": 64},
    ],
)
def test_the_network_is_read_off_other_shapes(change: dict[str, Any]) -> None:
    model = dataclasses.replace(TINY, **change)
    shapes = fit.shapes(model)
    assert architecture.read_off(shapes) == architecture.Architecture.of(model)
    assert architecture.disagreements(shapes, TINY)
    assert fit.fitting(shapes) is None


def test_what_is_no_network_is_not_read_off() -> None:
    assert architecture.read_off({}) is None
    assert architecture.read_off({"input_blocks.0.0.weight": (0, 1, 3, 3, 3), "out.2.weight": (1, 1, 3, 3, 3)}) is None
    uneven = fit.shapes(TINY)
    del uneven["input_blocks.1.0.in_layers.2.weight"]
    assert architecture.disagreements(uneven, TINY) != []


# --- config.yaml ---


@pytest.fixture
def shipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Path]:
    """Ships weights for the preset demo, whose card says `changes` of it."""
    monkeypatch.setattr(presets, "SHIPPED_FOLDER", tmp_path / "shipped")

    def ship(state: State | None = None, **changes: Any) -> Path:
        model = dataclasses.replace(PRESETS["demo"], **changes)
        path = presets.shipped("demo")
        weights.save(path, state or build_model("demo"), {"preset": to_mapping(model)}, torch.float16)
        return path

    return ship


def demo(**changes: Any) -> dict[str, Any]:
    config = changed("models.demo", {**CONFIG["models"]["demo"], **changes})
    config["study"]["models"] = ["demo"]
    return config


def test_shipped_weights_are_found(shipped: Callable[..., Path]) -> None:
    path = shipped()
    model = study.load(demo(weights="shipped"), ROOT).models["demo"]
    assert not model.trains
    assert Path(model.weights_file).resolve() == path
    assert not Path(model.weights_file).is_absolute()
    assert study.load(demo(weights="random"), ROOT).models["demo"].weights_file is None
    assert study.load(demo(weights="train"), ROOT).models["demo"].weights_file is None


def test_another_size_takes_the_shipped_weights(shipped: Callable[..., Path]) -> None:
    shipped(size=(64, 64, 64))
    study.load(demo(weights="shipped", size=[16, 16, 16]), ROOT)


def test_a_preset_without_shipped_weights_is_one_line(shipped: Callable[..., Path]) -> None:
    shipped()
    config = changed("models.whole_head_128.weights", "shipped")
    config["study"]["models"] = ["whole_head_128"]
    config["sample"]["cases"] = 1
    with pytest.raises(
        ConfigError, match=r"models\.whole_head_128\.weights: shipped, but .* \(those that have: demo\)"
    ):
        study.load(config, ROOT)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("condition_labels", [1, 2]),
        ("condition_labels", [4, 3, 2, 1]),
        ("condition_range", [0.0, 1.0]),
        ("base_channels", 64),
        ("channel_multipliers", [1, 1, 2, 2]),
        ("blocks_per_level", 2),
        ("attention_factors", []),
        ("steps", 100),
        ("prediction", "epsilon"),
        ("image_channels", 2),
    ],
)
def test_a_row_that_the_shipped_weights_do_not_fit_is_one_line(
    shipped: Callable[..., Path], field: str, value: Any
) -> None:
    shipped(prediction="v")
    with pytest.raises(ConfigError, match=rf"^config.yaml: models\.demo\.weights: shipped is for .*{field} ") as caught:
        study.load(demo(weights="shipped", **{"prediction": "v", field: value}), ROOT)
    assert "\n" not in str(caught.value)


def test_a_path_is_checked_by_its_header(tmp_path: Path) -> None:
    path = tmp_path / "mine.safetensors"
    state = build_model("demo").state_dict()

    def load(**changes: Any) -> None:
        study.load(demo(weights="mine.safetensors", **changes), tmp_path)

    weights.save(path, state, {}, torch.float16)
    load()
    with pytest.raises(ConfigError, match=r"models\.demo\.weights: mine\.safetensors is for blocks_per_level 1, not 2"):
        load(blocks_per_level=2)
    weights.save(path, entries(state, steps=300), {}, torch.float16)
    with pytest.raises(ConfigError, match=r"is for steps 300, not 250"):
        load()
    weights.save(path, state, {"preset": {"condition_labels": [7]}}, torch.float16)
    with pytest.raises(ConfigError, match=r"is for condition_labels \[7\], not"):
        load()
    cut(path, 0.9)
    with pytest.raises(ConfigError, match=r"^config.yaml: models\.demo\.weights: .* not a readable safetensors file"):
        load()
    path.write_bytes(b"")
    with pytest.raises(ConfigError, match="is empty"):
        load()


def test_a_path_of_torch_save_is_left_to_the_job(tmp_path: Path) -> None:
    saved(tmp_path / "w.pt", {"nothing": "of use"})
    loaded_study = study.load(demo(weights="w.pt"), tmp_path)
    assert loaded_study.models["demo"].weights_file == "w.pt"


def test_checking_weights_before_the_jobs_imports_no_torch(tmp_path: Path) -> None:
    weights.save(tmp_path / "w.safetensors", build_model("demo"), {"preset": to_mapping(PRESETS["demo"])})
    (tmp_path / "config.json").write_text(json.dumps(demo(weights=str(tmp_path / "w.safetensors"))))
    code = (
        "import json, sys; from meddpm import study; "
        f"study.load(json.load(open({str(tmp_path / 'config.json')!r}))); "
        "print({'torch', 'numpy', 'safetensors'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.stdout.strip() == "set()", done.stderr
