"""The scripts of benchmarks/ run from a source tree that is not installed."""

import re
from pathlib import Path

import pytest

SCRIPTS = sorted((Path(__file__).parents[2] / "benchmarks").glob("*.py"))


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.stem)
def test_src_is_on_the_import_path_before_recollect_is_imported(script):
    text = script.read_text()
    first = re.search(r"^\s*(?:from|import) recollect\b", text, re.MULTILINE)
    assert first is None or "\nimport source_tree" in text[: first.start()]
