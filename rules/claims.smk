"""Decide what the paper claims, from the tables alone.

Output: results/tables/claims.csv.
"""


rule claims:
    input:
        timing="results/tables/timing.csv",
        kernels="results/tables/kernels.csv",
        counters="results/tables/counters.csv",
        quality="results/tables/quality.csv",
        environment="results/tables/environment.csv",
        run_config="results/run_config.yaml",
    output:
        report("results/tables/claims.csv", caption="../captions/claims.rst", category="Tables"),
    log:
        "results/logs/tables/claims.log",
    conda:
        "../envs/run.yaml"
    params:
        settings=settings("claims"),
    script:
        "../workflow_scripts/claims.py"
