"""Prepare the datasets.

Output: results/data/<dataset>/cases.tsv, with the NIfTI files that it names beside it.
"""


rule prepare:
    output:
        "results/data/{dataset}/cases.tsv",
    log:
        "results/logs/prepare/{dataset}.log",
    conda:
        "../envs/run.yaml"
    threads: 8
    params:
        settings=settings("prepare"),
    script:
        "../workflow_scripts/prepare.py"
