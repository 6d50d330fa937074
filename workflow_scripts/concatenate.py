"""Join the tables of the cells."""

from meddpm import log, tables

with log.job(snakemake.log[0]):
    tables.concatenate(snakemake.params.table, snakemake.input, snakemake.output[0], key=snakemake.params.key)
