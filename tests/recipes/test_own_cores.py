"""Rows of a core that is not of this library, beside the others: memory suite, recall, benchmark."""

import json
from dataclasses import dataclass, replace
from typing import NamedTuple

import pytest
import torch
from torch import Tensor, nn

from recollect.benchmark import BENCHMARKS
from recollect.benchmark.config import CoresBenchmark
from recollect.benchmark.cores import core_config
from recollect.cli import main
from recollect.cores import CORES
from recollect.cores.config import CoreConfig
from recollect.cores.contract import MemoryCore
from recollect.recipes import RECIPES, recall
from recollect.recipes.equal_sizes import equal_core
from recollect.recipes.memory_suite import COLUMNS, MEMORY_SUITE, cell, label
from recollect.recipes.reproduce import write_tables


class FadingState(NamedTuple):
    trace: Tensor


@dataclass(frozen=True, kw_only=True)
class FadingConfig(CoreConfig):
    """An average of the past that fades."""

    dim: int = 16
    num_heads: int = 3

    def __post_init__(self):
        if self.dim % self.num_heads:
            raise ValueError(f"dim={self.dim}: give a multiple of {self.num_heads}")

    def build(self, input_dim):
        return Fading(self, input_dim)


class Fading(MemoryCore[FadingState]):
    def __init__(self, config, input_dim):
        super().__init__()
        self.input_shape, self.output_shape = (input_dim,), (config.dim,)
        self.write = nn.Linear(input_dim, config.dim)
        self.mix = nn.Linear(config.dim, config.dim)

    def initial_state(self, batch_size):
        return FadingState(self.zeros(batch_size, *self.output_shape))

    def unroll(self, inputs, state, is_first):
        outputs = []
        for write, first in zip(self.write(inputs).unbind(1), is_first.unbind(1), strict=True):
            state = FadingState(0.9 * torch.where(first[:, None], 0.0, state.trace) + write)
            outputs.append(self.mix(state.trace))
        return torch.stack(outputs, 1), state

    def flops_per_step(self):
        return sum(p.numel() for p in self.parameters())


@dataclass(frozen=True, kw_only=True)
class WideConfig(FadingConfig):
    """One that refuses most widths, the common one among them."""

    def __post_init__(self):
        if self.dim % 24:
            raise ValueError(f"dim={self.dim}: give a multiple of 24")


@dataclass(frozen=True, kw_only=True)
class UnsetConfig(FadingConfig):
    """One with a field without a default."""

    decay: float


CHOSEN = FadingConfig(dim=12)
NAME = f"{__name__}:FadingConfig"


def test_the_memory_suite_has_a_cell_of_equal_size_in_every_column():
    runs = MEMORY_SUITE.more_rows([NAME, "gru"])
    assert [run.label for run in runs] == [label(NAME, column) for column in COLUMNS]
    assert {run.core for run in runs} == {NAME}
    for run, column in zip(runs, COLUMNS, strict=True):
        core = run.config.core
        assert 65_000 <= sum(p.numel() for p in core.build(64).parameters()) <= 100_000
        other = cell("lstm", column)
        assert replace(run.config, core=other.core) == other, "only the memory differs"
    chosen = MEMORY_SUITE.more_rows([f"{__name__}:CHOSEN"])[0]
    assert chosen.config.core == CHOSEN, "a config is taken as it is"


def test_a_class_that_refuses_the_common_width_gets_another_and_a_field_without_default_is_named():
    assert equal_core(f"{__name__}:WideConfig").dim % 24 == 0
    with pytest.raises(
        ValueError, match=r"core='.*:UnsetConfig': give its fields defaults \(decay\), or name a config"
    ):
        equal_core(f"{__name__}:UnsetConfig")


def test_the_page_of_the_memory_suite_has_the_row(tmp_path):
    folder = tmp_path / "results" / "memory-suite"
    folder.mkdir(parents=True)
    column = COLUMNS[0]
    for row, score in (("gru", 0.5), (NAME, 0.75)):
        test = {"score": score, "correct": [score] * 8, "asked": [1] * 8, "chance": 0.25, "paper": "-"}
        file = {
            "recipe": "memory-suite", "scale": "lite", "label": label(row, column), "row": row, "core": row,
            "paper": "-", "seed": 0, "command": "c", "commit": "abc", "hardware": {"accelerator": "GPU"},
            "status": "ok", "error": None, "seconds": 60.0, "tests": {"": test},
        }  # fmt: skip
        (folder / f"{file['label']}-seed0.json").write_text(json.dumps(file))
    write_tables(MEMORY_SUITE, tmp_path)
    page = (tmp_path / "docs" / "memory-suite.md").read_text().partition("## Scores")[2]
    assert f"| {NAME} | **0.75**" in page and "| gru | 0.50" in page


def test_reproduce_runs_the_row_beside_the_others(tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(recall.STEPS, NAME, 1)
    assert main(["reproduce", "recall", "--cores", NAME, "--root", str(tmp_path)]) == 0
    (file,) = (tmp_path / "results" / "recall").iterdir()
    result = json.loads(file.read_text())
    assert result["status"] == "ok" and result["row"] == NAME and result["parameters"] >= 65_000
    assert f"| {NAME} |" in (tmp_path / "docs" / "results.md").read_text()
    assert main(["reproduce", "copying", "--cores", NAME, "--root", str(tmp_path)]) == 2
    said = " ".join(capsys.readouterr().err.split())
    assert "copying has no rows for cores of one's own: memory-suite and recall do; or recollect train" in said
    assert main(["reproduce", "recall", "--cores", f"{__name__}:Fadin", "--root", str(tmp_path)]) == 2
    assert "has no 'Fadin'; did you mean 'Fading'?" in " ".join(capsys.readouterr().err.split())
    taking = sorted(key for key, recipe in RECIPES.items() if recipe.rows_of is not None)
    assert taking == ["memory-suite", "recall"], "as the message says"


def test_the_benchmark_takes_the_core_at_the_common_shape():
    assert core_config(NAME, CoresBenchmark(cores=(NAME,), dim=24, heads=3, output="")) == FadingConfig(dim=24)
    with pytest.raises(ValueError, match=r"unknown core 'gruu'.*'gru'"):
        CoresBenchmark(cores=("gruu",))
    assert CORES.keys().isdisjoint({NAME}) and "cores" in BENCHMARKS


@pytest.mark.long
def test_the_benchmark_prints_its_row(capsys):
    assert main(["benchmark", "cores", f"{__name__}:CHOSEN", "--quick", "--output", "", "--json"]) == 0
    (core,) = json.loads(capsys.readouterr().out)["cores"]
    assert core["core"] == f"{__name__}:CHOSEN"
