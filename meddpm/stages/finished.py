"""The finished volumes of a cell: recorded after each batch, so that the next try of a stopped job draws the others."""

import json
import re
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

from meddpm.data.manifest import CaseRow
from meddpm.files import sha256, write_json
from meddpm.log import logger
from meddpm.provenance import text_digest
from meddpm.stages.job import Job
from meddpm.tables import Row

RECORD = "finished.json"
# What of the environment could change a voxel; not the moment, the commit (the code has its digest) or Snakemake.
FACTS = ("device_name", "capability", "driver", "cuda", "cudnn", "torch", "python")
CORES = re.compile(r" \(\d+ cores\)$")


def identity(
    job: Job, weights: Path | str | None, cases: Iterable[CaseRow], environment: Row, threads: int
) -> dict[str, Any]:
    """What decides the voxels of a job: two tries share it, or no volume.

    `cases` are those that are drawn for, `environment` is the row of the environment table.
    """
    others = {name: value for name, value in job.values.items() if name != "code"}
    shown = [(row.id, row.label_sha256, row.original_shape, row.original_affine) for row in cases]
    facts = {name: environment[name] for name in FACTS}
    if facts["capability"] is None:
        # On a CPU the threads decide how a sum is split. The cores that the process may use beside them compute
        # nothing, and on a cluster the next try may have others.
        facts |= {"device_name": CORES.sub("", facts["device_name"]), "threads": threads}
    return {
        "code": job.code,
        "settings": text_digest(json.dumps(others, sort_keys=True)),
        # A file that is not there is an error where the network is loaded.
        "weights": sha256(weights) if weights and Path(weights).is_file() else None,
        "cases": text_digest(json.dumps(shown)),
        "environment": facts,
    }


class Finished:
    """The finished volumes in `folder` of a job of `identity`: at first those that an earlier try of it recorded.

    A volume counts where its file, and the one on the original grid, is what was recorded.
    """

    def __init__(self, folder: Path, identity: dict[str, Any]) -> None:
        self.folder = folder
        self._identity = identity
        self._entries: dict[tuple[str, int], dict[str, Any]] = {}
        for entry in self._recorded():
            with suppress(OSError, ValueError, KeyError, TypeError):  # a file is gone, the record is damaged
                if self._is_whole(entry):
                    self._enter(entry)

    @property
    def rows(self) -> dict[tuple[str, int], Row]:
        """The rows of samples.csv by case and seed."""
        return {key: entry["row"] for key, entry in self._entries.items()}

    def add(self, rows: Iterable[Row]) -> None:
        """Record volumes whose files are written. Raises OSError; then the record before stays."""
        for row in rows:
            original = row["original_grid_file"]
            digest = sha256(self.folder / original) if original else ""
            self._enter({"row": row, "original_grid_sha256": digest})
        record = {"identity": self._identity, "finished": list(self._entries.values())}
        write_json(self.folder / RECORD, record)

    def _enter(self, entry: dict[str, Any]) -> None:
        self._entries[entry["row"]["case"], entry["row"]["seed"]] = entry

    def _recorded(self) -> list[dict[str, Any]]:
        """What an earlier try of this job recorded; nothing, and a line in the log, if it was another job."""
        try:
            record = json.loads((self.folder / RECORD).read_text(encoding="utf-8"))
            other = [name for name, value in self._identity.items() if record["identity"][name] != value]
            entries = list(record["finished"])
        except FileNotFoundError:
            return []
        except (OSError, ValueError, KeyError, TypeError):
            logger.warning("beginning anew: %s cannot be read", self.folder / RECORD)
            return []
        if other:
            logger.info("beginning anew: the volumes there are of other %s", " and ".join(other))
        return [] if other else entries

    def _is_whole(self, entry: dict[str, Any]) -> bool:
        row = entry["row"]
        digests = {row["file"]: row["sha256"]}
        if row["original_grid_file"]:
            digests[row["original_grid_file"]] = entry["original_grid_sha256"]
        return all(sha256(self.folder / name) == digest for name, digest in digests.items())
