"""The rows of cells that do not run: of a GPU that the cluster lacks, or that failed in a run that has ended.

Output: for each such file of a cell, results/bench/... say, one under results/not_run/bench/... in its place.
"""

CELL_OUTPUTS = {name: getattr(rules, name).output for name in ("train", "sample", "bench", "profile", "evaluate")}


def files_of(stage, wildcards):
    """The files that the job of a cell writes."""
    return [expand(pattern, **wildcards)[0] for pattern in CELL_OUTPUTS[stage]]


for cell in study.not_run.cells(STUDY, files_of, MISSING, FAILED):
    NOT_RUN |= {path: cell for path in cell.files}


def rows_to_write(wildcards):
    """What rule not_run is told, as one text."""
    each = {cell.files[0]: cell for cell in NOT_RUN.values()}.values()
    return json.dumps(
        [
            dict(
                stage=cell.stage,
                settings=STUDY.settings(cell.stage, **cell.wildcards),
                files=[in_place(path) for path in cell.files],
                cells=[of for of in STUDY.cells("sample") if of["model"] == cell.wildcards["model"]],
                status=cell.status,
                reason=cell.reason,
            )
            for cell in each
        ]
    )


if NOT_RUN:

    rule not_run:
        output:
            [in_place(path) for path in NOT_RUN],
        log:
            "results/logs/not_run.log",
        conda:
            "../envs/run.yaml"
        params:
            cells=rows_to_write,
        script:
            "../workflow_scripts/not_run.py"
