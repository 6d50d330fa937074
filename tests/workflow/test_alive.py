"""A second start in a folder where a run is alive."""

import os
from pathlib import Path

import pytest

from meddpm.runs import lock
from tests.workflow.conftest import Checkout

ALIVE = f"A run is alive in this folder (process {os.getpid()} on "
LOCKED = "Directory cannot be locked"
TARGET = "results/run_config.yaml"


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Checkout:
    return Checkout(tmp_path_factory.mktemp("alive") / "checkout")


def hold_as_snakemake_does(root: Path) -> None:
    """The lock that a run of Snakemake has on what it makes."""
    folder = root / ".snakemake/locks"
    folder.mkdir(parents=True)
    (folder / "0.output.lock").write_text(f"{TARGET}\n")


def test_a_run_that_is_alive_is_said_before_snakemake_says_that_the_folder_is_locked(checkout: Checkout) -> None:
    held = lock.take(checkout.root)
    hold_as_snakemake_does(checkout.root)
    try:
        result = checkout.snakemake("--", TARGET)
        printed = result.stdout + result.stderr
        assert result.returncode == 1
        assert printed.count(ALIVE) == 1, printed
        assert "`python -m meddpm status` shows it." in printed
        assert 0 <= printed.index(ALIVE) < printed.index(LOCKED), printed
        dry = checkout.snakemake("-n", "--", TARGET)
        assert ALIVE not in dry.stdout + dry.stderr
    finally:
        os.close(held)
    left = checkout.snakemake("--", TARGET)
    printed = left.stdout + left.stderr
    assert LOCKED in printed, printed
    assert "A run is alive" not in printed, "that of a run that was killed"
    unlocked = checkout.snakemake("--unlock")
    assert unlocked.returncode == 0, unlocked.stderr
    made = checkout.snakemake("--", TARGET)
    assert made.returncode == 0, made.stderr
    assert "A run is alive" not in made.stdout + made.stderr, "its jobs and itself"
