"""What the reader must know before the figures: what ran where, and how far the pictures and times may be trusted."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from meddpm.config import Icbm152Config
from meddpm.data import manifest
from meddpm.report import numbers
from meddpm.report.rows import Group, unique
from meddpm.status import OK
from meddpm.tables import Row

# The demo's network draws brains after 13,600 volumes; one that predicts the noise needs more than twice as many.
VOLUMES_BEFORE_A_PICTURE = 10_000
MOST_NOTES = 5


@dataclass(frozen=True)
class Notice:
    """One box: a short title and one or two sentences."""

    title: str
    text: str


def on_gpu(environment: list[Row]) -> bool:
    """Whether any environment of the run had a GPU: only a GPU has a compute capability."""
    return any(row["capability"] for row in environment)


def notices(
    config: dict[str, Any],
    trainings: list[dict[str, Any]],
    environment: list[Row],
    groups: list[Group],
    datasets: list[Path],
) -> list[Notice]:
    """The notices of a run, the gravest first. `datasets` are the cases.tsv of all its datasets."""
    selected = config.get("study", {}).get("models") or unique(group.model for group in groups)
    models = {name: (config.get("models") or {}).get(name) or {} for name in selected}
    found = []
    if groups and not on_gpu(environment):
        devices = numbers.listed(unique(group.device_name for group in groups if group.device_name))
        found.append(
            Notice(
                "No GPU in this run",
                f"Everything was timed on {devices or 'a CPU'}. Neither the times nor the ranking of the variants "
                "say anything about a GPU: a variant that pays there may cost time here, and the other way round.",
            )
        )
    found += [_training(record, models.get(record["model"], {}).get("dataset")) for record in trainings]
    found += _weights(models, drawn=(config.get("sample") or {}).get("enabled", True))
    found += [notice for table in datasets for notice in _cases(table)]
    found += _datasets(uses_template(config))
    found += _gaps(groups)
    return found


def joined(folders: list[str], notes: list[str]) -> list[Notice]:
    """That the tables are of several runs, and what was said when they were joined; empty where they are of one."""
    if not folders:
        return []
    more = f" {len(notes) - MOST_NOTES} more are in merged.json." if notes[MOST_NOTES:] else ""
    said = "".join(f" {note[:1].upper()}{note[1:]}." for note in notes[:MOST_NOTES])
    text = f"The tables are those of {numbers.listed(folders)}. How weights were trained there their own pages say."
    return [Notice("Joined from other results", f"{text}{said}{more}")]


def _training(record: dict[str, Any], drawn_from: str | None) -> Notice:
    seen = record["steps"] * record["batch"]
    losses = f"loss {numbers.number(record['loss_first'])} to {numbers.number(record['loss_last'])}"
    text = (
        f"The weights of {record['model']} were trained in this run: "
        f"{numbers.count(record['steps'], 'step')} of {numbers.count(record['batch'], 'volume')} in "
        f"{numbers.duration(record['seconds'])} on {record['device_name']}, {losses}."
    )
    if record.get("note"):
        text += f" Trained on {record['note']}."
    if drawn_from and record.get("dataset_name") == drawn_from:
        text += (
            " The cases that are drawn are those that it was trained on: how near a sample comes to the true image "
            "says nothing about other cases."
        )
    if seen >= VOLUMES_BEFORE_A_PICTURE:
        return Notice("Weights trained in this run", text)
    return Notice(
        "Hardly trained",
        f"{text} That is {numbers.count(seen, 'volume')} seen, where the demo's network took over ten thousand. "
        "Read no anatomy into the pictures. Times and memory do not depend on how good the weights are; how far the "
        "variants' pictures differ may.",
    )


def _weights(models: dict[str, dict[str, Any]], drawn: bool) -> list[Notice]:
    """What the weights are, and what the pictures are worth if any were `drawn`."""
    found = []
    random = [name for name, row in models.items() if row.get("weights") == "random"]
    if random:
        of_random = f"The weights of {numbers.listed(random)} are random numbers"
        text = (
            f"{of_random}: the samples are no pictures. Times and memory hold, and a difference between variants is "
            "one of arithmetic alone."
        )
        found.append(
            Notice("Random weights", text if drawn else f"{of_random}. Times and memory do not depend on them.")
        )
    if not drawn:
        return found
    shipped = [name for name, row in models.items() if row.get("weights") == "shipped"]
    if shipped:
        found.append(
            Notice(
                "Weights that come with the project",
                f"{numbers.listed(shipped)} draws with weights trained on deformations of one template, some with "
                "synthetic lesions (meddpm/model/shipped/demo.md). They know one brain: the pictures show that the "
                "model works, and no anatomy.",
            )
        )
    known = (None, "train", "random", "shipped")
    from_file = {name: row["weights"] for name, row in models.items() if row.get("weights") not in known}
    if from_file:
        files = numbers.listed([f"{name} from {path}" for name, path in from_file.items()])
        found.append(
            Notice(
                "Weights from a file",
                f"Read as they are: {files}. `python -m meddpm model inspect` prints what a file says of its training.",
            )
        )
    return found


def uses_template(config: dict[str, Any]) -> list[str]:
    """The datasets of the study's models that are deformations of the ICBM 152 template."""
    models, datasets = config.get("models") or {}, config.get("datasets") or {}
    selected = (config.get("study") or {}).get("models") or []
    names = unique(models[name]["dataset"] for name in selected if (models.get(name) or {}).get("dataset"))
    return [name for name in names if (datasets.get(name) or {}).get("source", Icbm152Config.source) == "icbm152"]


def _datasets(templates: list[str]) -> list[Notice]:
    if not templates:
        return []
    return [
        Notice(
            "A template is not a population",
            f"The cases of {numbers.listed(templates)} are deformations of one template, ICBM 152, the average of "
            "healthy adults; lesions, where there are any, are drawn in. No patient and no scanner is in them: nothing "
            "here speaks of clinical use.",
        )
    ]


def _cases(table: Path) -> list[Notice]:
    """What the table of a dataset's cases says that a person should look at."""
    rows = manifest.read_all(table)
    refused, doubtful = sum(row.status != OK for row in rows), sum(bool(row.warnings) for row in rows)
    if not refused and not doubtful:
        return []
    found = [f"{refused} left out, as {'it' if refused == 1 else 'they'} cannot be used"] if refused else []
    found += [f"{doubtful} with warnings"] if doubtful else []
    return [
        Notice(
            "Cases to look at",
            f"Of {numbers.count(len(rows), 'case')} of {table.parent.name}: {numbers.listed(found)}. qc.html and "
            "cases.tsv beside the prepared cases say which and why.",
        )
    ]


def _gaps(groups: list[Group]) -> list[Notice]:
    rows = [row for group in groups for row in group.rows]
    absent = [row for row in rows if row["status"] != OK]
    if not rows or not absent:
        return []
    if len(absent) == len(rows):
        return [Notice("Nothing could be timed", "Not one cell of the matrix has a time; the table gives each reason.")]
    states = numbers.listed(unique(row["status"] for row in absent))
    return [
        Notice(
            "Not everything ran",
            f"Of {len(rows)} rows in the tables {len(absent)} {'has' if len(absent) == 1 else 'have'} no time "
            f"({states}). Each stands there in grey with its reason.",
        )
    ]
