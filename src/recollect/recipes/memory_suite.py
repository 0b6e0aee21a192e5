"""The grand table: every core in every world and stream task, with the same parameters and the same compute.

A column is a task with its way to learn; a row is a memory. What is in the table, and how it is learned, stands in
:data:`COLUMNS` and :data:`ROWS` and nowhere else. Every cell has about the same number of parameters and at most
:data:`SECONDS` of processor time, whatever its steps cost; it ends earlier when it scores :data:`SOLVED`.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from recollect.config import lookup
from recollect.cores import CORES, GENERAL_CORES
from recollect.recipes import hierarchical_transformer_memory as htm
from recollect.recipes.base import Recipe, Run, Scale, Test
from recollect.recipes.equal_sizes import equal_core
from recollect.recipes.htm_inference import inference
from recollect.recipes.memory_suite_pages import Cells, Heading, Line
from recollect.recipes.recall import OPTIMIZERS, recall
from recollect.recipes.temporal_latent_bottleneck import copying
from recollect.tasks.streams.contract import StreamTask
from recollect.tasks.worlds.contract import WorldConfig
from recollect.training.frame import TrainerConfig
from recollect.training.imitation.cloning import CloningConfig, CloningLossConfig
from recollect.training.impala.trainer import ImpalaConfig

SECONDS = 180.0
"""Processor time of the steps of a cell."""
SOLVED = 0.99
"""Share of the way from chance to the oracle at which a cell ends early."""
WINDOW, CHUNK, CHUNKS, CHOSEN = 8, 8, 32, 4
"""Steps of a window in each of two layers; of a chunk; chunks, and how many of them a step reads."""
TAUGHT = 32
"""Episodes that are played at a time by who imitates."""
FULL = 256
"""Steps of the window that sees a whole episode."""


@dataclass(frozen=True, kw_only=True)
class Column:
    """A task, and how it is learned."""

    key: str
    """Part of the names of its result files."""
    title: str
    """Its heading."""
    config: Callable[[str], TrainerConfig]
    """The run of a core; agent and learning are those of hcam for every row, but for :data:`OPTIMIZERS`."""
    how: Literal["supervised", "imitation", "reinforcement"]
    """Right answers are shown; the world's oracle shows what to do; or nothing but reward."""
    where: StreamTask | WorldConfig | None = None
    """What is scored, where that is not what is trained on."""
    own: bool = False
    """Windows and chunks, and how the agent is given its memory, are those that the recipe has for each core."""


def _four_between() -> WorldConfig:
    world: Any = htm.words().world
    return replace(world, distractor_phases=(4,))


def _two_links() -> StreamTask:
    task: Any = inference().task
    return replace(task, types=("AC",))


COLUMNS = (
    Column(key="recall", title="recall", config=recall, how="supervised"),
    Column(key="copying", title="copying, 100", config=copying, how="supervised"),
    Column(key="inference", title="inference, AC", config=inference, how="supervised", where=_two_links(), own=True),
    Column(key="visual-match", title="visual match", config=htm.visual_match, how="imitation"),
    Column(key="ballet", title="ballet", config=htm.ballet, how="imitation"),
    Column(key="words", title="words, 4 between", config=htm.words, how="imitation", where=_four_between()),
    Column(key="permanence", title="permanence", config=htm.permanence, how="imitation"),
    Column(key="streets", title="streets", config=htm.streets, how="imitation"),
    Column(key="t-maze", title="T-maze, 100", config=htm.t_maze, how="reinforcement"),
    Column(key="visual-match-rl", title="visual match, RL", config=htm.visual_match, how="reinforcement"),
)
"""The table from left to right."""

ROWS: dict[str, tuple[str, dict[str, Any]]] = {
    **{key: (key, {}) for key in GENERAL_CORES},
    "transformer-xl, full window": ("transformer-xl", {"memory_len": FULL}),
}
"""The table from top to bottom: key of a core, and what it has beside the sizes that all have."""

