"""What a recipe is: an experiment as a list of complete runs, at one or more scales."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol

from recollect.config import require
from recollect.evaluation.score import Score
from recollect.tasks.streams.contract import StreamTask
from recollect.tasks.worlds.contract import WorldConfig
from recollect.training import TrainerConfig

Scale = Literal["lite", "long", "paper"]
"""Minutes on two processor cores; hours on one, where minutes do not suffice; the paper's own sizes."""


def require_scale(scale: str, *known: Scale) -> None:
    """Raise ``ValueError`` unless an experiment has this scale."""
    require(scale in known, "scale", scale, f"choose {' or '.join(known)}")


def file_name(row: str) -> str:
    """A row's name as part of a file's: ``hcam, k = 4`` is ``hcam-k4``."""
    return row.replace(", ", "-").replace(" = ", "").replace(" ", "-")


class Measure(Protocol):
    """Scores an agent by something else than its answers."""

    def __call__(self, agent: Any, where: Any, *, samples: int, seed: int) -> Score:
        """The score of so many rows or episodes."""
        ...


@dataclass(frozen=True, kw_only=True)
class Test:
    """Where a trained run is scored; a row of the results table."""

    where: StreamTask | WorldConfig
    """What it is scored on; of the kind it was trained on."""
    samples: int | None = None
    """Rows or episodes that are scored; None: as many as in every other test."""
    paper: str = "-"
    """What the paper reports; "-" where it says nothing."""
    best: bool = False
    """Score the checkpoint of the run's best evaluation instead of the newest."""
    beyond_window: bool = False
    """It asks for what windows do not show: the lag is at least four times the reach of the core, where it has one."""
    measure: Measure | None = None
    """What is measured; None: the score of its answers."""


@dataclass(frozen=True, kw_only=True)
class Run:
    """One row of the results table."""

    label: str
    """Name of its result files: ``<label>-seed<k>.json``."""
    row: str
    """What the table calls it."""
    core: str
    """Key of its core."""
    config: TrainerConfig
    """Everything else; the seed is set by who runs it."""
    paper: str = "-"
    """What the paper reports; "-" where it says nothing."""
    tests: Mapping[str, Test] = field(default_factory=dict)
    """Where the run is scored, by name; empty: on what it was trained on, and there on the test part, if it has one."""
    untrained: bool = False
    """Score the weights that training begins with as well: where a task asks for little more than likeness, new weights
    may know much of the answer."""
    seeds: int | None = None
    """Seeds of this row alone, where it is given fewer than the scale's others; who asks for a number gets that."""
    beyond_window: bool = False
    """The same as in :class:`Test`, for a run that is scored on what it was trained on."""

    @property
    def scored(self) -> Mapping[str, Test]:
        """Where the run is scored, by name; without tests on what it was trained on, whose name is empty."""
        where = self.config.trained_on
        if isinstance(where, StreamTask):
            where = where.scored_on(final=True)  # rows that were learned say nothing
        own = Test(where=where, paper=self.paper, beyond_window=self.beyond_window)
        return self.tests or {"": own}


class MakePages(Protocol):
    """Pages and pictures of a recipe, made from its result files alone."""

    def __call__(self, results: Sequence[Mapping[str, Any]], root: Path) -> str:
        """Write them under ``root/docs``; return what ``docs/results.md`` shows in the place of the usual table."""
        ...


class MakeConfig(Protocol):
    """A recipe's function: the complete config of one core at one scale."""

    def __call__(self, core: str, scale: Scale = "lite") -> TrainerConfig:
        """The config."""
        ...


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """An experiment."""

    name: str
    """Key in the RECIPES table."""
    title: str
    """Heading of its table."""
    source: str
    """Paper and section, or ours."""
    about: str
    """What is shown, and how the lite scale differs from the paper."""
    config: MakeConfig
    """The config of one core at one scale."""
    runs: Mapping[Scale, Callable[[], list[Run]]]
    """Rows of each scale that exists."""
    seeds: Mapping[Scale, int]
    """Seeds of each scale: 0, 1, ..."""
    pages: MakePages | None = None
    """Pages of its own; None: a table in ``docs/results.md`` says it all."""

    def rows(self, scale: str) -> list[Run]:
        """The runs of a scale.

        Raises:
            ValueError: the recipe has no such scale.
        """
        if scale not in self.runs:
            raise ValueError(f"scale={scale!r}: {self.name} has {', '.join(self.runs)}")
        return self.runs[scale]()  # type: ignore[index]
