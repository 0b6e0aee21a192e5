"""A stranger's first minutes, as README and docs tell them: nothing here needs the source.

Install into a fresh environment, write a world and a wrapper, train, stop, go on for longer, evaluate the best, compare
three seeds, film, use the stream from NumPy. Every command is a line of the documentation with other numbers.
"""

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
WRAPPER = """

def my_wrapper(environment):
    return gymnasium.wrappers.TimeLimit(environment, 40)
"""
ROBOT = """
import numpy as np
from recollect import ActorInputs
from recollect.training import load_model

agent = load_model("runs/mine", best=True, trust=True)
live = agent.stream(batch_size=1)
inputs = ActorInputs({"cue": [2], "place": np.zeros((1, 1))}, action=[0], reward=[0.0])
output = live.step(inputs, is_first=True)
assert isinstance(output.policy, np.ndarray) and output.policy.shape == (1, 2)
"""
SMALL = ["--num-envs", "16", "--unroll", "16", "--dim", "32", "--num-layers", "1", "--evaluation.episodes", "32"]
WORLD = ["--world.options", "length=4", "--world.wrappers", "my_module:my_wrapper"]
MINE = ["my_module:Corridor", "--core", "gru", *WORLD, *SMALL]


def shell(command, folder, **changes):
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"} | {"OMP_NUM_THREADS": "1"}
    return subprocess.Popen(
        command, cwd=folder, env=environment | changes, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )


def done(command, folder, status=0):
    with shell(command, folder) as process:
        said, _ = process.communicate(timeout=900)
    assert process.returncode == status, f"{command}\n{said}"
    return said


@pytest.mark.slow
def test_a_strangers_ten_minutes(tmp_path):
    began = time.monotonic()
    done([sys.executable, "-m", "venv", "venv"], tmp_path)
    python = str(tmp_path / "venv/bin/python")
    done([python, "-m", "pip", "install", "-q", "-c", f"{ROOT}/constraints.txt", f"{ROOT}[video,plots]"], tmp_path)
    installed = time.monotonic() - began
    recollect = str(tmp_path / "venv/bin/recollect")

    # A world: the first block of docs/your-own-world.md, and a wrapper.
    page = (ROOT / "docs/your-own-world.md").read_text()
    (tmp_path / "my_module.py").write_text(re.findall(r"```python\n(.*?)```", page, re.DOTALL)[0] + WRAPPER)

    # Train, and stop with Ctrl-C in the middle.
    train = [recollect, "train", *MINE, "--directory", "runs/mine"]
    with shell([*train, "--steps", "100000"], tmp_path) as process:
        deadline = time.monotonic() + 300
        while not list(tmp_path.glob("runs/mine/best/step-*")) and time.monotonic() < deadline:
            time.sleep(0.1)
        process.send_signal(signal.SIGINT)
        said, _ = process.communicate(timeout=120)
    assert process.returncode == 130 and "the same command with --resume continues" in said, said
    step = int(re.findall(r"Ctrl-C at step (\d+): saved", said)[0])

    # Go on for longer: only the steps are named, and whose code may run.
    said = done(
        [recollect, "train", "--resume", "--directory", "runs/mine", "--steps", f"{step + 60}", "--trust"], tmp_path
    )
    assert f"finished {step + 60} steps" in said and "; best " in said

    # The line that the run ends with works as it stands, and so does the best checkpoint, with a film.
    following = re.findall(r"next: recollect (.*)", said)[0].split()
    assert "score" in done([recollect, *following], tmp_path)
    said = done([recollect, *following, "--best", "--episodes", "64", "--video", "videos"], tmp_path)
    score = float(re.findall(r"score ([\d.]+)", said)[0])
    assert score > 0.9, f"a corridor of four steps is learned in {step + 60} steps: {said}"
    assert {path.suffix for path in (tmp_path / "videos").iterdir()} == {".mp4", ".gif"}

    # Three seeds, and their page.
    said = done([recollect, "train", *MINE, "--steps", "10", "--seeds", "0", "1", "2"], tmp_path)
    assert said.count("finished 10 steps") == 3 and "IQM" in said
    following = re.findall(r"next: recollect (compare .*)", said)[0].split()
    assert "page:" in done([recollect, *following], tmp_path)
    assert (tmp_path / "comparison/comparison.html").is_file()

    # On a robot.
    done([python, "-c", ROBOT], tmp_path)
    print(f"installed in {installed:.0f} s, all of it took {time.monotonic() - began:.0f} s")
