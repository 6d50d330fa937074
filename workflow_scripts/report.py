"""Write the page and its figures."""

from meddpm import log
from meddpm.stages import report

with log.job(snakemake.log[0]):
    report.run(
        snakemake.params.settings,
        tables={name: snakemake.input[name] for name in report.TABLES},
        run_config=snakemake.input.run_config,
        samples=snakemake.input.samples,
        cases=dict(zip(snakemake.params.models, snakemake.input.cases, strict=True)),
        datasets=snakemake.input.datasets,
        training=snakemake.input.training,
        page=snakemake.output.page,
        figures=snakemake.output.figures,
    )
