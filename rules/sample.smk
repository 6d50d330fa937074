"""Draw the volumes of each cell, all its cases and seeds in one job.

Input: cases and weights. Output: results/samples/<model>/<gpu>/<variant>/<solver>/samples.csv, the volumes beside it.
"""


rule sample:
    input:
        cases=cases,
        weights=weights,
    output:
        samples="results/samples/{model}/{gpu}/{variant}/{solver}/samples.csv",
        environment="results/samples/{model}/{gpu}/{variant}/{solver}/environment.csv",
    log:
        "results/logs/sample/{model}/{gpu}/{variant}/{solver}.log",
    conda:
        "../envs/run.yaml"
    threads: device_threads
    resources:
        **on_device("sample"),
    params:
        settings=settings("sample"),
    script:
        "../workflow_scripts/sample.py"
