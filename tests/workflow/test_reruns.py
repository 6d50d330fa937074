"""What reruns after what edit: the table of edits and the jobs that must follow, and no others."""

import pytest

from tests.workflow.conftest import Checkout

SAMPLE = {"sample": 6, "environment_table": 1}
CLAIMS = {"claims": 1}
QUALITY = {"evaluate": 1, "quality_table": 1} | CLAIMS
PAGE = {"report": 1, "archive": 1}
CONFIG = {"run_config": 1} | CLAIMS
BENCH = {"bench": 6, "timing_table": 1} | CLAIMS
PROFILE = {"profile": 3, "kernels_table": 1, "counters_table": 1} | CLAIMS
MEASURED = BENCH | PROFILE | {"environment_table": 1}

EDITS = {
    "a comment in the network": ("meddpm/model/unet.py", "\nclass ", "\n# Why this is a class.\nclass ", {}),
    "a docstring of the network": ("meddpm/model/unet.py", '"""', '"""Another word. ', {}),
    "a comment in a script": ("workflow_scripts/sample.py", "\nwith ", "\n# A word.\nwith ", {}),
    "a blank line in a rule file": ("rules/sample.smk", "\nrule ", "\n\nrule ", {}),
    "the logging": ("meddpm/log.py", '"#" * filled', '"=" * filled', {}),
    "the network": (
        "meddpm/model/unet.py",
        "from torch import",
        "NEW = 1\nfrom torch import",
        {"train": 1} | SAMPLE | QUALITY | MEASURED | PAGE,
    ),
    "the noise": ("meddpm/diffusion/noise.py", "import numpy", "NEW = 1\nimport numpy", SAMPLE | QUALITY | PAGE),
    "the training loop": (
        "meddpm/training/loop.py",
        "LOG_EVERY_S = 5.0",
        "LOG_EVERY_S = 6.0",
        {"train": 1} | SAMPLE | QUALITY | PAGE,
    ),
    "the training step": (
        "meddpm/training/step.py",
        "\nclass ",
        "\nNEW = 1\n\n\nclass ",
        {"train": 1} | SAMPLE | QUALITY | MEASURED | PAGE,
    ),
    "a claim": ("meddpm/claims/claims.yaml", "bound: 5,", "bound: 5.0,", CLAIMS | PAGE),
    "what is counted": (
        "meddpm/profiling/counters.yaml",
        "\n",
        "\n# A word.\n",
        PROFILE | {"environment_table": 1} | PAGE,
    ),
    "the timing": ("meddpm/bench.py", "GIB = 2**30", "GIB = 2.0**30", BENCH | {"environment_table": 1} | PAGE),
    "a kernel category": (
        "meddpm/profiling/taxonomy.yaml",
        "\n",
        "\n# A rule.\n",
        PROFILE | {"environment_table": 1} | PAGE,
    ),
    "the way tables are written": (
        "meddpm/tables.py",
        "\nRow = ",
        "\nNEW = 1\nRow = ",
        MEASURED | SAMPLE | QUALITY | PAGE,
    ),
    "a metric": ("meddpm/quality/metrics.py", "import numpy", "NEW = 1\nimport numpy", QUALITY | PAGE),
    "a plot": ("meddpm/report/figures.py", "import math", "NEW = 1\nimport math", PAGE),
    # Templates and style sheets belong to the package; both pages are in it, and the words that claims use.
    "the page's template": ("meddpm/report/page.html.j2", "<main", "<main ", PAGE | CLAIMS | {"data_qc": 1}),
    "the page of the cases": ("meddpm/report/cases_page.py", "TIMES = ", "NEW = 1\nTIMES = ", {"data_qc": 1}),
    "the title of the report": ("tiny.yaml", "A tiny study", "A small study", CONFIG | PAGE),
    "a setting of the bench": (
        "tiny.yaml",
        "repeats: 2",
        "repeats: 3",
        CONFIG | BENCH | {"environment_table": 1} | PAGE,
    ),
    "a step more of training": (
        "tiny.yaml",
        "train: {steps: 3",
        "train: {steps: 4",
        CONFIG | {"train": 1} | SAMPLE | QUALITY | PAGE,
    ),
    "another variant": (
        "tiny.yaml",
        "[fp32, tf32, bf16]",
        "[fp32, tf32, bf16, channels_last]",
        CONFIG
        | {"bench": 2, "profile": 1, "sample": 2}
        | {"timing_table": 1, "kernels_table": 1, "counters_table": 1, "environment_table": 1}
        | QUALITY
        | PAGE,
    ),
    "another solver": (
        "tiny.yaml",
        "evaluations: 5",
        "evaluations: 4",
        CONFIG | {"sample": 3, "bench": 3, "timing_table": 1, "environment_table": 1} | QUALITY | PAGE,
    ),
    "the data": (
        "meddpm/data/icbm152.py",
        "import numpy",
        "NEW = 1\nimport numpy",
        {"prepare": 1, "data_qc": 1, "train": 1} | SAMPLE | QUALITY | PAGE,
    ),
    "a layout of files": (
        "meddpm/data/layouts/table.py",
        "import re",
        "NEW = 1\nimport re",
        {"prepare": 1, "data_qc": 1, "train": 1} | SAMPLE | QUALITY | PAGE,
    ),
}


def test_a_second_run_has_nothing_to_do(study: Checkout) -> None:
    result = study.snakemake()
    assert result.returncode == 0
    assert "Nothing to be done" in result.stdout + result.stderr
    assert study.planned() == {}


@pytest.mark.parametrize("edit", EDITS)
def test_an_edit_reruns_what_follows_from_it_and_nothing_else(study: Checkout, edit: str) -> None:
    file, old, new, expected = EDITS[edit]
    with study.edited(file, old, new):
        assert study.planned() == expected
