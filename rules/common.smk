"""The matrix and helpers: the checked configuration, the cells of a stage, what a rule's parameters are."""

import functools
import json
import os
import re
import shlex
import sys

# The library of this checkout, here and in every job, whichever one is installed.
sys.path.insert(0, workflow.basedir)
os.environ.update(PYTHONPATH=os.pathsep.join([workflow.basedir, *filter(None, [os.getenv("PYTHONPATH")])]))

# Snakemake writes the path of its Python into shell commands as it is, also where it has a space in it.
PYTHON = sys.executable
if os.path.exists(sys.executable):
    sys.executable = shlex.quote(sys.executable)

from meddpm import study
from meddpm.config import UserError
from meddpm.data import from_files
from meddpm.runs import failures
from meddpm.slurm import request, site
from meddpm.study import not_run
from meddpm.study.matrix import CELL_STAGES
from meddpm.validation import with_text_keys

try:
    # Snakemake lists those of the command line first, and lays them over the last one.
    *laid_over, default = map(os.path.basename, workflow.configfiles)
    STUDY = study.load(config, source=" + ".join([default, *laid_over]))
    # On a cluster the rows may be those of its file: the record of the configuration has the ones that were meant.
    config["study"]["gpus"] = list(STUDY.selection.gpus)
    # What the cluster has, where this is one.
    PARTITIONS = None
    if workflow.is_main_process:
        study.check_sources(STUDY)
        PARTITIONS = site.partitions() if STUDY.cluster else None
        # The jobs, which read this file again, must come to the same rows.
        os.environ.update(MEDDPM_MISSING=json.dumps(not_run.unavailable(STUDY, PARTITIONS)))
    # In the second pass of a run, after some of its jobs failed: their files, and the reason.
    SECOND_PASS = "MEDDPM_SECOND_PASS" in os.environ
    FAILED = {path: each.reason for each in failures.read(".") for path in each.outputs} if SECOND_PASS else {}
except UserError as error:
    sys.exit(str(error))

# Rows of the GPU matrix that the cluster lacks, and the reason.
MISSING = json.loads(os.getenv("MEDDPM_MISSING", "{}"))
# The outputs of the stages of a cell, and the files of cells that do not run: rules/not_run.smk fills both.
OUTPUTS, NOT_RUN = {}, {}


def one_of(names):
    """A wildcard that takes the names of this study alone: a target outside it is no rule's."""
    return "|".join(re.escape(name) for name in names)


wildcard_constraints:
    model=one_of(STUDY.selection.models),
    gpu=one_of(STUDY.gpu_names()),
    variant=one_of({*STUDY.selection.variants, STUDY.train.variant}),
    solver=one_of(STUDY.selection.solvers),
    dataset=one_of(STUDY.dataset_names()),
    phase="sample|train",


def cells(pattern, **only):
    """An input function: `pattern` for every cell of the matrix, some axes limited to `only` or set by the wildcards.

    The file of a cell that does not run is that of rule not_run.
    """
    chosen = STUDY.selection
    axes = dict(
        model=chosen.models,
        gpu=chosen.gpus,
        variant=chosen.variants,
        solver=chosen.solvers,
        phase=chosen.phases,
    )
    return lambda wildcards: [in_place(path) for path in expand(pattern, **(axes | only | dict(wildcards.items())))]


def of_stage(stage, output):
    """An input function: the file `output` of every job of a stage."""
    return lambda wildcards: [
        in_place(expand(getattr(OUTPUTS[stage], output), **cell)[0]) for cell in STUDY.cells(stage)
    ]


def in_place(path):
    """Where the file of a cell lies: under results/not_run/ if it does not run."""
    return path.replace("results/", "results/not_run/", 1) if path in NOT_RUN else path


def files_of(stage, wildcards):
    """The files that the job of a cell writes."""
    return [expand(pattern, **wildcards)[0] for pattern in OUTPUTS[stage]]


