"""Pages of cores, the scoreboard of results, README's size."""

import re
import sys
from pathlib import Path

import pytest

from recollect.cores import CORES

ROOT = Path(__file__).parents[1]
CORE_PAGES = sorted(path for path in (ROOT / "docs/cores").glob("*.md") if path.stem != "index")
MOST_WORDS = 900


@pytest.fixture(scope="module", autouse=True)
def scripts():
    before = list(sys.path)
    sys.path += [str(ROOT / "docs"), str(ROOT / "benchmarks")]
    yield
    sys.path[:] = before


@pytest.mark.parametrize("page", ["README.md", "docs/index.md"])
def test_the_number_of_memories_is_that_of_the_table(page):
    assert f"{len(CORES)} memories behind one call" in " ".join((ROOT / page).read_text().split())


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


@pytest.mark.long
def test_the_scoreboard_is_made_from_the_results():
    import report_papers

    page, readme = ((ROOT / name).read_text() for name in ("docs/results/index.md", "README.md"))
    assert report_papers.scoreboard() in page and report_papers.first_claims() in readme, "python benchmarks/report.py"


def test_verdicts_follow_from_intervals():
    import report_papers

    assert report_papers._verdict((0.6, 0.7), (0.4, 0.5)) == "holds"
    assert report_papers._verdict((0.4, 0.5), (0.6, 0.7)) == "contradicted"
    assert report_papers._verdict((0.4, 0.6), (0.5, 0.7)) == "not shown"
