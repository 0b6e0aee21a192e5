"""What a user configures is importable, and described by --help, in a process in which torch cannot be imported."""

import json
import subprocess
import sys

import pytest

from recollect.cores import CORES
from recollect.recipes import RECIPES
from recollect.tasks import TASKS

SIZED_BY_DATA = {"arrays"}
"""Tasks whose spec depends on a file, which torch reads."""
NO_TORCH = "import sys; sys.modules['torch'] = None\n"


def run_without_torch(code: str) -> str:
    return subprocess.run([sys.executable, "-c", NO_TORCH + code], capture_output=True, text=True, check=True).stdout


@pytest.mark.parametrize("room", ["cores", "encoders", "agents", "tasks", "training", "recipes", "benchmark", "cli"])
def test_a_room_is_imported_without_torch(room):
    run_without_torch(f"import recollect.{room}")


def test_every_config_can_be_made_without_torch():
    code = f"""
import json
SIZED = {SIZED_BY_DATA}
from recollect.agents import AGENTS
from recollect.cores import CORES
from recollect.encoders import ENCODERS
from recollect.recipes import RECIPES, training
from recollect.tasks import TASKS
from recollect.training import TRAINERS

for table in (AGENTS, CORES, ENCODERS):
    for config in table.values():
        config()
made = {{task: [str(training(task, core).core) for core in ("hcam", "gru")] for task in TASKS.keys() - SIZED}}
print(json.dumps([sorted(CORES), sorted(made), sorted(RECIPES)]))
"""
    assert json.loads(run_without_torch(code)) == [sorted(CORES), sorted(TASKS.keys() - SIZED_BY_DATA), sorted(RECIPES)]
