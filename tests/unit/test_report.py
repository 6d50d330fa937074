"""The page: self-contained, escaped, honest about what did not run, and with the answer that the tables give."""

import dataclasses
import json
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote

import pytest
from matplotlib.figure import Figure

from meddpm import tables
from meddpm.config import ReportConfig, UserError, repository_root
from meddpm.data import manifest
from meddpm.report import content, page, rows, slices, style
from meddpm.report.inputs import ReportInputs
from meddpm.report.notices import notices
from tests.unit.report_fixture import UNSUPPORTED, Run, replaced, timing_rows, write_run

TIMES = "\N{MULTIPLICATION SIGN}"
POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"


class Document(HTMLParser):
    """The tags of a page with their attributes, and its text."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.path, self.source = path, path.read_text(encoding="utf-8")
        self.tags: list[tuple[str, dict[str, str]]] = []
        self.words: list[str] = []
        self.feed(self.source)

    def handle_starttag(self, tag: str, attrs: list) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.words.append(data)

    @property
    def text(self) -> str:
        return " ".join("".join(self.words).split())

    def attributes(self, tag: str, name: str) -> list[str]:
        return [attributes[name] for found, attributes in self.tags if found == tag and name in attributes]

    def section(self, name: str) -> str:
        """The source of the section with this id."""
        return re.search(rf'<section id="{name}".*?</section>', self.source, re.DOTALL).group()


def build(root: Path, inputs: ReportInputs, **settings: object) -> Document:
    return Document(page.build(inputs, ReportConfig(**settings), root / "results" / "report"))


@pytest.fixture
def undrawn(monkeypatch):
    """For tests of words: figures are made, but drawing them, which takes most of the time, is left out."""

    def save(figure: object, directory: Path, *name: str) -> tuple[Path, Path]:
        directory.mkdir(parents=True, exist_ok=True)
        paths = tuple(directory / f"{'_'.join(name)}.{kind}" for kind in ("svg", "png"))
        for path in paths:
            path.touch()
        return paths

    monkeypatch.setattr(style, "save", save)
    monkeypatch.setattr(slices, "draw", lambda grid: Figure())


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """The page of the plain run, and the folder it lies in."""
    root = tmp_path_factory.mktemp("made")
    return build(root, write_run(root)), root


def test_page_is_self_contained(made):
    page, _ = made
    policies = [a["content"] for t, a in page.tags if t == "meta" and a.get("http-equiv") == "Content-Security-Policy"]
    assert policies == [POLICY]
    assert {"script", "link", "iframe", "object"}.isdisjoint(tag for tag, _ in page.tags)
    sources = page.attributes("img", "src")
    assert len(sources) == 5  # times, kernels, quality, samples, loss
    assert all(source.startswith(("data:image/svg+xml;base64,", "data:image/png;base64,")) for source in sources)
    assert not re.search(r"url\(|@import", page.source)


def test_every_link_leads_to_a_file_or_a_section(made):
    page, _ = made
    ids = {attributes["id"] for _, attributes in page.tags if "id" in attributes}
    links = page.attributes("a", "href")
    assert len(links) > 15
    for link in links:
        assert not link.startswith(("http:", "https:", "/", "file:"))
        assert link[1:] in ids if link.startswith("#") else (page.path.parent / unquote(link)).is_file()


def test_every_picture_has_words_for_those_who_cannot_see_it(made):
    page, _ = made
    assert all(len(text) > 20 for text in page.attributes("img", "alt"))
    assert len(page.attributes("img", "alt")) == len(page.attributes("img", "src"))


def test_figures_are_written_as_svg_and_png(made):
    _, root = made
    names = {path.name for path in (root / "results" / "figures").iterdir()}
    stems = ("timing+demo+auto+sample", "kernels+demo+auto+sample", "quality+demo+auto+sample",
             "samples+demo+auto+ddpm250", "loss+demo+auto+fp32")  # fmt: skip
    assert names == {f"{stem}.{kind}" for stem in stems for kind in ("svg", "png")}


def test_bytes_repeat(made, tmp_path):
    page, root = made
    again = build(tmp_path, write_run(tmp_path))
    assert again.source == page.source
    for figure in (root / "results" / "figures").iterdir():
        assert (tmp_path / "results" / "figures" / figure.name).read_bytes() == figure.read_bytes(), figure.name


def test_answer_is_computed_from_the_tables(made):
    answer = made[0].section("answer")
    assert f">6.84{TIMES}<" in answer  # 203 / 29.7
    assert "bf16_compiled takes 29.7 ms for one evaluation, fp32 in the same process 203 ms" in answer
    assert "6.45 to 7.05" in answer  # 203 / (1.06 x 29.7) and 203 / (0.97 x 29.7)
    assert (
        "SSIM against fp32 is 0.9871 inside the mask (95\N{NO-BREAK SPACE}% interval 0.9832 to 0.9910, 2 volumes)"
        in answer
    )


def test_answer_claims_no_gain_within_the_noise(tmp_path, undrawn):
    inputs = write_run(tmp_path, Run(variants=("fp32", "tf32"), absent={}))
    rows = tables.read("timing", inputs.timing)
    rows[1] |= {"step_ms_median": 190.0, "step_ms_p05": 185.0, "step_ms_p95": 204.0, "speedup": 201 / 190}
    tables.write("timing", rows, inputs.timing)
    answer = build(tmp_path, inputs).section("answer")
    assert "no clear gain" in answer
    assert "tf32 against fp32" in answer
    assert "That is no clear gain" in answer


def test_spread_of_fp32_over_the_jobs(made):
    assert "medians over 4 timing jobs: 200 to 203 ms, median 202 ms, 1.5 % of it" in made[0].text


def test_lede_says_what_on_what_and_when_not_to_trust_it(made, tmp_path):
    text, shape = made[0].text, TIMES.join(["1", "16", "16", "16"])
    assert f"what drawing a volume costs with demo ({shape}) in 5 variants and 1 solver on Some CPU (2 cores)" in text
    assert "Do not trust a gain no larger than the spread of the fp32 medians (up to 1.5 % here)" in text
    compared = "in one process, and its pictures are compared with those that fp32 draws"
    assert compared in text
    groups = rows.groups(tables.read("timing", write_run(tmp_path).timing))
    assert compared in content.lede({}, groups, [], drawn=True)
    assert "in one process. Do not trust" in content.lede({}, groups, [], drawn=False)


def test_a_row_that_could_not_run_stays_in_grey_with_its_reason(made):
    row = re.search(r'<tr class="absent[^"]*">.*?</tr>', made[0].section("group-1"), re.DOTALL).group()
    assert "bf16_<wbr>graph" in row
    assert ">unsupported<" in row
    assert UNSUPPORTED in row


def test_what_was_not_measured_is_a_dash_and_never_zero(made):
    first = re.search(r"<tbody>.*?</tr>", made[0].section("group-1"), re.DOTALL).group()
    energy = re.search(r'data-label="Energy[^>]*>(.*?)</td>', first, re.DOTALL).group(1)
    assert re.sub(r"<[^>]+>", "", energy).strip() == "\N{EN DASH}"


def test_every_quality_row_is_listed_with_its_yardstick(made):
    text = made[0].text
    listed = text[text.index("All quality figures (83 rows)") :]
    for reference in ("fp32, same noise", "true image", "label map", "black, -1", "another seed, same mask"):
        assert listed.count(f"Against: {reference}") == 1
    assert made[0].source.count('<td data-label="Metric">') == 83


def test_pictures_stand_beside_the_truth_and_its_yardsticks(made, tmp_path, undrawn):
    def rows_of(page: Document) -> list[list[str]]:
        body = page.section("truth").partition("<tbody>")[2]
        rows = re.findall("<tr.*?</tr>", body, re.DOTALL)
        return [" ".join(re.sub("<[^>]+>", " ", row).split()).split() for row in rows]

    (row,) = rows_of(made[0])
    figures = "0.7100 label means 0.8700 0.740 true image 0.900 0.820 true image 0.900 75 % 0.0430"
    dash = "\N{EN DASH}"
    assert " ".join(row) == f"ddpm250 demo on auto {figures} {dash} between seeds 0.4100"

    two = build(tmp_path, write_run(tmp_path, Run(solvers=("ddpm250", "unipc25"))))
    every, few = rows_of(two)
    assert " ".join(every).endswith("75 % 0.0430 reference between seeds 0.4100")
    assert " ".join(few).endswith("75 % 0.0430 0.6200 between seeds 0.4100")
    assert 'data-label="SSIM to ddpm250"' in two.section("truth")


def test_pictures_that_were_not_drawn_are_not_beside_the_truth(tmp_path, undrawn):
    page = build(tmp_path, write_run(tmp_path, Run(variants=("tf32",), absent={"fp32": "failed"})))
    row = page.section("truth").partition("<tbody>")[2]
    assert '<tr class="absent">' in row
    assert UNSUPPORTED in row
    inputs = write_run(tmp_path)
    quality = [row for row in tables.read("quality", inputs.quality) if row["reference"] == "fp32, same noise"]
    tables.write("quality", quality, inputs.quality)
    assert 'id="truth"' not in build(tmp_path, inputs).source


def test_notices_of_a_cpu_run_with_weights_hardly_trained(made):
    text = made[0].text
    assert "No GPU in this run" in text
    assert "trained in this run: 40 steps of 2 volumes in 61.5 s on Some CPU (2 cores), loss 1.00 to 0.251" in text
    assert "Hardly trained. " in text
    assert "deformations of one template, ICBM 152" in text
    assert "Of 5 rows in the tables 1 has no time (unsupported)" in text


def test_a_training_on_the_cases_that_are_drawn_says_so(tmp_path, undrawn):
    inputs = write_run(tmp_path)
    words = "The cases that are drawn are those that it was trained on"
    assert words in build(tmp_path, inputs).text
    for record in inputs.training:
        other = json.loads(record.read_text(encoding="utf-8")) | {"dataset_name": "another"}
        record.write_text(json.dumps(other), encoding="utf-8")
    assert words not in build(tmp_path, inputs).text


@pytest.mark.parametrize("content", ["", "{", "[]", "null", '{"model": "demo"}', "\xff"])
def test_a_broken_record_of_a_training_is_one_line(tmp_path, undrawn, content):
    inputs = write_run(tmp_path)
    inputs.training[0].write_text(content, encoding="latin-1")
    with pytest.raises(UserError, match=r"training\.json: is no record of a training") as caught:
        build(tmp_path, inputs)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("content", ["step,loss\none,0.1\n", "a,b\n1,2\n", "step,loss\n1\n"])
def test_a_broken_list_of_losses_is_one_line(tmp_path, undrawn, content):
    inputs = write_run(tmp_path)
    inputs.training[0].with_name("loss.csv").write_text(content, encoding="utf-8")
    with pytest.raises(UserError, match=r"loss\.csv: is no list of losses"):
        build(tmp_path, inputs)


def test_one_job_has_no_spread(tmp_path, undrawn):
    text = build(tmp_path, write_run(tmp_path, Run(variants=("fp32",), absent={}))).text
    assert "One job timed fp32" in text
    assert "Spread of the fp32 medians" not in text
    assert "Spread of the fp32 medians over" in build(tmp_path, write_run(tmp_path)).text


def test_long_training_is_not_called_little(tmp_path, undrawn):
    inputs = write_run(tmp_path, Run(training_steps=15_000))
    text = build(tmp_path, inputs).text
    assert "trained in this run: 15,000 steps" in text
    assert "Hardly trained" not in text


def test_notices_of_a_gpu_run_with_random_weights(tmp_path, undrawn):
    run = Run(capability="9.0", device_name="NVIDIA H200", weights="random", absent={})
    text = build(tmp_path, write_run(tmp_path, run)).text
    assert "The weights of demo are random numbers" in text
    assert "No GPU in this run" not in text
    assert "Not everything ran" not in text
    assert "Training in this run" not in text
    assert "the samples are no pictures" in text


def test_what_weights_are_worth_is_not_said_of_pictures_that_were_not_drawn():
    config = {"study": {"models": ["demo", "head"]}, "sample": {"enabled": False}}
    config["models"] = {"demo": {"weights": "shipped"}, "head": {"weights": "random"}}
    (notice,) = notices(config, [], [], [], [])
    assert notice.text == "The weights of head are random numbers. Times and memory do not depend on them."


def test_cases_that_were_refused_or_have_warnings_are_told(tmp_path, undrawn):
    inputs = write_run(tmp_path)
    assert "Cases to look at" not in build(tmp_path, inputs).text
    (table,) = inputs.datasets
    first, second = manifest.read(table)
    doubtful = dataclasses.replace(first, warnings=("label 1 is small",))
    refused = manifest.CaseRow("third", status=manifest.REFUSED, reason="mask/third.nii.gz: is empty")
    manifest.write(table, [doubtful, second, refused])
    text = build(tmp_path, inputs).text
    assert "Of 3 cases of head: 1 left out, as it cannot be used and 1 with warnings." in text


def test_published_tables_stand_apart_where_this_run_had_no_gpu(tmp_path, undrawn):
    inputs = write_run(tmp_path)
    published = Run(models=("whole_head",), gpus=("h200",), device_name="NVIDIA H200", capability="9.0")
    tables.write("timing", timing_rows(published), inputs.published / "nvidia-h200" / "timing.csv")
    section = build(tmp_path, inputs).section("published")
    assert "These figures are not of this run." in section
    assert "NVIDIA H200" in section
    assert "NVIDIA H200" not in build(tmp_path, inputs).section("answer")
    assert 'id="published"' not in build(tmp_path, inputs, published=False).source
    assert 'id="published"' not in build(tmp_path, replaced(inputs, published=None)).source


def test_published_tables_are_left_out_where_this_run_had_a_gpu(tmp_path, undrawn):
    inputs = write_run(tmp_path, Run(capability="9.0"))
    tables.write("timing", timing_rows(Run()), inputs.published / "nvidia-h200" / "timing.csv")
    assert 'id="published"' not in build(tmp_path, inputs).source


def test_every_model_gpu_phase_and_solver_has_its_place(tmp_path, undrawn):
    run = Run(models=("one", "two"), gpus=("a", "b"), solvers=("ddpm250", "unipc25"), phases=("sample", "train"))
    page = build(tmp_path, write_run(tmp_path, run))
    headings = re.findall(r"<h2>(.*?)</h2>", page.source)
    for model, gpu in (("one", "a"), ("one", "b"), ("two", "a"), ("two", "b")):
        assert f"{model} on {gpu}: drawing a volume" in headings
        assert f"{model} on {gpu}: training" in headings
        assert f"{model} on {gpu}, unipc25" in page.text
    assert page.source.count('<div class="answer">') == 8
    assert "The quickest volume: bf16_compiled with unipc25, 25 evaluations, 0.743 s." in page.text
    # Four jobs time fp32, each for both solvers: eight rows, four medians.
    assert page.text.count("medians over 4 timing jobs") == 8


def test_nothing_ran(tmp_path, undrawn):
    run = Run(variants=(), absent={"fp32": "unavailable", "tf32": "failed"}, weights="random")
    inputs = write_run(tmp_path, run)
    tables.write("environment", [], inputs.environment)
    page = build(tmp_path, inputs)
    assert "Nothing could be timed" in page.text
    assert "nothing has a time" in page.text
    assert "No job of this table timed fp32" in page.text
    assert page.section("group-1").count('<tr class="absent') == 2
    assert "No variant drew a volume here" in page.text
    assert page.attributes("img", "src") == []


def test_empty_tables_still_make_a_page(tmp_path):
    inputs = write_run(tmp_path)
    for name in ("timing", "kernels", "quality", "environment"):
        tables.write(name, [], getattr(inputs, name))
    text = build(tmp_path, replaced(inputs, samples=[], training=[], cases={})).text
    assert "The timing table of this run has no rows" in text
    assert "No job recorded an environment" in text


def test_missing_quality_and_kernels_leave_the_times(tmp_path, undrawn):
    inputs = write_run(tmp_path)
    for name in ("kernels", "quality"):
        tables.write(name, [], getattr(inputs, name))
    page = build(tmp_path, inputs)
    assert "How far its pictures differ from those of fp32 was not measured." in page.text
    assert f"6.84{TIMES}" in page.section("answer")
    assert len(re.findall("<figure", page.section("group-1"))) == 1


def test_hostile_names_are_escaped(tmp_path):
    hostile = "<script>alert(1)</script>\"'$x^{$[red]{{7*7}}"
    inputs = write_run(tmp_path)
    for name, key in (
        ("timing", "variant"),
        ("timing", "reason"),
        ("kernels", "category"),
        ("environment", "device_name"),
    ):
        rows = tables.read(name, getattr(inputs, name))
        rows[1][key] = rows[-1][key] = hostile
        tables.write(name, rows, getattr(inputs, name))
    text = inputs.run_config.read_text(encoding="utf-8")
    inputs.run_config.write_text(text + f"# {hostile}</pre>\n", encoding="utf-8")
    page = build(tmp_path, inputs, title=hostile)
    assert "script" not in {tag for tag, _ in page.tags}
    assert "<script" not in page.source
    assert page.source.count("&lt;script&gt;alert(1)") > 5
    assert "{{7*7}}" in page.text


def test_environment_shows_one_entry_for_jobs_of_one_machine(made):
    environment = made[0].section("environment")
    assert environment.count("<dt>PyTorch</dt>") == 1
    assert "e0123456789a (code ca), e0123456789b (code cb)" in environment


def test_configuration_is_shown_in_full_and_folded(made):
    page, root = made
    assert " ".join((root / "results" / "run_config.yaml").read_text(encoding="utf-8").split()) in page.text
    details = re.findall(r"<details>\s*<summary>(.*?)</summary>", page.source)
    assert "Configuration of this run" in details


def test_package_import_is_light():
    code = "import sys, meddpm.report; print({'matplotlib', 'jinja2', 'nibabel', 'numpy'} & {*sys.modules})"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=repository_root(), capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "set()"


@pytest.mark.parametrize("name", ["timing", "quality", "kernels", "counters", "priorities", "claims", "report"])
def test_captions_are_one_sentence(name):
    text = (repository_root() / "captions" / f"{name}.rst").read_text(encoding="utf-8").strip()
    assert text.endswith(".")
    assert text.count(".") == 1
