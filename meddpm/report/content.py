"""The words and cells of the page, from the tables' rows: plain text, which the template escapes."""

from dataclasses import dataclass
from typing import Any

from meddpm.quality import ANOTHER_SEED, BLACK, LABEL_MAP, SAME_NOISE_AND_MASK, TRUE_IMAGE, same_noise_and_mask
from meddpm.report import numbers, rows
from meddpm.report.rows import BASELINE, Answer, Group, Spread
from meddpm.status import OK
from meddpm.tables import Row

PHASES = {"sample": "drawing a volume", "train": "training"}
STEPS = {"sample": "evaluation", "train": "training step"}
FIGURES = ("step_ms_median", "speedup", "volume_s", "peak_memory_gib", "energy_j_per_volume")
SAME_MACHINE = ("device_name", "capability", "python", "torch", "cuda", "cudnn", "driver", "snakemake", "git_commit")


@dataclass(frozen=True)
class Card:
    """The answer of one group: a figure to remember and the sentences that bound it."""

    where: str
    figure: str
    label: str
    sentences: list[str]


def lede(config: dict[str, Any], groups: list[Group], spreads: list[Spread], drawn: bool) -> str:
    """One paragraph: what was studied, on what, whether volumes were `drawn`, and when not to trust it."""
    timing = [row for group in groups for row in group.rows]
    if not timing:
        return "The timing table of this run has no rows, so there is nothing to say about what the model costs."
    models = rows.unique(_model_name(row) for row in _shapes_first(timing))
    devices = rows.unique(group.device_name for group in groups if group.device_name) or ["no device that could run it"]
    phases = [PHASES[phase] for phase in rows.unique(group.phase for group in groups)]
    variants = rows.unique(row["variant"] for row in timing)
    solvers = rows.unique(row["solver"] for row in timing if row["solver"])
    name = config.get("study", {}).get("name")
    pictures = ", and its pictures are compared with those that fp32 draws from the same noise and label map. "
    text = (
        f"{'The study ' + name if name else 'This study'} measures what {numbers.listed(phases)} costs with "
        f"{numbers.listed(models)} in {numbers.count(len(variants), 'variant')}"
        f"{' and ' + numbers.count(len(solvers), 'solver') if solvers else ''} on {numbers.listed(devices)}. "
        f"Each variant was timed in turn with fp32 in one process{pictures if drawn else '. '}"
    )
    floor = max((spread.relative for spread in spreads if spread.jobs > 1), default=None)
    repeats = min((row["repeats"] for row in timing if row["repeats"]), default=None)
    doubts = []
    if floor is not None:
        doubts.append(f"a gain no larger than the spread of the fp32 medians (up to {numbers.percent(floor)} here)")
    if repeats is not None:
        steps = numbers.count(repeats, "timed step")
        doubts.append(f"a ranking of variants whose ranges overlap (they rest on {steps} or more)")
    doubts.append("any figure for another device, size or software than those on this page")
    return text + f"Do not trust {', '.join(doubts[:-1])}{', or ' if doubts[:-1] else ''}{doubts[-1]}."


def _model_name(row: Row) -> str:
    """The model, with the shape of its images where it is known."""
    if not row["shape"]:
        return row["model"]
    return f"{row['model']} ({row['shape'].replace('x', chr(0xD7))})"


def _shapes_first(timing: list[Row]) -> list[Row]:
    """The rows with a shape, and those without one of models that have none: so that no model is named twice."""
    shaped = {row["model"] for row in timing if row["shape"]}
    return [row for row in timing if row["shape"] or row["model"] not in shaped]


