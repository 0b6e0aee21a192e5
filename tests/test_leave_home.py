"""A trained agent leaves home: trained on an own environment class, loaded and exported where that does not exist."""

import os
import re
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
TRAIN = ["--core", "gru", "--dim", "32", "--num-layers", "1", "--num-envs", "16", "--unroll", "16", "--steps", "150"]
ROBOT = """
import sys
import numpy as np
import recollect

agent = recollect.load("moved", best=True)
assert "my_module" not in sys.modules and "recollect.training.loop" not in sys.modules
assert agent.spec.task == "gym" and agent.spec.action_names == ("left", "right") and agent.spec.run["step"] > 0
random, rows, length = np.random.default_rng(1), 64, 5
side, stream = random.integers(2, size=rows), agent.stream(rows)
action, reward = np.zeros(rows, np.int64), np.zeros(rows, np.float32)
for step in range(length):
    cue = 1 + side if step == 0 else np.zeros(rows, np.int64)
    seen = {"cue": cue, "place": np.full((rows, 1), step / length, np.float32)}
    output = stream.step(recollect.ActorInputs(seen, action, reward), is_first=step == 0)
    assert isinstance(output.policy, np.ndarray)
    action = output.policy.argmax(-1)
print((action == side).mean())
agent.save("folder")
again = recollect.load("folder")
assert all((a == b).all() for a, b in zip(again.state_dict().values(), agent.state_dict().values()))
"""

EXPORTED = """
import sys
sys.modules["recollect"] = None  # an import of it fails
sys.path.insert(0, ".")
import numpy as np
from client import Model

random, rows, length = np.random.default_rng(1), 64, 5
side, model = random.integers(2, size=rows), Model(".", rows)
for step in range(length):
    cue = 1 + side if step == 0 else np.zeros(rows, np.int64)
    seen = {"observation.cue": cue, "observation.place": np.full((rows, 1), step / length, np.float32)}
    action = model.step([step == 0] * rows, **seen)["action"]
print((action == side).mean())
"""


def run(command, folder, path=str(ROOT / "src")):
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": path}
    done = subprocess.run(command, cwd=folder, env=environment, text=True, capture_output=True, timeout=900)
    assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
    return done.stdout


@pytest.mark.slow
def test_an_agent_is_used_where_its_world_does_not_exist(tmp_path):
    home, elsewhere = tmp_path / "home", tmp_path / "elsewhere"
    home.mkdir()
    elsewhere.mkdir()
    page = (ROOT / "docs/your-own-world.md").read_text()
    (home / "my_module.py").write_text(re.findall(r"```python\n(.*?)```", page, re.DOTALL)[0])
    train = [sys.executable, "-m", "recollect", "train", "my_module:Corridor", *TRAIN]
    run([*train, "--world.options", "length=5", "--directory", "run"], home)
    evaluate = [sys.executable, "-m", "recollect", "evaluate", "run", "--best", "--trust"]
    score = float(re.findall(r"score ([\d.]+)", run(evaluate, home))[0])
    shutil.move(home / "run", elsewhere / "moved")
    shutil.rmtree(home)
    found = float(run([sys.executable, "-c", ROBOT], elsewhere))
    format = "onnx" if all(find_spec(name) for name in ("onnx", "onnxscript", "onnxruntime")) else "pt2"
    export = ["export", "moved", "--best", "--format", format, "--to", "out"]
    assert "agree with the model" in run([sys.executable, "-m", "recollect", *export], elsewhere)
    assert "200 steps" in run([sys.executable, "client.py"], elsewhere / "out", path="")
    assert float(run([sys.executable, "-c", EXPORTED], elsewhere / "out", path="")) == found
    assert score > 0.9 and found == pytest.approx(score, abs=0.1), "the corridor is learned, and played elsewhere"
