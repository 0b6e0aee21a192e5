"""How far up a ladder of levels each memory gets, when all begin with the easiest one.

A run plays the first level of a world until its newest episodes reach 0.9, then the next one, and so on, until it
plays the last level, or for a fixed processor time (in worlds whose name says *one layer* for a fixed number of
rollouts, which is the same on every machine); afterwards it is scored at every level, of which it may have forgotten
the easy ones. Agents learn without a teacher: by reinforcement and reconstruction, as in ``htm_as_published.py``, and
in worlds of one layer by reinforcement alone, as in the lite studies of those worlds. In one world all have about as
many parameters, and each row of the table is the best of three learning rates. A memory that does not pass the first
level counts as not trained, not as worse: its scores say nothing.

Differs from the paper, which trains on all levels at once.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import mean
from typing import Any, Literal, Protocol

from recollect.config import lookup
from recollect.cores.config import CoreConfig
from recollect.recipes.agent_sizes import TWICE, lite_core, lite_spoken
from recollect.recipes.base import Recipe, Run, Scale, Test, file_name, require_scale
from recollect.recipes.hierarchical_transformer_memory.ballet import lite_level
from recollect.recipes.hierarchical_transformer_memory.permanence import LITE as BOXES
from recollect.recipes.hierarchical_transformer_memory.rows import FULL_WINDOW, read_all_chunks
from recollect.recipes.hierarchical_transformer_memory.visual_match import LITE as DOORS
from recollect.recipes.hierarchical_transformer_memory.words import LITE as WORDS
from recollect.recipes.htm_as_published import CHUNK, LAYERS, WINDOW, reinforced
from recollect.recipes.result_tables import markdown_cell, markdown_table
from recollect.tasks.worlds.ballet.dances import DANCES
from recollect.tasks.worlds.contract import WorldConfig
from recollect.tasks.worlds.t_maze import TMazeConfig
from recollect.training import CurriculumConfig, ImpalaConfig

LEARNED = 0.9
"""Score at which a level counts as learned, in training and in the table."""
RATES = (1e-3, 5e-4, 2e-3)
"""Learning rates of every row."""
WIDTHS = {
    1: {"hcam": 64, "transformer-xl": 52, "lstm": 96, "gated-deltanet": 72, "memoryless": 116},
    LAYERS: {"hcam": 64, "transformer-xl": 52, "lstm": 220, "gated-deltanet": 72, "memoryless": 240},
}
"""Width of each core by the number of layers: 60 000 to 64 000 parameters with one layer, 230 000 to 255 000 with four.
"""
ROWS = ("hcam", "transformer-xl", f"transformer-xl{FULL_WINDOW}", "lstm", "gated-deltanet", "memoryless")
LITE_SECONDS, LONG_SECONDS = 600.0, 3600.0
"""Processor time of a run that has no number of rollouts."""
ONE_LAYER_ROLLOUTS = 150
"""Rollouts of a run in a world of one layer."""
SAMPLES = 256
"""Episodes of a level in the score."""


class MakeRun(Protocol):
    """Function that returns the run of an agent with a core in a world."""

    def __call__(
        self,
        world: WorldConfig,
        core: CoreConfig,
        *,
        unroll: int,
        updates: int,
        seconds: float | None,
        learning_rate: float,
    ) -> ImpalaConfig:
        """Return the run, as :func:`~recollect.recipes.htm_as_published.reinforced` does."""
        ...


def _lite_agent(
    world: WorldConfig, core: CoreConfig, *, unroll: int, updates: int, seconds: float | None, learning_rate: float
) -> ImpalaConfig:
    """Return the run of the agent of the lite studies; its optimiser steps go over a rollout twice."""
    reuse = replace(TWICE, minibatches=updates // TWICE.passes)
    config = lite_spoken(world, core, steps=1_000_000, unroll=unroll, discount=0.97)
    return replace(
        config,
        optimizer=replace(config.optimizer, learning_rate=learning_rate),
        loss=replace(config.loss, reuse=reuse),
        fit=replace(config.fit, processor_seconds=seconds, evaluate_every=25, checkpoint_every=50),
    )


@dataclass(frozen=True, kw_only=True)
class Ladder:
    """Levels of a world that differ in one field of its config."""

    world: WorldConfig
    """The last level."""
    field: str
    """Field that differs."""
    values: tuple[int, ...]
    """Its values, from the easiest level to the last."""
    unroll: int | None = None
    """Steps of a rollout. None: an episode of the last level with its last observation. All rows begin together, so
    shorter rollouts of a world whose episodes are all as long hold either every row's question or none."""
    scale: Scale
    """``lite`` where levels are short, else ``long``."""
    updates: int = 16
    """Optimiser steps on a rollout of 128 rows."""
    layers: int = LAYERS
    """Layers of cores with attention."""
    rollouts: int | None = None
    """Rollouts after which a run ends. None: after the processor time of the scale."""
    make: MakeRun = reinforced
    """Agent and its training."""
    previous_action: Literal["none", "action"] = "none"
    """Input about the previous step. The worlds of the paper ignore actions for a while: agents that see their previous
    action could pass the answer on by it, without memory. For the same reason visual match moves them at random."""

    @property
    def curriculum(self) -> CurriculumConfig:
        """Training from the first level to the last."""
        return CurriculumConfig(field=self.field, values=self.values[:-1], success=LEARNED)

    @property
    def levels(self) -> dict[str, WorldConfig]:
        """The worlds of all levels, by name."""
        worlds = self.curriculum.levels(self.world)
        return {f"{self.field} {value}": world for value, world in zip(self.values, worlds, strict=True)}


