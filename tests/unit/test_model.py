"""The network, its presets and its weight files."""

import dataclasses
import json
import math
import subprocess
import sys
import zlib

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional

from meddpm.config import ConfigError, ModelConfig, UserError, repository_root
from meddpm.model import PRESETS, build_model, check, weights
from meddpm.model.layers import AttentionBlock, GroupNorm, ResidualBlock, time_embedding

GOLDEN = repository_root().parent / "shared" / "golden"

SMALL = ModelConfig(
    size=(4, 4, 4),
    image_channels=1,
    condition_labels=(1, 2),
    condition_range=(-1.0, 1.0),
    base_channels=32,
    channel_multipliers=(1, 2),
    blocks_per_level=1,
    attention_factors=(2,),
    steps=3,
)


def golden(name: str):
    if not (GOLDEN / name).exists():
        pytest.skip("../shared is not here")
    return json.loads((GOLDEN / name).read_text()) if name.endswith(".json") else np.load(GOLDEN / name)


def filled(model: str | ModelConfig, seed: int = 0) -> torch.nn.Module:
    network = build_model(model).eval()
    weights.fill(network, seed)
    return network


def relative_error(value: Tensor, reference: Tensor) -> float:
    return ((value - reference).norm() / reference.norm()).item()


def inputs(batch: int = 1, extent: int = 4) -> tuple[Tensor, Tensor]:
    x = torch.linspace(-1, 1, batch * 3 * extent**3).sin().reshape(batch, 3, extent, extent, extent)
    return x, torch.arange(batch) + 1


# --- the forward pass ---


@torch.no_grad()
def test_forward_golden():
    data = golden("whole_head_forward.npz")
    network = filled("whole_head_128")
    for t in (0, 7, 249):
        output = network(torch.from_numpy(data["x"]), torch.tensor([t]))
        assert relative_error(output, torch.from_numpy(data[f"out_t{t}"])) < 1e-5


