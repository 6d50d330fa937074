"""Locks, conda environments, ranges, the wheel, and the floors of the package agree with each other."""

import ast
import os
import re
import subprocess
import sys
import tomllib
import zipfile
from importlib import metadata
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import meddpm

ROOT = Path(__file__).resolve().parents[2]
LOCKS = {"run": ["run"], "report": ["run", "report"], "dev": ["run", "report", "dev"]}
PIN = re.compile(r'[a-z0-9-]+==[0-9][0-9a-z.]*( ; python_version == "3\.\d+"( or python_version == "3\.\d+")*)?')

# A module imports only from its own floor or from below it.
FLOORS = {
    0: [
        "__init__",
        "config",
        "validation",
        "files",
        "tables",
        "status",
        "log",
        "interrupt",
        "provenance",
        "device",
        "memory",
        "gpu_lock",
        "words",
    ],
    1: ["model", "diffusion", "data"],
    2: ["study", "slurm", "runs", "variants", "fused"],
    3: ["sampling", "training"],
    4: ["profiling", "quality", "bench"],
    5: ["report", "archive", "stages", "claims", "merging"],
    6: ["cli", "cli_data", "cli_model", "cli_slurm", "__main__"],
}
FLOOR = {name: floor for floor, names in FLOORS.items() for name in names}

# Imported only where it is installed: a CUDA build of torch brings it.
OPTIONAL = {"ncu_report", "triton"}


def own_lines(lock: str) -> list[str]:
    """The lines of one lock file, without comments."""
    lines = (ROOT / "locks" / f"{lock}.txt").read_text(encoding="utf-8").splitlines()
    return [line for line in lines if line and not line.startswith("#")]


def pins(lock: str) -> list[str]:
    """The pins of a lock and of those it builds on."""
    return [line for part in LOCKS[lock] for line in own_lines(part) if not line.startswith("-r ")]


def project() -> dict:
    """The [project] table of pyproject.toml."""
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def imported(source: str, module: str) -> set[str]:
    """Dotted names that the `source` of `module` imports, anywhere in it; relative ones made absolute."""
    names: set[str] = set()
    package = module.split(".")[:-1]
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else []
            base = ".".join([*above, *([node.module] if node.module else [])])
            names.update([f"{base}.{alias.name}" for alias in node.names] if base == "meddpm" else [base])
    return names


def too_high(source: str, module: str) -> list[str]:
    """The imports of `module` that lie on a floor above its own."""
    own = FLOOR[module.split(".")[1]]
    rooms = {name: name.split(".")[1] for name in imported(source, module) if name.startswith("meddpm.")}
    return sorted(name for name, room in rooms.items() if FLOOR.get(room, 0) > own)


def modules() -> list[Path]:
    """Every Python file of the package."""
    return sorted((ROOT / "meddpm").rglob("*.py"))


def dotted(path: Path) -> str:
    """The module name of a file, with __init__ kept."""
    return ".".join(path.relative_to(ROOT).with_suffix("").parts)


@pytest.mark.parametrize("lock", LOCKS)
def test_lock_holds_exact_pins_and_builds_on_the_lock_before(lock: str) -> None:
    includes = [line for line in own_lines(lock) if line.startswith("-r ")]
    assert includes == [f"-r {before}.txt" for before in LOCKS[lock][-2:-1]]
    assert [pin for pin in pins(lock) if not PIN.fullmatch(pin)] == []


def test_locks_pin_each_package_once_and_leave_cuda_to_torch() -> None:
    names = [pin.split("==")[0] for pin in pins("dev")]
    assert sorted(names) == sorted(set(names))
    assert [name for name in names if re.match(r"nvidia-(?!ml-py$)|cuda-|triton", name)] == []


def test_locks_pin_whatever_their_packages_need_here() -> None:
    pinned = {pin.split("==")[0] for pin in pins("dev")}
    missing = set()
    for distribution in metadata.distributions():
        if canonicalize_name(distribution.name) not in pinned:
            continue
        for requirement in map(Requirement, distribution.requires or []):
            wanted = not requirement.marker or requirement.marker.evaluate({"extra": ""})
            if wanted and not re.match(r"nvidia-|cuda-|triton", requirement.name):
                missing.add(canonicalize_name(requirement.name))
    assert len(missing) > 20
    assert missing - pinned == set()


def test_every_import_of_the_package_is_a_named_requirement() -> None:
    table = project()
    named = {canonicalize_name(Requirement(text).name) for text in table["dependencies"]}
    named.update(canonicalize_name(Requirement(text).name) for text in table["optional-dependencies"]["report"])
    distributions = metadata.packages_distributions()
    unnamed = {}
    for path in modules():
        for name in {dotted_name.split(".")[0] for dotted_name in imported(path.read_text("utf-8"), dotted(path))}:
            if name == "meddpm" or name in sys.stdlib_module_names or name in OPTIONAL:
                continue
            if not {canonicalize_name(known) for known in distributions.get(name, [])} & named:
                unnamed.setdefault(name, []).append(dotted(path))
    assert unnamed == {}