def card(answer: Answer, confidence: float) -> Card:
    """The answer in words. It claims no gain that the spread of the steps does not bear out."""
    group, row, spread = answer.group, answer.row, answer.spread
    where = f"{group.model} on {group.gpu}, {PHASES[group.phase]}"
    if row is None:
        reasons = rows.unique(f"{other['variant']}: {other['status']}" for other in group.rows if other["status"] != OK)
        why = f" ({'; '.join(reasons)})" if reasons else ""
        label = "no variant but fp32 has a time" if group.measured else "nothing has a time"
        return Card(where, numbers.NOT_MEASURED, label, [f"There is nothing to compare{why}."])
    step = STEPS[group.phase]
    span = numbers.interval(answer.speedup_low, answer.speedup_high)
    sentences = [
        f"{row['variant']} takes {numbers.number(row['step_ms_median'])} ms for one {step}, fp32 "
        f"in the same process {numbers.number(row['fp32_step_ms_median'])} ms"
        + (f": {numbers.times(row['speedup'])}, {span} between its 95th and 5th percentile." if span else "."),
    ]
    if not answer.faster:
        sentences.append("That is no clear gain: the slow end of its steps is within the noise of fp32, or slower.")
    if spread and spread.jobs > 1:
        sentences.append(f"The fp32 medians of {spread.jobs} jobs spread over {numbers.percent(spread.relative)}.")
        if spread.relative > rows.STEADY:
            sentences.append("That is much: the machine was not steady. Read the speed-ups as rough.")
    if group.phase == "sample":
        sentences.append(_resemblance(answer.ssim, confidence))
    if answer.quickest_volume and len(group.solvers) > 1:
        quickest = answer.quickest_volume
        sentences.append(
            f"The quickest volume: {quickest['variant']} with {quickest['solver']}, "
            f"{numbers.count(quickest['evaluations'], 'evaluation')}, {numbers.duration(quickest['volume_s'])}. "
            "Another solver draws another picture; times alone do not rank solvers."
        )
    if not answer.faster:
        return Card(where, "no clear gain", f"{row['variant']} against fp32", sentences)
    return Card(where, numbers.times(row["speedup"]), f"{row['variant']} against fp32", sentences)


def _resemblance(ssim: Row | None, confidence: float) -> str:
    if ssim is None:
        return "How far its pictures differ from those of fp32 was not measured."
    place = "inside the mask" if ssim["region"] == "mask" else "over the whole volume"
    span = numbers.similarities(ssim["ci_low"], ssim["ci_high"])
    inside = f"{numbers.percent(confidence)} interval {span}, " if span else ""
    volumes = numbers.count(ssim["n"], "volume") if ssim["n"] is not None else "volumes"
    return f"Its SSIM against fp32 is {numbers.similarity(ssim['value'])} {place} ({inside}{volumes})."


def timing_rows(group: Group, quality: list[Row]) -> list[dict[str, Any]]:
    """The cells of the main table as text. A row that could not run keeps its place, its status and its reason."""
    fastest = rows.answer(group, quality).row
    return [_timing_row(row, quality, rows.same_step(row, fastest)) for row in group.rows]


def _timing_row(row: Row, quality: list[Row], fastest: bool) -> dict[str, Any]:
    ssim = rows.against_fp32(quality, "ssim", row) if row["solver"] else None
    baseline = row["variant"] == BASELINE
    ran = row["status"] == OK
    return {
        "variant": row["variant"],
        "solver": row["solver"] or numbers.NOT_MEASURED,
        "evaluations": row["evaluations"],
        "step": numbers.number(row["step_ms_median"]),
        "step_range": numbers.interval(row["step_ms_p05"], row["step_ms_p95"]),
        "speedup": numbers.times(row["speedup"]),
        "speedup_range": "" if baseline else numbers.interval(*rows.speedup_range(row)),
        "volume": numbers.duration(row["volume_s"]),
        "memory": numbers.number(row["peak_memory_gib"]),
        "energy": numbers.number(row["energy_j_per_volume"]),
        "ssim": "reference"
        if baseline and ran and row["solver"]
        else numbers.similarity(ssim["value"] if ssim else None),
        "ssim_range": numbers.similarities(ssim["ci_low"], ssim["ci_high"]) if ssim else "",
        "status": row["status"],
        "reason": row["reason"],
        "ran": ran,
        "blank": not ran and all(numbers.missing(row[name]) for name in FIGURES),
        "fastest": fastest,
        "baseline": baseline,
    }


