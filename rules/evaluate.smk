"""Hold the samples of every cell against those of fp32, the truth, other seeds and the solver of every step.

Input: the samples of all cells of a model. Output: results/quality/<model>/quality.csv, joined into
results/tables/quality.csv.
"""


rule evaluate:
    input:
        samples=cells("results/samples/{model}/{gpu}/{variant}/{solver}/samples.csv"),
        cases=cases,
    output:
        quality="results/quality/{model}/quality.csv",
    log:
        "results/logs/evaluate/{model}.log",
    conda:
        "../envs/run.yaml"
    resources:
        **off_device("evaluate"),
    params:
        settings=settings("evaluate"),
    script:
        "../workflow_scripts/evaluate.py"


rule quality_table:
    input:
        of_stage("evaluate", "quality"),
    output:
        report("results/tables/quality.csv", caption="../captions/quality.rst", category="Tables"),
    log:
        "results/logs/tables/quality.log",
    conda:
        "../envs/run.yaml"
    params:
        table="quality",
        key=[],
    script:
        "../workflow_scripts/concatenate.py"
