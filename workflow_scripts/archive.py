"""Pack the results."""

from meddpm import log
from meddpm.stages import archive

with log.job(snakemake.log[0]):
    archive.run(
        snakemake.params.settings,
        files=[
            *snakemake.input.tables,
            *snakemake.input.training,
            *snakemake.input.cases,
            snakemake.input.page,
            snakemake.input.run_config,
        ],
        figures=snakemake.input.figures,
        samples=snakemake.input.samples,
        target=snakemake.output[0],
    )
