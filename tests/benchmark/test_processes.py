"""The script that measures environments of others, on few steps."""

import sys
from pathlib import Path

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


def test_the_script_measures_every_form(monkeypatch, capsys):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    import processes

    monkeypatch.setattr(processes, "IDS", ("CartPole-v1",))
    monkeypatch.setattr(processes, "FORMS", {"this process": {"native": False}})
    words = ["processes.py", "--rows", "2", "--seconds", "0.01", "--repeats", "1", "--output", ""]
    monkeypatch.setattr(sys, "argv", words)
    processes.main()
    assert "this process" in capsys.readouterr().out
