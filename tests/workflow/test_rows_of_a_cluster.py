"""The rows that a study gets from the file of a cluster are in its record."""

from pathlib import Path

import yaml

from tests.workflow.conftest import Checkout

SITE = """\
gpus:
  A: {device: cuda, partition: a}
  B: {device: cuda, partition: b}
cluster: {}
"""


def test_the_record_has_the_rows_that_were_meant(tmp_path: Path) -> None:
    checkout = Checkout(tmp_path / "checkout")
    (checkout.root / "site.yaml").write_text(SITE, encoding="utf-8")
    result = checkout.snakemake("--", "results/run_config.yaml", configfile="site.yaml")
    assert result.returncode == 0, result.stdout + result.stderr
    record = yaml.safe_load((checkout.root / "results/run_config.yaml").read_text(encoding="utf-8"))
    assert record["study"]["gpus"] == ["A", "B"]