def ssim_regions(group: Group, quality: list[Row]) -> list[str]:
    """Where the SSIM of the group's table was taken: "mask", "whole", or both for different rows."""
    found = (rows.against_fp32(quality, "ssim", row) for row in group.rows if row["solver"])
    return rows.unique(match["region"] for match in found if match)


def quality_groups(quality: list[Row]) -> dict[str, list[dict[str, Any]]]:
    """Every quality row as text, yardsticks and failures among them, by what it compares with."""
    grouped: dict[str, list[dict[str, Any]]] = {}
    for row in quality:
        index = "ssim" in rows.metric_key(row["metric"])
        shown = numbers.similarity if index else numbers.number
        span = "" if numbers.missing(row["ci_low"]) else f"{shown(row['ci_low'])} to {shown(row['ci_high'])}"
        cells = {**row, "value": shown(row["value"]), "range": span, "ran": row["status"] == OK}
        grouped.setdefault(row["reference"], []).append(cells)
    return grouped


def truth_rows(quality: list[Row]) -> list[dict[str, Any]]:
    """How fp32's pictures stand beside the truth, as text: a row for each model, GPU and solver, with its yardsticks.

    Empty where the table compares nothing with the truth. `reference` is the solver that the others are compared with.
    """
    first: dict[tuple[str, ...], Row] = {}
    for row in quality:
        if row["variant"] == BASELINE and row["reference"] in (TRUE_IMAGE, LABEL_MAP, BLACK):
            first.setdefault((row["model"], row["gpu"], row["solver"]), row)
    return [_truth_row(row, quality) for row in first.values()]


def _truth_row(row: Row, quality: list[Row]) -> dict[str, Any]:
    def value(metric: str, *references: str) -> float | None:
        found = rows.find(quality, metric, row, lambda other: other["reference"] in references)
        return found["value"] if found else None

    def beside(metric: str, reference: str) -> tuple[str, str]:
        return numbers.number(value(metric, reference)), numbers.number(value(f"{metric}_of_true_image", reference))

    same_model = [other for other in quality if all(other[key] == row[key] for key in ("model", "gpu"))]
    suffix = SAME_NOISE_AND_MASK
    full = rows.unique(other["reference"] for other in same_model if other["reference"].endswith(suffix))
    is_full = same_noise_and_mask(row["solver"]) in full
    return {
        **row,
        "ran": row["status"] == OK,
        "ssim": numbers.similarity(value("ssim", TRUE_IMAGE)),
        "label_means": numbers.similarity(value("ssim_of_label_means", TRUE_IMAGE)),
        "grey": beside("dice_grey", LABEL_MAP),
        "white": beside("dice_white", LABEL_MAP),
        "order": numbers.percent(value("tissue_order", LABEL_MAP)),
        "offset": numbers.number(value("background_offset_max", BLACK)),
        "full": "reference" if is_full else numbers.similarity(value("ssim", *full)),
        "full_solver": numbers.listed([reference.removesuffix(suffix) for reference in full]),
        "seeds": numbers.similarity(value("ssim", ANOTHER_SEED)),
    }


def machines(environment: list[Row]) -> list[dict[str, Any]]:
    """The environments by machine and software: jobs that differ in code, clocks or temperature alone are one entry."""
    keyed: dict[tuple[Any, ...], list[Row]] = {}
    for row in environment:
        keyed.setdefault(tuple(row[name] for name in SAME_MACHINE), []).append(row)
    return [
        {
            **dict(zip(SAME_MACHINE, values, strict=True)),
            "used_by": rows.unique(f"{row['model']} on {row['gpu']}" for row in found),
            "keys": rows.unique(f"{row['environment']} (code {row['code_digest']})" for row in found),
            "clocks": rows.unique(row["clocks"] for row in found if row["clocks"]),
            "temperature": _temperatures([row["temperature"] for row in found]),
        }
        for values, found in keyed.items()
    ]


def _temperatures(degrees: list[float | None]) -> str:
    known = [value for value in degrees if not numbers.missing(value)]
    if not known:
        return ""
    low, high = min(known), max(known)
    return f"{low:.0f} °C" if low == high else f"{low:.0f} to {high:.0f} °C"
