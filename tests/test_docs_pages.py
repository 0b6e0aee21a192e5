"""Pages of cores, the scoreboard of results, README's size."""

import re
import sys
from pathlib import Path

import pytest

from recollect.cores import CORES

ROOT = Path(__file__).parents[1]
CORE_PAGES = sorted(path for path in (ROOT / "docs/cores").glob("*.md") if path.stem != "index")
MOST_WORDS = 900

STATE = "docs/results/state.md"


@pytest.fixture(scope="module", autouse=True)
def scripts():
    before = list(sys.path)
    sys.path += [str(ROOT / "docs"), str(ROOT / "benchmarks")]
    yield
    sys.path[:] = before


COUNTED = re.compile(
    r"\b(two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|[1-9]\d*) (\w+ )?"
    r"(cores|memories|promises|lines of a card|recipes|worlds|tasks|trainers|claims)\b",
    re.IGNORECASE,
)
GENERATED = re.compile(r"<!-- recollect:([\w-]+):begin -->.*?<!-- recollect:\1:end -->", re.DOTALL)
NUMBERS = {
    name: number
    for number, name in enumerate(("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"))
}


def test_counts_of_the_first_pages_are_those_of_the_code():
    import report_pays

    promises = (ROOT / "docs/contract.md").read_text().split("## The nine promises")[1].split("\n\n")[1]
    figure = (ROOT / "docs/assets/pays-light.svg").read_text()
    made = {
        "memories behind one call": len(CORES),
        "memories get in": len(report_pays.SHOWN),
        "tasks, in percent": figure.count("rotate("),
        "promises": len(re.findall(r"^\d\.", promises, re.MULTILINE)),
    }
    seen = set()
    for page in ("README.md", "docs/index.md", "docs/contract.md"):
        text = " ".join(GENERATED.sub("", (ROOT / page).read_text()).split())
        for what, number in made.items():
            for word in re.findall(rf"\[?(\w+) {what}", text):
                if word in NUMBERS or word.isdigit():
                    seen.add(what)
                    assert NUMBERS.get(word) == number or word == str(number), (page, word, what)
    assert seen == set(made)


@pytest.mark.parametrize("page", ["start", "certificate", "benchmark", "cores/index", "cores/linear", "write-a-core"])
def test_no_number_of_things_that_grow_is_typed_by_hand(page):
    text = GENERATED.sub("", (ROOT / f"docs/{page}.md").read_text())
    assert [found[0] for found in COUNTED.finditer(text)] == []


def test_the_readme_is_short():
    assert len((ROOT / "README.md").read_text().split()) <= MOST_WORDS


@pytest.mark.parametrize("path", CORE_PAGES, ids=lambda path: path.stem)
def test_a_page_of_a_core_says_what_it_is_for(path):
    text = path.read_text()
    drawn = re.findall(r"!\[[^\]]+\]\(\.\./assets/mechanisms/([\w-]+)\.svg\)", text)
    assert drawn and all((ROOT / f"docs/assets/mechanisms/{name}.svg").is_file() for name in drawn)
    assert text.index("**Use it when**") < text.index("**Not when**") < text.index("## Settings")
    assert text.index("## Settings") < text.index("## Differences from the paper")
    for code in re.findall(r"```python\n(.*?)```", text, re.DOTALL)[:1]:
        exec(compile(code, path.name, "exec"), {})


def test_every_core_has_settings_on_a_written_page():
    text = "".join(path.read_text() for path in CORE_PAGES)
    assert [key for key in CORES if f"<!-- recollect:settings {key} -->" not in text] == []


def test_drawings_are_those_of_the_script_in_the_colours_of_the_page():
    import mechanisms

    assert {path.stem for path in mechanisms.FOLDER.glob("*.svg")} == set(mechanisms.DRAWINGS)
    for name, drawing in mechanisms.DRAWINGS.items():
        text = drawing.svg()
        assert (mechanisms.FOLDER / f"{name}.svg").read_text() == text, "python docs/mechanisms.py"
        shapes = text.partition("</style>")[2]
        assert "#" not in shapes.replace("url(#head)", "") and "currentColor" in shapes


