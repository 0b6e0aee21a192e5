"""What CONTRIBUTING promises: to add something is one file (or folder) and two lines, an import and an entry.

A copy of the library gets a core, a world, an agent, a trainer and a recipe, and is asked where it shows them.
"""

import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from recollect.cores import CORES

ROOT = Path(__file__).parents[1]
LEAKY = re.findall(r"```python\n(.*?)```", (ROOT / "docs/write-a-core.md").read_text(), re.DOTALL)[0]
FILES = {
    "cores/leaky/core.py": f'"""Leaky memory: a trace that fades.\n\nPaper: none.\n\nDiffers: no.\n"""\n\n{LEAKY}',
    "cores/leaky/__init__.py": "from recollect.cores.leaky.core import LeakyMemory, LeakyMemoryConfig\n",
    "tasks/worlds/coin.py": '''
from dataclasses import dataclass
from typing import NamedTuple

import gymnasium
import numpy as np
import torch

from recollect.tasks.worlds.contract import Advance, TensorWorld, WorldConfig, WorldSpec


class CoinState(NamedTuple):
    heads: torch.Tensor  # bool b


@dataclass(frozen=True, kw_only=True)
class CoinConfig(WorldConfig):
    """Say which side of the coin is up."""

    @property
    def spec(self):
        space = gymnasium.spaces.Box(0, 1, (1,), np.float32)
        action = gymnasium.spaces.Discrete(2)
        return WorldSpec(
            observation_space=space, action_space=action, max_steps=1, memory_span=0, chance=0.5, oracle=1.0
        )

    def build(self, batch_size, *, seed=0, device="cpu"):
        return Coin(self.spec, batch_size, seed=seed, device=device)


class Coin(TensorWorld[CoinState]):
    def begin(self, batch_size):
        return CoinState(torch.randint(2, (batch_size,), generator=self.generator).bool())

    def advance(self, state, actions):
        right = (actions.bool() == state.heads).float()
        return Advance(state, right, torch.ones_like(state.heads), right)

    def observe(self, state):
        return state.heads[:, None].float()
''',
    "agents/plain.py": '''
from dataclasses import dataclass

from recollect.agents.sequence_model import SequenceModelConfig


@dataclass(frozen=True, kw_only=True)
class PlainModelConfig(SequenceModelConfig):
    """A plain model."""
''',
    "training/quiet.py": '''
from dataclasses import dataclass

from recollect.training.supervised import SupervisedConfig


@dataclass(frozen=True, kw_only=True)
class QuietConfig(SupervisedConfig):
    """Trains quietly."""
''',
    "recipes/tosses.py": '''
from recollect.cores import CORES
from recollect.recipes.base import Recipe, Run
from recollect.tasks import TASKS
from recollect.training import FitConfig, ImpalaConfig


def tosses(core="leaky", scale="lite"):
    fit = FitConfig(steps=2, evaluate_every=2)
    return ImpalaConfig(world=TASKS["coin"](), core=CORES[core](dim=8), batch_size=4, unroll=2, fit=fit)


TOSSES = Recipe(
    name="tosses", title="Tosses of a coin", source="ours", about="A coin.", config=tosses, seeds={"lite": 1},
    runs={"lite": lambda: [Run(label=core, row=core, core=core, config=tosses(core)) for core in ("leaky", "lstm")]},
)
''',
}  # fmt: skip
LINES = {  # the table's file: the line that imports, the table, the line that enters
    "cores/__init__.py": ("from recollect.cores.leaky import LeakyMemory, LeakyMemoryConfig", "CORES", "leaky"),
    "tasks/__init__.py": ("from recollect.tasks.worlds.coin import CoinConfig as CoinConfig", "TASKS", "coin"),
    "agents/__init__.py": ("from recollect.agents.plain import PlainModelConfig", "AGENTS", "plain"),
    "training/trainers.py": ("from recollect.training.quiet import QuietConfig", "TRAINERS", "quiet"),
    "recipes/__init__.py": ("from recollect.recipes.tosses import TOSSES", "RECIPES", "tosses"),
}
SCRIPT = """
import json, sys
sys.path += ["docs", "benchmarks"]
import gymnasium, recollect
from recollect.agents.sequence_model import SequenceModelConfig
from recollect.benchmark import CoresBenchmark, run
from recollect.certify import certify, load
from recollect.cli import main
from recollect.config import from_json, to_json
from recollect.recipes import RECIPES, training
from recollect.recipes.contents import CONTENTS
from recollect.tasks import TASKS
from recollect.tasks.gymnasium.make import make
from recollect.training.trainers import KINDS, TRAINERS
from recollect.cores import CORES
import pages, report

quiet = TRAINERS["quiet"](task=TASKS["recall"](), core=CORES["leaky"]())
card = certify(load("leaky"), lines=("splits", "reset", "rows", "purity"))
measured = run(CoresBenchmark(cores=("leaky",), quick=True, output=""))
trained = main(["reproduce", "tosses", "--root", "out", "--cores", "leaky"])
print(json.dumps({
    "list": {room: [row["key"] for row in rows()] for room, rows in CONTENTS.items()},
    "exported": [name for name in ("LeakyMemory", "LeakyMemoryConfig", "PlainModelConfig") if hasattr(recollect, name)],
    "certificate": [card.core, card.passed, card.config],
    "benchmark": sorted({row.core for row in measured.rows}),
    "table": report.core_table(),
    "pages": pages.core_pages(),
    "gymnasium": make("coin").reset(seed=0)[0].shape,
    "train": [type(training("coin", "leaky")).__name__, type(training("recall", "leaky")).__name__],
    "json": from_json(json.loads(json.dumps(to_json(quiet, KINDS))), TRAINERS["quiet"], KINDS) == quiet,
    "reproduced": trained,
    "results": open("out/docs/results.md").read(),
}))
"""


