"""Write the rows of cells that do not run."""

from meddpm import log
from meddpm.stages import not_run

with log.job(snakemake.log[0]):
    not_run.run(snakemake.params.cells)
