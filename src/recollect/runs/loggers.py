"""Table of loggers that get the rows of metrics.csv: ``LOGGERS``.

A logger is made from a run directory, the run's config and the step that the run resumes from. It is called with every
row and closed at the end.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from importlib.util import find_spec
from typing import Any, ClassVar

from recollect.config import lookup
from recollect.runs.run_directory import RunPaths


class RunLogger(ABC):
    """Sends rows of metrics to another program.

    Args:
        run: directory of the run.
        config: its settings, as JSON data.
        step: of the checkpoint that the run resumes from; 0 at the beginning.
    """

    package: ClassVar[str]
    """Package that has to be installed: its name for imports and for pip."""

    @abstractmethod
    def __init__(self, run: RunPaths, config: Mapping[str, Any], step: int) -> None:
        """Begin or continue the log."""

    @abstractmethod
    def __call__(self, step: int, metrics: Mapping[str, float]) -> None:
        """Write one row."""

    @abstractmethod
    def close(self) -> None:
        """Write buffered rows."""


class TensorBoardLogger(RunLogger):
    """Writes ``tensorboard/`` in the run directory; rows of earlier processes after ``step`` are hidden."""

    package = "tensorboard"

    def __init__(self, run: RunPaths, config: Mapping[str, Any], step: int) -> None:
        from torch.utils.tensorboard import SummaryWriter

        self._writer = SummaryWriter(str(run.tensorboard), purge_step=step + 1 if step else None)

    def __call__(self, step: int, metrics: Mapping[str, float]) -> None:
        """Write one row."""
        for name, value in metrics.items():
            self._writer.add_scalar(name, value, step)

    def close(self) -> None:
        """Write buffered rows."""
        self._writer.close()


class WandbLogger(RunLogger):
    """Sends rows to Weights & Biases, as a run that has the directory's name.

    The project is ``recollect``, or the value of WANDB_PROJECT; a resumed run continues its log.
    """

    package = "wandb"

    def __init__(self, run: RunPaths, config: Mapping[str, Any], step: int) -> None:
        import os

        import wandb  # pyright: ignore[reportMissingImports]

        kept = run.path / "wandb-id.txt"
        name = kept.read_text() if step and kept.is_file() else wandb.util.generate_id()
        kept.write_text(name)
        self._run = wandb.init(
            project=os.environ.get("WANDB_PROJECT", "recollect"),
            name=run.path.resolve().name,
            id=name,
            resume="allow",
            dir=str(run.path),
            config=dict(config),
        )

    def __call__(self, step: int, metrics: Mapping[str, float]) -> None:
        """Send one row."""
        self._run.log(dict(metrics), step=step)

    def close(self) -> None:
        """Send buffered rows."""
        self._run.finish()


LOGGERS: dict[str, type[RunLogger] | None] = {"csv": None, "tensorboard": TensorBoardLogger, "wandb": WandbLogger}
"""``csv`` is metrics.csv, which is always written."""


def require_installed(name: str) -> None:
    """Check that the package of a logger is installed, before anything is written.

    Raises:
        ValueError: there is no such logger, or its package is missing.
    """
    logger = lookup(LOGGERS, name, "logger")
    if logger is not None and find_spec(logger.package) is None:
        raise ValueError(
            f"log={name!r}: {logger.package} is not installed; run pip install {logger.package}, "
            "or leave it off (metrics.csv is always written)"
        )


def open_logger(name: str, run: RunPaths, config: Mapping[str, Any], step: int) -> RunLogger | None:
    """Make the logger of a key; None for metrics.csv, which needs none."""
    logger = lookup(LOGGERS, name, "logger")
    return None if logger is None else logger(run, config, step)
