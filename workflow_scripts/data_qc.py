"""Show each case of a dataset."""

from meddpm import log
from meddpm.stages import data_qc

with log.job(snakemake.log[0]):
    data_qc.run(snakemake.params.settings, snakemake.input[0], snakemake.output[0])
