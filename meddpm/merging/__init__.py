"""Joins the results of several runs: a study that ran in parts, on several machines or days."""

import errno
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import meddpm
from meddpm import tables
from meddpm.config import ReportConfig, UserError
from meddpm.files import write_csv, write_text
from meddpm.log import REFUSED, refusal
from meddpm.merging import cells, definitions, parts, target
from meddpm.merging.parts import Part
from meddpm.report import numbers
from meddpm.stages import claims
from meddpm.tables import Row
from meddpm.words import one_line

# The tables that the page must have, and those that it may have.
OF_THE_PAGE = ("timing", "kernels", "quality", "environment")
MAY_BE_ON_IT = ("counters", "priorities", "claims")


@dataclass(frozen=True)
class Merged:
    """What was joined into the folder `out`.

    `counts` has, for each table, the rows taken of each of `folders`; `notes` are what is to be said of it, a line
    each. `page` is where the page lies, None where there is none.
    """

    out: Path
    folders: list[str]
    counts: dict[str, list[int]]
    notes: list[str]
    page: Path | None


def merge(folders: Sequence[Path], out: Path, prefer: Sequence[Path] = (), page: bool = True) -> Merged:
    """Join the published tables of `folders`, in their order, into `out`/tables, and draw the page from them.

    A folder is one of results, a checkout that has one, or one that holds tables. Of a cell that ran in several, the
    rows of the first are taken; of one that ran in one and did not run in another, those of the one where it ran; of
    one that ran in none, those of the last. Where figures differ by more than the noise of measurement, those of the
    first of `prefer` that has the cell are taken. Claims are decided anew, from the joined tables.

    `out`/run_config.yaml is what the configurations of the folders agree on, `out`/merged.json says what was taken of
    which folder. `out` is whole or not there. Raises UserError where a folder or `out` is none, and where results
    contradict each other.
    """
    given = parts.read(folders)
    preferred = [parts.number(given, folder) for folder in prefer]
    with _on_disk(out):
        target.check(out, [place for part in given for place in part.places], [part.own for part in given])
    found = cells.join(given, preferred)
    config, differing = definitions.join(given)
    contradictions = differing + found.contradictions
    if contradictions:
        more = f" (and {len(contradictions) - 1} more)" if contradictions[1:] else ""
        raise UserError(f"results contradict each other: {contradictions[0].what}{more}; {contradictions[0].mend}")
    names = [part.name for part in given]
    counts = {table: [len(rows) for rows in of_parts] for table, of_parts in found.rows.items()}
    notes = found.agreed + found.notes + _unchecked(given)
    what = {
        "version": meddpm.__version__,
        "folders": names,
        "prefer": [names[number] for number in preferred],
        "tables": {table: {"rows": sum(of_parts), "of": of_parts} for table, of_parts in counts.items()},
        "notes": notes,
    }
    with _on_disk(out), target.written(out) as folder:
        _write_tables(found.rows, folder)
        if config is not None:
            write_text(folder / "run_config.yaml", config)
        _decide_claims(folder, notes)
        drawn = page and _draw(folder, names, notes)
        target.record(folder, what)
    return Merged(out, names, counts, notes, out / "report" / "index.html" if drawn else None)


@contextmanager
def _on_disk(out: Path) -> Iterator[None]:
    """What the disk refuses in the block is a line."""
    try:
        yield
    except OSError as error:
        if error.errno not in {*REFUSED, errno.EBUSY}:
            raise
        raise UserError(f"--out: {one_line(refusal(error, out), 1000)}") from None


def _write_tables(rows: dict[str, list[list[Row]]], folder: Path) -> None:
    for table, of_parts in rows.items():
        path = folder / "tables" / f"{table}.csv"
        write_csv(path, tables.columns(table), [row for part in of_parts for row in part])


def _unchecked(given: list[Part]) -> list[str]:
    without = [part.name for part in given if part.config is None]
    if not without or not given[1:]:
        return []
    which = without[0] + (f" (and {len(without) - 1} more)" if without[1:] else "")
    return [f"{which}: has no run_config.yaml, so whether its names mean what they mean elsewhere is not checked"]


def _decide_claims(folder: Path, notes: list[str]) -> None:
    """Write the table of claims, which compare cells of all parts, or say why there is none."""
    config, inputs = folder / "run_config.yaml", _tables(folder, claims.TABLES)
    if _all_there("claims.csv", [config, *inputs.values()], notes):
        claims.write(inputs, config, folder / "tables" / "claims.csv")


def _tables(folder: Path, names: Sequence[str]) -> dict[str, Path]:
    return {name: folder / "tables" / f"{name}.csv" for name in names}


def _all_there(what: str, paths: list[Path], notes: list[str]) -> bool:
    """Whether `what` can be made of `paths`; a note where it cannot."""
    missing = [path.name for path in paths if not path.is_file()]
    if missing:
        notes.append(f"there is no {what}, which needs {', '.join(missing)} too")
    return not missing


def _draw(folder: Path, names: list[str], notes: list[str]) -> bool:
    """Draw the page from the tables in `folder`, and say so where there is none."""
    config, paths = folder / "run_config.yaml", _tables(folder, OF_THE_PAGE)
    if not _all_there("page", [*paths.values(), config], notes):
        return False
    paths |= {name: path for name, path in _tables(folder, MAY_BE_ON_IT).items() if path.is_file()}
    try:
        from meddpm.report.inputs import ReportInputs
        from meddpm.report.page import build
    except ModuleNotFoundError as error:
        notes.append(f"there is no page, which needs {error.name} (locks/report.txt)")
        return False
    settings = ReportConfig(title=f"{ReportConfig.title}: {numbers.count(len(names), 'run')} joined")
    inputs = ReportInputs(
        **paths, run_config=config, figures=folder / "figures", joined=names, joined_notes=list(notes)
    )
    build(inputs, settings, folder / "report")
    return True