class Reference:
    """The network of SMALL written out operation by operation in float64 from a table of weights."""

    def __init__(self, network: torch.nn.Module) -> None:
        self.table = {key: tensor.double() for key, tensor in network.state_dict().items()}

    def linear(self, key: str, x: Tensor) -> Tensor:
        return x @ self.table[f"{key}.weight"].T + self.table[f"{key}.bias"]

    def convolve(self, key: str, x: Tensor, stride: int = 1) -> Tensor:
        weight = self.table[f"{key}.weight"]
        padding = 1 if weight.shape[-1] == 3 else 0
        return functional.conv3d(x, weight, self.table[f"{key}.bias"], stride, padding)

    def normalise(self, key: str, x: Tensor) -> Tensor:
        groups = x.reshape(x.shape[0], 32, -1)
        mean, variance = groups.mean(2, keepdim=True), groups.var(2, keepdim=True, unbiased=False)
        shape = (1, -1) + (1,) * (x.dim() - 2)
        scale, shift = self.table[f"{key}.weight"].reshape(shape), self.table[f"{key}.bias"].reshape(shape)
        return ((groups - mean) / (variance + 1e-5).sqrt()).reshape(x.shape) * scale + shift

    def block(self, key: str, x: Tensor, time: Tensor) -> Tensor:
        h = self.convolve(f"{key}.in_layers.2", self.silu(self.normalise(f"{key}.in_layers.0", x)))
        h = h + self.linear(f"{key}.emb_layers.1", self.silu(time))[:, :, None, None, None]
        h = self.convolve(f"{key}.out_layers.3", self.silu(self.normalise(f"{key}.out_layers.0", h)))
        return h + (self.convolve(f"{key}.skip_connection", x) if f"{key}.skip_connection.weight" in self.table else x)

    def attend(self, key: str, x: Tensor) -> Tensor:
        b, c = x.shape[:2]
        flat = self.normalise(f"{key}.norm", x.reshape(b, c, -1)).transpose(1, 2)
        qkv = flat @ self.table[f"{key}.qkv.weight"][:, :, 0].T + self.table[f"{key}.qkv.bias"]
        q, k, v = qkv[..., :c], qkv[..., c : 2 * c], qkv[..., 2 * c :]
        mixed = torch.softmax(q @ k.transpose(1, 2) / math.sqrt(c), dim=2) @ v
        mixed = mixed @ self.table[f"{key}.proj_out.weight"][:, :, 0].T + self.table[f"{key}.proj_out.bias"]
        return x + mixed.transpose(1, 2).reshape(x.shape)

    @staticmethod
    def silu(x: Tensor) -> Tensor:
        return x / (1 + torch.exp(-x))

    @staticmethod
    def double_size(x: Tensor) -> Tensor:
        """Trilinear with voxel centres at halves: each new voxel is 3/4 of the nearer and 1/4 of the farther one."""
        for axis in (2, 3, 4):
            last = x.shape[axis] - 1
            index = torch.arange(last + 1)
            before = x.index_select(axis, (index - 1).clamp(0, last))
            after = x.index_select(axis, (index + 1).clamp(0, last))
            pair = torch.stack([0.75 * x + 0.25 * before, 0.75 * x + 0.25 * after], dim=axis + 1)
            x = pair.flatten(axis, axis + 1)
        return x

    def __call__(self, x: Tensor, t: Tensor) -> Tensor:
        frequency = torch.tensor([1000.0 ** (-i / 16) for i in range(16)], dtype=torch.float64)
        angles = t.double()[:, None] * frequency
        time = torch.cat([angles.cos(), angles.sin()], dim=1)
        time = self.linear("time_embed.2", self.silu(self.linear("time_embed.0", time)))
        h0 = self.convolve("input_blocks.0.0", x.double())
        h1 = self.block("input_blocks.1.0", h0, time)
        h2 = self.convolve("input_blocks.2.0.op", h1, stride=2)
        h3 = self.attend("input_blocks.3.1", self.block("input_blocks.3.0", h2, time))
        h = self.block("middle_block.0", h3, time)
        h = self.block("middle_block.2", self.attend("middle_block.1", h), time)
        h = self.attend("output_blocks.0.1", self.block("output_blocks.0.0", torch.cat([h, h3], 1), time))
        h = self.attend("output_blocks.1.1", self.block("output_blocks.1.0", torch.cat([h, h2], 1), time))
        h = self.convolve("output_blocks.1.2.conv", self.double_size(h))
        h = self.block("output_blocks.2.0", torch.cat([h, h1], 1), time)
        h = self.block("output_blocks.3.0", torch.cat([h, h0], 1), time)
        return self.convolve("out.2", self.silu(self.normalise("out.0", h)))


@torch.no_grad()
def test_forward_written_out():
    network = filled(SMALL)
    x, t = inputs(batch=2)
    assert relative_error(network(x, t).double(), Reference(network)(x, t)) < 1e-5


def test_time_embedding_closed_form():
    embedding = time_embedding(torch.tensor([0, 250]), 4)
    slow = 250 / math.sqrt(1000)
    expected = [[1, 1, 0, 0], [math.cos(250), math.cos(slow), math.sin(250), math.sin(slow)]]
    torch.testing.assert_close(embedding, torch.tensor(expected), atol=1e-5, rtol=0)


def test_fresh_network_starts_as_identity_blocks():
    block, attention = ResidualBlock(32, 32, 128), AttentionBlock(32)
    x = torch.ones(1, 32, 2, 2, 2) * torch.arange(8.0).reshape(2, 2, 2)
    assert torch.equal(block(x, torch.ones(1, 128)), x)
    assert torch.equal(attention(x), x)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_group_norm_is_computed_in_float32(monkeypatch, dtype):
    original, types = functional.group_norm, []

    def spy(x: Tensor, groups: int, weight: Tensor, bias: Tensor, eps: float) -> Tensor:
        types.extend([x.dtype, weight.dtype, bias.dtype])
        return original(x, groups, weight, bias, eps)

    monkeypatch.setattr(functional, "group_norm", spy)
    x = (256 + 2 * torch.arange(64.0)).reshape(1, 32, 2).to(dtype)
    output = GroupNorm(32, 32).to(dtype)(x)
    assert types == [torch.float32] * 3
    assert output.dtype == dtype
    torch.testing.assert_close(output.float(), torch.tensor([-1.0, 1.0]).expand(1, 32, 2), atol=0.01, rtol=0)


