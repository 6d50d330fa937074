"""README and docs say what is there."""

import re

import pytest
import yaml

from meddpm.config import PreparationConfig, VariantConfig, from_mapping, repository_root
from meddpm.data import manifest, preparations

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


def test_docs_say_what_each_preset_of_preparation_does() -> None:
    text = (ROOT / "docs/data.md").read_text(encoding="utf-8")
    assert all(f"**{layout}**" in text for layout in preparations.OF_LAYOUT)
    table = text.partition("### Preparation")[2].partition("\n\nThe first two")[0]
    lines = [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines() if "|" in line]
    names = [name.split(" ")[0] for name in lines[0][1:]]
    assert names == list(preparations.PREPARATIONS)
    rows = {line[0].strip("`"): dict(zip(names, line[1:], strict=True)) for line in lines[2:]}
    for name, how in preparations.PREPARATIONS.items():
        assert rows["orientation"][name] == how.orientation
        labels = ", ".join(map(str, how.source_labels)) if how.source_labels else "those of the model"
        assert rows["source_labels"][name] == labels
        assert rows["remap"][name] == ", ".join(f"{old} → {new}" for old, new in how.remap.items())
        assert rows["floor"][name] == ("" if how.floor is None else f"{how.floor:g}")
        derive = how.derive if how.derive == "none" else f"{how.derive}, label {how.derived_label}"
        assert rows["derive"][name] == derive
        assert rows["required_label"][name].split(" ")[0] == str(how.required_label or "")
        assert rows["fit"][name] == how.fit
        assert rows["intensity"][name] == how.intensity


def test_docs_name_every_key_of_a_preparation_and_column_of_the_table_of_cases() -> None:
    text = (ROOT / "docs/data.md").read_text(encoding="utf-8")
    for name in [*PreparationConfig.__dataclass_fields__, *manifest.CaseRow.__dataclass_fields__]:
        assert f"`{name}`" in text or f"`{name}:" in text or f"**{name}**" in text, name
