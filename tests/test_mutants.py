"""The script that plants bugs draws the same ones for a seed, and finds the tests of a module."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

import mutants


@pytest.mark.long
def test_a_seed_draws_the_same_bugs_from_all_rooms():
    drawn = mutants.draw(20, 0, list(mutants.ROOMS))
    assert drawn == mutants.draw(20, 0, list(mutants.ROOMS)) != mutants.draw(20, 1, list(mutants.ROOMS))
    assert {mutant.file.split("/")[2] for mutant in drawn} == set(mutants.ROOMS)


def test_tests_are_those_that_name_the_module():
    chosen = mutants.tests_of("src/recollect/objectives/vtrace.py", 3)
    assert chosen[0] == "tests/objectives/test_vtrace.py" and len(chosen) == 3


@pytest.mark.long
def test_only_a_failed_test_kills_a_bug(tmp_path):
    wrong = "import pytest\n@pytest.mark.parametrize('n', [1, 2])\ndef test(n): assert n == 1"
    for name, text in {"right": "def test(): pass", "wrong": wrong, "torn": "def test("}.items():
        (tmp_path / f"test_{name}.py").write_text(text)
    # In a process of its own, as the script runs: a fork of one with other tests' threads may wait for their locks.
    script = """
import json, pathlib, sys
sys.path.insert(0, sys.argv[1])
import mutants
mutants.ROOT = root = pathlib.Path(sys.argv[2])
print(json.dumps([mutants.run_tests(root, [f"test_{name}.py"]) for name in ("right", "wrong", "torn")]))
"""
    run = [sys.executable, "-c", script, str(Path(mutants.__file__).parent), str(tmp_path)]
    done = subprocess.run(run, capture_output=True, text=True, timeout=600)
    assert not done.returncode, done.stderr
    assert json.loads(done.stdout) == [
        ["survives", ""],
        ["killed", "test_wrong.py::test[2]"],
        ["no verdict (pytest ended with 2)", ""],
    ]


def test_a_line_meets_the_most_specific_tests_first(tmp_path):
    coverage = pytest.importorskip("coverage")
    data = coverage.CoverageData(str(tmp_path / "lines"))
    for name, lines in {"wide[a]|run": range(1, 9), "narrow[a]|run": [3, 4], "narrow[b]|run": [3]}.items():
        data.set_context(f"tests/test_it.py::{name}")
        data.add_lines({str(tmp_path / "src/recollect/agents/heads.py"): lines})
    data.write()
    lines = mutants.LineTests(tmp_path / "lines")
    found = [test.split("::")[1] for test in lines.of("src/recollect/agents/heads.py", 3)]
    assert found == ["narrow[b]", "wide[a]", "narrow[a]"]  # other functions before other parameters
    assert not lines.of("src/recollect/agents/heads.py", 30) and not lines.of("src/recollect/agents/other.py", 3)
