"""README and docs say what is there."""

import re

import pytest
import yaml

from meddpm.config import VariantConfig, from_mapping, repository_root

ROOT = repository_root()
README = (ROOT / "README.md").read_text(encoding="utf-8")
CONFIG = yaml.safe_load((ROOT / "config.yaml").read_text(encoding="utf-8"))
PRECISION = {"ieee": "IEEE fp32", "tf32": "TF32", "default": "PyTorch's default"}


def test_readme_is_short_and_names_the_two_commands() -> None:
    assert len(README.splitlines()) < 150
    assert "make demo" in README
    assert "make test" in README


@pytest.mark.parametrize("name", CONFIG["variants"])
def test_readme_says_what_each_variant_switches(name: str) -> None:
    variant = from_mapping(VariantConfig, CONFIG["variants"][name])
    table = README.partition("## The variants")[2]
    (line,) = re.findall(rf"^\| {name}(?: \(the baseline\))? \|.*$", table, re.MULTILINE)
    _, convolution, product, layout, autocast, compiled = [cell.strip() for cell in line.strip("|").split("|")]
    assert convolution.startswith(PRECISION[variant.conv_precision])
    assert product.startswith(PRECISION[variant.matmul_precision])
    assert layout == variant.memory_format
    assert autocast == variant.autocast.replace("none", "")
    assert compiled == variant.compile.replace("none", "")


PAGES = ["README.md", "CONTRIBUTING.md", *sorted(f"docs/{path.name}" for path in (ROOT / "docs").glob("*.md"))]


@pytest.mark.parametrize("page", PAGES)
def test_links_between_files_lead_somewhere(page: str) -> None:
    path = ROOT / page
    for target in re.findall(r"\]\(([^)#]+)\)", path.read_text(encoding="utf-8")):
        assert target.startswith("https://") or (path.parent / target).exists(), f"{page}: {target}"


def test_docs_name_every_switch_of_a_variant() -> None:
    text = (ROOT / "docs/variants.md").read_text(encoding="utf-8")
    for name in VariantConfig.__dataclass_fields__:
        assert f"| `{name}` |" in text
