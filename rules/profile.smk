"""Profile each cell with torch.profiler, never in the timed run.

Output: results/profiles/<model>/<gpu>/<variant>/<phase>/ with the trace, joined into results/tables/kernels.csv.
"""


rule profile:
    output:
        kernels="results/profiles/{model}/{gpu}/{variant}/{phase}/kernels.csv",
        environment="results/profiles/{model}/{gpu}/{variant}/{phase}/environment.csv",
    log:
        "results/logs/profile/{model}/{gpu}/{variant}/{phase}.log",
    conda:
        "../envs/run.yaml"
    threads: device_threads
    resources:
        **on_device("profile"),
    params:
        settings=settings("profile"),
    script:
        "../workflow_scripts/profile.py"


rule kernels_table:
    input:
        cells(
            "results/profiles/{model}/{gpu}/{variant}/{phase}/kernels.csv",
            phase=STUDY.profile.phases,
        ),
    output:
        report("results/tables/kernels.csv", caption="../captions/kernels.rst", category="Tables"),
    log:
        "results/logs/tables/kernels.log",
    conda:
        "../envs/run.yaml"
    params:
        table="kernels",
        key=[],
    script:
        "../workflow_scripts/concatenate.py"
