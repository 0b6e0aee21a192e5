"""Flags of ``recollect train`` that are not settings of the run."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal


@dataclass(frozen=True)
class TrainOptions:
    """Directory, first weights and loggers of a run."""

    directory: Path | None = None
    """Run directory; runs/<task>-<core|agent>-seed<seed> when None. With --seeds: a folder for all of them."""
    resume: bool = False
    """Continue the run in that directory, bit for bit. Settings that are not given are those of its config.json."""
    start_from: Path | None = None
    """Run whose newest weights the new run begins with; RUN/best for its best ones. Optimiser and counters are new."""
    log: tuple[Literal["csv", "tensorboard", "wandb"], ...] = ()
    """Other loggers for the rows of metrics.csv, which is always written."""
    wandb_project: str | None = None
    """Project of Weights & Biases; it brings --log wandb. recollect, or the value of WANDB_PROJECT, when None."""
    tensorboard: bool = False
    """The same as --log tensorboard."""
    trust: bool = False
    """Import the packages that a run's config.json names for its world or core: that runs their code."""

    def loggers(self) -> tuple[str, ...]:
        """Return the keys of the loggers."""
        names = [*self.log, *(["tensorboard"] if self.tensorboard else [])]
        if self.wandb_project is None:
            return tuple(names)
        return (*(name for name in names if name != "wandb"), f"wandb:{self.wandb_project}")
