"""Result of a run."""

from typing import Any, Literal, NamedTuple

from torch import nn

from recollect.runs.run_directory import RunDirectory

Status = Literal["finished", "solved", "interrupted"]


class Best(NamedTuple):
    """The best evaluation so far; of equal ones the newest."""

    score: float
    """Its score."""
    step: int
    """Steps before it."""


class Outcome(NamedTuple):
    """What a run reached, and why it ended."""

    status: Status
    """All steps are done, or ``processor_seconds`` are used up; ``stop_score`` was reached; or a signal (Ctrl-C,
    SIGTERM, SIGHUP) stopped it, and it was saved."""
    step: int
    """Steps done."""
    seconds: float
    """Time spent in training and evaluation, over all processes of the run."""
    processor_seconds: float
    """Processor time of the steps, all threads together, over all processes of the run; unlike ``seconds`` it does not
    depend on other programs."""
    evaluation: dict[str, float]
    """Metrics of the newest evaluation; empty before the first."""
    best: Best | None
    """The best evaluation, whose checkpoint is kept; None before the first."""
    directory: RunDirectory
    """Its run directory."""
    agent: nn.Module
    """The agent, with its weights."""
    message: str
    """One sentence for the user."""
    trained_by: dict[str, Any]
    """Entry of environment.json of the process that took the last step; an earlier one if all steps were done."""
