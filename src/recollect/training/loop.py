"""The loop of all trainers: seed, steps, evaluation, reports, checkpoints, resume, interrupts.

A run that is killed at any moment and resumed ends with the same weights, bit for bit, as one that was never
interrupted (same machine, versions and number of threads): a checkpoint holds everything that the next step reads.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import replace
from os import PathLike
from pathlib import Path
from time import perf_counter, process_time
from typing import Any, Literal, NoReturn

from rich.console import Console

from recollect import learners, machine
from recollect.agents.saved_model import SavedModel
from recollect.config import from_json, require, to_json, upgrade_json
from recollect.ops.allocation import keep_freed_memory
from recollect.runs import checkpoints
from recollect.runs.checkpoints import Checkpoint
from recollect.runs.errors import OutOfMemoryError, RunError, StepError
from recollect.runs.interrupts import Interrupted, Interrupts, time_limited
from recollect.runs.loggers import open_logger, require_installed
from recollect.runs.metrics import Logger, MetricsFile
from recollect.runs.progress import Progress, expected_end, listen_to_progress
from recollect.runs.random_states import RandomStates, random_states, restore_random_states, seed_everything
from recollect.runs.run_directory import RunDirectory, RunPaths, RunRecord, changed_settings
from recollect.training.config import TrainerConfig
from recollect.training.outcome import Best, Outcome, Status
from recollect.training.trainer import below
from recollect.training.trainers import REGISTRY
from recollect.training.warm_start import Start, fit_weights, read_start


def fit(
    config: TrainerConfig,
    directory: str | PathLike[str],
    *,
    resume: bool = False,
    start_from: str | PathLike[str] | None = None,
    loggers: Sequence[Logger] = (),
    log: Sequence[str] = (),
    console: Console | None = None,
    hint: str | None = None,
) -> Outcome:
    """Train, and write a run directory that describes itself.

    Args:
        config: of the run.
        directory: new, or with ``resume`` one that holds a run of the same config; the settings in
            :data:`~recollect.runs.run_directory.FREE` may differ.
        resume: continue from the newest complete checkpoint (from the beginning when there is none yet).
        start_from: directory of another run whose newest weights a new run begins with, or ``RUN/best`` for those of
            its best evaluation. Optimiser and counters are new. A resumed run continues with its own weights.
        loggers: called as ``logger(step, metrics)`` with every row of metrics.csv.
        log: keys of :data:`~recollect.runs.loggers.LOGGERS` that also get the rows, or ``wandb:PROJECT``.
        console: where progress is shown; None shows nothing.
        hint: how to continue after an interrupt, for the message; None names ``--resume``.

    Raises:
        ValueError: the directory exists, or holds a run or checkpoint of another config; a logger is missing; the run
            that this one starts from has other shapes.
        RunError: the run had to stop (NaN, broken world, full disk); earlier checkpoints are intact.
    """
    for name in log:
        require_installed(name)
    with learners.join() as group, _lost_learners(Path(directory)):
        continues = resume and group.lead(lambda: _has_checkpoint(RunPaths(directory)))
        start = None if start_from is None or continues else group.lead(lambda: read_start(start_from))
        if group.rank:  # the first learner shows and logs the run
            console, loggers, log = None, (), ()
        return Fit(config, directory, resume, start, console).run(loggers, log, hint)


class Fit:
    """State of a run in one process; use :func:`fit`."""

    def __init__(
        self,
        config: TrainerConfig,
        directory: str | PathLike[str],
        resume: bool,
        start: Start | None,
        console: Console | None,
    ) -> None:
        self.config = config
        self.learners = learners.present()
        self.console = console
        self.description = to_json(config, REGISTRY)
        self.directory = RunDirectory(directory)
        if resume:
            self._require_steps_ahead()
        lead = self.learners.lead
        lead(lambda: self.directory.check(self.description, resume=resume, upgrade=_upgrade))
        seed_everything(config.fit.seed)
        keep_freed_memory()
        with _setup_errors(), self.learners.together():
            self.trainer = config.build()
            self.trainer.require_learners(self.learners.size)
        if self.learners.rank:  # all have drawn the same weights, and each draws its own dropout
            seed_everything(config.fit.seed, self.learners.rank)
        self.done = 0
        self.seconds = 0.0
        self.processor_seconds = 0.0  # of the steps alone
        self.status: Status | Literal["running"] = "running"
        self.evaluation: dict[str, float] = {}
        self.best: Best | None = None
        self.window: dict[str, list[float]] = {}  # name: [sum, count] since the last report
        self.reported = perf_counter()  # time of the last row of this process
        self.owes_report = False  # the newest step was done, but not its evaluation and report
        self.process = self.trained_by = 0  # entries of environment.json: of this process, of that of the newest step
        try:
            if start is not None:
                start = fit_weights(start, self.trainer.agent)
            if not (resume and lead(lambda: _has_checkpoint(self.directory))):
                with _setup_errors(), self.learners.together():
                    self.trainer.check_data()
            self.model_spec = config.model_spec
            # Nothing is written before trainer, world and data exist, so that wrong settings leave no directory behind.
            note = {} if start is None else start.note()
            note |= {"learners": self.learners.size} if self.learners.size > 1 else {}
            lead(lambda: self.directory.open(self.description, resume=resume, upgrade=_upgrade, note=note))
            self.process = len(lead(lambda: RunRecord(self.directory.path).processes)) - 1
            if not (resume and self._restore()):
                self._begin(start)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Release threads, worlds and the directory."""
        try:
            self.trainer.close()
        finally:
            self.directory.close()

    def run(self, loggers: Sequence[Logger], log: Sequence[str], hint: str | None = None) -> Outcome:
        """Train until the end, an interrupt or an error."""
        if self.status in ("finished", "solved"):
            self.close()
            remedy = "--stop-score None goes on" if self.status == "solved" else "more --steps go on"
            return self._outcome(f"nothing to do: {_message(self, None, hint)}; {remedy}")
        columns = ("seconds", *self.trainer.step_metrics, *self.trainer.evaluation_metrics)
        progress = Progress(self.console, self.config.title, self.config.fit.steps, self.done, self.trainer.shown)
        with closing(self), Interrupts() as interrupts, _logging(self, loggers, log) as listeners:
            with self._writing():
                file = self.learners.lead(lambda: MetricsFile(self.directory.metrics_file, columns, self.done))
            with progress:
                while self.status == "running":
                    self._turn(file, listeners, progress, interrupts)
        notice = f" ({self.trainer.notice})" if self.trainer.notice else ""
        return self._outcome(_message(self, interrupts.received or "a signal to another learner", hint) + notice)

    def _turn(self, file: MetricsFile, listeners: Sequence[Logger], progress: Progress, interrupts: Interrupts) -> None:
        """Take one step, and write the evaluation, row and checkpoints that are due after it."""
        settings, before = self.config.fit, self.best
        began = perf_counter()
        row = {}
        try:
            if not self.owes_report:
                self._step()
            if self._due(settings.evaluate_every):
                progress.evaluating()
                with listen_to_progress(progress.evaluated):
                    row = self._evaluate()
        except Interrupted:
            self.status = "interrupted"
            return
        self.owes_report = False
        self.seconds += perf_counter() - began
        planned = bool(row) or self._due(settings.report_every)
        if planned or self._silent_for(settings.report_seconds):
            row = {"seconds": round(self.seconds, 3)} | self._means() | row
            if planned:  # a row that is due by time does not change the means of the next one
                self.window = {}
            self.reported = perf_counter()
            if not self.learners.rank:
                with self._writing():
                    file.append(self.done, row)
            for logger in listeners:
                logger(self.done, row)
            end = expected_end(self.done, settings.steps, self.processor_seconds, settings.processor_seconds)
            progress.report(self.done, row, None if self.best is None else self.best.score, end)
        progress.advance(self.done)
        (received,) = self.learners.sum(float(interrupts.received is not None))
        if received and self.status == "running":
            self.status = "interrupted"
        if self.best != before:
            self._write(self.directory.best, 1)
        if self.status != "running" or self._due(settings.checkpoint_every):
            self.save()

    def save(self, states: RandomStates | None = None) -> None:
        """Write a checkpoint of model, trainer and progress."""
        self._write(self.directory.checkpoints, self.config.fit.keep_checkpoints, states)

    def _write(self, folder: Path, keep: int, states: RandomStates | None = None) -> None:
        states, *others = self.learners.gather(random_states() if states is None else states)
        tensors, data = self.trainer.save()
        progress = {
            "step": self.done,
            # An interrupted run continues when it is resumed.
            "status": "running" if self.status == "interrupted" else self.status,
            "seconds": self.seconds,
            "processor_seconds": self.processor_seconds,
            "evaluation": self.evaluation,
            "best": self.best,
            "window": self.window,
            "owes_report": self.owes_report,
            "trained_by": self.trained_by,
            "trainer": data,
            "random": states.data,
            "config": self.description,
        }
        if others:
            progress |= {"learners": self.learners.size, "others_random": [other.data for other in others]}
        training = {f"trainer.{k}": v for k, v in tensors.items()} | {
            f"{_random(rank)}{k}": v for rank, each in enumerate((states, *others)) for k, v in each.tensors.items()
        }

        def write() -> None:
            checkpoint = Checkpoint(self.trainer.agent.state_dict(), training, progress, self._describe_model())
            checkpoints.write(folder, checkpoint, keep)

        self.learners.lead(write)

    def _describe_model(self) -> dict[str, str]:
        """Return the files that make weights a model folder."""
        agent = self.trainer.agent
        if not isinstance(agent, SavedModel):
            return {}
        run = {"step": self.done, "seed": self.config.fit.seed, "evaluation": self.evaluation}
        run["config"] = self.description  # to score it again, and to play it, where its task is one of this library
        return agent.to_files(replace(self.model_spec, run=self._trained_by() | run))

    def _trained_by(self) -> dict[str, Any]:
        """Return the entry of environment.json of the process that took the last step."""
        return RunRecord(self.directory.path).processes[: self.trained_by + 1][-1]

    def _begin(self, start: Start | None) -> None:
        if start is not None:
            self.trainer.load_initial_weights(start.weights)
            self._print(f"starts with the weights of {start.path}, step {start.step}")
            return
        self.trainer.agree_on_weights()
        origin = self.learners.lead(lambda: RunRecord(self.directory.path).started_from)
        if origin is not None:
            raise ValueError(
                f"{self.directory.path} began with the weights of {origin['run']} and has no checkpoint yet: "
                "name that run again (--from)"
            )

    def _restore(self) -> bool:
        """Continue from the newest whole checkpoint; return False if there is none yet."""
        folder, read = self.directory.checkpoints, checkpoints.read_newest
        checkpoint, torn = self.learners.lead(lambda: read(self.directory.checkpoints))
        for line in torn:
            self._print(line)
        if checkpoint is None:
            folder = self.directory.best
            checkpoint, _ = self.learners.lead(lambda: read(self.directory.best))
            if checkpoint is None:
                self._print(checkpoints.NONE_LEFT if torn else "")
                return False
            self._print(f"continues from the best evaluation, at step {checkpoint.progress['step']}")
        progress = checkpoint.progress
        with checkpoints.mismatch_errors(folder, progress["step"]):
            changed = changed_settings(_upgrade(progress["config"]), self.description)
        if changed:
            raise ValueError(
                f"the checkpoint of step {progress['step']} in {folder} belongs to another "
                f"config: {'; '.join(changed)}. Resume with its settings, or choose another directory"
            )
        with checkpoints.mismatch_errors(folder, progress["step"]):
            self.trainer.agent.load_state_dict(dict(checkpoint.weights))
            self.trainer.load(below("trainer.", checkpoint.training), progress["trainer"])
            self.done, self.seconds = progress["step"], progress["seconds"]
            self.status, self.evaluation, self.window = progress["status"], progress["evaluation"], progress["window"]
            # Older checkpoints lack these.
            self.processor_seconds = progress.get("processor_seconds", 0.0)
            self.owes_report = progress.get("owes_report", False)
            self.trained_by = progress.get("trained_by", 0)
            self._restore_random_states(checkpoint)
        best, _ = self.learners.lead(lambda: read(self.directory.best))
        if best is not None:
            with checkpoints.mismatch_errors(self.directory.best, best.progress["step"]):
                # Of a later step if the run was killed before its next checkpoint: with these settings it comes again.
                if best.progress["step"] <= self.done or _upgrade(best.progress["config"]) == self.description:
                    self.best = Best(*best.progress["best"])
        self._print(self.trainer.notice)
        self._continue(from_json(_upgrade(progress["config"]), TrainerConfig, REGISTRY))
        return True

    def _restore_random_states(self, checkpoint: Checkpoint) -> None:
        rank, progress = self.learners.rank, checkpoint.progress
        before, now = progress.get("learners", 1), self.learners.size
        if before != now:
            self._print(f"this run had {_count(before)}, and now has {_count(now)}: it does not continue bit for bit")
        data = [progress["random"], *progress.get("others_random", ())]
        if rank < len(data):
            restore_random_states(below(_random(rank), checkpoint.training), data[rank])

    def _continue(self, before: TrainerConfig) -> None:
        """Let a run that had ended run again, if it now has more steps or a higher goal."""
        settings = self.config.fit
        if self.status == "running" and self._is_last():
            self.owes_report = True  # it was planned longer, and only the end has to be scored and reported
        if self.done < settings.steps and self.status != "running" and not self._reached() and not self._spent():
            self.status = "running"
        if self.status == "running":
            for line in self.config.moved_schedules(before, self.done):
                self._print(line)

    def _require_steps_ahead(self) -> None:
        done = max(self.learners.lead(lambda: checkpoints.steps(self.directory.checkpoints)), default=0)
        steps = self.config.fit.steps
        require(
            steps >= done, "fit.steps", steps, f"{self.directory.path} is at step {done} already: give at least that"
        )

    def _reached(self) -> bool:
        goal = self.config.fit.stop_score
        return goal is not None and bool(self.evaluation) and self.evaluation["score"] >= goal

    def _spent(self) -> bool:
        limit = self.config.fit.processor_seconds
        return limit is not None and self.processor_seconds >= limit

    def _silent_for(self, seconds: float | None) -> bool:
        return seconds is not None and perf_counter() - self.reported >= seconds

    def _print(self, line: str) -> None:
        if self.console is not None and line:
            self.console.print(line, style="yellow", highlight=False, soft_wrap=True, markup=False)

    def _due(self, every: int) -> bool:
        return self.done % every == 0 or self._is_last()

    def _is_last(self) -> bool:
        return self.done == self.config.fit.steps or self._spent()

    def _evaluate(self) -> dict[str, float]:
        before = random_states()

        def evaluate() -> dict[str, float]:
            with time_limited(math.inf, patience=0.0):
                return self.trainer.evaluate()

        try:
            self.evaluation = self.learners.lead(evaluate)
        except Interrupted:
            self.save(before)
            raise
        except StepError as error:
            self._stop(error, f"after step {self.done}", before)
        score = self.evaluation["score"]
        if not math.isnan(score) and (self.best is None or score >= self.best.score):
            self.best = Best(score, self.done)
        if self._reached():
            self.status = "solved"
        elif self._is_last():
            self.status = "finished"
        return dict(self.evaluation)

    def _gather(self, metrics: Mapping[str, float]) -> None:
        for name, value in metrics.items():
            # Means over the episodes of a step are weighted by the number of episodes.
            weight = metrics.get("episodes", 1) if name.startswith("episode_") else 1
            total = self.window.setdefault(name, [0.0, 0])
            if name in self.trainer.counters:
                total[:] = 0.0, 0
            total[0] += weight * value
            total[1] += weight

    def _means(self) -> dict[str, float]:
        return {name: total / count for name, (total, count) in self.window.items()}

    def _step(self) -> None:
        before, began = random_states(), process_time()
        try:
            metrics = self.trainer.step()
        except Interrupted:
            if self.done:
                self.save(before)
            raise
        except StepError as error:
            # The trainer changed nothing, so the checkpoint is that of the end of the previous step.
            self._stop(error, f"at step {self.done + 1}", before)
        except (RuntimeError, MemoryError, OverflowError, TypeError) as error:
            reason = machine.describe_out_of_memory(error)
            if reason is None or self.learners.size > 1:  # the others know nothing of it, and cannot be saved
                raise
            self._stop(OutOfMemoryError(reason), f"at step {self.done + 1}", before)
        self.processor_seconds += self.learners.sum(process_time() - began)[0]
        self.done += 1
        self.trained_by = self.process
        self.owes_report = True
        self._gather(metrics)

    def _stop(self, error: StepError, when: str, before: RandomStates) -> NoReturn:
        saved = f"step {self.done} is saved in {self.directory.checkpoints}" if self.done else "nothing to save yet"
        if self.done:
            self.save(before)
        else:
            self.learners.lead(self.directory.remove_if_new)
        raise type(error)(f"{error} {when}: stopped, {saved}. {error.advice()}") from (error.__cause__ or error)

    @contextmanager
    def _writing(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise RunError(
                f"could not write to {self.directory.path} at step {self.done}: {error.strerror or error}; "
                f"{checkpoints.describe_newest(self.directory.checkpoints)}. "
                "Make room or make the folder writable, then resume"
            ) from error

    def _outcome(self, message: str) -> Outcome:
        assert self.status != "running"
        return Outcome(
            self.status,
            self.done,
            self.seconds,
            self.processor_seconds,
            self.evaluation,
            self.best,
            self.directory,
            self.trainer.agent,
            message,
            self.learners.lead(self._trained_by),
        )


@contextmanager
def _lost_learners(directory: Path) -> Iterator[None]:
    """Name the newest checkpoint in the error of a block that lost another learner."""
    try:
        yield
    except learners.LearnerLostError as error:
        newest = checkpoints.describe_newest(RunPaths(directory).checkpoints)
        raise RunError(f"{error}: stopped, {newest}. Start all of them again with --resume") from error


def _random(rank: int) -> str:
    """Return the prefix of a learner's random states in a checkpoint."""
    return f"learner{rank}.random." if rank else "random."


def _count(size: int) -> str:
    return "one learner" if size == 1 else f"{size} learners"


@contextmanager
def _setup_errors() -> Iterator[None]:
    """Add to errors of a block that nothing was written yet."""
    try:
        yield
    except StepError as error:
        remedy = error.advice(then="type the command again")
        raise type(error)(f"{error}: the run did not start, and nothing was written. {remedy}") from error
    except (RuntimeError, MemoryError, OverflowError, TypeError) as error:
        reason = machine.describe_out_of_memory(error)
        if reason is None:
            raise
        raise ValueError(f"{reason}: make the sizes of the run smaller. Nothing was written") from error


def _has_checkpoint(directory: RunPaths) -> bool:
    return any(checkpoints.newest(folder)[0] is not None for folder in (directory.checkpoints, directory.best))


def _upgrade(config: Mapping[str, Any]) -> dict[str, Any]:
    return upgrade_json(config, TrainerConfig, REGISTRY)


@contextmanager
def _logging(run: Fit, loggers: Sequence[Logger], log: Sequence[str]) -> Iterator[list[Logger]]:
    with ExitStack() as stack:
        opened = [open_logger(name, run.directory, run.description, run.done) for name in dict.fromkeys(log)]
        yield [*loggers, *(stack.enter_context(closing(logger)) for logger in opened if logger is not None)]


def _message(run: Fit, signal_name: str | None, hint: str | None) -> str:
    if run.status == "interrupted" and not run.done:
        hint = hint or "the same command with --resume starts again"
        return f"{signal_name} before the first step: nothing to save yet; {hint}"
    if run.status == "interrupted":
        hint = hint or "the same command with --resume continues from there"
        return f"{signal_name} at step {run.done}: saved in {run.directory.checkpoints}; {hint}"
    score, fit = run.evaluation["score"], run.config.fit
    best = "" if run.best is None else f"; best {run.best.score:.4f} at step {run.best.step}"
    if run.status == "solved":
        return f"reached score {score:.4f} (fit.stop_score={fit.stop_score}) at step {run.done} of {fit.steps}{best}"
    limit = f"; fit.processor_seconds={fit.processor_seconds} ended it before step {fit.steps}"
    return f"finished {run.done} steps with score {score:.4f}{best}{limit if run.done < fit.steps else ''}"
