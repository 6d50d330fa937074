"""The rows of cells that do not run: of a GPU that the cluster lacks, or that failed in a run that has ended.

Output: for each such file of a cell, results/bench/... say, one under results/not_run/bench/... in its place.
"""

OUTPUTS |= {name: getattr(rules, name).output for name in ("train", *CELL_STAGES)}

for cell in not_run.cells(STUDY, files_of, MISSING, FAILED):
    NOT_RUN |= {path: cell for path in cell.files}

if NOT_RUN:

    rule not_run:
        output:
            [in_place(path) for path in NOT_RUN],
        log:
            "results/logs/not_run.log",
        localrule: True
        conda:
            "../envs/run.yaml"
        params:
            cells=rows_to_write,
        script:
            "../workflow_scripts/not_run.py"
