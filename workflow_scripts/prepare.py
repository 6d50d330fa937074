"""Prepare a dataset."""

from meddpm import log
from meddpm.stages import prepare

with log.job(snakemake.log[0]):
    prepare.run(snakemake.params.settings, snakemake.output[0], workers=snakemake.threads)
