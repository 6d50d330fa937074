"""Write locks/*.txt and envs/*.yaml from the ranges of pyproject.toml.

Method: pip resolves every range at once, as a dry run into nothing, on the oldest Python that the project supports.
From its report the closure of each list of requirements is walked once per supported Python. A package that only some
Pythons need gets a marker. Local versions (2.13.0+cpu) are cut off, and what only torch's own CUDA wheel brings is
left to torch, so that one lock serves CPU and CUDA machines. Each pin is then looked up for every supported Python.

    python3.11 tools/lock.py                               newest versions within the ranges
    python3.11 tools/lock.py --constraint locks/dev.txt    keep the present pins, add or drop what pyproject.toml says
    python3.11 tools/lock.py --check                       look up the present pins and write nothing

Needs the package `packaging`.
"""

import argparse
import json
import re
import subprocess
import sys
import tempfile
import tomllib
from itertools import chain
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

PYTHONS = ("3.11", "3.12", "3.13")
LOCKS = ("run", "report", "dev")
# Published as source alone, so that no wheel can be looked up; pure Python.
SOURCE_ONLY = ("connection-pool",)
CUDA_PART = re.compile(r"^(nvidia-(?!ml-py$).*|cuda-.*|triton)$")
WRITTEN = "Written by `make lock`; do not edit."
HEADERS = {
    "run": f"# What jobs and Snakemake need. {WRITTEN}\n"
    "# No nvidia-* or triton pins: a CUDA build of torch names the exact ones it needs, a CPU build needs none.\n",
    "report": f"# What the report and the archive need beyond run.txt. {WRITTEN}\n-r run.txt\n",
    "dev": f"# What the tests, the linters and `pip install -e .` need beyond report.txt. {WRITTEN}\n-r report.txt\n",
}

Packages = dict[str, dict[str, Any]]


def ranges() -> dict[str, list[str]]:
    """The requirements that pyproject.toml names, by lock."""
    project = tomllib.loads(Path("pyproject.toml").read_text(encoding="utf-8"))["project"]
    return {"run": project["dependencies"], **project["optional-dependencies"]}


def resolve(requirements: list[str], constraint: str | None) -> Packages:
    """Let pip choose one version of each package; its metadata by canonical name."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        command = [sys.executable, "-m", "pip", "install", "-qq", "--dry-run", "--ignore-installed"]
        command += ["--report", str(report), *requirements]
        if constraint:
            command += ["--constraint", constraint]
        subprocess.run(command, check=True)
        installed = json.loads(report.read_text(encoding="utf-8"))["install"]
    return {canonicalize_name(item["metadata"]["name"]): item["metadata"] for item in installed}


def closure(requirements: list[str], packages: Packages, python: str) -> set[str]:
    """Names of all packages that `requirements` need on `python`, less the parts of torch's CUDA wheel."""
    environment = {"python_version": python, "python_full_version": f"{python}.0"}
    seen: set[tuple[str, str]] = set()
    queue = [(Requirement(text), "") for text in requirements]
    while queue:
        requirement, extra = queue.pop()
        name = canonicalize_name(requirement.name)
        if requirement.marker and not requirement.marker.evaluate({**environment, "extra": extra}):
            continue
        if CUDA_PART.match(name):
            continue
        if name not in packages:
            sys.exit(
                f"tools/lock.py: {name} is needed on Python {python} alone: add it, with a marker, to pyproject.toml"
            )
        for wanted in {"", *requirement.extras}:
            if (name, wanted) not in seen:
                seen.add((name, wanted))
                queue += [(Requirement(text), wanted) for text in packages[name].get("requires_dist", [])]
    return {name for name, _ in seen}


def marker(pythons: list[str]) -> str:
    """The environment marker for a package that only `pythons` need."""
    if len(pythons) == len(PYTHONS):
        return ""
    return " ; " + " or ".join(f'python_version == "{python}"' for python in pythons)


def pins(requirements: dict[str, list[str]], packages: Packages) -> dict[str, list[str]]:
    """The lines of each lock: those of its packages that no earlier lock has."""
    lines: dict[str, list[str]] = {}
    wanted: list[str] = []
    earlier: set[str] = set()
    for lock in LOCKS:
        wanted += requirements[lock]
        needs = {python: closure(wanted, packages, python) for python in PYTHONS}
        names = sorted(set().union(*needs.values()) - earlier)
        earlier.update(names)
        lines[lock] = [
            f"{name}=={packages[name]['version'].split('+')[0]}" + marker([p for p in PYTHONS if name in needs[p]])
            for name in names
        ]
    return lines


def environment(name: str, lines: list[str]) -> str:
    """A conda environment file whose pip part holds `lines`, sorted."""
    head = (
        f"# The pins of locks/{name}.txt, for `snakemake --software-deployment-method conda`. Written by `make lock`.\n"
    )
    body = "".join(f"      - {json.dumps(line) if ';' in line else line}\n" for line in sorted(lines))
    return (
        f"{head}channels:\n  - conda-forge\n  - nodefaults\ndependencies:\n  - python=3.11\n  - pip\n  - pip:\n{body}"
    )


def check(lines: list[str]) -> None:
    """Look up a wheel of every pin for each Python, but for torch (gigabytes) and what is published as source alone."""
    left_out = ("torch", *SOURCE_ONLY)
    lines = [line for line in lines if line.split("==")[0] not in left_out]
    with tempfile.TemporaryDirectory() as folder:
        lock = Path(folder) / "lock.txt"
        lock.write_text("\n".join(lines), encoding="utf-8")
        for python in PYTHONS:
            command = [sys.executable, "-m", "pip", "install", "-qq", "--dry-run", "--ignore-installed", "--no-deps"]
            command += [
                "--only-binary=:all:",
                "--python-version",
                python,
                "--target",
                folder,
                "--requirement",
                str(lock),
            ]
            subprocess.run(command, check=True)
            print(f"Python {python}: {len(lines)} pins have a wheel (not looked up: {', '.join(left_out)})")


def main() -> None:
    """Write the locks and the environments, or only check them."""
    parser = argparse.ArgumentParser(description="Write locks/*.txt and envs/*.yaml from pyproject.toml.")
    parser.add_argument("--constraint", help="a file of pins to keep, such as locks/dev.txt")
    parser.add_argument("--check", action="store_true", help="look up the present pins and write nothing")
    arguments = parser.parse_args()
    if arguments.check:
        texts = [Path("locks", f"{lock}.txt").read_text(encoding="utf-8") for lock in LOCKS]
        check([line for text in texts for line in text.splitlines() if "==" in line])
        return
    if not sys.version.startswith(PYTHONS[0]):
        sys.exit(f"tools/lock.py: run it with Python {PYTHONS[0]}, the oldest that the project supports")
    requirements = ranges()
    lines = pins(requirements, resolve(list(chain(*requirements.values())), arguments.constraint))
    check(list(chain(*lines.values())))
    for lock in LOCKS:
        Path("locks", f"{lock}.txt").write_text(HEADERS[lock] + "\n".join(lines[lock]) + "\n", encoding="utf-8")
    Path("envs", "run.yaml").write_text(environment("run", lines["run"]), encoding="utf-8")
    Path("envs", "report.yaml").write_text(environment("report", lines["run"] + lines["report"]), encoding="utf-8")


if __name__ == "__main__":
    main()
