"""Pack what a study found into one zip."""

import csv
import os
from collections.abc import Iterable
from pathlib import Path

from meddpm import archive
from meddpm.config import ArchiveConfig
from meddpm.stages.job import Job


def run(
    settings: str, files: Iterable[Path | str], figures: Path | str, samples: Iterable[Path | str], target: Path | str
) -> None:
    """Write the zip `target` of `files`, `figures` and the folders of `samples`, volumes only if the settings say so.

    Names in the zip are relative to the folder that all of them lie in.
    """
    job = Job.parse("archive", settings)
    packed = [Path(path) for path in files]
    packed += sorted(path for path in Path(figures).iterdir() if not path.name.startswith("."))
    packed += [path for table in samples for path in _of_the_cell(Path(table))]
    root = Path(os.path.commonpath([path.parent for path in packed]))
    archive.build(packed, root, Path(target), job.get("archive", ArchiveConfig))


def _of_the_cell(samples: Path) -> list[Path]:
    """samples.csv, what lies beside it in every cell, and the volumes that it lists; not what an earlier run left."""
    with open(samples, newline="", encoding="utf-8") as stream:
        names = [row[key] for row in csv.DictReader(stream) for key in ("file", "original_grid_file")]
        volumes = [samples.with_name(name) for name in names if name]
    beside = [samples.with_name(name) for name in ("environment.csv", "flags.json")]
    return [samples, *(path for path in beside if path.is_file()), *volumes]
