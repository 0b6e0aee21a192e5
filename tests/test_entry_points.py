"""Cores, tasks and recipes of installed packages: two packages as pip leaves them, one of them broken."""

import json
import subprocess
import sys

import pytest

from recollect import entry_points
from recollect.cli import main
from recollect.cores.find import find_core

CORES = """
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn

from recollect.cores.config import CoreConfig
from recollect.cores.contract import MemoryCore


class LeakyState(NamedTuple):
    trace: Tensor


@dataclass(frozen=True, kw_only=True)
class LeakyConfig(CoreConfig):
    dim: int = 8

    def build(self, input_dim):
        return Leaky(self, input_dim)


class Leaky(MemoryCore[LeakyState]):
    def __init__(self, config, input_dim):
        super().__init__()
        self.input_shape, self.output_shape = (input_dim,), (config.dim,)
        self.write = nn.Linear(input_dim, config.dim)

    def initial_state(self, batch_size):
        return LeakyState(self.zeros(batch_size, *self.output_shape))

    def unroll(self, inputs, state, is_first):
        outputs = []
        for write, first in zip(self.write(inputs).unbind(1), is_first.unbind(1), strict=True):
            state = LeakyState(0.9 * torch.where(first[:, None], 0.0, state.trace) + write)
            outputs.append(state.trace)
        return torch.stack(outputs, 1), state

    def flops_per_step(self):
        return 2 * self.input_shape[0] * self.output_shape[0]
"""
WORLDS = """
import gymnasium
import numpy as np


class Coin(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(0, 1, (2,))
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros(2, np.float32), {}

    def step(self, action):
        return np.zeros(2, np.float32), float(action), True, False, {}
"""
RECIPES = """
from recollect.recipes import Recipe, Run
from recollect.recipes.train import training
from dataclasses import replace


def config(core="remembering-leaky", scale="lite"):
    made = training("recall", core)
    return replace(made, fit=replace(made.fit, steps=1), batch_size=2, evaluation_rows=2)


TINY = Recipe(
    name="tiny",
    title="Tiny recall",
    source="a test",
    about="One step.",
    config=config,
    runs={"lite": lambda: [Run(label="leaky", row="leaky", core="remembering-leaky", config=config())]},
    seeds={"lite": 1},
)
"""
POINTS = {
    "recollect.cores": "remembering-leaky = remembering.cores:LeakyConfig",
    "recollect.tasks": "coin = remembering.worlds:Coin\nrecall = remembering.worlds:Coin",
    "recollect.recipes": "tiny = remembering.recipes:TINY",
}
BROKEN = {"recollect.cores": "snapped = snapping:Config", "recollect.tasks": "snapped = snapping:World"}


def install(folder, name, points, files):
    """Write a package as pip leaves it in site-packages."""
    info = folder / f"{name}-1.5.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.5\n")
    (info / "entry_points.txt").write_text("".join(f"[{group}]\n{lines}\n" for group, lines in points.items()))
    for file, text in files.items():
        (folder / file).parent.mkdir(exist_ok=True)
        (folder / file).write_text(text)


@pytest.fixture
def site(tmp_path, monkeypatch):
    site = tmp_path / "site"
    files = {"__init__": "", "cores": CORES, "worlds": WORLDS, "recipes": RECIPES}
    install(site, "remembering", POINTS, {f"remembering/{file}.py": text for file, text in files.items()})
    install(
        site,
        "snapping",
        BROKEN,
        {"snapping.py": "Config = World = None\nraise RuntimeError('compiled for another machine')\n"},
    )
    monkeypatch.syspath_prepend(str(site))
    monkeypatch.chdir(tmp_path)
    entry_points.installed.cache_clear()
    yield site
    entry_points.installed.cache_clear()
    for module in [name for name in sys.modules if name.partition(".")[0] in ("remembering", "snapping")]:
        del sys.modules[module]


def words(text):
    return " ".join(text.split())


