"""Table of loggers that get the rows of metrics.csv, films and pages: ``LOGGERS``.

A logger is made from a run directory, the run's config and the step that training resumes from. It is called with every
row and closed at the end. A finished run's log is opened again for a film or a page: :func:`reopen_loggers`.
"""

import secrets
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any, ClassVar

from recollect.config import lookup, require
from recollect.runs.run_directory import RunPaths, RunRecord


class RunLogger(ABC):
    """Sends rows of metrics to another program.

    Args:
        run: directory of the run.
        config: its settings, as JSON data.
        step: of the checkpoint that training resumes from; 0 at the beginning; None adds to the log of a run that is
            not trained now.
    """

    package: ClassVar[str]
    """Package that has to be installed: its name for imports and for pip."""

    @abstractmethod
    def __init__(self, run: RunPaths, config: Mapping[str, Any], step: int | None) -> None:
        """Begin or continue the log."""

    @abstractmethod
    def __call__(self, step: int, metrics: Mapping[str, float]) -> None:
        """Write one row."""

    @abstractmethod
    def log_film(self, name: str, step: int, mp4: Path, gif: Path) -> None:
        """Write a film of the agent after this step."""

    @abstractmethod
    def log_page(self, name: str, step: int, page: Path, summary: str) -> None:
        """Write a page in HTML about the agent after this step, or where pages cannot be shown its summary."""

    @abstractmethod
    def close(self) -> None:
        """Write buffered rows."""


class TensorBoardLogger(RunLogger):
    """Writes ``tensorboard/`` in the run directory; rows of earlier processes after ``step`` are hidden."""

    package = "tensorboard"

    def __init__(self, run: RunPaths, config: Mapping[str, Any], step: int | None) -> None:
        from torch.utils.tensorboard import SummaryWriter

        self._writer = SummaryWriter(str(run.tensorboard), purge_step=step + 1 if step else None)

    def __call__(self, step: int, metrics: Mapping[str, float]) -> None:
        """Write one row."""
        for name, value in metrics.items():
            self._writer.add_scalar(name, value, step)

    def log_film(self, name: str, step: int, mp4: Path, gif: Path) -> None:
        """Write the GIF as it is; ``add_video`` would encode the frames again, and needs moviepy for that."""
        from tensorboard.compat.proto.summary_pb2 import Summary  # pyright: ignore[reportAttributeAccessIssue]

        writer = self._writer.file_writer
        assert writer is not None, "open until close()"
        image = Summary.Image(encoded_image_string=gif.read_bytes())
        writer.add_summary(Summary(value=[Summary.Value(tag=name, image=image)]), step)

    def log_page(self, name: str, step: int, page: Path, summary: str) -> None:
        """Write the summary and the path of the page."""
        self._writer.add_text(name, f"{summary}\n\n`{page}`", step)

    def close(self) -> None:
        """Write buffered rows."""
        self._writer.close()


class WandbLogger(RunLogger):
    """Sends rows to Weights & Biases, as a run that has the directory's name.

    A resumed run continues its log, which ``wandb-id.txt`` in its directory names.
    """

    package = "wandb"

    def __init__(self, run: RunPaths, config: Mapping[str, Any], step: int | None, project: str = "") -> None:
        import os

        import wandb  # pyright: ignore[reportMissingImports]

        self._wandb, file = wandb, run.path / "wandb-id.txt"
        kept = file.read_text().split("\n") if step != 0 and file.is_file() else [secrets.token_hex(4), ""]
        name, known = (*kept, "")[:2]  # older files have no project
        project = project or known or os.environ.get("WANDB_PROJECT", "recollect")
        file.write_text(f"{name}\n{project}")
        self._run = wandb.init(
            project=project,
            name=run.path.resolve().name,
            id=name,
            resume="allow",
            dir=str(run.path),
            config=dict(config),
        )

    def __call__(self, step: int, metrics: Mapping[str, float]) -> None:
        """Send one row of metrics to Weights & Biases."""
        self._run.log(dict(metrics), step=step)

    def log_film(self, name: str, step: int, mp4: Path, gif: Path) -> None:
        """Send an MP4 film to Weights & Biases."""
        self._run.log({name: self._wandb.Video(str(mp4), format="mp4"), f"{name}/step": step})

    def log_page(self, name: str, step: int, page: Path, summary: str) -> None:
        """Send the page, and the summary as text of the run."""
        self._run.log({name: self._wandb.Html(page.read_text(encoding="utf-8"), inject=False), f"{name}/step": step})
        self._run.summary[f"{name}/summary"] = summary

    def close(self) -> None:
        """Send buffered rows."""
        self._run.finish()


LOGGERS: dict[str, type[RunLogger] | None] = {"csv": None, "tensorboard": TensorBoardLogger, "wandb": WandbLogger}
"""``csv`` is metrics.csv, which is always written."""


def require_installed(name: str) -> None:
    """Check that the package of a logger is installed, before anything is written.

    Args:
        name: a key of :data:`LOGGERS`, or ``wandb:PROJECT``.

    Raises:
        ValueError: there is no such logger, or its package is missing.
    """
    logger, project = _find(name)
    require(not project or logger is WandbLogger, "log", name, "only wandb has projects: wandb:PROJECT")
    if logger is not None and find_spec(logger.package) is None:
        raise ValueError(
            f"log={name!r}: {logger.package} is not installed; run pip install {logger.package}, "
            "or leave it off (metrics.csv is always written)"
        )


def open_logger(name: str, run: RunPaths, config: Mapping[str, Any], step: int | None) -> RunLogger | None:
    """Make the logger of a key; None for metrics.csv, which needs none. See :func:`require_installed`."""
    logger, project = _find(name)
    if logger is None:
        return None
    return logger(run, config, step, **({"project": project} if project else {}))


def require_log(names: Sequence[str], directory: Path) -> None:
    """Check that films and pages of a run can be logged, before they are made.

    Raises:
        ValueError: as :func:`require_installed`; or no run directory, where a log could be continued.
    """
    for name in names:
        require_installed(name)
        trained = RunPaths(directory).metrics_file.is_file()
        require(trained, "log", name, f"{directory} is no run directory, and has no log: name the run")


@contextmanager
def reopen_loggers(names: Sequence[str], directory: Path) -> Iterator[list[RunLogger]]:
    """Open the logs of a run that is not trained now."""
    record = RunRecord(directory)
    opened = [open_logger(name, record, record.config, None) for name in dict.fromkeys(names)]
    with ExitStack() as stack:
        yield [stack.enter_context(closing(logger)) for logger in opened if logger is not None]


def _find(name: str) -> tuple[type[RunLogger] | None, str]:
    key, _, project = name.partition(":")
    return lookup(LOGGERS, key, "logger"), project
