"""The verbs python -m meddpm data VERB, each a few lines around one function of the library."""

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

import typer

from meddpm.config import FilesConfig, UserError, repository_root
from meddpm.data.tasks import Goal
from meddpm.validation import closest

app = typer.Typer(no_args_is_help=True, pretty_exceptions_enable=False, help="What a dataset of files holds.")


@app.callback()
def _verbs() -> None:
    """What a dataset of files holds."""


@app.command()
def check(
    path: Annotated[Path | None, typer.Argument(metavar="PATH", help="A folder, or a .tsv of files.")] = None,
    layout: Annotated[str | None, typer.Option(help="How files are named and where they lie; else found out.")] = None,
    preparation: Annotated[str | None, typer.Option(help="Preset of preparation; else that of the layout.")] = None,
    images: Annotated[str | None, typer.Option(help="Images of a case that are taken, as t1,t2.")] = None,
    model: Annotated[str | None, typer.Option(help="Preset of the model it is for: its size and labels.")] = None,
    configfile: Annotated[Path | None, typer.Option(help="A study instead: its rows of `datasets` are used.")] = None,
    dataset: Annotated[str | None, typer.Option(help="With --configfile: the name of the dataset.")] = None,
    table: Annotated[Path | None, typer.Option(help="Write what was found as a .tsv too.")] = None,
    workers: Annotated[int, typer.Option(help="Cases looked at at once.")] = os.cpu_count() or 1,
) -> None:
    """Say of every case what would be done to it, or why it is refused; nothing is prepared.

    Exit code 1 if a case would be refused.
    """
    from meddpm.data import manifest, preparing
    from meddpm.log import show_progress
    from meddpm.report.cases_table import print_cases

    if configfile:
        given = {"PATH": path, "--layout": layout, "--preparation": preparation, "--images": images, "--model": model}
        beside = [name for name, value in given.items() if value is not None]
        if beside:
            raise UserError(f"{beside[0]}: has no use beside --configfile, whose rows say it; leave it out")
        settings, goal, asked = _of_study(configfile, dataset)
    elif dataset:
        raise UserError("--dataset: has no use without --configfile, which has its row")
    elif path:
        taken = tuple(images.split(",")) if images else None
        settings = FilesConfig(str(path), layout=layout or "auto", images=taken, preparation=preparation)
        goal, asked = _of_model(settings, model)
    else:
        raise UserError("data check: nothing to look at; give a PATH, or --configfile and --dataset")
    if table is not None and (os.path.lexists(table) or not table.parent.is_dir()):
        what = "is there already" if os.path.lexists(table) else "is in no folder that is there"
        raise UserError(f"--table: {table} {what}; name another file")
    with show_progress():
        found, rows = preparing.check(settings, goal, workers)
    print_cases(found.layout, Path(found.path), rows, found.warnings, _in_words(goal, asked))
    if table is not None:
        try:
            manifest.write(table, rows)
        except (OSError, ValueError) as error:
            raise UserError(f"--table: {table} cannot be written ({error})") from None
    if any(row.status != manifest.OK for row in rows):
        raise typer.Exit(1)


def _of_model(settings: FilesConfig, model: str | None) -> tuple[Goal, str]:
    """What the model preset `model` asks for, None: that which the preparation is for, if it is for one; its name."""
    from meddpm.data import from_files, preparations
    from meddpm.model import presets

    _known("--preparation", settings.preparation, preparations.PREPARATIONS)
    _known("--layout", settings.layout, ["auto", *preparations.OF_LAYOUT])
    _known("--model", model, presets.PRESETS)
    if model is None:
        preset = preparations.preset_of(settings, from_files.find(settings).layout)
        model = preparations.MODEL.get(preset)
    if model is None:
        return Goal(), "--model names one"
    config = presets.PRESETS[model]
    goal = Goal(config.size, config.condition_labels, config.image_channels, whole_head=model == presets.WHOLE_HEAD)
    return goal, f"the model preset {model}"


def _of_study(configfile: Path, dataset: str | None) -> tuple[FilesConfig, Goal, str]:
    """The dataset `dataset` of a study, None: its only one of files; what its models ask for; their names."""
    from meddpm import study

    loaded = study.load(study.read([repository_root() / "config.yaml", configfile]), source=configfile.name)
    of_files = [name for name, each in loaded.datasets.items() if isinstance(each, FilesConfig)]
    if dataset is None and len(of_files) == 1:
        dataset = of_files[0]
    if dataset not in of_files:
        raise UserError(
            f"--dataset: {dataset or 'not given'}; right would be a dataset of files of {configfile}: "
            f"{', '.join(of_files) or 'it has none'}"
        )
    users = [name for name in loaded.selection.models if dataset in loaded.models[name].datasets]
    return (
        loaded.datasets[dataset],
        loaded.dataset_goal(dataset),
        f"the study's {', '.join(users)}" if users else "none of the study's uses it",
    )


def _in_words(goal: Goal, asked: str) -> str:
    """What the cases are held against."""
    if goal.size is None:
        return f"for no model, so on their own grids with any labels; {asked}"
    size, labels = "x".join(map(str, goal.size)), ", ".join(map(str, goal.labels))
    return f"for {asked}: {size} voxels, labels {labels}, images: {goal.images}"


def _known(option: str, name: str | None, names: Iterable[str]) -> None:
    """Raise UserError where an option names what is not there."""
    if name is not None and name not in names:
        raise UserError(f"{option}: {name} is not known; {closest(name, list(names))}")
