"""What a 3D diffusion model costs on a GPU: data, train, sample, bench, profile, evaluate, report, archive.

config.yaml says what is studied, the profile (local/ or slurm/) where it runs. Start with `snakemake --profile local`.
"""

import os

from snakemake.utils import min_version

min_version("9.27.0")


configfile: os.path.join(workflow.basedir, "config.yaml")


# Used where `--software-deployment-method apptainer` asks for it; envs/meddpm.def is its recipe.
container: "envs/meddpm.sif"


include: "rules/common.smk"
include: "rules/data.smk"
include: "rules/train.smk"
include: "rules/sample.smk"
include: "rules/bench.smk"
include: "rules/profile.smk"
include: "rules/evaluate.smk"
include: "rules/claims.smk"
include: "rules/report.smk"
include: "rules/archive.smk"
include: "rules/not_run.smk"
include: "rules/submission.smk"
include: "rules/run.smk"


localrules:
    all,
    run_config,
    timing_table,
    kernels_table,
    counters_table,
    priorities_table,
    environment_table,
    quality_table,
    claims,


rule all:
    default_target: True
    input:
        expand("results/data/{dataset}/qc.html", dataset=STUDY.dataset_names()),
        "results/report/index.html",
        f"results/archive/{STUDY.selection.name}.zip",
