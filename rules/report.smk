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
        run_config="results/run_config.yaml",
        samples=cells("results/samples/{model}/{gpu}/{variant}/{solver}/samples.csv"),
        cases=[cases_of(model) for model in STUDY.selection.models],
        datasets=datasets(),
        training=[trained(model, "training.json") for model in STUDY.trained_models()],
    output:
        page=report("results/report/index.html", caption="../captions/report.rst", category="Report"),
        figures=directory("results/figures"),
    log:
        "results/logs/report.log",
    conda:
        "../envs/report.yaml"
    params:
        settings=settings("report"),
        models=STUDY.selection.models,
    script:
        "../workflow_scripts/report.py"
