"""Video tasks: stream tasks whose steps are frames or their features, with several labels per step.

batch.inputs     uint8 [b, t, y, x, 3] frames, red, green, blue;  or float [b, t, d], published features
batch.targets    float [b, t, k]: 1 during activity k, else 0
batch.loss_mask, batch.score_mask, batch.source, batch.is_first    as in every stream task
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from recollect.lazy import torch
from recollect.tasks.streams.contract import Batch, StreamTask, single_episode_batch
from recollect.tasks.videos.annotations import Activity


@dataclass(frozen=True, kw_only=True)
class VideoTask(StreamTask):
    """Base of all video tasks: detect the activities in every frame."""

    @property
    @abstractmethod
    def class_names(self) -> tuple[str, ...]:
        """Names of the activities, in the order of the answers."""

    @property
    @abstractmethod
    def frame_shape(self) -> tuple[int, int, int] | None:
        """Rows, columns and 3 of a frame; None where steps are features."""

    def model_names(self) -> Mapping[str, Any]:
        """Return the names of the activities."""
        return {"class_names": self.class_names}


def stack_rows(rows: list[tuple[torch.Tensor, torch.Tensor, torch.Tensor]]) -> Batch:
    """Stack the inputs, targets and real steps of rows of equal length into a batch; each row is one episode."""
    return single_episode_batch(*(torch.stack(parts) for parts in zip(*rows, strict=True)))


def activity_labels(activities: Sequence[Activity], times: torch.Tensor, num_classes: int) -> torch.Tensor:
    """Return 1 during an activity, else 0, at times ``[t]`` in seconds: float ``[t, num_classes]``."""
    targets = torch.zeros(len(times), num_classes)
    for kind, start, stop in activities:
        targets[(times >= start) & (times <= stop), kind] = 1.0
    return targets
