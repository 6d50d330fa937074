"""Compare the samples of a model."""

from meddpm import log
from meddpm.stages import evaluate

with log.job(snakemake.log[0]):
    evaluate.run(
        snakemake.params.settings,
        samples=snakemake.input.samples,
        cases=snakemake.input.get("cases") or None,
        target=snakemake.output[0],
    )
