"""Pack what a study found into one zip."""

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
    packed += sorted(path for path in Path(figures).rglob("*") if path.is_file())
    packed += sorted(path for table in samples for path in Path(table).parent.iterdir() if path.is_file())
    root = Path(os.path.commonpath([path.parent for path in packed]))
    archive.build(packed, root, Path(target), job.get("archive", ArchiveConfig))
