"""Mean average precision of activities, frame by frame.

    AP_k = mean over the frames with activity k of the precision at their rank            frames sorted by score
    mAP = mean over activities;   weighted mAP = mean weighted by the number of frames with each

The protocol of Charades (``charades_v1_localize``): 25 frames of every video, evenly spaced from its beginning, all
of them in one list; a loader marks them in ``score_mask``. Activities that no frame has are ignored.

Interval: mAP is no mean over videos, so the bootstrap resamples jackknife pseudo-values ``n mAP - (n - 1) mAP without
group i`` of n groups of videos.

Source: Sigurdsson et al. 2016 (Charades) and its evaluation code, which is adapted from THUMOS'15; Efron and Stein
1981 for the pseudo-values.
"""

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from recollect.agents.activity_detector import ActivityDetector
from recollect.config import require
from recollect.evaluation.confidence_interval import confidence_interval
from recollect.evaluation.score import Score
from recollect.evaluation.sequences import eval_mode
from recollect.objectives.detection import detection_loss
from recollect.runs.progress import ProgressReporter
from recollect.tasks.videos.contract import VideoTask

METRICS = ("score", "low", "high", "weighted")
GROUPS = 32  # groups of videos, at most, of the jackknife


@dataclass(frozen=True, kw_only=True)
class DetectionScore(Score):
    """Evaluation of a detector on fresh videos of a task; ``score`` is the mAP."""

    weighted: float
    """mAP weighted by the number of frames with each activity."""
    loss: float
    """Mean over videos of the sigmoid cross-entropy of a scored frame and activity, in nats."""
    by_class: dict[str, float] = field(default_factory=dict)
    """Average precision of every activity that some frame has."""
    pseudo_values: list[float]
    """Jackknife pseudo-values, one per group of videos."""
    videos: int
    """Number of scored videos."""

    def metrics(self) -> dict[str, float]:
        """Return the numbers of a row of metrics.csv."""
        return {name: getattr(self, name) for name in METRICS}

    def to_json(self) -> dict[str, Any]:
        """Return all numbers but those of single groups."""
        rest = {"chance": self.chance, "loss": self.loss, "videos": self.videos, "by_class": self.by_class}
        return {**self.metrics(), **rest}

    def by_row(self) -> tuple[list[float], list[int]]:
        """Return the pseudo-values of groups of videos, each counted once."""
        return list(self.pseudo_values), [1] * len(self.pseudo_values)

    def describe(self) -> str:
        """Describe the evaluation in one line."""
        chance = "" if math.isnan(self.chance) else f", chance {self.chance:.4f}"
        return f"mAP {self.score:.4f} ({self.interval()}{self.videos} videos), weighted {self.weighted:.4f}{chance}"


def average_precision(scores: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Compute the average precision of every activity, float64 ``[k]``; NaN where no frame has it.

    Args:
        scores: float ``[n, k]``; of equal ones the earlier frame comes first.
        labels: bool ``[n, k]``.
    """
    order = np.argsort(-scores, axis=0, kind="stable")
    hits = np.take_along_axis(labels, order, 0).astype(np.float64)
    precision = hits.cumsum(0) / np.arange(1, len(hits) + 1)[:, None]
    count = hits.sum(0)
    return np.divide((precision * hits).sum(0), count, out=np.full(len(count), np.nan), where=count > 0)


def mean_average_precision(scores: np.ndarray, labels: np.ndarray) -> float:
    """Average :func:`average_precision` over the activities that some frame has; NaN where none has any."""
    found = average_precision(scores, labels)
    return float(found[~np.isnan(found)].mean()) if not np.isnan(found).all() else math.nan


@torch.no_grad()
def evaluate_detector(
    model: ActivityDetector,
    task: VideoTask,
    *,
    num_rows: int = 256,
    batch_size: int = 16,
    seed: int = 0,
    bfloat16: bool = False,
) -> DetectionScore:
    """Score a detector on fresh videos.

    Args:
        model: on any device; its mode is restored afterwards.
        task: of the videos.
        num_rows: most videos.
        batch_size: videos per call.
        seed: of the videos; global generators are not used.
        bfloat16: use autocast.

    Raises:
        ValueError: fewer than one video, or no scored frame has any activity.
    """
    require(num_rows >= 1, "num_rows", num_rows, "evaluate on at least one video")
    device = next(model.parameters()).device
    generator = torch.Generator().manual_seed(seed)
    scores: list[Tensor] = []
    labels: list[Tensor] = []
    losses: list[float] = []
    count = ProgressReporter(num_rows, "videos")
    with eval_mode(model):
        for drawn in task.batches(num_rows, batch_size, generator):
            count.update(lambda: len(scores))
            batch = drawn.to(device)
            with torch.autocast(device.type, torch.bfloat16, enabled=bfloat16):
                logits, _ = model(batch.inputs, model.initial_state(len(batch.inputs)), batch.is_first)
            for row, mask in enumerate(batch.score_mask):
                scores.append(logits[row, mask].float().cpu())
                labels.append(batch.targets[row, mask].bool().cpu())
                losses.append(float(detection_loss(logits[row][None], batch.targets[row][None], mask[None])))
    return detection_score(scores, labels, losses, task)


def detection_score(scores: list[Tensor], labels: list[Tensor], losses: list[float], task: VideoTask) -> DetectionScore:
    """Score the frames ``[n, k]`` of several videos."""
    outputs = [part.double().numpy() for part in scores]
    truth = [part.numpy() for part in labels]
    every, real = np.concatenate(outputs), np.concatenate(truth)
    found = average_precision(every, real)
    known = ~np.isnan(found)
    if not known.any():
        raise ValueError("no scored frame has any activity: check the annotations, or score more videos")
    whole = float(found[known].mean())
    pseudo = _pseudo_values(outputs, truth, whole)
    low, high = confidence_interval(pseudo, np.ones(len(pseudo)))
    counts = real.sum(0)
    return DetectionScore(
        score=whole,
        low=float(low),
        high=float(high),
        chance=task.spec.chance,
        weighted=float((found[known] * counts[known]).sum() / counts.sum()),
        loss=float(np.mean(losses)),
        by_class={task.class_names[k]: float(found[k]) for k in np.flatnonzero(known)},
        pseudo_values=pseudo.tolist(),
        videos=len(outputs),
    )


def _pseudo_values(scores: list[np.ndarray], labels: list[np.ndarray], whole: float) -> np.ndarray:
    groups = min(GROUPS, len(scores))
    if groups < 2:
        return np.array([whole])
    values = []
    for group in range(groups):
        rest = [i for i in range(len(scores)) if i % groups != group]
        without = mean_average_precision(
            np.concatenate([scores[i] for i in rest]), np.concatenate([labels[i] for i in rest])
        )
        values.append(groups * whole - (groups - 1) * without)
    return np.array([value for value in values if not math.isnan(value)] or [whole])
