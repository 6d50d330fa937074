"""Write the merged configuration."""

import json

import yaml

from meddpm import log
from meddpm.files import write_text

with log.job(snakemake.log[0]):
    write_text(snakemake.output[0], yaml.safe_dump(json.loads(snakemake.params.config), sort_keys=False))
