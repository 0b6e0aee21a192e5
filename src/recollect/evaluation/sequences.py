"""Evaluation of sequence models: the share of asked steps that are answered correctly, or of variance explained.

Rows are the independent units: the interval is the percentile bootstrap over rows (Efron, 1979), 95 %.
"""

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from recollect.agents.normalization import Standardization
from recollect.agents.sequence_model import SequenceModel
from recollect.config import require
from recollect.evaluation.confidence_interval import confidence_interval
from recollect.evaluation.predictions import PredictionLog, Predictions
from recollect.evaluation.score import Score
from recollect.objectives.answers import answer_loss, answer_score
from recollect.runs.progress import ProgressReporter
from recollect.tasks.streams.contract import Batch, StreamTask

METRICS = ("score", "low", "high", "perfect")


@dataclass(frozen=True, kw_only=True)
class Evaluation(Score):
    """Evaluation of a model on fresh rows of a task."""

    perfect: float
    """Share of rows without a mistake, of rows with questions; NaN where answers are values."""
    loss: float
    """Mean negative log-likelihood of a scored step, in nats, or its mean squared error."""
    correct: list[float]
    """Right answers in each row, or the sum of its scores (objectives/answers.py)."""
    asked: list[int]
    """Questions in each row."""
    predictions: Predictions | None = field(default=None, compare=False, repr=False)
    """Every answer beside the right one; None where they were not kept."""

    def metrics(self) -> dict[str, float]:
        """Return the numbers of a row of metrics.csv."""
        return {name: getattr(self, name) for name in METRICS}

    def to_json(self) -> dict[str, Any]:
        """Return all numbers but those of single rows."""
        return {**self.metrics(), "chance": self.chance, "loss": self.loss, "rows": len(self.asked)}

    def by_row(self) -> tuple[list[float], list[int]]:
        """Return right answers and questions of each row."""
        return list(self.correct), self.asked

    def describe(self) -> str:
        """Describe the evaluation in one line."""
        chance = "" if math.isnan(self.chance) else f", chance {self.chance:.4f}"
        perfect = "" if math.isnan(self.perfect) else f", rows without a mistake {self.perfect:.1%}"
        return f"score {self.score:.4f} ({self.interval()}{len(self.asked)} rows){perfect}{chance}"


def evaluate(
    model: SequenceModel,
    task: StreamTask,
    *,
    num_rows: int = 512,
    batch_size: int = 64,
    seed: int = 0,
    unroll: int | None = None,
    bfloat16: bool = False,
) -> Evaluation:
    """Score a model on fresh rows.

    Args:
        model: on any device; its mode is restored afterwards.
        task: of the rows.
        num_rows: most rows.
        batch_size: rows per call.
        seed: of the rows; global generators are not used.
        unroll: steps per call, with the memory carried; None takes whole rows. The numbers are the same.
        bfloat16: use autocast.

    Raises:
        ValueError: fewer than one row, or no row has a question.
    """

    def answer(batch: Batch) -> Tensor:
        state: Any = model.initial_state(batch.inputs.shape[0])
        cuts = []
        for begin in range(0, batch.inputs.shape[1], unroll or batch.inputs.shape[1]):
            part = batch.steps(begin, begin + (unroll or batch.inputs.shape[1]))
            logits, state = model(part.inputs, state, part.is_first, part.padding, standardized=True)
            cuts.append(logits.float())
        return torch.cat(cuts, 1)

    return score_answers(model, answer, task, num_rows=num_rows, batch_size=batch_size, seed=seed, bfloat16=bfloat16)


@torch.no_grad()
def score_answers(
    model: nn.Module,
    answer: Callable[[Batch], Tensor],
    task: StreamTask,
    *,
    num_rows: int,
    batch_size: int,
    seed: int,
    bfloat16: bool = False,
) -> Evaluation:
    """Score the function ``answer``, which maps a batch on the model's device to logits ``[b, t, k]``.

    Values are in standard deviations of the model's own training data, where it has a ``target_norm``.

    Raises:
        ValueError: fewer than one row, or no row has a question.
    """
    require(num_rows >= 1, "num_rows", num_rows, "evaluate on at least one row")
    device = next(model.parameters()).device
    generator = torch.Generator().manual_seed(seed)
    right, asked, losses, values, log = [], [], [], False, PredictionLog()
    compared = _TargetScale(model, task)
    count = ProgressReporter(num_rows, "rows")
    with eval_mode(model):
        for drawn in task.batches(num_rows, batch_size, generator):
            count.update(lambda: sum(map(len, asked)))
            batch = drawn.to(device)
            with torch.autocast(device.type, torch.bfloat16, enabled=bfloat16):
                logits = answer(batch)
            log.add(compared.in_units(logits.float()), batch.targets, batch.score_mask)
            logits, targets = compared(logits.float(), batch.targets)
            right.append(answer_score(logits, targets, batch.score_mask).double().sum(1))
            asked.append(batch.score_mask.sum(1))
            values = targets.is_floating_point()
            losses.append(answer_loss(logits, targets, batch.score_mask) * batch.score_mask.sum())
    require_questions(any(bool(row.any()) for row in asked), task, sum(map(len, asked)))
    n_right, n_asked = torch.cat(right).cpu().numpy(), torch.cat(asked).cpu().numpy()
    low, high = confidence_interval(n_right, n_asked)
    return Evaluation(
        score=float(n_right.sum() / n_asked.sum()),
        low=low,
        high=high,
        perfect=float("nan") if values else float((n_right == n_asked)[n_asked > 0].mean()),
        loss=float(torch.stack(losses).sum() / n_asked.sum()),
        chance=task.spec.chance,
        correct=(n_right if values else n_right.astype(int)).tolist(),
        asked=n_asked.tolist(),
        predictions=log.finish(*task.name_rows(len(n_asked)), task.model_names()),
    )


class _TargetScale:
    """Answers and targets in standard deviations of the task's values, which loss and score are defined by.

    The model may have been trained on values of another scale than those of the task that scores it.
    """

    def __init__(self, model: nn.Module, task: StreamTask) -> None:
        self.own: Standardization | None = getattr(model, "target_norm", None)
        scale = task.spec.target_scale
        self.task = None if scale is None else Standardization(scale).to(next(model.parameters()).device)

    def in_units(self, answers: Tensor) -> Tensor:
        """Return answers in the units of the data."""
        return answers if self.own is None else self.own.invert(answers)

    def __call__(self, answers: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        if self.own is None and self.task is None:
            return answers, targets
        if self.own is None:
            assert self.task is not None
            return self.task(answers, torch.float32), self.task(targets, torch.float32)
        # 1 where the scales are equal, so that the numbers are exactly those of training
        factor = self.own.std / (1.0 if self.task is None else self.task.std)
        return answers * factor.float(), self.own(targets, torch.float32) * factor.float()


@contextmanager
def eval_mode(model: nn.Module) -> Iterator[None]:
    """Put a model in ``eval`` mode, and restore the mode of each of its modules afterwards."""
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        yield
    finally:
        for module, training in modes:
            module.training = training


def require_questions(there_are: bool, task: StreamTask, num_rows: int) -> None:
    """Raise ``ValueError`` where no row of an evaluation has a question; names the task and the part."""
    if not there_are:
        part = getattr(task, "part", None)
        which = type(task).__name__ if part is None else f"{type(task).__name__}, part={part!r}"
        raise ValueError(
            f"task={which}: none of the {num_rows} rows of an evaluation has a question: give rows with questions, or "
            "more of them (evaluation_rows)"
        )
