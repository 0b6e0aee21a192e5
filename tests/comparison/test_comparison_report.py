import json
import re
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from urllib.parse import unquote, urlsplit

import numpy as np
import pytest
from matplotlib.figure import Figure
from PIL import Image

from recollect.cli import main
from recollect.comparison.compare import compare
from recollect.comparison.page import page, table_rows, write_report
from run_maker import make_run


@pytest.fixture
def comparison(tmp_path):
    runs = [make_run(tmp_path, "memoryless", seed, [0.2, 0.3 + 0.02 * seed]) for seed in range(3)]
    runs += [make_run(tmp_path, "gru", seed, [0.4, 0.9]) for seed in range(2)]
    runs.append(make_run(tmp_path, "lstm", 0, [0.4, 0.6], planned=40))
    return compare(runs)


def test_the_page_holds_the_numbers_and_nothing_from_elsewhere(comparison, tmp_path):
    report = write_report(comparison, tmp_path / "out")
    text = report.html.read_text()
    for group in comparison.groups:
        assert group.label in text and f"<b>{group.score:.3f}</b>" in text
    assert "0.900 to 0.900" in text and "100 %" in text
    assert "is unfinished, at step 20 of 40" in text
    assert "chance" in text and "oracle" in text and "prefers-color-scheme: dark" in text
    assert not re.search(r"https?://|<script|<link|@import", text)
    for link in re.findall(r'href="([^"#]+)"', text):
        assert ((tmp_path / "out") / link / "config.json").is_file()


def test_charts_are_well_formed_and_follow_the_theme_of_the_page(comparison):
    charts = re.findall(r"<svg.*?</svg>", page(comparison, Path(".")), re.DOTALL)
    assert len(charts) == 2
    for chart in charts:
        root = ElementTree.fromstring(chart)
        assert root.attrib["role"] == "img" and root.attrib["aria-label"]
        assert "var(--c0)" in chart and "var(--faint)" in chart and "nan" not in chart


def test_the_picture_and_the_numbers_are_written(comparison, tmp_path):
    report = write_report(comparison, tmp_path)
    with Image.open(report.png) as opened:
        picture = np.asarray(opened.convert("L"))
    assert picture.shape[1] > 1000 and picture.std() > 5
    assert json.loads(report.json.read_text()) == comparison.to_json()


def test_names_are_escaped(tmp_path):
    run = make_run(tmp_path, "gru", 0, [0.5, 0.6])
    text = page(compare([run], names=["<b>&"]), tmp_path)
    assert "&lt;b&gt;&amp;" in text and "<b>&<" not in text


@pytest.mark.parametrize("name", ["_a", r"$\frac{$"])
def test_names_are_words_in_the_picture_too(tmp_path, monkeypatch, name):
    """What matplotlib leaves out of a legend, and what it takes for mathematics."""
    drawn, save = [], Figure.savefig
    monkeypatch.setattr(
        Figure, "savefig", lambda self, *given, **more: drawn.append(self) or save(self, *given, **more)
    )
    runs = [make_run(tmp_path, "gru", seed, [0.5, 0.6]) for seed in range(2)]
    write_report(compare(runs, names=[name, "b"]), tmp_path / "out")
    legend = [text.get_text() for text in drawn[-1].axes[0].get_legend().get_texts()]
    assert [text.strip().replace("\\$", "$") for text in legend] == [name, "b"]
    assert {path.suffix for path in (tmp_path / "out").iterdir()} == {".html", ".json", ".png"}


def test_a_folder_that_cannot_be_made_is_named(comparison, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ValueError, match=r"out='.*file' cannot be written .*: give another folder"):
        write_report(comparison, tmp_path / "file")


def test_one_evaluation_of_one_run_is_a_page(tmp_path):
    report = write_report(compare([make_run(tmp_path, "gru", 0, [1 / 3])]), tmp_path / "out")
    assert "0.333" in report.html.read_text() and "a single run has no interval" in report.html.read_text()


def test_a_single_evaluation_is_to_be_seen_in_the_curves(tmp_path, monkeypatch):
    drawn, save = [], Figure.savefig
    monkeypatch.setattr(
        Figure, "savefig", lambda self, *given, **more: drawn.append(self) or save(self, *given, **more)
    )
    report = write_report(compare([make_run(tmp_path, "gru", seed, [0.5]) for seed in range(2)]), tmp_path / "out")
    assert {line.get_marker() for line in drawn[-1].axes[0].lines} >= {"o"}
    assert report.html.read_text().count("<svg") == 2


def test_many_tasks_are_one_page(tmp_path):
    runs = [
        make_run(tmp_path, core, seed, [0.5, 0.8], task=task)
        for task in ("recall", "copying")
        for core in ("memoryless", "gru")
        for seed in range(2)
    ]
    text = page(compare(runs), tmp_path)
    assert "<h2>All tasks</h2>" in text and text.count("<svg") == 4


def test_a_narrow_window_scrolls_charts_and_does_not_shrink_their_letters(tmp_path):
    text = page(compare([make_run(tmp_path, "gru", 0, [0.5, 0.8])]), tmp_path)
    assert text.count("<svg") == text.count('<div class="scroll" tabindex="0"><svg') == 2
    assert "min-width: 600px" in text and "1 run in 1 group." in text


def test_links_to_runs_with_any_name_are_followed_as_they_are(tmp_path):
    run = make_run(tmp_path, "gru", 0, [0.5, 0.8])
    run = run.rename(tmp_path / "try #2? 50%41 ü")
    (link,) = re.findall(r'href="([^"#]+)"', page(compare([run]), tmp_path))
    assert urlsplit(link).path == link and unquote(link) == "try #2? 50%41 ü/"


def test_without_matplotlib_the_page_is_still_to_be_had(comparison, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(ValueError, match=r"pip install .recollect-torch\[plots\]"):
        write_report(comparison, tmp_path / "out")
    report = write_report(comparison, tmp_path / "out", picture=False)
    assert report.html.is_file() and report.png is None


def test_the_command_leaves_out_the_picture_where_matplotlib_is_not_installed(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("recollect.comparison.plots.find_spec", lambda name: None)
    run = make_run(tmp_path, "gru", 0, [0.5, 0.8])
    assert main(["compare", str(run), "--out", str(tmp_path / "out")]) == 0
    assert {file.name for file in (tmp_path / "out").iterdir()} == {"comparison.html", "comparison.json"}
    assert "pip install recollect-torch[plots]" in capsys.readouterr().err


def test_the_table_of_a_terminal(comparison):
    rows = table_rows(comparison.groups)
    assert [row[""] for row in rows] == ["memoryless", "gru", "lstm", "chance", "oracle"]
    assert (rows[1]["runs"], rows[1]["IQM"], rows[1]["P(better)"], rows[2]["interval"]) == ("2", "0.900", "100 %", "–")
