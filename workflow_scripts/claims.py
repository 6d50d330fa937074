"""Decide the claims."""

from meddpm import log
from meddpm.stages import claims

with log.job(snakemake.log[0]):
    claims.run(
        snakemake.params.settings,
        inputs={table: snakemake.input[table] for table in claims.TABLES},
        run_config=snakemake.input.run_config,
        target=snakemake.output[0],
    )
