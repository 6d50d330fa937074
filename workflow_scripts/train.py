"""Train the weights of a model."""

from meddpm import log
from meddpm.stages import train

with log.job(snakemake.log[0]):
    train.run(
        snakemake.params.settings,
        cases=snakemake.input.cases,
        target=snakemake.output.weights,
        curve=snakemake.output.curve,
        record=snakemake.output.record,
        threads=snakemake.threads,
    )
