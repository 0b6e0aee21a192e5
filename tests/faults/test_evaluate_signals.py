"""One Ctrl-C in a terminal, or one SIGTERM, ends an evaluation that a person waits for."""

import os
import pty
import re
import select
import signal
import subprocess
import sys
import time

import pytest

from recollect.cli import main

WORLD = ["--world.length=3", "--fit.steps=1", "--batch-size=2", "--unroll=2", "--evaluation.episodes=2"]
ROWS = ["--task.length=56", "--task.max-blank=12", "--fit.steps=1", "--batch-size=2", "--evaluation-rows=2"]
TINY = {
    "t-maze": [*WORLD, "--core.dim=8", "--agent.width=8"],
    "recall": [*ROWS, "--core.dim=8", "--agent.embedding-dim=8"],
}


@pytest.fixture
def run(tmp_path, capsys):
    def trained(task):
        folder = str(tmp_path / task)
        assert main(["train", task, "--core", "gru", *TINY[task], "--directory", folder]) == 0
        return [sys.executable, "-m", "recollect", "evaluate", folder, "--samples", "10000000"]

    return trained


@pytest.mark.long
@pytest.mark.parametrize("task", TINY)
def test_ctrl_c_in_a_terminal(run, task):
    controller, terminal = pty.openpty()
    with subprocess.Popen(
        run(task), stdin=terminal, stdout=terminal, stderr=terminal, start_new_session=True
    ) as process:
        os.close(terminal)
        shown, deadline, pressed = "", time.monotonic() + 600, None
        while process.poll() is None and time.monotonic() < deadline:
            if select.select([controller], [], [], 0.1)[0]:
                try:
                    shown += os.read(controller, 65536).decode(errors="replace")
                except OSError:
                    break
            if pressed is None and re.search(r"/10000000 (episodes|rows)", shown):
                pressed = time.monotonic()
                os.killpg(process.pid, signal.SIGINT)  # what the terminal does to all programs that run in it
        code = process.wait(timeout=600)
    os.close(controller)
    assert pressed is not None, shown
    assert code == 130 and "Ctrl-C: stopped" in shown and "Traceback" not in shown


@pytest.mark.long
def test_sigterm_without_a_terminal(run):
    with subprocess.Popen(run("t-maze"), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        time.sleep(0.1)
        while process.poll() is None:  # a signal that comes while torch is imported ends the program as signals do
            with open(f"/proc/{process.pid}/status") as status:
                caught = int(re.findall(r"SigCgt:\s*([0-9a-f]+)", status.read())[0], 16)
            if caught >> (signal.SIGTERM - 1) & 1:
                break
            time.sleep(0.05)
        process.terminate()
        out, err = process.communicate(timeout=600)
    assert process.returncode == 130 and out == "" and "SIGTERM: stopped" in err