_MEMORY: dict[str, dict[str, Any]] = {
    "causal-transformer": {"memory_len": WINDOW},
    # Gates of GRUs, as agents have them, take half of the parameters.
    "transformer-xl": {"dim": 48, "hidden_dim": 96, "memory_len": WINDOW, "gate": "gru", "relu_outputs": True},
    "hcam": {"memory_len": WINDOW, "chunk_len": CHUNK, "num_chunks": CHUNKS, "top_k": CHOSEN},
    "feedback-transformer": {"memory_len": 2 * WINDOW},
    "long-short-transformer": {"memory_len": WINDOW, "chunk_len": CHUNK, "num_segments": CHUNKS},
}


OWN = ("memory_len", "chunk_len", "num_chunks", "top_k", "reading")
"""What a core has of its own where a column says so."""


def memory_suite(core: str = "hcam", scale: Scale = "lite") -> TrainerConfig:
    """A cell of the table: a core in the first column.

    Args:
        core: key of any core.
        scale: only lite; the table is ours.
    """
    if scale != "lite":
        raise ValueError(f"scale={scale!r}: the memory suite is our own table and has only lite")
    lookup(CORES, core, "core")
    return cell(core, COLUMNS[0])


def cell(row: str, column: Column) -> TrainerConfig:
    """The run of a row in a column."""
    core, fields = ROWS[row]
    memory = {**_MEMORY.get(core, {}), **fields}
    # The same agent, learning rate and batch for every row.
    config: Any = column.config(core if column.own else "hcam")
    if column.own:
        memory |= {name: getattr(config.core, name) for name in OWN if name in vars(config.core)}
    if column.how == "imitation":
        config = _imitating(config)
    spec = config.trained_on.spec
    goal = spec.chance + SOLVED * (spec.oracle - spec.chance)
    fit = replace(
        config.fit, steps=100_000, processor_seconds=SECONDS, stop_score=goal, evaluate_every=100, checkpoint_every=100
    )
    if core in OPTIMIZERS:
        config = replace(config, optimizer=OPTIMIZERS[core])
    return replace(config, core=equal_core(core, **memory), fit=fit)


def _imitating(config: ImpalaConfig) -> CloningConfig:
    """The same agent in the same world, taught by the world's oracle; small batches, since every one is one step."""
    return CloningConfig(
        world=config.world,
        core=config.core,
        agent=config.agent,
        optimizer=config.optimizer,
        loss=CloningLossConfig(discount=config.loss.discount),
        evaluation=config.evaluation,
        batch_size=TAUGHT,
        unroll=config.unroll,
        fit=config.fit,
    )


def label(row: str, column: Column) -> str:
    """The name of a cell's files."""
    return f"{column.key}-{row.replace(', ', '-').replace(' ', '-')}"


def _runs() -> list[Run]:
    runs = []
    for column in COLUMNS:
        for row, (core, _) in ROWS.items():
            config = cell(row, column)
            where = config.trained_on if column.where is None else column.where
            title = f"{column.title} ({column.how}): {row}"
            runs.append(
                Run(label=label(row, column), row=title, core=core, config=config, tests={"": Test(where=where)})
            )
    return runs


def grand_table(results: Sequence[Mapping[str, Any]]) -> Cells:
    """The table that result files make.

    Args:
        results: of this recipe.
    """
    specs = {column.key: (column.where or column.config("hcam").trained_on).spec for column in COLUMNS}
    return Cells(
        columns=[
            Heading(
                key=column.key,
                title=column.title,
                how=column.how,
                chance=specs[column.key].chance,
                oracle=specs[column.key].oracle,
                span=specs[column.key].memory_span,
            )
            for column in COLUMNS
        ],
        rows=[Line(name=row, labels={column.key: label(row, column) for column in COLUMNS}) for row in ROWS],
        results=results,
        seconds=SECONDS,
    )


def _pages(results: Sequence[Mapping[str, Any]], root: Path) -> str:
    return grand_table(results).write(root)


MEMORY_SUITE = Recipe(
    name="memory-suite",
    title="The memory suite: every core, everywhere",
    source="ours (recipes/memory_suite.py)",
    about=(
        f"Every cell has 65 000 to 100 000 parameters in its core and at most {SECONDS:g} s of processor time. Windows "
        f"of {WINDOW} steps in two layers; hcam reads {CHOSEN} of {CHUNKS} chunks of {CHUNK}."
    ),
    config=memory_suite,
    runs={"lite": _runs},
    seeds={"lite": 3},
    pages=_pages,
)
