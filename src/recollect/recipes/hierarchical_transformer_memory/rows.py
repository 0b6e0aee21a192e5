"""Rows that all studies of Lampinen et al. 2021 share: the same run with different memories.

    hcam                            reads every chunk (lite), or as many as in the paper
    hcam, k = n                     reads n chunks: lite, fewer than exist at the question
    transformer-xl                  lite: hcam's window; paper: the paper's
    transformer-xl, full window     a window as long as the longest episode: about as many bytes as hcam's chunks
    lstm, memoryless
    lstm, chrono start              gates begin with memories of up to the longest episode

The lite scale has each of them twice: by reinforcement alone, and *imitated*, with a teacher and the training aids of
:class:`~recollect.recipes.imitation_recipe.ImitationRecipe`. Tables name both beside the row. The long scale has
``hcam`` and ``memoryless`` alone: what reinforcement reaches in two hours of one processor core, with the curriculum of
the imitated rows, where they have one.

A row's *reach* is layers x window of its core: the steps back that it sees without chunks and without a learned
recurrence. Where a test is marked ``beyond_window`` the lag (tasks/memory_requirements.py) is at least four times that.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Protocol

from recollect.cores.config import CoreConfig
from recollect.cores.hcam import HierarchicalChunkMemoryConfig
from recollect.cores.recurrent import LSTMConfig
from recollect.cores.transformer_xl.config import TransformerXLConfig
from recollect.recipes.base import Recipe, Run, Scale, Test, file_name
from recollect.recipes.imitation_recipe import ImitationRecipe, with_teacher
from recollect.tasks.worlds.contract import WorldConfig
from recollect.training import ImpalaConfig, TrainerConfig

CORE_ROWS = ("hcam", "transformer-xl", "lstm", "memoryless")
LONG_CORES = ("hcam", "memoryless")
FULL_WINDOW = ", full window"
LONG_SECONDS = 7200.0
"""Processor time of a long run."""
DOC = "Hierarchical Transformer Memory (Lampinen et al. 2021)"

Tests = Callable[[str, Scale], dict[str, Test]]
"""Where the run of a core is scored at a scale, by name."""


class MakeAgent(Protocol):
    """Function that returns the run of a core at a scale."""

    def __call__(self, core: str, scale: Scale = "lite") -> ImpalaConfig:
        """Return the config of an agent with a core at a scale."""
        ...


def study(
    name: str,
    title: str,
    source: str,
    about: str,
    config: MakeAgent,
    few: Mapping[Scale, int],
    tests: Tests,
    imitation: ImitationRecipe,
) -> Recipe:
    """Return a recipe with the rows at the top of this module.

    Args:
        name: key.
        title: heading of its table.
        source: section of the paper.
        about: purpose, and how the lite scale differs.
        config: the run of one core at one scale.
        few: k of the row ``hcam, k = n``, by scale.
        tests: tests by name.
        imitation: of the imitated lite rows.
    """

    def at(core: str, scale: Scale = "lite") -> ImpalaConfig:
        made = config(core, scale)
        return lasting(made, imitation) if scale == "long" else made

    def lite() -> list[Run]:
        alone = list(study_rows(config, "lite", few["lite"], tests))
        return [*alone, *(imitated(run, imitation) for run in alone)]

    return Recipe(
        name=name,
        title=title,
        source=f"{DOC}, {source}",
        about=f"{about} Long: two hours of one processor core by reinforcement alone.",
        config=at,
        runs={
            "lite": lite,
            "long": lambda: [row(core, core, at(core, "long"), "long", tests(core, "long")) for core in LONG_CORES],
            "paper": lambda: list(study_rows(config, "paper", few["paper"], tests)),
        },
        seeds={"lite": 3, "long": 1, "paper": 3},
    )


def study_rows(config: MakeAgent, scale: Scale, few: int, tests: Tests) -> Iterator[Run]:
    """Return the rows at the top of this module for one scale."""
    for core in CORE_ROWS:
        made, where = config(core, scale), tests(core, scale)
        unmarked = {name: replace(test, beyond_window=False) for name, test in where.items()}
        for name, memory in memories(core, made.core, few, longest_episode(where)):
            sees_all = name.endswith(FULL_WINDOW)
            yield row(name, core, replace(made, core=memory), scale, unmarked if sees_all else where)


def memories(core: str, memory: CoreConfig, few: int, longest: int) -> Iterator[tuple[str, CoreConfig]]:
    """Return the rows of one core: their names and configs.

    Args:
        core: key of the core.
        memory: config of its first row.
        few: k of the row ``hcam, k = n``.
        longest: steps of the longest episode.
    """
    yield core, memory
    if isinstance(memory, HierarchicalChunkMemoryConfig):
        yield f"{core}, k = {few}", replace(memory, top_k=few)
    if isinstance(memory, TransformerXLConfig):
        yield f"{core}{FULL_WINDOW}", replace(memory, memory_len=longest)
    if isinstance(memory, LSTMConfig):
        yield f"{core}, chrono start", replace(memory, forget_bias=0.0, chrono_steps=longest)


def imitated(run: Run, imitation: ImitationRecipe) -> Run:
    """Return the same row with imitation."""
    config = run.config
    assert isinstance(config, ImpalaConfig)
    return row(f"{run.row}, imitated", run.core, with_teacher(config, imitation), "lite", run.tests)


def lasting(config: ImpalaConfig, imitation: ImitationRecipe) -> ImpalaConfig:
    """Return the lite run by reinforcement alone, for two hours."""
    fit = replace(config.fit, steps=1_000_000, processor_seconds=LONG_SECONDS, evaluate_every=100, checkpoint_every=100)
    return replace(config, fit=fit, schedule=replace(config.schedule, curriculum=imitation.curriculum))


def row(name: str, core: str, config: TrainerConfig, scale: Scale, tests: Mapping[str, Test]) -> Run:
    """Return a row, with a label for its files."""
    return Run(label=f"{file_name(name)}-{scale}", row=name, core=core, config=config, tests=tests)


def longest_episode(tests: Mapping[str, Test]) -> int:
    """Return the steps of the longest episode in a run's tests."""
    return max(test.where.spec.max_steps for test in tests.values() if isinstance(test.where, WorldConfig))


def read_all_chunks(core: CoreConfig) -> CoreConfig:
    """Return the config of a core with ``top_k`` = ``num_chunks`` if it is an hcam, else unchanged."""
    return replace(core, top_k=core.num_chunks) if isinstance(core, HierarchicalChunkMemoryConfig) else core