LADDERS: Mapping[str, Ladder] = {
    "t-maze": Ladder(
        world=TMazeConfig(length=320, penalty=0.05),
        field="length",
        values=(10, 20, 40, 80, 160, 320),
        unroll=64,
        scale="lite",
        updates=4,
        previous_action="action",  # every step away from the junction costs reward
    ),
    "visual match, one layer": Ladder(
        world=replace(DOORS, distractor_steps=240, random_walk=True),
        field="distractor_steps",
        values=(0, 15, 30, 60, 120, 240),
        scale="lite",
        layers=1,
        rollouts=ONE_LAYER_ROLLOUTS,
        make=_lite_agent,
    ),
    "object permanence, one layer": Ladder(
        world=replace(BOXES, delays=(128,)),
        field="delays",
        values=(0, 16, 32, 64, 128),
        scale="lite",
        layers=1,
        rollouts=ONE_LAYER_ROLLOUTS,
        make=_lite_agent,
    ),
    "visual match": Ladder(
        world=replace(DOORS, distractor_steps=240, random_walk=True),
        field="distractor_steps",
        values=(0, 15, 30, 60, 120, 240),
        unroll=128,
        scale="long",
    ),
    "object permanence": Ladder(
        world=replace(BOXES, delays=(256,)),
        field="delays",
        values=(0, 16, 32, 64, 128, 256),
        unroll=128,
        scale="long",
    ),
    "ballet": Ladder(
        world=replace(lite_level(8), approach_reward=0.0, dances=tuple(DANCES)),
        field="dancers",
        values=(2, 3, 4, 6, 8),
        unroll=64,
        scale="long",
    ),
    "words": Ladder(
        world=replace(WORDS, distractor_phases=(8,)),
        field="distractor_phases",
        values=(0, 1, 2, 4, 8),
        unroll=128,
        scale="long",
    ),
}
"""Worlds of the recipe."""


def ladder(core: str = "hcam", scale: Scale = "lite", world: str | None = None) -> ImpalaConfig:
    """Return the run of a core with the first of the learning rates.

    Args:
        core: one of :data:`ROWS`.
        scale: ``lite`` (ten minutes of one processor core) or ``long`` (an hour).
        world: one of :data:`LADDERS`; the first one of the scale when None.
    """
    require_scale(scale, "lite", "long")
    lookup({row: row for row in ROWS}, core, "core")
    ladders = _ladders(scale)
    chosen = lookup(ladders, world, "world") if world is not None else next(iter(ladders.values()))
    return _run(chosen, _memory(core, chosen), RATES[0])


def _ladders(scale: Scale) -> dict[str, Ladder]:
    return {name: one for name, one in LADDERS.items() if one.scale == scale}


def _memory(row: str, ladder: Ladder) -> CoreConfig:
    key, steps = row.removesuffix(FULL_WINDOW), ladder.world.spec.max_steps
    window = steps if row.endswith(FULL_WINDOW) else WINDOW
    sizes = {"window": window, "chunk": CHUNK, "layers": ladder.layers, "dim": WIDTHS[ladder.layers][key]}
    return read_all_chunks(lite_core(key, steps=steps, **sizes))


def _run(ladder: Ladder, memory: CoreConfig, rate: float) -> ImpalaConfig:
    limit = LITE_SECONDS if ladder.scale == "lite" else LONG_SECONDS
    config = ladder.make(
        ladder.world,
        memory,
        unroll=ladder.unroll or ladder.world.spec.max_steps + 1,
        updates=ladder.updates,
        seconds=None if ladder.rollouts else limit,
        learning_rate=rate,
    )
    return replace(
        config,
        agent=replace(config.agent, previous_action=ladder.previous_action),
        fit=replace(config.fit, steps=ladder.rollouts or config.fit.steps),
        schedule=replace(config.schedule, curriculum=ladder.curriculum),
    )


def ladder_tests(world: str) -> dict[str, Test]:
    """Return the levels of a world of :data:`LADDERS`, on which its runs are scored."""
    return {level: Test(where=config, samples=SAMPLES) for level, config in LADDERS[world].levels.items()}


