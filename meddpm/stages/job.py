"""What a job was asked to do: its settings, parsed once it is sure that its code is still the one planned with."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from meddpm import provenance
from meddpm.config import from_mapping
from meddpm.status import CannotRun

if TYPE_CHECKING:
    import torch

Settings = TypeVar("Settings")
# The wildcards of a job that measures one cell.
CELL = ("model", "gpu", "variant", "phase")


@dataclass(frozen=True)
class Job:
    """The settings of one job of one stage."""

    stage: str
    values: dict[str, Any]

    @classmethod
    def parse(cls, stage: str, settings: str) -> "Job":
        """Parse the JSON string. Raises UserError if the code behind the stage was edited since."""
        values = json.loads(settings)
        provenance.require_digest(f"meddpm.stages.{stage}", values["code"])
        return cls(stage, values)

    @property
    def code(self) -> str:
        """Digest of the stage's code."""
        return self.values["code"]

    def get(self, key: str, cls: type[Settings]) -> Settings:
        """The settings under `key` as the dataclass `cls`."""
        return from_mapping(cls, self.values[key])

    def environment(self, where: "torch.device") -> dict[str, Any]:
        """The row of the environment table for the job on the device `where`, as of now."""
        return {**self.cell("model", "gpu"), **provenance.environment(where.type, self.code)}

    def cell(self, *keys: str) -> dict[str, str]:
        """The named wildcards of the job, as the first columns of its rows."""
        return {key: self.values[key] for key in keys}


def not_run(reason: CannotRun) -> dict[str, str]:
    """The last columns of the row of a cell that did not run."""
    return {"status": reason.status, "reason": reason.reason}


def folder(path: Path | str) -> Path:
    """The folder of an output file, made if it is not there."""
    parent = Path(path).parent
    parent.mkdir(parents=True, exist_ok=True)
    return parent