def test_words_of_drawings_are_inside():
    import mechanisms

    wide = 7.9  # of a letter, on average, in the widest of the common fonts
    for name, drawing in mechanisms.DRAWINGS.items():
        for x, anchor, words in re.findall(r'<text x="(\d+)".*?text-anchor="(\w+)">(.*?)</text>', drawing.svg()):
            size = wide * len(words)
            left = int(x) - {"start": 0, "middle": size / 2, "end": size}[anchor]
            assert left >= 0 and left + size <= mechanisms.WIDTH, (name, words)


@pytest.mark.parametrize(
    ("call", "shown"),
    [
        ("field(default_factory=EncoderConfig)", "EncoderConfig()"),
        ("field(default_factory=lambda: OptimizerConfig(learning_rate=0.1))", "OptimizerConfig(learning_rate=0.1)"),
        ("field(default_factory=dict)", "{}"),
        ("field(default=None, compare=False)", "None"),
        ("field(repr=False)", None),
    ],
)
def test_the_reference_shows_the_default_of_a_field(call, shown):
    pytest.importorskip("griffe")
    import reference_fields

    assert reference_fields.default_of(call) == shown


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        ("    h: Tensor  # b l d", "Axes `b l d`"),
        ("    memory: Tensor  # b w d, newest last", "Axes `b w d`, newest last"),
        ("    homes: torch.Tensor  # long [b, n]: cells", "long `[b, n]`: cells"),
        ("    count: Tensor  # type: ignore[assignment]  # hides tuple.count", "hides tuple.count"),
        ("    x: Tensor  # type: ignore[assignment]", None),
        ("    x: Tensor", None),
    ],
)
def test_the_reference_shows_the_comment_behind_a_field(line, shown):
    pytest.importorskip("griffe")
    import reference_fields

    assert reference_fields.described(line) == shown


def test_files_that_pages_name_exist():
    named = re.compile(r"`[^`\n]*?\b((?:tests|src|benchmarks|examples|plugins)/[\w./-]+\.\w+)")
    written = {path: path.read_text() for path in (ROOT / "docs").rglob("*.md") if path.name != "log.md"}
    found = {(path.stem, name) for path, text in written.items() for name in named.findall(text)}
    missing = {(page, name) for page, name in found if not (ROOT / name).is_file()}
    assert len(found) > 50 and {page for page, _ in missing} <= {"write-a-core", "write-a-recipe", "write-a-world"}


def test_no_comment_separates_the_head_of_a_table_from_its_rows():
    pages = [path for path in (ROOT / "docs").rglob("*.md") if re.search(r"^\|[-:| ]+\|\n<!--", path.read_text(), re.M)]
    assert pages == [], "the rows would be shown as text"


@pytest.mark.long
def test_scoreboard_and_state_are_made_from_the_results():
    import report_papers

    page, readme, state = ((ROOT / name).read_text() for name in ("docs/results/index.md", "README.md", STATE))
    assert report_papers.scoreboard() in page and report_papers.first_claims() in readme, "python benchmarks/report.py"
    assert all(report_papers.state(paper) in state for paper in report_papers.PAGES), "python benchmarks/report.py"
    assert report_papers.without_reason() == []
    for claim in report_papers.CLAIMS:
        found = report_papers.compare(claim)
        assert found.verdict and (found.verdict != "holds" or min(found.seeds) >= 3), claim


def test_claims_name_rows_and_tests_that_exist():
    import report_papers

    for claim in report_papers.CLAIMS:
        rows = {
            label: run
            for scale in report_papers.scales(claim.recipe)
            for label, run in report_papers._rows(claim.recipe, scale).items()
        }
        for label in filter(None, (claim.first, claim.second)):
            assert label in rows, claim
            if claim.kind in ("above", "alike") and not label.endswith("-paper"):
                assert claim.test in rows[label].scored, claim
