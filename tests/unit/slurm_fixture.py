"""Clusters of the tests: what sinfo prints on several kinds of sites; commands of SLURM that are scripts on PATH."""

import os
from pathlib import Path

import pytest

# A partition for each kind of GPU.
TIDY = """\
cpu*|up|idle|64|256000|1-00:00:00|(null)|(null)
gpu-v100|up|idle|40|384000|1-00:00:00|gpu:v100:4|v100
gpu-a100|up|mixed|64|512000|1-00:00:00|gpu:a100:4|a100
gpu-h100|up|allocated|96|1024000|12:00:00|gpu:h100:8|h100
"""

# One partition with nodes of several kinds, some of them down; a short one, a closed one and one without nodes.
MIXED = """\
work|up|idle|128|515000|7-00:00:00|(null)|rome
gpu*|up|mixed|128|1031000|2-00:00:00|gpu:a100:4(S:0-1),nvme:1|a100,nvlink,rome
gpu*|up|drained|128|1031000|2-00:00:00|gpu:a100:4(S:0,3)|a100,nvlink,rome
gpu*|up|idle~|40|386000|2-00:00:00|gpu:v100:2,mps:v100:200|v100,skylake
gpu*|up|down*|64|515000|2-00:00:00|gpu:a30:2,shard:a30:8|a30
gpu-debug|up|idle|40|386000|30:00|gpu:v100:2|v100
old|down|idle|16|64000|infinite|gpu:2|(null)
empty|up|n/a|0|0|infinite|(null)|(null)
"""

# Types as the driver writes them, slices of a GPU, and a name that YAML reads as a number.
DRIVER = """\
batch*|up|idle|128|1031000|infinite|gpu:nvidia_a100_80gb_pcie:8|(null)
batch*|up|idle|256|2063000|infinite|gpu:nvidia_a100-sxm4-80gb:8(S:0-1)|(null)
slices|up|idle|64|515000|2:00:00|gpu:a100_3g.20gb:4,gpu:a100_1g.5gb:2|(null)
2024|up|idle|32|128000|4-12:30:00|gpu:3090:no_consume:2,gpu:volta:1,gpu:weird type:1|(null)
"""

# GPUs without a type: told by the features of their nodes, by the partition, or not at all. Memory is not counted.
UNTYPED = """\
shared|up|idle|32|1|infinite|gpu:2|ib,l40s
shared|up|idle|48|1|infinite|gpu:4|ib,rtx6000
v100s|up|idle|32|1|infinite|gpu:2|ib
misc|up|idle|8|1|infinite|gpu|(null)
"""

SITES = {"tidy": TIDY, "mixed": MIXED, "driver": DRIVER, "untyped": UNTYPED}


class Commands:
    """A folder of scripts that stand for commands of SLURM, and what they were called with."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()

    def script(self, name: str, body: str) -> None:
        """Let the command `name` be a shell script that notes its arguments and runs `body`."""
        path = self.folder / name
        path.write_text(f'#!/bin/sh\nprintf "%s\\n" "$*" >> "{path}.called"\n{body}\n', encoding="utf-8")
        path.chmod(0o755)

    def prints(self, name: str, text: str) -> None:
        """Let the command `name` print `text`."""
        (self.folder / f"{name}.txt").write_bytes(text.encode())
        self.script(name, f'cat "{self.folder / name}.txt"')

    def called(self, name: str) -> list[str]:
        """The arguments of each call of a command."""
        path = self.folder / f"{name}.called"
        return path.read_text(encoding="utf-8").split("\n")[:-1] if path.exists() else []


@pytest.fixture
def commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Commands:
    """The commands of SLURM: none but those that a test makes, whatever the machine has."""
    found = Commands(tmp_path / "bin")
    monkeypatch.setenv("PATH", str(found.folder))
    # What the scripts themselves need.
    for name in ("cat", "sleep", "sh"):
        (found.folder / name).symlink_to(
            next(path for path in (f"/bin/{name}", f"/usr/bin/{name}") if os.path.exists(path))
        )
    return found
