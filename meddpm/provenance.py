"""Where a figure comes from: digests of the code behind a stage, and a record of the machine it ran on.

A digest changes with what the code does, not with how it is written down: it walks the syntax trees of a module and
of every meddpm module that it imports, leaving out comments, docstrings and layout. It is the same on every Python
from 3.11 to 3.13 (`ast.dump` is not: newer versions add fields that are empty).
"""

import ast
import hashlib
import json
import os
import platform
import subprocess
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

from meddpm.config import UserError, repository_root

PACKAGE = "meddpm"
# Configuration reaches a stage through its parameters, and the others cannot change a figure.
OUTSIDE_THE_DIGEST = {
    PACKAGE,
    *(f"{PACKAGE}.{name}" for name in ("config", "files", "gpu_lock", "log", "provenance", "words")),
}


def _module_file(module: str) -> Path | None:
    base = repository_root().joinpath(*module.split("."))
    for path in (base.with_suffix(".py"), base / "__init__.py"):
        if path.is_file():
            return path
    return None


def _imported(tree: ast.AST) -> set[str]:
    """Names of the meddpm modules that a syntax tree imports, inside functions too."""
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return {name for name in names if name.startswith(f"{PACKAGE}.") and _module_file(name)}


@cache
def _parse(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def modules_behind(root: str) -> list[str]:
    """The modules that `root` runs, itself and the packages they lie in among them, sorted."""
    found: set[str] = set()
    waiting = [root]
    while waiting:
        module = waiting.pop()
        path = _module_file(module)
        if module in found or module in OUTSIDE_THE_DIGEST:
            continue
        if path is None:
            raise ValueError(f"{module} is no module of {PACKAGE}")
        found.add(module)
        waiting += [*_imported(_parse(path)), module.rpartition(".")[0] or PACKAGE]
    return sorted(found)


def _describe(node: Any) -> Any:
    """A syntax tree as nested lists, without what does not change its meaning."""
    if isinstance(node, ast.AST):
        fields = []
        for name, value in ast.iter_fields(node):
            if name == "body" and isinstance(value, list) and _is_docstring(value[:1]):
                value = value[1:]
            if name != "kind" and value is not None and value != []:
                fields.append([name, _describe(value)])
        return [type(node).__name__, fields]
    if isinstance(node, list):
        return [_describe(item) for item in node]
    return repr(node)


def _is_docstring(statements: list[Any]) -> bool:
    return (
        bool(statements)
        and isinstance(statements[0], ast.Expr)
        and isinstance(statements[0].value, ast.Constant)
        and isinstance(statements[0].value.value, str)
    )


@cache
def _module_digest(path: Path) -> str:
    return hashlib.sha256(json.dumps(_describe(_parse(path))).encode()).hexdigest()


@cache
def code_digest(root: str) -> str:
    """Digest of the code behind module `root`, and of the data files in the packages it uses: 16 hexadecimal digits."""
    digest = hashlib.sha256()
    packages: set[Path] = set()
    for module in modules_behind(root):
        path = _module_file(module)
        digest.update(f"{module} {_module_digest(path)}\n".encode())
        packages.add(path.parent)
    for package in sorted(packages - {repository_root() / PACKAGE}):
        for data in sorted(package.iterdir()):
            if data.suffix in {".yaml", ".json", ".j2", ".css", ".js"}:
                digest.update(data.name.encode() + hashlib.sha256(data.read_bytes()).digest())
    return digest.hexdigest()[:16]


def require_digest(root: str, expected: str) -> None:
    """Raise UserError if the code behind `root` is no longer the code that the job was planned with."""
    if code_digest(root) != expected:
        raise UserError(
            f"the code behind {root} was edited after this job was planned: start the workflow again, "
            "so that what is computed is what is recorded"
        )


def text_digest(text: str) -> str:
    """Digest of a text, such as a job's settings: 12 hexadecimal digits, short enough for a folder's name."""
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def git_commit() -> str | None:
    """Commit of the checkout, "-dirty" appended if tracked files were changed.

    Outside a checkout, as in a container, what the variable MEDDPM_GIT_COMMIT says; None if it says nothing.
    """

    def git(*words: str) -> str:
        command = ["git", "-C", str(repository_root()), *words]
        return subprocess.run(command, check=True, capture_output=True, text=True, timeout=30).stdout.strip()

    try:
        commit = git("rev-parse", "HEAD")
        return commit + ("-dirty" if git("status", "--porcelain", "--untracked-files=no") else "")
    except (OSError, subprocess.SubprocessError):
        return os.environ.get("MEDDPM_GIT_COMMIT")


def _version(distribution: str) -> str | None:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None


def processor_name() -> str:
    """The CPU's name as the system gives it, with the number of cores this process may use."""
    name = platform.processor() or platform.machine()
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                name = line.partition(":")[2].strip()
                break
    except OSError:
        pass
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return f"{name} ({cores} cores)"


def environment(device: str, code: str) -> dict[str, Any]:
    """One row of the environment table for torch device `device` ("cpu" or "cuda"), as of now.

    `code` is the digest of the stage's code. The row's key is a digest of its other values, clocks and temperature
    apart, so that two jobs on one machine share it.
    """
    import torch

    row: dict[str, Any] = {
        "python": platform.python_version(),
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "cudnn": None,
        "driver": None,
        "device_name": processor_name(),
        "capability": None,
        "snakemake": _version("snakemake"),
        "git_commit": git_commit(),
        "code_digest": code,
        "status": "ok",
        "reason": None,
    }
    moment: dict[str, Any] = {"clocks": None, "temperature": None}
    if device == "cuda":
        major, minor = torch.cuda.get_device_capability()
        cudnn = torch.backends.cudnn.version()
        row |= {
            "device_name": torch.cuda.get_device_name(),
            "capability": f"{major}.{minor}",
            "cudnn": str(cudnn) if cudnn else None,
        }
        with Nvml() as nvml:
            row["driver"] = nvml.driver()
            moment = {"clocks": nvml.clocks(), "temperature": nvml.temperature()}
    return {"environment": text_digest(json.dumps(row, sort_keys=True)), **row, **moment}


class Nvml:
    """NVIDIA's management library for torch's current CUDA device; each reading is None where it is refused.

    The device is found by its UUID, because NVML counts all GPUs and torch those of CUDA_VISIBLE_DEVICES. For any
    other kind of device all readings are None.
    """

    def __init__(self, device: str = "cuda") -> None:
        self._device = device
        self._handle: Any = None

    def __enter__(self) -> "Nvml":
        if self._device != "cuda":
            return self
        import torch

        try:
            import pynvml

            pynvml.nvmlInit()
            uuid = f"GPU-{torch.cuda.get_device_properties(torch.cuda.current_device()).uuid}"
            self._handle = pynvml.nvmlDeviceGetHandleByUUID(uuid)
        except Exception:  # no library, no driver, no permission: readings are None
            self._handle = None
        return self

    def __exit__(self, *_: object) -> None:
        if self._handle is not None:
            import pynvml

            pynvml.nvmlShutdown()

    def _read(self, function: str, *arguments: Any) -> Any:
        import pynvml

        if self._handle is None:
            return None
        try:
            return getattr(pynvml, function)(self._handle, *arguments)
        except pynvml.NVMLError:
            return None

    def driver(self) -> str | None:
        """Version of the driver."""
        if self._handle is None:
            return None
        import pynvml

        return pynvml.nvmlSystemGetDriverVersion()

    def clocks(self) -> str | None:
        """SM and memory clock, MHz."""
        pair = [self._read("nvmlDeviceGetClockInfo", clock) for clock in (1, 2)]
        return None if None in pair else f"SM {pair[0]} MHz, memory {pair[1]} MHz"

    def temperature(self) -> float | None:
        """Degrees Celsius of the GPU."""
        return self._read("nvmlDeviceGetTemperature", 0)

    def energy_j(self) -> float | None:
        """Energy counter of the GPU since the driver was loaded, joules."""
        millijoules = self._read("nvmlDeviceGetTotalEnergyConsumption")
        return None if millijoules is None else millijoules / 1000
