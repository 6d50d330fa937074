"""Time one cell."""

from meddpm import log
from meddpm.stages import bench

with log.job(snakemake.log[0]):
    bench.run(
        snakemake.params.settings,
        target=snakemake.output.timing,
        environment=snakemake.output.environment,
        threads=snakemake.threads,
    )
