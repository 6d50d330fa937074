"""Prepare the datasets, and show each case.

Output: results/data/<dataset>/cases.tsv, with the NIfTI files that it names
beside it, and qc.html, a page to look through them.
"""


rule prepare:
    output:
        "results/data/{dataset}/cases.tsv",
    log:
        "results/logs/prepare/{dataset}.log",
    conda:
        "../envs/run.yaml"
    threads: 8
    resources:
        **off_device("prepare"),
    params:
        settings=settings("prepare"),
        # Not inputs: names may have braces, files may be missing, and a file that is replaced may be older.
        files=source_files,
    script:
        "../workflow_scripts/prepare.py"


rule data_qc:
    input:
        "results/data/{dataset}/cases.tsv",
    output:
        "results/data/{dataset}/qc.html",
    log:
        "results/logs/data_qc/{dataset}.log",
    conda:
        "../envs/report.yaml"
    resources:
        **off_device("data_qc"),
    params:
        settings=settings("data_qc"),
    script:
        "../workflow_scripts/data_qc.py"
