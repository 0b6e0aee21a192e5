import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    script = Path(__file__).with_name("kill_points.py")
    path = os.pathsep.join([str(script.parents[1]), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, str(script), str(tmp_path_factory.mktemp("kills"))],
        capture_output=True,
        text=True,
        timeout=900,
        env=os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": path},
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.long
@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_sigkill_at_any_moment_changes_nothing(report):
    wrong = {name: entry for name, entry in report.items() if entry[1:] != [0, True]}
    assert not wrong
    assert len(report) > 20


@pytest.mark.long
@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_the_chosen_points_were_reached(report):
    missed = [n for n, entry in report.items() if entry[0] != -signal.SIGKILL and not n.startswith("by the clock")]
    assert not missed
