"""The script that plants bugs draws the same ones for a seed, and finds the tests of a module."""

import mutants


def test_a_seed_draws_the_same_bugs_from_all_rooms():
    drawn = mutants.draw(20, 0, list(mutants.ROOMS))
    assert drawn == mutants.draw(20, 0, list(mutants.ROOMS)) != mutants.draw(20, 1, list(mutants.ROOMS))
    assert {mutant.file.split("/")[2] for mutant in drawn} == set(mutants.ROOMS)


def test_tests_are_those_that_name_the_module():
    chosen = mutants.tests_of("src/recollect/objectives/vtrace.py", 3)
    assert chosen[0] == "tests/objectives/test_vtrace.py" and len(chosen) == 3


def test_only_a_failed_test_kills_a_bug(tmp_path, monkeypatch):
    monkeypatch.setattr(mutants, "ROOT", tmp_path)
    for name, text in {"right": "def test(): pass", "wrong": "def test(): assert 0", "torn": "def test("}.items():
        (tmp_path / f"test_{name}.py").write_text(text)
    verdicts = [mutants.run_tests(tmp_path, (f"test_{name}.py",)) for name in ("right", "wrong", "torn")]
    assert verdicts == ["survives", "killed", "no verdict (pytest ended with 2)"]
