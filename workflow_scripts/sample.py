"""Draw the volumes of one cell."""

from meddpm import log
from meddpm.stages import sample

with log.job(snakemake.log[0]):
    sample.run(
        snakemake.params.settings,
        cases=snakemake.input.cases,
        weights=snakemake.input.get("weights") or None,
        target=snakemake.output.samples,
        environment=snakemake.output.environment,
        threads=snakemake.threads,
    )
