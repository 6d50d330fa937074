"""Write the merged configuration, and the page with its figures, from the tables and samples alone.

Output: results/run_config.yaml, results/report/index.html, results/figures/.
"""


rule run_config:
    output:
        "results/run_config.yaml",
    log:
        "results/logs/run_config.log",
    conda:
        "../envs/run.yaml"
    params:
        # A function: Snakemake would read braces in a plain text as wildcards.
        config=lambda wildcards: json.dumps(with_text_keys(config), sort_keys=True),
    script:
        "../workflow_scripts/run_config.py"


rule report:
    input:
        timing="results/tables/timing.csv",
        kernels="results/tables/kernels.csv",
        quality="results/tables/quality.csv",
        environment="results/tables/environment.csv",
        counters="results/tables/counters.csv",
        priorities="results/tables/priorities.csv",
        claims="results/tables/claims.csv",
        run_config="results/run_config.yaml",
        samples=of_stage("sample", "samples"),
        cases=lambda wildcards: [cases_of(model) for model in models_with_cases(wildcards)],
        datasets=there(datasets()),
        training=there(training_records("training.json")),
    output:
        page=report("results/report/index.html", caption="../captions/report.rst", category="Report"),
        figures=directory("results/figures"),
    log:
        "results/logs/report.log",
    conda:
        "../envs/report.yaml"
    resources:
        **off_device("report"),
    params:
        settings=settings("report"),
        models=models_with_cases,
    script:
        "../workflow_scripts/report.py"
