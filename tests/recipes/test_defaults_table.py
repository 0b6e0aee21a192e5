"""``recollect train TASK --core CORE`` begins with a run that works, whatever the pair."""

from dataclasses import replace

import pytest
import torch

from recollect.cores import CORES
from recollect.recipes.train import training
from recollect.tasks import TASKS

MADE_UP = {
    "imdb": {"path": "stand-in", "validation": 100},
    "aan": {"path": "stand-in"},
    "grey-cifar": {"path": "stand-in"},
}
"""Tasks whose files are not here."""


@pytest.mark.parametrize("task", TASKS)
def test_every_core_takes_a_step_by_default_on(task):
    # A small batch and a short unroll: what a default may get wrong is how sizes fit each other.
    for core in CORES:
        config = training(task, core)
        if task in MADE_UP:
            config = replace(config, task=replace(config.trained_on, **MADE_UP[task]))
        if config.has_films:
            loss = replace(config.loss, reuse=replace(config.loss.reuse, passes=1, minibatches=1))
            config = replace(config, unroll=2, loss=loss)
        trainer = replace(config, batch_size=2).build()
        try:
            metrics = trainer.step()
        finally:
            trainer.close()
        assert torch.tensor(metrics["loss"]).isfinite(), (task, core)
        assert any(w.grad is not None for w in trainer.agent.parameters()), (task, core)
