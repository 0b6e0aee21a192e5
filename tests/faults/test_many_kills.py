"""SIGKILL at any moment loses nothing but the steps since the last save, with every trainer and both schedules."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

KINDS = (
    *("supervised", "synchronous", "asynchronous", "classification", "self-supervised", "detection", "cloning"),
    "decision-transformer",
)


def kill(tmp_path, kind, number):
    script = Path(__file__).with_name("many_kills.py")
    path = os.pathsep.join([str(script.parents[1]), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, str(script), str(tmp_path), kind, str(number)],
        capture_output=True,
        text=True,
        timeout=900,
        env=os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": path},
    )
    assert done.returncode == 0, done.stderr[-2000:]
    report = json.loads(done.stdout.splitlines()[-1])
    assert report["wrong"] == []
    assert report["kills"] >= number


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_two_hundred_kills(tmp_path, kind):
    kill(tmp_path, kind, 30)
