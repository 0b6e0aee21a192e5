"""``recollect train TASK --core CORE`` begins with a run that works, whatever the pair."""

from dataclasses import replace

import pytest
import torch

from recollect.cores import CORES, GENERAL_CORES
from recollect.recipes.train import training
from recollect.tasks import TASKS
from recollect.training import CloningConfig
from tiers import only

SMALL = {
    "listops": {"min_length": 10, "max_length": 40, "train_rows": 64, "validation_rows": 16, "test_rows": 16},
    "pathfinder": {"size": 16},
    "imdb": {"path": "stand-in", "validation": 100, "length": 64},
    "aan": {"path": "stand-in", "length": 64},
    "grey-cifar": {"path": "stand-in"},
}
"""Long rows made shorter, and made up where they are read from files that are not here."""
PUBLISHED = {"cifar", "stl-10", "charades", "thumos"}
"""Read from published files alone; ``shapes`` and ``shape-activities`` train in the same way."""


LONG_ROWS = "grey-cifar"
"""1 024 steps that cannot be made shorter; half a minute for all cores, and pathfinder trains in the same way."""


ALL_CORES = {"recall", "t-maze"}
"""Tasks on which every core takes a step. On another one those do that depend on what it shows (maps, words), and a
third of those that read any vector, so that each meets a third of the tasks."""


@pytest.mark.parametrize(
    "task",
    [
        *only(ALL_CORES, sorted(TASKS.keys() - PUBLISHED - {LONG_ROWS})),
        pytest.param(LONG_ROWS, marks=pytest.mark.slow),
    ],
)
def test_every_core_takes_a_step_by_default_on(task):
    # A small batch and a short unroll: what a default may get wrong is how sizes fit each other.
    general = list(GENERAL_CORES)
    for core in CORES:
        config = training(task, core)
        if task not in ALL_CORES and core in general and (general.index(core) + list(TASKS).index(task)) % 3:
            continue
        if task in SMALL:
            config = replace(config, task=replace(config.trained_on, **SMALL[task]))
        if isinstance(config, CloningConfig):
            config = replace(config, unroll=2, loss=replace(config.loss, passes=1, minibatches=1))
        elif config.has_films:
            loss = replace(config.loss, reuse=replace(config.loss.reuse, passes=1, minibatches=1))
            config = replace(config, unroll=2, loss=loss)
        trainer = replace(config, batch_size=2).build()
        try:
            metrics = trainer.step()
        finally:
            trainer.close()
        assert torch.tensor(metrics["loss"]).isfinite(), (task, core)
        assert any(w.grad is not None for w in trainer.agent.parameters()), (task, core)
