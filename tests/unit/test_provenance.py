"""The digest of the code: what changes it, and what does not."""

import json
from pathlib import Path

import pytest

from meddpm import provenance
from meddpm.config import UserError


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package named meddpm in a folder of its own, and a digest that looks there and remembers nothing."""
    files = {
        "__init__.py": "",
        "log.py": "LEVEL = 1\n",
        "other.py": "X = 1\n",
        "stages/__init__.py": "",
        "stages/sample.py": (
            '"""Doc."""\nfrom meddpm import log\nfrom meddpm.model import net\n\ndef run(a, b):\n    """Doc."""\n'
            "    import meddpm.lazy\n    return net.f(a) + b  # why\n"
        ),
        "model/__init__.py": "",
        "model/net.py": "def f(x):\n    return x * 2\n",
        "model/table.yaml": "a: 1\n",
        "lazy.py": "Y = 1\n",
    }
    for name, text in files.items():
        path = tmp_path / "meddpm" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    monkeypatch.setattr(provenance, "repository_root", lambda: tmp_path)
    for function in (provenance._parse, provenance._module_digest, provenance.code_digest):
        monkeypatch.setattr(provenance, function.__name__, function.__wrapped__)
    return tmp_path / "meddpm"


def digest() -> str:
    return provenance.code_digest("meddpm.stages.sample")


def test_the_modules_behind_a_stage_are_found_also_inside_functions(package: Path) -> None:
    assert provenance.modules_behind("meddpm.stages.sample") == [
        "meddpm.lazy",
        "meddpm.model",
        "meddpm.model.net",
        "meddpm.stages",
        "meddpm.stages.sample",
    ]


@pytest.mark.parametrize(
    ("file", "old", "new", "changes"),
    [
        ("stages/sample.py", "# why", "# because", False),
        ("stages/sample.py", '"""Doc."""', '"""Another."""', False),
        ("stages/sample.py", "\n\ndef", "\n\n\n\ndef", False),
        ("model/net.py", "    return x * 2", "    return (x\n            * 2)", False),
        ("model/net.py", "def f(x):", "def f(x):\n    'A docstring.'", False),
        ("log.py", "LEVEL = 1", "LEVEL = 2", False),
        ("other.py", "X = 1", "X = 2", False),
        ("model/net.py", "* 2", "* 3", True),
        ("model/net.py", "x * 2", "x * 2.0", True),
        ("lazy.py", "Y = 1", "Y = 2", True),
        ("stages/sample.py", "+ b", "- b", True),
        ("model/table.yaml", "a: 1", "a: 2", True),
    ],
)
def test_what_changes_the_digest(package: Path, file: str, old: str, new: str, changes: bool) -> None:
    before = digest()
    path = package / file
    assert old in path.read_text()
    path.write_text(path.read_text().replace(old, new))
    assert (digest() != before) is changes


def test_the_digest_is_the_same_on_every_python(package: Path) -> None:
    # Written down once: Python 3.12 adds type_params to functions and classes, 3.13 changes ast.dump.
    described = provenance._describe(provenance._parse(package / "model" / "net.py"))
    function = described[1][0][1][0]
    assert function[0] == "FunctionDef"
    assert [name for name, _ in function[1]] == ["name", "args", "body"]
    assert json.loads(json.dumps(described)) == described


def test_a_job_whose_code_was_edited_is_refused(package: Path) -> None:
    planned = digest()
    provenance.require_digest("meddpm.stages.sample", planned)
    (package / "lazy.py").write_text("Y = 3\n")
    with pytest.raises(UserError, match="edited after this job was planned"):
        provenance.require_digest("meddpm.stages.sample", planned)


def test_the_environment_names_the_machine_and_its_key_ignores_the_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    first = provenance.environment("cpu", "abc")
    assert first["device_name"] == provenance.processor_name()
    assert first["status"] == "ok"
    assert first["cuda"] is None or isinstance(first["cuda"], str)
    assert provenance.environment("cpu", "abc")["environment"] == first["environment"]
    assert provenance.environment("cpu", "abd")["environment"] != first["environment"]


def test_outside_a_checkout_there_is_no_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(provenance, "repository_root", lambda: tmp_path)
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    monkeypatch.delenv("MEDDPM_GIT_COMMIT", raising=False)
    assert provenance.git_commit() is None
    monkeypatch.setenv("MEDDPM_GIT_COMMIT", "abc123")
    assert provenance.git_commit() == "abc123"
