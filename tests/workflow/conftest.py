"""A whole tiny study in a copy of the checkout: run once, then edited and asked again."""

import contextlib
import os
import re
import shutil
import site
import subprocess
import venv
from collections.abc import Iterator
from pathlib import Path

import pytest

from meddpm.config import repository_root

PARTS = ["Snakefile", "config.yaml", "rules", "workflow_scripts", "meddpm", "schemas", "envs", "captions", "local"]
TINY = Path(__file__).with_name("tiny.yaml")


def _python_in(folder: Path) -> Path:
    """An environment of its own path that finds the packages of the one the tests run in."""
    venv.create(folder, symlinks=True)
    (site_packages,) = folder.glob("lib/python*/site-packages")
    (site_packages / "tests.pth").write_text("\n".join(site.getsitepackages()) + "\n", encoding="utf-8")
    return folder / "bin" / "python"


class Checkout:
    """A copy of the checkout, its name with a space in it, in which Snakemake is run."""

    def __init__(self, root: Path) -> None:
        self.root = root
        root.mkdir()
        for part in PARTS:
            source = repository_root() / part
            if source.is_dir():
                shutil.copytree(source, root / part, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                shutil.copy(source, root / part)
        shutil.copy(TINY, root / "tiny.yaml")
        self.python = _python_in(root / ".venv")

    def snakemake(self, *words: str, configfile: str = "tiny.yaml") -> subprocess.CompletedProcess[str]:
        """Run Snakemake with the local profile; two threads, whatever the machine has."""
        command = [self.python, "-m", "snakemake", "--profile", "local", "--cores", "2", "--configfile", configfile]
        command += words
        environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
        return subprocess.run(command, cwd=self.root, env=environment, capture_output=True, text=True, timeout=900)

    def planned(self, *words: str, configfile: str = "tiny.yaml") -> dict[str, int]:
        """Rules and numbers of jobs of a dry run; empty where nothing is to be done."""
        result = self.snakemake("-n", *words, configfile=configfile)
        assert result.returncode == 0, result.stdout + result.stderr
        stats = re.findall(r"^ ([a-z_ ]+?) {2,}(\d+) ", result.stdout + result.stderr, re.MULTILINE)
        return {rule.replace(" ", "_"): int(count) for rule, count in stats if rule not in ("all", "total")}

    @contextlib.contextmanager
    def edited(self, file: str, old: str, new: str) -> Iterator[None]:
        """One edit, taken back afterwards."""
        path = self.root / file
        before = path.read_text(encoding="utf-8")
        assert old in before, f"{file} has no {old!r} to edit"
        path.write_text(before.replace(old, new, 1), encoding="utf-8")
        try:
            yield
        finally:
            path.write_text(before, encoding="utf-8")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The tests of one study run in one process, those of another beside them."""
    for item in items:
        if item.path.parent == Path(__file__).parent:
            group = "study" if "study" in item.fixturenames else item.path.stem
            item.add_marker(pytest.mark.xdist_group(group))


@pytest.fixture(scope="session")
def study(tmp_path_factory: pytest.TempPathFactory) -> Checkout:
    """The tiny study, run from beginning to end."""
    checkout = Checkout(tmp_path_factory.mktemp("a path") / "with spaces")
    result = checkout.snakemake()
    assert result.returncode == 0, result.stdout + result.stderr
    return checkout
