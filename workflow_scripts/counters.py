"""Count what the kernels of one cell do."""

from meddpm import log
from meddpm.stages import counters

with log.job(snakemake.log[0]):
    counters.run(
        snakemake.params.settings,
        outputs={table: snakemake.output[table] for table in counters.TABLES},
        environment=snakemake.output.environment,
        threads=snakemake.threads,
    )
