"""The recall task with every core and without memory: a check that each core learns to remember.

Every core but ``memoryless`` should answer more than 95 % of the questions; ``memoryless`` cannot beat chance,
which is exact by construction (see tasks/streams/recall.py).
"""

from typing import Any

from recollect.agents.config import SequenceModelConfig
from recollect.cores import GENERAL_CORES
from recollect.cores.find import sized_core
from recollect.recipes.base import Recipe, Run, Scale, file_name, require_scale
from recollect.recipes.equal_sizes import equal_core
from recollect.tasks.streams.recall import Recall
from recollect.training import FitConfig, OptimizerConfig, SupervisedConfig

TASK = Recall()

COMMON = {"dim": 64, "num_layers": 2, "num_heads": 4, "hidden_dim": 128, "memory_len": TASK.spec.memory_span}
# Those of single cores. Windows reach over the blank, except hcam's, which has to use its chunks.
SIZES: dict[str, dict[str, Any]] = {
    "lstm": {"num_layers": 1},
    "gru": {"num_layers": 1},
    "hcam": {"num_layers": 1, "memory_len": 8, "chunk_len": 8, "num_chunks": 8, "top_k": 4},
    "tlb": {"self_per_cross": 1, "chunk_len": 8, "num_slots": 8},
    "ttm": {"num_layers": 1, "num_tokens": 1, "num_slots": 8, "num_reads": 2, "learned_initial_state": True},
    "recurrent-transformer": {
        "num_layers": 1,
        "num_tokens": 1,
        "num_slots": 4,
        "num_reads": 1,
        "learned_initial_state": True,
    },
}
# Without gates its gradients grow over the blank: smaller steps, and long gradients cut short.
OPTIMIZERS = {
    "recurrent-transformer": OptimizerConfig(learning_rate=1e-3, warmup_steps=50, betas=(0.9, 0.98), clip_norm=0.2)
}
# Nothing is learned without memory, so it need not be tried for long; small steps need more of them.
STEPS = {"memoryless": 300, "recurrent-transformer": 3000}


def recall(core: str = "hcam", scale: Scale = "lite") -> SupervisedConfig:
    """Return the config of the recall task for any core, at the scale lite."""
    require_scale(scale, "lite")
    return SupervisedConfig(
        task=TASK,
        core=equal_core(core) if ":" in core else sized_core(core, **(COMMON | SIZES.get(core, {}))),
        agent=SequenceModelConfig(embedding_dim=64),
        optimizer=OPTIMIZERS.get(core, OptimizerConfig(learning_rate=3e-3, warmup_steps=50)),
        fit=FitConfig(
            steps=STEPS.get(core, 1200), report_every=25, evaluate_every=50, checkpoint_every=200, stop_score=0.98
        ),
        batch_size=32,
    )


def _rows_of(core: str) -> list[Run]:
    return [Run(label=file_name(core), row=core, core=core, config=recall(core))]


def _lite() -> list[Run]:
    return [Run(label=core, row=core, core=core, config=recall(core)) for core in GENERAL_CORES]


RECALL = Recipe(
    name="recall",
    title="Recall: cues, a blank, questions, and a fresh start",
    source="ours (tasks/streams/recall.py)",
    about=(
        f"{TASK.num_cues} key-value pairs, {TASK.min_blank} to {TASK.max_blank} blank steps, {TASK.num_queries} "
        "questions; several episodes per row, and only a reset separates them. recurrent-transformer, whose "
        "gradients grow over the blank, has smaller optimiser steps than the others, and more of them."
    ),
    config=recall,
    rows_of=_rows_of,
    runs={"lite": _lite},
    seeds={"lite": 1},
)
