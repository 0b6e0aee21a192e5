"""Memory suite: every core in every world and stream task, with the same parameters and the same compute.

A column is a task with its method of training (:data:`COLUMNS`); a row is a core with its settings (:data:`ROWS`). All
cells have about the same number of parameters. A cell is trained for at most its column's processor time, whatever its
steps cost, and ends earlier when it scores :data:`SOLVED`. Worlds are imitated with the imitation recipes of Lampinen's
study (recipes/hierarchical_transformer_memory).

Order of the runs: all columns of the rows in :data:`FIRST`, then row by row, then the next seed, so that an unfinished
table already compares cores.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from recollect.config import lookup
from recollect.cores import CORES, GENERAL_CORES
from recollect.cores.hcam import HierarchicalChunkMemoryConfig
from recollect.recipes import hierarchical_transformer_memory as htm
from recollect.recipes.base import Recipe, Run, Scale, Test, file_name, require_scale
from recollect.recipes.equal_sizes import equal_core
from recollect.recipes.hierarchical_transformer_memory.words import LITE as WORDS_WORLD
from recollect.recipes.htm_inference import inference
from recollect.recipes.imitation_recipe import ImitationRecipe, with_teacher
from recollect.recipes.recall import OPTIMIZERS, recall
from recollect.recipes.temporal_latent_bottleneck import copying
from recollect.tasks.streams.contract import StreamTask
from recollect.tasks.worlds.contract import WorldConfig
from recollect.training import (
    CurriculumConfig,
    ImpalaConfig,
    ReuseConfig,
    SupervisedConfig,
    TeacherConfig,
    TrainerConfig,
)

if TYPE_CHECKING:
    from recollect.recipes.memory_suite_pages import Cells

SOLVED = 0.99
"""Scaled score (0 is chance, 1 the oracle) at which training ends early."""
WINDOW, CHUNK, CHUNKS, CHOSEN = 8, 8, 32, 4
"""Steps of a window in each of two layers, steps of a chunk, number of chunks, and number of chunks that are read."""
FULL = 256
"""Steps of the window that covers a whole episode."""
STEPS = 100_000
"""Limit of training steps that no run reaches in its time."""


@dataclass(frozen=True, kw_only=True)
class Column:
    """Task and its method of training."""

    key: str
    """Part of the names of its result files."""
    title: str
    """Its heading."""
    config: Callable[[str], TrainerConfig]
    """Return the run of a core; all rows have the agent and training settings of hcam, except :data:`OPTIMIZERS`."""
    how: Literal["supervised", "imitated", "reinforcement"]
    """Trained with right answers, with a teacher (the world's oracle or explorer), or with reward only."""
    seconds: float
    """Processor time of a run."""
    every: int = 100
    """Steps between evaluations, at each of which a run may end."""
    imitation: ImitationRecipe | None = None
    """Imitation settings of the task."""
    where: StreamTask | WorldConfig | None = None
    """Task of the score, where it is not the task of training."""
    own: bool = False
    """Windows, chunks and reading (:data:`OWN`) are those of the recipe for each core."""


def _short_items(core: str) -> SupervisedConfig:
    """Use items of 32 numbers: with the recipe's 64 a core of this size stays at chance in AC (docs/log.md).

    No core starts by copying what it reads, because only hcam can.
    """
    config = inference(core)
    task: Any = config.task
    agent = replace(config.agent, embedding_dim=64, identity_readout=False)
    memory: Any = config.core
    if isinstance(memory, HierarchicalChunkMemoryConfig):
        memory = replace(memory, reading=replace(memory.reading, copying_start=False))
    return replace(config, task=replace(task, width=32), agent=agent, core=memory)


def _two_links() -> StreamTask:
    task: Any = _short_items("hcam").task
    return replace(task, types=("AC",))


def _two_dancers(core: str) -> ImpalaConfig:
    return replace(htm.ballet(core), world=htm.lite_level(2))


def _plain_streets(core: str) -> ImpalaConfig:
    """Return the settings with which the column was run: the previous move is not embedded, the observation is."""
    config = htm.streets(core)
    return replace(
        config,
        agent=replace(config.agent, past_dim=None, norm_values=False),
        loss=replace(config.loss, discount=0.99, entropy_cost=0.02, norm_advantages=False),
    )


_STREETS = ImitationRecipe(
    steps=STEPS,
    teacher=TeacherConfig(name="explorer", acts=200, keeps=0.5),
    batch_size=32,
    reuse=ReuseConfig(passes=3, minibatches=4),
    learning_rate=1e-3,
    baseline_cost=0.0,
    label_cost=1.0,
    attention_cost=0.5,
    inside=True,
    gradients=True,
)
"""The recipe's neighbourhoods that grow take an hour (docs/log.md): a cell would never leave the smallest. It has whole
ones from the start, and imitation of its own."""


def _shorter_maze(core: str) -> ImpalaConfig:
    """Return a maze more than four times as long as the reach of windows (docs/log.md has the reason against 100)."""
    return htm.t_maze(core, length=70)


def _imitated(
    key: str,
    title: str,
    config: Callable[[str], TrainerConfig],
    seconds: float,
    imitation: ImitationRecipe,
    **more: Any,
) -> Column:
    return Column(
        key=key, title=title, config=config, how="imitated", seconds=seconds, every=20, imitation=imitation, **more
    )


COLUMNS = (
    Column(key="recall", title="recall", config=recall, how="supervised", seconds=60),
    Column(key="copying", title="copying, 100", config=copying, how="supervised", seconds=100),
    Column(
        key="inference",
        title="inference, AC",
        config=_short_items,
        how="supervised",
        seconds=150,
        where=_two_links(),
        own=True,
    ),
    _imitated("visual-match", "visual match", htm.visual_match, 90, htm.IMITATION["visual-match"]),
    _imitated(
        "ballet",
        "ballet, 2 dances, delay 48",
        _two_dancers,
        240,
        replace(htm.IMITATION["ballet"], curriculum=CurriculumConfig()),
        where=htm.lite_level(2, delay=48),
    ),
    _imitated(
        "words",
        "words, 4 between",
        htm.words,
        240,
        replace(htm.IMITATION["words"], inside=True),  # two names lie in one chunk
        where=replace(WORDS_WORLD, distractor_phases=(4,)),
    ),
    _imitated("permanence", "permanence", htm.permanence, 100, htm.IMITATION["permanence"]),
    _imitated("streets", "streets", _plain_streets, 150, _STREETS),
    Column(key="t-maze", title="T-maze, 70", config=_shorter_maze, how="reinforcement", seconds=130, every=50),
)
"""Columns from left to right; the seconds of all cells are 7 hours (see docs/log.md for how they were chosen)."""

ROWS: dict[str, tuple[str, dict[str, Any]]] = {
    **{key: (key, {}) for key in GENERAL_CORES},
    "transformer-xl, full window": ("transformer-xl", {"memory_len": FULL}),
    "lstm, chrono start": ("lstm", {"chrono_steps": FULL}),
    "gru, chrono start": ("gru", {"chrono_steps": FULL}),
}
"""Rows from top to bottom: key of a core, and its own settings beside the common sizes."""

FIRST = ("hcam", "transformer-xl, full window", "lstm", "memoryless")
"""Rows that are run before the others."""

_MEMORY: dict[str, dict[str, Any]] = {
    "causal-transformer": {"memory_len": WINDOW},
    # Gates of GRUs, as agents have them, take half of the parameters.
    "transformer-xl": {"dim": 48, "hidden_dim": 96, "memory_len": WINDOW, "gate": "gru", "relu_outputs": True},
    "hcam": {"memory_len": WINDOW, "chunk_len": CHUNK, "num_chunks": CHUNKS, "top_k": CHOSEN},
    "feedback-transformer": {"memory_len": 2 * WINDOW},
    "hybrid": {"memory_len": WINDOW},
    "long-short-transformer": {"memory_len": WINDOW, "chunk_len": CHUNK, "num_segments": CHUNKS},
}


OWN = ("memory_len", "chunk_len", "num_chunks", "top_k", "reading")
"""Settings that a core takes from the recipe in columns with ``own``."""


def memory_suite(core: str = "hcam", scale: Scale = "lite") -> TrainerConfig:
    """Return the run of a core in the first column.

    Args:
        core: key of any core.
        scale: only lite; the table is ours.
    """
    require_scale(scale, "lite")
    lookup(CORES, core, "core")
    return cell(core, COLUMNS[0])


def cell(row: str, column: Column) -> TrainerConfig:
    """Return the run of a row in a column; the row of a core that is not of this library is its name."""
    core, fields = ROWS.get(row, (row, {}))
    memory = {**_MEMORY.get(core, {}), **fields}
    # The same agent, learning rate and batch for every row.
    config: Any = column.config("hcam" if not column.own else core if core in CORES else "lstm")
    if column.own:
        memory |= {name: getattr(config.core, name) for name in OWN if name in vars(config.core)}
    config = replace(config, core=equal_core(core, **memory))
    if column.imitation is not None:
        config = with_teacher(config, replace(column.imitation, steps=STEPS))
    if core in OPTIMIZERS:
        config = replace(config, optimizer=OPTIMIZERS[core])
    spec = config.trained_on.spec
    fit = replace(
        config.fit,
        steps=STEPS,
        processor_seconds=column.seconds,
        stop_score=spec.chance + SOLVED * (spec.oracle - spec.chance),
        evaluate_every=column.every,
        checkpoint_every=column.every,
    )
    return replace(config, fit=fit)


def label(row: str, column: Column) -> str:
    """Return the label of a cell's result files."""
    return f"{column.key}-{file_name(row)}"


def _runs() -> list[Run]:
    first = [_run(row, column) for column in COLUMNS for row in FIRST]
    return [*first, *(_run(row, column) for row in ROWS if row not in FIRST for column in COLUMNS)]


def _run(row: str, column: Column) -> Run:
    config = cell(row, column)
    where = config.trained_on if column.where is None else column.where
    title = f"{column.title} ({column.how}): {row}"
    core = ROWS[row][0] if row in ROWS else row
    return Run(label=label(row, column), row=title, core=core, config=config, tests={"": Test(where=where)})


def _runs_of(core: str) -> list[Run]:
    return [_run(core, column) for column in COLUMNS]


def memory_suite_table(results: Sequence[Mapping[str, Any]]) -> "Cells":
    """Return the table of the recipe's results."""
    from recollect.recipes.memory_suite_pages import Cells, Heading, Line

    own = dict.fromkeys(result["core"] for result in results if ":" in result["core"])
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
                seconds=column.seconds,
            )
            for column in COLUMNS
        ],
        rows=[Line(name=row, labels={column.key: label(row, column) for column in COLUMNS}) for row in (*ROWS, *own)],
        results=results,
        left_out=[key for key in CORES if key not in GENERAL_CORES],
    )


def _pages(results: Sequence[Mapping[str, Any]], root: Path) -> str:
    return memory_suite_table(results).write(root)


MEMORY_SUITE = Recipe(
    name="memory-suite",
    title="The memory suite: every core, everywhere",
    source="ours (recipes/memory_suite.py)",
    about=(
        "Every cell has 65 000 to 100 000 parameters in its core, and at most "
        f"{min(column.seconds for column in COLUMNS):g} to {max(column.seconds for column in COLUMNS):g} s of "
        f"processor time, by column. Windows of {WINDOW} steps in two layers; hcam reads {CHOSEN} of {CHUNKS} chunks "
        f"of {CHUNK}. Chrono start: gates begin with memories of up to {FULL} steps; with PyTorch's start half of one "
        "is lost at every step. All rows of a column have the same optimiser, but for recurrent-transformer, whose "
        "steps are smaller."
    ),
    config=memory_suite,
    runs={"lite": _runs},
    seeds={"lite": 3},
    pages=_pages,
    rows_of=_runs_of,
)
