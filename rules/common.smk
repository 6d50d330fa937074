"""The matrix and helpers: the checked configuration, the cells of a stage, what a rule's parameters are."""

import json
import os
import re
import shlex
import sys

# The library of this checkout, here and in every job, whichever one is installed.
sys.path.insert(0, workflow.basedir)
os.environ.update(PYTHONPATH=os.pathsep.join([workflow.basedir, *filter(None, [os.getenv("PYTHONPATH")])]))

# Snakemake writes the path of its Python into shell commands as it is, also where it has a space in it.
if os.path.exists(sys.executable):
    sys.executable = shlex.quote(sys.executable)

from meddpm import study
from meddpm.config import UserError
from meddpm.data import from_files
from meddpm.validation import with_text_keys

try:
    # Snakemake lists those of the command line first, and lays them over the last one.
    *laid_over, default = map(os.path.basename, workflow.configfiles)
    STUDY = study.load(config, source=" + ".join([default, *laid_over]))
    if workflow.is_main_process:
        study.check_sources(STUDY)
except UserError as error:
    sys.exit(str(error))


def one_of(names):
    """A wildcard that takes the names of this study alone: a target outside it is no rule's."""
    return "|".join(re.escape(name) for name in names)


wildcard_constraints:
    model=one_of(STUDY.selection.models),
    gpu=one_of({*STUDY.selection.gpus, STUDY.train.gpu or STUDY.selection.gpus[0]}),
    variant=one_of({*STUDY.selection.variants, STUDY.train.variant}),
    solver=one_of(STUDY.selection.solvers),
    dataset=one_of(STUDY.dataset_names()),
    phase="sample|train",


def cells(pattern, **only):
    """The paths of `pattern` for every cell of the matrix, some of its axes limited to `only`."""
    chosen = STUDY.selection
    axes = dict(
        model=chosen.models,
        gpu=chosen.gpus,
        variant=chosen.variants,
        solver=chosen.solvers,
        phase=chosen.phases,
    )
    return expand(pattern, **(axes | only))


def settings(stage):
    """A params function: the settings of one job of `stage` as one string, from its wildcards."""
    return lambda wildcards: STUDY.settings(stage, **dict(wildcards.items()))


def source_files(wildcards):
    """What tells the files that a dataset is made from: names, sizes and times."""
    return from_files.fingerprint(STUDY.datasets[wildcards.dataset])


def cases_of(model):
    """The table of cases that a model draws from."""
    return f"results/data/{STUDY.models[model].dataset}/cases.tsv"


def datasets():
    """The tables of cases of all datasets."""
    return expand("results/data/{dataset}/cases.tsv", dataset=STUDY.dataset_names())


def cases(wildcards):
    """The same as an input function."""
    return cases_of(wildcards.model)


def training_cases(wildcards):
    """The table of cases that a model is trained on."""
    return f"results/data/{STUDY.models[wildcards.model].training_dataset}/cases.tsv"


def weights(wildcards):
    """The weights of a model: trained, from a file (a shipped one too), or none (random)."""
    model = STUDY.models[wildcards.model]
    if model.trains:
        return trained(wildcards.model, "weights.safetensors")
    return model.weights_file or []


def trained(model, file):
    """The path of a file that the train stage writes for a model."""
    return expand(f"results/train/{{model}}/{{gpu}}/{{variant}}/{file}", **STUDY.training_cell(model))[0]


def device_threads(wildcards):
    """A job on a device takes all cores: nothing runs beside what is timed, and a CPU is its own device."""
    return workflow.cores or 8
