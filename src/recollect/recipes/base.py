"""Recipes: experiments as lists of complete runs, at one or more scales."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Literal, Protocol

from recollect.agents.config import SequenceModelConfig
from recollect.config import lookup, require
from recollect.cores.memoryless import MemorylessConfig
from recollect.evaluation.score import Score
from recollect.tasks.streams.contract import StreamTask
from recollect.tasks.worlds.contract import WorldConfig
from recollect.training import FitConfig, SupervisedConfig, TrainerConfig

Scale = Literal["lite", "long", "paper"]
"""Minutes on two processor cores; hours on one, where minutes do not suffice; the paper's own sizes."""


def require_scale(scale: str, *known: Scale) -> None:
    """Raise ``ValueError`` unless an experiment has this scale."""
    require(scale in known, "scale", scale, f"choose {' or '.join(known)}")


def make_memoryless_config(task: StreamTask, fit: FitConfig, **settings: Any) -> SupervisedConfig:
    """Return the ablation of an encoder of whole rows: a network that reads the last step of a row alone."""
    core, agent = MemorylessConfig(dim=64, num_layers=2), SequenceModelConfig(embedding_dim=64)
    return SupervisedConfig(task=task, core=core, agent=agent, fit=fit, batch_size=32, **settings)


def file_name(row: str) -> str:
    """Return a row's name as part of a file name: ``hcam, k = 4`` becomes ``hcam-k4``."""
    return row.replace(", ", "-").replace(" = ", "").replace(" ", "-").replace(":", "-")


class Measure(Protocol):
    """Score of an agent by something other than its answers."""

    def __call__(self, agent: Any, where: Any, *, samples: int, seed: int) -> Score:
        """Return the score over ``samples`` rows or episodes."""
        ...


@dataclass(frozen=True, kw_only=True)
class Test:
    """A test on which a trained run is scored; a row of the results table."""

    where: StreamTask | WorldConfig
    """Task or world, of the same kind as in training."""
    samples: int | None = None
    """Rows or episodes; the usual number when None."""
    paper: str = "-"
    """Value that the paper reports; "-" where it reports none."""
    best: bool = False
    """Score the checkpoint of the run's best evaluation instead of the newest."""
    beyond_window: bool = False
    """The lag is at least four times the reach of the core's windows, where the core has windows."""
    measure: Measure | None = None
    """Another measure than the score of the answers."""


@dataclass(frozen=True, kw_only=True)
class Run:
    """One row of the results table."""

    label: str
    """Name of its result files: ``<label>-seed<k>.json``."""
    row: str
    """Its name in the table."""
    core: str
    """Key of its core."""
    config: TrainerConfig
    """The complete config; ``reproduce`` sets the seed."""
    paper: str = "-"
    """Value that the paper reports; "-" where it reports none."""
    tests: Mapping[str, Test] = field(default_factory=dict)
    """Tests by name; empty: the task of training, on its test part if it has one."""
    untrained: bool = False
    """Also score the initial weights: where a task needs little more than similarity, they may already do well."""
    seeds: int | None = None
    """Number of seeds of this row, if fewer than the scale's; an explicit number of seeds overrides it."""
    beyond_window: bool = False
    """See :class:`Test`; for a run that is scored on its own task."""

    @property
    def scored(self) -> Mapping[str, Test]:
        """The tests by name; a run without tests is scored on its own task, under an empty name."""
        where = self.config.trained_on
        if isinstance(where, StreamTask):
            where = where.scored_on(final=True)  # not on rows seen in training
        own = Test(where=where, paper=self.paper, beyond_window=self.beyond_window)
        return self.tests or {"": own}


class MakePages(Protocol):
    """Function that makes a recipe's pages and pictures from its result files alone."""

    def __call__(self, results: Sequence[Mapping[str, Any]], root: Path) -> str | None:
        """Write the pages under ``root/docs``; return the text that replaces the usual table in ``docs/results.md``,
        None to leave the table.
        """
        ...


class MakeConfig(Protocol):
    """Function that returns the complete config of one core at one scale."""

    def __call__(self, core: str, scale: Scale = "lite") -> TrainerConfig:
        """Return the config of a run for a core and a scale."""
        ...


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """An experiment: its runs at every scale, and how its table is made."""

    name: str
    """Key in the RECIPES table."""
    title: str
    """Heading of its table."""
    source: str
    """Paper and section, or ours."""
    about: str
    """Purpose, and how the lite scale differs from the paper."""
    config: MakeConfig
    """Function for the config of one core at one scale."""
    runs: Mapping[Scale, Callable[[], list[Run]]]
    """Rows of each scale that exists."""
    seeds: Mapping[Scale, int]
    """Seeds of each scale: 0, 1, ..."""
    pages: MakePages | None = None
    """Its pages, if a table in ``docs/results.md`` is not enough."""
    rows_of: Callable[[str], list[Run]] | None = None
    """Rows of a core that is not of this library, ``package.module:Config``; None where the recipe takes none."""

    def rows(self, scale: str) -> list[Run]:
        """Return the runs of a scale.

        Raises:
            ValueError: the recipe has no such scale.
        """
        if scale not in self.runs:
            raise ValueError(f"scale={scale!r}: {self.name} has {', '.join(self.runs)}")
        return self.runs[scale]()  # type: ignore[index]

    def chosen_rows(self, scale: str, cores: Sequence[str] = (), rows: Sequence[str] = ()) -> list[Run]:
        """Return the runs of a scale that are asked for.

        Args:
            scale: of the recipe.
            cores: keys of cores; empty takes all. ``package.module:Config`` adds rows, where the recipe takes them.
            rows: patterns of names of rows, such as ``ballet*``; empty takes all.

        Raises:
            ValueError: an unknown scale or core, or a pattern that fits no row.
        """
        runs = self.rows(scale) + self.more_rows(cores)
        for core in cores:
            lookup({run.core: run for run in runs}, core, f"core of {self.name}")
        for pattern in rows:
            fits = any(fnmatchcase(run.row, pattern) for run in runs)
            names = f"choose of {'; '.join(run.row for run in runs)}"
            require(fits, "rows", pattern, f"no row of {self.name} has such a name: {names}")
        return [
            run
            for run in runs
            if (not cores or run.core in cores) and (not rows or any(fnmatchcase(run.row, one) for one in rows))
        ]

    def more_rows(self, cores: Sequence[str]) -> list[Run]:
        """Return the rows of cores that are not of this library.

        Raises:
            ValueError: the recipe takes none, or a core cannot be imported.
        """
        own = [core for core in dict.fromkeys(cores) if ":" in core]
        if own and self.rows_of is None:
            remedy = "memory-suite and recall do; or recollect train TASK --core"
            raise ValueError(f"cores={own[0]!r}: {self.name} has no rows for cores of one's own: {remedy} {own[0]}")
        return [run for core in own for run in self.rows_of(core)] if self.rows_of else []
