"""Profile cells, never in the timed run: torch.profiler, Nsight Compute and Nsight Systems, a rule each.

Output: results/profiles/<model>/<gpu>/<variant>/<phase>/ with the trace, results/counters/... with what Nsight Compute
counted, results/timelines/... with the export of Nsight Systems; joined into results/tables/kernels.csv, counters.csv
and priorities.csv.
"""


rule profile:
    output:
        kernels="results/profiles/{model}/{gpu}/{variant}/{phase}/kernels.csv",
        counters="results/profiles/{model}/{gpu}/{variant}/{phase}/counters.csv",
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


rule counters:
    output:
        counters="results/counters/{model}/{gpu}/{variant}/{phase}/counters.csv",
        kernels="results/counters/{model}/{gpu}/{variant}/{phase}/kernels.csv",
        priorities="results/counters/{model}/{gpu}/{variant}/{phase}/priorities.csv",
        environment="results/counters/{model}/{gpu}/{variant}/{phase}/environment.csv",
    log:
        "results/logs/counters/{model}/{gpu}/{variant}/{phase}.log",
    conda:
        "../envs/run.yaml"
    threads: device_threads
    resources:
        **on_device("counters"),
    params:
        settings=settings("counters"),
    script:
        "../workflow_scripts/counters.py"


rule timeline:
    output:
        kernels="results/timelines/{model}/{gpu}/{variant}/{phase}/kernels.csv",
        environment="results/timelines/{model}/{gpu}/{variant}/{phase}/environment.csv",
    log:
        "results/logs/timeline/{model}/{gpu}/{variant}/{phase}.log",
    conda:
        "../envs/run.yaml"
    threads: device_threads
    resources:
        **on_device("timeline"),
    params:
        settings=settings("timeline"),
    script:
        "../workflow_scripts/timeline.py"


rule kernels_table:
    input:
        of_stage("profile", "kernels"),
        of_stage("counters", "kernels"),
        of_stage("timeline", "kernels"),
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


rule counters_table:
    input:
        of_stage("profile", "counters"),
        of_stage("counters", "counters"),
    output:
        report("results/tables/counters.csv", caption="../captions/counters.rst", category="Tables"),
    log:
        "results/logs/tables/counters.log",
    conda:
        "../envs/run.yaml"
    params:
        table="counters",
        key=[],
    script:
        "../workflow_scripts/concatenate.py"


rule priorities_table:
    input:
        of_stage("counters", "priorities"),
    output:
        report("results/tables/priorities.csv", caption="../captions/priorities.rst", category="Tables"),
    log:
        "results/logs/tables/priorities.log",
    conda:
        "../envs/run.yaml"
    params:
        table="priorities",
        key=[],
    script:
        "../workflow_scripts/concatenate.py"
