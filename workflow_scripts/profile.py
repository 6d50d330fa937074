"""Profile one cell."""

from meddpm import log
from meddpm.stages import profile

with log.job(snakemake.log[0]):
    profile.run(
        snakemake.params.settings,
        outputs={table: snakemake.output[table] for table in profile.TABLES},
        environment=snakemake.output.environment,
        threads=snakemake.threads,
    )