def ladder_label(world: str, row: str, rate: float = RATES[0]) -> str:
    """Return the label of the runs of a row of :data:`ROWS` in a world of :data:`LADDERS`."""
    return file_name(f"{world}: {row}, rate {rate:g}").replace("--", "-")


def _rows(scale: Scale) -> list[Run]:
    return [
        Run(
            label=ladder_label(name, row, rate),
            row=f"{name}: {row}, rate {rate:g}",
            core=row.removesuffix(FULL_WINDOW),
            config=_run(ladder, _memory(row, ladder), rate),
            tests=ladder_tests(name),
        )
        for rate in RATES
        for name, ladder in _ladders(scale).items()
        for row in ROWS
    ]


def ladder_table(results: Sequence[Mapping[str, Any]], root: Path) -> str:
    """Return a table for each world: the scores of all levels at each memory's best learning rate.

    Args:
        results: of one scale.
        root: unused; there are no pages of its own.
    """
    parts = []
    for name, ladder in LADDERS.items():
        prefix, rates = f"{name}: ", {}
        for result in results:
            if result["row"].startswith(prefix):
                row, _, rate = result["row"].removeprefix(prefix).rpartition(", rate ")
                rates.setdefault(row, {}).setdefault(rate, []).append(result)
        if rates:
            parts.append(f"**{name}**\n\n{levels_table({row: rates[row] for row in ROWS if row in rates}, ladder)}")
    return "\n\n".join(parts)


def levels_table(rows: Mapping[str, Mapping[str, Sequence[Mapping[str, Any]]]], ladder: Ladder) -> str:
    """Return a table of runs on a ladder.

    Args:
        rows: results by row and learning rate.
        ladder: that they climbed.
    """
    heads = ["", "learning rate", "seeds", "parameters", "state", *ladder.levels, "levels passed", "minutes"]
    return markdown_table(heads, [_line(row, rates, ladder) for row, rates in rows.items()])


def _line(row: str, runs: Mapping[str, Sequence[Mapping[str, Any]]], ladder: Ladder) -> list[str]:
    """Return the line of a memory, at the learning rate with the most levels passed, then with the least time."""
    finished = {rate: [run for run in found if run["status"] == "ok"] for rate, found in runs.items()}
    rates = {rate: found for rate, found in finished.items() if found}
    if not rates:
        error = next(run["error"] for found in runs.values() for run in found)
        return [row, *"----", *("-" for _ in ladder.levels), markdown_cell(f"failed: {error}"), "-"]
    rate = max(rates, key=lambda one: (mean(map(levels_passed, rates[one])), -_minutes(rates[one])))
    best = rates[rate]
    reached = mean(map(levels_passed, best))
    counted = f"{reached:.3g} of {len(ladder.levels)}" if reached else "not trained"
    scores = [f"{mean(_score(run, level) for run in best):.2f}" for level in ladder.levels]
    sizes = [f"{best[0]['parameters']:,}", f"{best[0]['state_bytes'] / 1000:,.1f} kB"]
    return [row, f"{rate} of {len(rates)}", str(len(best)), *sizes, *scores, counted, f"{_minutes(best):.1f}"]


def levels_passed(result: Mapping[str, Any]) -> int:
    """Return how many levels a run passed: all where it plays the last one, else those that it left in training."""
    *_, last = result["tests"]
    return len(result["tests"]) if _score(result, last) >= LEARNED else result["levels_passed"]


def _minutes(runs: Sequence[Mapping[str, Any]]) -> float:
    return mean(run["processor_seconds"] for run in runs) / 60


def _score(result: Mapping[str, Any], level: str) -> float:
    test = result["tests"][level]
    return sum(test["correct"]) / max(sum(test["asked"]), 1)


LADDER = Recipe(
    name="htm-ladder",
    title="Ladder",
    source="Hierarchical Transformer Memory (Lampinen et al. 2021), section 3; levels are ours",
    about="Score at every level of a world, from easy to hard, after training that goes to the next level at 0.9. "
    "Reinforcement with reconstruction and no teacher, about 250 000 parameters in each core; in worlds with one "
    "layer reinforcement alone, about 62 000. Agents see their previous action in the T-maze alone, since elsewhere it "
    "could carry the answer, and walk at random between cue and doors of visual match, where their place could. Each "
    "row is at its best learning rate. Levels passed: all if the last one is played at 0.9 in the end, else those that "
    "were left at 0.9 in training; easier ones may be forgotten by then. Not trained: not even the easiest was passed. "
    "Minutes: processor time of training, which ends early at 0.98 in the last level. Lite: ten minutes of one "
    "processor core a run, or 150 rollouts of whole episodes with one layer. Long: four layers in the worlds of the "
    "paper, in symbols, an hour a run.",
    config=ladder,
    runs={"lite": lambda: _rows("lite"), "long": lambda: _rows("long")},
    seeds={"lite": 3, "long": 3},
    pages=ladder_table,
)
