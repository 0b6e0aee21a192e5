"""The loop that drives every trainer: seed, steps, evaluation, reports, checkpoints, resume, interrupts.

A trainer says what one step is; ``fit`` does the rest. A run that is killed at any moment and resumed ends with
the same weights, bit for bit, as one that was left alone (same machine, versions and number of threads): a
checkpoint holds everything that the next step reads.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from os import PathLike
from time import perf_counter
from typing import Any, Literal, NamedTuple

from rich.console import Console
from torch import nn

from recollect.config import renew, to_json
from recollect.ops.allocation import keep_freed_memory
from recollect.runs import checkpoints
from recollect.runs.checkpoints import Checkpoint, RunError
from recollect.runs.interrupts import Interrupts
from recollect.runs.metrics import Logger, MetricsFile, TensorBoardLogger
from recollect.runs.progress import Progress
from recollect.runs.random_states import RandomStates, random_states, restore_random_states, seed_everything
from recollect.runs.run_directory import RunDirectory, changes
from recollect.training.frame import StepError, TrainerConfig, below
from recollect.training.trainers import KINDS

Status = Literal["finished", "solved", "interrupted"]


class Outcome(NamedTuple):
    """How a run ended."""

    status: Status
    """All steps done; ``stop_score`` reached; or stopped by Ctrl-C or SIGTERM, and saved."""
    step: int
    """Steps done."""
    seconds: float
    """Time spent in training and evaluation, over all processes of the run."""
    evaluation: dict[str, float]
    """Metrics of the newest evaluation; empty before the first."""
    directory: RunDirectory
    """Where it all is."""
    agent: nn.Module
    """The agent, with its weights."""
    message: str
    """One sentence for a person."""


def fit(
    config: TrainerConfig,
    directory: str | PathLike[str],
    *,
    resume: bool = False,
    loggers: Sequence[Logger] = (),
    tensorboard: bool = False,
    console: Console | None = None,
) -> Outcome:
    """Train, and leave a run directory that describes itself.

    Args:
        config: of the run.
        directory: new, or with ``resume`` one that holds a run of the same config.
        resume: continue from the newest complete checkpoint (from the beginning when there is none yet).
        loggers: called as ``logger(step, metrics)`` with every row of metrics.csv.
        tensorboard: also write for TensorBoard.
        console: where progress is shown; None is silent.

    Raises:
        ValueError: the directory exists, or holds a run or checkpoint of another config; tensorboard is missing.
        RunError: the run had to stop (NaN, broken world, full disk); what was saved before stands.
    """
    return Fit(config, directory, resume, console).run(loggers, tensorboard)


class Fit:
    """One process's share of a run. Use :func:`fit`."""

    def __init__(
        self, config: TrainerConfig, directory: str | PathLike[str], resume: bool, console: Console | None
    ) -> None:
        self.config = config
        self.console = console
        self.description = to_json(config, KINDS)
        self.directory = RunDirectory(directory)
        self.directory.open(self.description, resume=resume, renew=_renew)
        seed_everything(config.fit.seed)
        keep_freed_memory()
        self.trainer = config.build()
        self.done = 0
        self.seconds = 0.0
        self.status: Status | Literal["running"] = "running"
        self.evaluation: dict[str, float] = {}
        self.window: dict[str, list[float]] = {}  # name: [sum, count] since the last report
        if resume:
            self._restore()

    def run(self, loggers: Sequence[Logger], tensorboard: bool) -> Outcome:
        """Train until the end, an interrupt or an error."""
        settings, trainer = self.config.fit, self.trainer
        if self.status in ("finished", "solved"):
            trainer.close()
            return self._outcome(f"nothing to do: this run ended at step {self.done}")
        columns = ("seconds", *trainer.step_metrics, *trainer.evaluation_metrics)
        with closing(trainer), Interrupts() as interrupts, _logging(self, loggers, tensorboard) as log:
            with self._writing():
                file = MetricsFile(self.directory.metrics, columns, self.done)
            with Progress(self.console, self.config.title, settings.steps, self.done) as progress:
                while self.status == "running":
                    began = perf_counter()
                    metrics = self._step()
                    self.done += 1
                    self._gather(metrics)
                    row = self._evaluate() if self._due(settings.evaluate_every) else {}
                    self.seconds += perf_counter() - began
                    if row or self._due(settings.report_every):
                        row = {"seconds": round(self.seconds, 3)} | self._means() | row
                        with self._writing():
                            file.append(self.done, row)
                        for logger in log:
                            logger(self.done, row)
                        progress.report(self.done, row)
                    progress.advance(self.done)
                    if interrupts.received and self.status == "running":
                        self.status = "interrupted"
                    if self.status != "running" or self._due(settings.checkpoint_every):
                        self.save()
        notice = f" ({trainer.notice})" if trainer.notice else ""
        return self._outcome(_message(self, interrupts.received) + notice)

    def save(self, states: RandomStates | None = None) -> None:
        """Write a checkpoint of this moment."""
        states = random_states() if states is None else states
        tensors, data = self.trainer.save()
        progress = {
            "step": self.done,
            # An interrupted run goes on when it is resumed.
            "status": "running" if self.status == "interrupted" else self.status,
            "seconds": self.seconds,
            "evaluation": self.evaluation,
            "window": self.window,
            "trainer": data,
            "random": states.data,
            "config": self.description,
        }
        training = {f"trainer.{k}": v for k, v in tensors.items()} | {
            f"random.{k}": v for k, v in states.tensors.items()
        }
        checkpoint = Checkpoint(self.trainer.agent.state_dict(), training, progress)
        checkpoints.write(self.directory.checkpoints, checkpoint, self.config.fit.keep_checkpoints)

    def _restore(self) -> None:
        checkpoint, torn = checkpoints.read_newest(self.directory.checkpoints)
        if self.console is not None:
            for line in torn:
                self.console.print(f"[yellow]{line}[/yellow]", highlight=False, soft_wrap=True)
        if checkpoint is None:
            return
        progress = checkpoint.progress
        changed = changes(_renew(progress["config"]), self.description)
        if changed:
            raise ValueError(
                f"the checkpoint of step {progress['step']} in {self.directory.checkpoints} belongs to another "
                f"config: {'; '.join(changed)}. Resume with its settings, or choose another directory"
            )
        self.trainer.agent.load_state_dict(dict(checkpoint.weights))
        self.trainer.load(below("trainer.", checkpoint.training), progress["trainer"])
        self.done, self.seconds = progress["step"], progress["seconds"]
        self.status, self.evaluation, self.window = progress["status"], progress["evaluation"], progress["window"]
        restore_random_states(below("random.", checkpoint.training), progress["random"])
        if self.console is not None and self.trainer.notice:
            self.console.print(f"[yellow]{self.trainer.notice}[/yellow]", highlight=False, soft_wrap=True)

    def _due(self, every: int) -> bool:
        return self.done % every == 0 or self.done == self.config.fit.steps

    def _evaluate(self) -> dict[str, float]:
        self.evaluation = self.trainer.evaluate()
        goal = self.config.fit.stop_score
        if goal is not None and self.evaluation["score"] >= goal:
            self.status = "solved"
        elif self.done == self.config.fit.steps:
            self.status = "finished"
        return dict(self.evaluation)

    def _gather(self, metrics: Mapping[str, float]) -> None:
        for name, value in metrics.items():
            total = self.window.setdefault(name, [0.0, 0])
            if name in self.trainer.counters:
                total[:] = 0.0, 0
            total[0] += value
            total[1] += 1

    def _means(self) -> dict[str, float]:
        means = {name: total / count for name, (total, count) in self.window.items()}
        self.window = {}
        return means

    def _step(self) -> dict[str, float]:
        before = random_states()
        try:
            return self.trainer.step()
        except StepError as error:
            # The trainer changed nothing, so what is saved is the end of the step before.
            if self.done:
                self.save(before)
            saved = f"step {self.done} is saved in {self.directory.checkpoints}" if self.done else "nothing to save yet"
            remedy = error.remedy[0].upper() + error.remedy[1:]
            message = f"{error} at step {self.done + 1}: stopped, {saved}. {remedy}"
            raise type(error)(message) from error.__cause__

    @contextmanager
    def _writing(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            standing = checkpoints.steps(self.directory.checkpoints)
            left = f"the checkpoint of step {standing[-1]} stands" if standing else "no checkpoint stands yet"
            raise RunError(
                f"could not write to {self.directory.path} at step {self.done}: {error.strerror or error}; {left}. "
                "Make room or make the folder writable, then resume"
            ) from error

    def _outcome(self, message: str) -> Outcome:
        assert self.status != "running"
        return Outcome(
            self.status, self.done, self.seconds, self.evaluation, self.directory, self.trainer.agent, message
        )


def _renew(config: Mapping[str, Any]) -> dict[str, Any]:
    return renew(config, TrainerConfig, KINDS)


@contextmanager
def _logging(run: Fit, loggers: Sequence[Logger], tensorboard: bool) -> Iterator[list[Logger]]:
    if not tensorboard:
        yield list(loggers)
        return
    board = TensorBoardLogger(run.directory.tensorboard, run.done)
    try:
        yield [*loggers, board]
    finally:
        board.close()


def _message(run: Fit, signal_name: str | None) -> str:
    if run.status == "interrupted":
        return (
            f"{signal_name} at step {run.done}: saved in {run.directory.checkpoints}; "
            "the same command with --resume goes on from there"
        )
    score = run.evaluation["score"]
    if run.status == "solved":
        return f"reached score {score:.4f} at step {run.done} of {run.config.fit.steps}"
    return f"finished {run.done} steps with score {score:.4f}"
