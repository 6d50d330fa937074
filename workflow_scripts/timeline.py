"""Trace one cell with Nsight Systems."""

from meddpm import log
from meddpm.stages import timeline

with log.job(snakemake.log[0]):
    timeline.run(
        snakemake.params.settings,
        target=snakemake.output.kernels,
        environment=snakemake.output.environment,
        threads=snakemake.threads,
    )
