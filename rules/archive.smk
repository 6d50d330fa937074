"""Pack tables, figures, page, configuration and environment into one zip.

Output: results/archive/<study>.zip.
"""


rule archive:
    input:
        tables=expand(
            "results/tables/{table}.csv",
            table=["timing", "kernels", "counters", "priorities", "quality", "claims", "environment"],
        ),
        figures="results/figures",
        page="results/report/index.html",
        run_config="results/run_config.yaml",
        training=there(training_records("training.json", "loss.csv")),
        cases=there(datasets()),
        samples=of_stage("sample", "samples"),
    output:
        f"results/archive/{STUDY.selection.name}.zip",
    log:
        "results/logs/archive.log",
    conda:
        "../envs/report.yaml"
    resources:
        **off_device("archive"),
    params:
        settings=settings("archive"),
    script:
        "../workflow_scripts/archive.py"