def enter(path, line, table, key):
    """Adds an import and an entry to a file that holds a table."""
    lines = path.read_text().splitlines()
    first = min(number for number, text in enumerate(lines) if text.startswith("from recollect"))
    start = next(number for number, text in enumerate(lines) if text.startswith(f"{table}: dict"))
    end = next(number for number, text in enumerate(lines) if text == "}" and number > start)
    name = re.split(r"[ ,]+", line)[-1]
    lines.insert(end, f'    "{key}": {name},')
    lines.insert(first, line)
    path.write_text("\n".join(lines) + "\n")


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    home = tmp_path_factory.mktemp("home")
    for folder in ("src/recollect", "docs", "benchmarks", "results"):
        skip = shutil.ignore_patterns("__pycache__", "*.png", "rl*")
        shutil.copytree(ROOT / folder, home / folder, ignore=skip)
    for place, text in FILES.items():
        (home / "src/recollect" / place).parent.mkdir(exist_ok=True)
        (home / "src/recollect" / place).write_text(text)
    for place, (line, table, key) in LINES.items():
        enter(home / "src/recollect" / place, line, table, key)
    environment = os.environ | {"PYTHONPATH": str(home / "src"), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], cwd=home, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_the_list_shows_each(found):
    for place, (_, _, key) in LINES.items():
        room = {"training": "trainers"}.get(place.split("/")[0], place.split("/")[0])
        assert key in found["list"][room], room


def test_a_core_is_exported_certified_and_measured(found):
    assert found["exported"] == ["LeakyMemory", "LeakyMemoryConfig", "PlainModelConfig"]
    assert found["certificate"] == ["leaky", True, "LeakyMemoryConfig(dim=16)"]
    assert found["benchmark"] == ["leaky"]


def test_a_core_is_in_the_docs(found):
    assert "| `leaky` | `LeakyMemory` | - | - | 2,048 |" in found["table"]
    assert found["pages"]["cores/leaky.md"] == "# Leaky memory\n\n::: recollect.cores.leaky.core\n"


def test_a_world_can_be_trained_in_and_is_a_gymnasium_environment(found):
    assert found["gymnasium"] == [1]
    assert found["train"] == ["ImpalaConfig", "SupervisedConfig"]


def test_a_trainer_is_written_and_read(found):
    assert found["json"]


def test_a_recipe_is_reproduced(found):
    assert found["reproduced"] == 0
    assert "Tosses of a coin" in found["results"] and "| leaky |" in found["results"]


def test_every_core_of_ours_has_a_page():
    spec = importlib.util.spec_from_file_location("pages", ROOT / "docs/pages.py")
    pages = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(pages)
    texts = pages.core_pages()
    for key, config in CORES.items():
        assert any(f"::: {config.__module__}\n" in text for text in texts.values()), key
    written = {f"cores/{path.name}" for path in (ROOT / "docs/cores").glob("*.md")}
    assert written - set(texts) == {"cores/index.md"}, "a page that no core has"