def rows_to_write(wildcards):
    """What rule not_run is told, as one text."""
    every = {cell.files[0]: cell for cell in NOT_RUN.values()}.values()
    return json.dumps(
        [
            dict(
                stage=cell.stage,
                settings=STUDY.settings(cell.stage, **cell.wildcards),
                files=[in_place(path) for path in cell.files],
                cells=[of for of in STUDY.cells("sample") if of["model"] == cell.wildcards["model"]],
                status=cell.status,
                reason=cell.reason,
            )
            for cell in every
        ]
    )


def settings(stage):
    """A params function: the settings of one job of `stage` as one string, from its wildcards."""
    return lambda wildcards: STUDY.settings(stage, **dict(wildcards.items()))


def source_files(wildcards):
    """What tells the files that a dataset is made from: names, sizes and times."""
    return from_files.fingerprint(STUDY.datasets[wildcards.dataset])


def there(paths):
    """An input function: those of `paths` that have not failed, nor need a training that cannot run here."""

    def found(wildcards):
        lost = untrained()
        return [path for path in paths if path not in FAILED and (path not in lost or os.path.isfile(path))]

    return found


def untrained():
    """The files of trainings that cannot run here."""
    models = [model for model in STUDY.trained_models() if not_run.trains_nowhere(STUDY, model, MISSING)]
    return {path for model in models for path in files_of("train", STUDY.training_cell(model))}


def cases_of(model):
    """The table of cases that a model draws from."""
    return f"results/data/{STUDY.models[model].dataset}/cases.tsv"


def models_with_cases(wildcards):
    """The models whose dataset could be prepared."""
    return [model for model in STUDY.selection.models if cases_of(model) not in FAILED]


def datasets():
    """The tables of cases of all datasets."""
    return expand("results/data/{dataset}/cases.tsv", dataset=STUDY.dataset_names())


def cases(wildcards):
    """The table of cases that the model of a job draws from, if there is one."""
    return [] if cases_of(wildcards.model) in FAILED else cases_of(wildcards.model)


def training_cases(wildcards):
    """The table of cases that a model is trained on."""
    return f"results/data/{STUDY.models[wildcards.model].training_dataset}/cases.tsv"


def training_records(*names):
    """The files `names` that the trainings of the study leave."""
    return [trained(model, name) for model in STUDY.trained_models() for name in names]


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
    """The cores of a job on a device: on a cluster those of its row, on one machine all that a GPU can have.

    A CPU is its own device: nothing runs beside what is timed.
    """
    if STUDY.cluster:
        return STUDY.requests[wildcards.gpu].cpus
    # Those that jobs may have at once; without a profile nobody said.
    gpus = getattr(workflow.global_resources.get("gpu"), "value", None) or 1
    shared_by = 1 if STUDY.gpus[wildcards.gpu].device == "cpu" else gpus
    return max(1, (workflow._cores or 8) // shared_by)


def on_device(stage):
    """The resources of jobs on a device: one GPU, and on a cluster what their row asks for."""
    return asked(stage, lambda wildcards: wildcards.gpu) if STUDY.cluster else dict(gpu=1)


def off_device(stage):
    """The resources of jobs that need no GPU."""
    return asked(stage, lambda wildcards: None) if STUDY.cluster else {}


def asked(stage, row):
    """What the executor plugin for SLURM reads, each a function of wildcards and attempt. None: it is not asked for."""

    def resource(name):
        return lambda wildcards, attempt: all_asked(stage, row(wildcards), attempt)[name]

    return {name: resource(name) for name in request.NAMES}


@functools.cache
def all_asked(stage, gpu, attempt):
    """What a job of `stage` on the row `gpu` (None: on none) asks for at its `attempt`."""
    return request.resources(
        STUDY.requests[gpu] if gpu else STUDY.cluster.stages,
        gpu=bool(gpu) and STUDY.asks_for_gpu(gpu),
        attempt=attempt,
        cluster=STUDY.cluster,
        stage=stage,
        limits=PARTITIONS,
    )
