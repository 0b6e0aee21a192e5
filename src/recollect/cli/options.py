"""Flags of ``recollect train`` that are no settings of the run."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from tyro.conf import arg


@dataclass(frozen=True)
class TrainOptions:
    """Where a run is kept, what it begins with, and who hears of it."""

    directory: Path | None = None
    """Run directory; runs/<task>-<core|agent>-seed<seed> when None. With --seeds: a folder for all of them."""
    resume: bool = False
    """Continue the run in that directory, bit for bit. Settings that are not typed are those of its config.json."""
    start_from: Annotated[Path | None, arg(name="from")] = None
    """Run whose newest weights a new run begins with, or RUN/best for its best ones. Optimiser and counters are new."""
    log: tuple[Literal["csv", "tensorboard", "wandb"], ...] = ()
    """Who else gets the rows of metrics.csv, which is always written."""
    tensorboard: bool = False
    """The same as --log tensorboard."""
    trust: bool = False
    """Import the packages that a run's config.json names for its world or core: that runs their code."""

    def loggers(self) -> tuple[str, ...]:
        """Keys of the loggers."""
        return (*self.log, *(["tensorboard"] if self.tensorboard else []))
