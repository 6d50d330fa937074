"""Time each cell, fp32 beside the variant in one process, alone on its device.

Output: results/bench/<model>/<gpu>/<variant>/<phase>/, joined into results/tables/timing.csv and environment.csv.
"""


rule bench:
    output:
        timing="results/bench/{model}/{gpu}/{variant}/{phase}/timing.csv",
        environment="results/bench/{model}/{gpu}/{variant}/{phase}/environment.csv",
    log:
        "results/logs/bench/{model}/{gpu}/{variant}/{phase}.log",
    conda:
        "../envs/run.yaml"
    threads: device_threads
    resources:
        **on_device("bench"),
    params:
        settings=settings("bench"),
    script:
        "../workflow_scripts/bench.py"


rule timing_table:
    input:
        cells("results/bench/{model}/{gpu}/{variant}/{phase}/timing.csv"),
    output:
        report("results/tables/timing.csv", caption="../captions/timing.rst", category="Tables"),
    log:
        "results/logs/tables/timing.log",
    conda:
        "../envs/run.yaml"
    params:
        table="timing",
        key=[],
    script:
        "../workflow_scripts/concatenate.py"


rule environment_table:
    input:
        cells("results/bench/{model}/{gpu}/{variant}/{phase}/environment.csv"),
        of_stage("profile", "environment"),
        of_stage("counters", "environment"),
        of_stage("timeline", "environment"),
        of_stage("sample", "environment"),
    output:
        "results/tables/environment.csv",
    log:
        "results/logs/tables/environment.log",
    conda:
        "../envs/run.yaml"
    params:
        table="environment",
        key=["model", "gpu", "environment"],
    script:
        "../workflow_scripts/concatenate.py"