def test_help_names_what_is_installed_and_imports_nothing(site, capsys):
    code = (
        "import sys; from recollect.cli import main; status = main(['train', '--help'])\n"
        "assert not {'torch', 'remembering', 'snapping'} & set(sys.modules), 'imported'\n"
        "sys.exit(status)"
    )
    paths = ":".join([str(site), *filter(None, sys.path)])
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env={"PYTHONPATH": paths, "PATH": "/bin"}
    )
    assert done.returncode == 0, done.stderr
    assert "remembering-leaky" in done.stdout and "coin" in done.stdout
    assert main(["train", "recall", "--core", "remembering-leeky"]) == 2
    assert "did you mean 'remembering-leaky'?" in words(capsys.readouterr().err)
    assert "remembering" not in sys.modules


def test_the_list_has_rows_of_what_loads_and_a_line_for_what_does_not(site, capsys):
    assert main(["list", "cores", "--json"]) == 0
    out, err = capsys.readouterr()
    rows = {row["key"]: row for row in json.loads(out)["cores"]}
    assert rows["remembering-leaky"]["core"] == "Leaky" and rows["remembering-leaky"]["parameters"] == 129 * 8
    assert "hcam" in rows and "snapped" not in rows
    reason = "cannot import 'snapping' (RuntimeError: compiled for another machine): update or uninstall snapping 1.5"
    assert f"cores: 'snapped' of snapping 1.5 cannot be loaded: core='snapping:Config': {reason}" in words(err)
    assert len(err.strip().splitlines()) == 1
    assert main(["list", "recipes"]) == 0
    assert "Tiny recall" in capsys.readouterr().out
    assert main(["list", "tasks", "--json"]) == 0
    out, err = capsys.readouterr()
    assert {"coin", "recall"} <= {row["key"] for row in json.loads(out)["tasks"]}
    taken = "tasks: 'recall' of remembering 1.5 is a name of this library: type remembering.worlds:Coin"
    assert taken in words(err)


def test_a_core_and_a_task_are_trained_and_scored_by_their_names(site, capsys):
    tiny = ["--fit.steps", "1", "--batch-size", "2", "--directory"]
    assert main(["train", "recall", "--core", "remembering-leaky", *tiny, "runs/core"]) == 0
    saved = json.loads((site.parent / "runs/core/config.json").read_text())
    assert saved["core"]["kind"] == "remembering.cores:LeakyConfig" and saved["task"]["kind"] == "recall"
    assert "next: recollect evaluate runs/core\n" in capsys.readouterr().out, "without --trust"
    assert (
        main(["train", "coin", "--core", "gru", "--core.dim", "8", *tiny, "runs/task", "--loss.reuse.minibatches", "1"])
        == 0
    )
    for module in [name for name in sys.modules if name.startswith("remembering")]:
        del sys.modules[module]  # as in a new process
    for run in ("runs/core", "runs/task"):
        assert main(["evaluate", run, "--samples", "2"]) == 0, "what is installed for this library needs no --trust"
    assert main(["certify", "remembering-leaky", "--lines", "splits"]) == 0
    assert "Leaky" in capsys.readouterr().out


def test_a_broken_package_is_named_when_it_is_asked_for_and_stops_nothing_else(site, capsys):
    assert main(["train", "recall", "--core", "snapped", "--fit.steps", "1"]) == 2
    err = words(capsys.readouterr().err)
    assert err.endswith("(RuntimeError: compiled for another machine): update or uninstall snapping 1.5")
    assert find_core("gru").__name__ == "GRUConfig"


def test_a_name_of_two_packages_must_be_spelled_out(site):
    install(site, "other", {"recollect.cores": "remembering-leaky = other:Config"}, {"other.py": ""})
    entry_points.installed.cache_clear()
    with pytest.raises(ValueError, match=r"several packages.*other:Config \(other 1.5\), remembering"):
        find_core("remembering-leaky")


def test_an_installed_recipe_is_reproduced(site):
    assert main(["reproduce", "tiny", "--root", "out"]) == 0
    result = json.loads((site.parent / "out/results/tiny/leaky-seed0.json").read_text())
    assert result["status"] == "ok" and result["core"] == "remembering-leaky"
    assert "Tiny recall" in (site.parent / "out/docs/results.md").read_text()