@pytest.mark.parametrize("name", ["run", "report"])
def test_conda_environment_has_the_pins_of_its_lock(name: str) -> None:
    environment = yaml.safe_load((ROOT / "envs" / f"{name}.yaml").read_text(encoding="utf-8"))
    assert environment["channels"] == ["conda-forge", "nodefaults"]
    python, pip, packages = environment["dependencies"]
    assert (python, pip, packages["pip"]) == ("python=3.11", "pip", sorted(pins(name)))


def test_container_has_the_pins_of_the_locks() -> None:
    recipe = (ROOT / "envs" / "meddpm.def").read_text(encoding="utf-8")
    (base,) = re.findall(r"^From: python:(\d+\.\d+)\.\d+-slim-\w+$", recipe, re.MULTILINE)
    assert f"Programming Language :: Python :: {base}" in project()["classifiers"]
    copied = re.findall(r"^ {4}(locks/\S+) (/\S+)$", recipe, re.MULTILINE)
    installed = re.findall(r"pip install .*-r (\S+)$", recipe, re.MULTILINE)
    assert [lock for lock, _ in copied] == [f"locks/{name}.txt" for name in LOCKS["report"]]
    assert installed == [dict(copied)["locks/report.txt"]], "and nothing that no lock has"
    assert len(re.findall(r"\b(?:pip|conda|uv) install", recipe)) == 1
    built = re.search(r"apptainer build (\S+) (\S+)", recipe)
    assert built
    assert f'container: "{built[1]}"' in (ROOT / "Snakefile").read_text(encoding="utf-8")
    assert (ROOT / built[2]).is_file()


@pytest.mark.parametrize("lock", LOCKS)
def test_ranges_contain_the_locked_versions(lock: str) -> None:
    versions = dict(pin.split(" ;")[0].split("==") for pin in pins(lock))
    table = project()
    for requirement in map(
        Requirement, table["dependencies"] if lock == "run" else table["optional-dependencies"][lock]
    ):
        assert requirement.specifier.contains(versions[canonicalize_name(requirement.name)]), str(requirement)


def test_wheel_holds_every_data_file_and_finds_its_schemas(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", tmp_path], cwd=ROOT, check=True)
    with zipfile.ZipFile(tmp_path / f"meddpm-{meddpm.__version__}-py3-none-any.whl") as wheel:
        names = set(wheel.namelist())
        wheel.extractall(tmp_path / "site")
    files = [path for folder in ("meddpm", "schemas") for path in (ROOT / folder).rglob("*") if path.is_file()]
    assert {str(path.relative_to(ROOT)) for path in files if path.suffix != ".pyc"} - names == set()
    program = "import meddpm, meddpm.tables as t; print(meddpm.__file__, t.columns('timing')[0])"
    command = [sys.executable, "-c", program]
    environment = {**os.environ, "PYTHONPATH": str(tmp_path / "site")}
    answer = subprocess.run(command, cwd=tmp_path, env=environment, check=True, capture_output=True, text=True).stdout
    assert answer == f"{tmp_path / 'site' / 'meddpm' / '__init__.py'} model\n"


def test_citation_names_the_version() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert citation["version"] == meddpm.__version__
    assert citation["license"] == project()["license"]


def test_floor_check_sees_imports_of_every_form() -> None:
    inside = ["from ..quality import metrics", "from .. import cli", "from . import masks", "import meddpm.config"]
    source = "import meddpm.report.page\ndef f():\n" + "".join(f"    {line}\n" for line in inside)
    assert too_high(source, "meddpm.data.volumes") == ["meddpm.cli", "meddpm.quality", "meddpm.report.page"]
    assert too_high(source, "meddpm.cli") == []


def test_every_module_has_a_floor() -> None:
    rooms = {path.relative_to(ROOT / "meddpm").parts[0].removesuffix(".py") for path in modules()}
    assert rooms - FLOOR.keys() == set(), "give it a floor in FLOORS"


@pytest.mark.parametrize("path", modules(), ids=dotted)
def test_module_imports_from_its_floor_or_below(path: Path) -> None:
    module = dotted(path)
    if module.split(".")[1] in FLOOR:
        assert too_high(path.read_text(encoding="utf-8"), module) == []


@pytest.mark.parametrize("path", modules(), ids=dotted)
def test_package_knows_nothing_of_snakemake(path: Path) -> None:
    source = path.read_text(encoding="utf-8")
    assert [name for name in imported(source, dotted(path)) if name.split(".")[0].startswith("snakemake")] == []
    names = {node.id for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Name)}
    assert "snakemake" not in names