@torch.no_grad()
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_autocast_keeps_type_and_value(dtype):
    network = filled(SMALL)
    x, t = inputs()
    reference = network(x, t)
    with torch.autocast("cpu", dtype):
        output = network(x, t)
    assert output.dtype == torch.float32
    assert 1e-6 < relative_error(output, reference) < 0.05


@torch.no_grad()
def test_network_in_bfloat16():
    network = filled(SMALL)
    x, t = inputs()
    reference = network(x, t)
    output = network.bfloat16()(x.bfloat16(), t)
    assert output.dtype == torch.bfloat16
    assert relative_error(output.float(), reference) < 0.05


@torch.no_grad()
def test_channels_last():
    network = filled(SMALL)
    x, t = inputs()
    reference = network(x, t)
    output = network.to(memory_format=torch.channels_last_3d)(x.contiguous(memory_format=torch.channels_last_3d), t)
    assert relative_error(output, reference) < 1e-5


@torch.no_grad()
def test_compiles_without_graph_break():
    network = filled(SMALL)
    x, t = inputs()
    compiled = torch.compile(network, backend="eager", fullgraph=True)
    assert relative_error(compiled(x, t), network(x, t)) < 1e-5


@torch.no_grad()
def test_forward_depends_on_no_value():
    """Tensors on the meta device have no values: reading one, as a host synchronisation does, would raise."""
    with torch.device("meta"):
        network = build_model("brats_192")
        output = network(torch.empty(2, 8, 144, 192, 192), torch.empty(2, dtype=torch.long))
    assert output.shape == (2, 4, 144, 192, 192)


@torch.no_grad()
def test_batch_members_do_not_mix():
    network = filled(SMALL)
    x, t = inputs(batch=2)
    assert relative_error(network(x, t)[1:], network(x[1:], t[1:])) < 1e-5


def test_training_reaches_every_weight():
    network = filled(SMALL)
    network(*inputs()).square().mean().backward()
    assert all(parameter.grad is not None and parameter.grad.any() for parameter in network.parameters())


def test_odd_volume_is_refused():
    with pytest.raises(ValueError, match="not a multiple of 2"):
        build_model(SMALL)(torch.zeros(1, 3, 4, 5, 4), torch.zeros(1, dtype=torch.long))


# --- presets ---


@pytest.mark.parametrize("name", ["whole_head_128", "brats_192"])
def test_keys_and_shapes_golden(name):
    table = golden("state_dict_keys.json")[name]
    expected = {key: tuple(shape) for key, shape in table["state_dict"].items()}
    assert list(weights.shapes(PRESETS[name]).items()) == list(expected.items())


@pytest.mark.parametrize(
    ("name", "parameters", "keys", "some"),
    [
        (
            "whole_head_128",
            40_226_433,
            246,
            {
                "input_blocks.0.0.weight": (64, 3, 3, 3, 3),
                "input_blocks.2.0.op.weight": (64, 64, 3, 3, 3),
                "input_blocks.7.1.qkv.weight": (576, 192, 1),
                "output_blocks.3.2.conv.weight": (192, 192, 3, 3, 3),
                "output_blocks.0.0.skip_connection.weight": (256, 512, 1, 1, 1),
                "out.2.weight": (1, 64, 3, 3, 3),
            },
        ),
        (
            "brats_192",
            57_562_564,
            338,
            {
                "input_blocks.0.0.weight": (64, 8, 3, 3, 3),
                "middle_block.1.proj_out.weight": (256, 256, 1),
                "output_blocks.4.0.in_layers.0.weight": (384,),
                "output_blocks.14.0.emb_layers.1.weight": (64, 256),
                "out.2.weight": (4, 64, 3, 3, 3),
            },
        ),
    ],
)
def test_published_networks(name, parameters, keys, some):
    shapes = weights.shapes(PRESETS[name])
    assert sum(math.prod(shape) for shape in shapes.values()) == parameters
    assert len(shapes) == keys
    assert {key: shapes.get(key) for key in some} == some


