"""What the page is made of."""

from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True)
class ReportInputs:
    """The files that the page is made of. Nothing else is read.

    `timing`, `kernels`, `quality` and `environment` are published tables, and so are `counters`, `priorities` and
    `claims`, which may be left out (None). `run_config` is the merged configuration.
    `samples` are the samples.csv of the cells, under <model>/<gpu>/<variant>/<solver>/; `cases` gives each model's
    cases.tsv, `datasets` those of all datasets. `training` are training.json files, each with its loss.csv beside it.
    `published` is the folder of earlier GPU results, one folder a GPU, or None. `figures` is the folder that the
    figures are written to. `joined` are the folders that the tables were joined from, and `joined_notes` what was said
    of it; both are empty where the page is of one run.
    """

    timing: Path
    kernels: Path
    quality: Path
    environment: Path
    run_config: Path
    figures: Path
    samples: list[Path] = field(default_factory=list)
    cases: dict[str, Path] = field(default_factory=dict)
    datasets: list[Path] = field(default_factory=list)
    training: list[Path] = field(default_factory=list)
    published: Path | None = None
    counters: Path | None = None
    priorities: Path | None = None
    claims: Path | None = None
    joined: list[str] = field(default_factory=list)
    joined_notes: list[str] = field(default_factory=list)