def test_attention_only_in_the_middle_of_brats():
    keys = weights.shapes(PRESETS["brats_192"])
    assert [key for key in keys if "qkv.weight" in key] == ["middle_block.1.qkv.weight"]


@pytest.mark.parametrize("name", list(PRESETS))
def test_presets_are_possible(name):
    check(PRESETS[name], f"models.{name}")


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"size": (4, 7, 4)}, "m.size: 7 voxels cannot be halved 1 times, as 2 levels ask; use 6 or 8"),
        ({"size": (4, 1, 4)}, "m.size: 1 voxels .*; use 2$"),
        ({"size": (4, 4)}, r"m.size: \[4, 4\] has 2 numbers"),
        ({"base_channels": 48}, r"m.base_channels: 48 is not a multiple of 32 .*; use 32 or 64"),
        ({"base_channels": 0}, "m.base_channels: 0 .*; use 32$"),
        # Each level is wide enough here, but the first convolution's output is normalised too.
        ({"base_channels": 16, "channel_multipliers": (2, 4)}, "m.base_channels: 16"),
        ({"channel_multipliers": (1, 1.5)}, r"m.channel_multipliers: 1.5 gives a level 32 x 1.5 = 48.0 channels"),
        ({"channel_multipliers": (1, 0)}, "m.channel_multipliers: 0"),
        ({"channel_multipliers": ()}, "m.channel_multipliers: the list is empty"),
        ({"blocks_per_level": 0}, "m.blocks_per_level: 0"),
        ({"attention_factors": (4,)}, "m.attention_factors: 4 is no level's downsampling factor; use 1, 2"),
        ({"steps": 0}, "m.steps: 0"),
        ({"prediction": "x0"}, "m.prediction: 'x0' is unknown; use epsilon or v"),
        ({"image_channels": 0}, "m.image_channels: 0"),
        ({"condition_labels": ()}, "m.condition_labels: the list is empty"),
        ({"condition_labels": (1, 1)}, r"m.condition_labels: \[1, 1\]"),
        ({"condition_labels": (0, 1)}, r"m.condition_labels: \[0, 1\]"),
        ({"condition_range": (1.0, -1.0)}, r"m.condition_range: \[1.0, -1.0\]"),
    ],
)
def test_impossible_rows(change, text):
    with pytest.raises(ConfigError, match=f"^{text}") as caught:
        check(dataclasses.replace(SMALL, **change), "m")
    assert "\n" not in str(caught.value)


def test_unknown_preset_names_the_known():
    with pytest.raises(ConfigError, match="no preset 'brain'; use whole_head_128, brats_192, demo"):
        build_model("brain")


def test_importing_presets_imports_no_torch():
    code = "import sys, meddpm.model.presets, meddpm.diffusion.solver_table; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], cwd=repository_root(), capture_output=True, text=True)
    assert done.stdout.strip() == "False", done.stderr


# --- weights ---


def test_fill_recipe():
    """The documented recipe, computed here for three keys: a convolution, a norm's weight and a bias."""
    network = build_model(SMALL)
    weights.fill(network, 0)
    state = network.state_dict()

    def noise(key: str) -> Tensor:
        generator = torch.Generator().manual_seed(zlib.crc32(key.encode()))
        return torch.randn(state[key].shape, generator=generator)

    key = "input_blocks.1.0.in_layers.2.weight"
    torch.testing.assert_close(state[key], noise(key) / math.sqrt(32 * 27))
    key = "out.0.weight"
    torch.testing.assert_close(state[key], 1 + 0.1 * noise(key))
    key = "middle_block.1.proj_out.bias"
    torch.testing.assert_close(state[key], 0.05 * noise(key))


def test_fill_follows_the_seed_and_leaves_nothing_zero():
    first, again, other = (filled(SMALL, seed).state_dict() for seed in (1, 1, 2))
    for key in first:
        assert torch.equal(first[key], again[key])
        assert not torch.equal(first[key], other[key])
        assert first[key].any()


def test_weights_round_trip(tmp_path):
    path = tmp_path / "deep" / "w.safetensors"
    network = filled(SMALL).to(memory_format=torch.channels_last_3d)
    card = {"preset": "small", "steps": 3, "nested": {"seeds": [1, 2], "name": "é"}}
    weights.save(path, network, card)
    fresh = build_model(SMALL)
    assert weights.load(path, fresh) == card == weights.read_card(path)
    for key, tensor in network.state_dict().items():
        assert torch.equal(fresh.state_dict()[key], tensor)
    assert [file.name for file in path.parent.iterdir()] == ["w.safetensors"]


def test_weights_in_half_precision(tmp_path):
    path, whole = tmp_path / "half.safetensors", tmp_path / "whole.safetensors"
    network = filled(SMALL)
    weights.save(path, network.state_dict(), {}, dtype=torch.float16)
    weights.save(whole, network.state_dict(), {})
    assert path.stat().st_size < 0.6 * whole.stat().st_size
    fresh = build_model(SMALL)
    weights.load(path, fresh)
    for key, tensor in network.state_dict().items():
        assert fresh.state_dict()[key].dtype == torch.float32
        assert torch.equal(fresh.state_dict()[key], tensor.half().float())


def test_other_weights_are_refused_whole(tmp_path):
    path = tmp_path / "w.safetensors"
    state = filled(SMALL).state_dict()
    state["stranger"] = torch.zeros(1)
    del state["out.0.bias"]
    state["out.2.weight"] = torch.zeros(2, 32, 3, 3, 3)
    state["out.2.bias"] = torch.zeros(2)
    weights.save(path, state, {})
    network = build_model(SMALL)
    before = {key: tensor.clone() for key, tensor in network.state_dict().items()}
    with pytest.raises(UserError) as caught:
        weights.load(path, network)
    assert str(caught.value) == (
        f"{path}: 4 of {len(before)} weights differ (out.0.bias is missing, stranger is unknown, "
        "out.2.weight is [2, 32, 3, 3, 3], not [1, 32, 3, 3, 3], ...); they fit no preset"
    )
    assert all(torch.equal(tensor, before[key]) for key, tensor in network.state_dict().items())


def test_shapes_alone_are_verified(tmp_path):
    path = tmp_path / "w.safetensors"
    weights.save(path, filled(dataclasses.replace(SMALL, condition_labels=(1, 2, 3))), {})
    with pytest.raises(
        UserError, match=r"1 of \d+ weights differ \(input_blocks.0.0.weight is \[32, 4, 3, 3, 3\], not"
    ):
        weights.load(path, build_model(SMALL))


def test_weights_of_another_preset_are_named(tmp_path):
    path = tmp_path / "w.safetensors"
    weights.save(path, {key: torch.zeros(shape) for key, shape in weights.shapes(PRESETS["demo"]).items()}, {})
    with pytest.raises(UserError, match="they fit the preset demo"):
        weights.load(path, build_model(SMALL))


def test_unreadable_weights(tmp_path):
    path = tmp_path / "w.safetensors"
    with pytest.raises(UserError, match="no such file"):
        weights.read_card(path)
    weights.save(path, filled(SMALL), {})
    path.write_bytes(path.read_bytes()[:-100])
    for read in (weights.read_card, lambda file: weights.load(file, build_model(SMALL))):
        with pytest.raises(UserError, match="not a readable safetensors file") as caught:
            read(path)
        assert "\n" not in str(caught.value)
