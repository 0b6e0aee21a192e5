"""What a video task is: a stream task whose steps are frames (or their features), with several labels at a step.

batch.inputs     uint8 [b, t, y, x, 3] frames, red, green, blue;  or float [b, t, d], features that others computed
batch.targets    float [b, t, k]: 1 where activity k goes on at that step, else 0
batch.loss_mask, batch.score_mask, batch.source, batch.is_first    as in every stream task
"""

from abc import abstractmethod
from dataclasses import dataclass

from recollect.tasks.streams.contract import StreamTask


@dataclass(frozen=True, kw_only=True)
class VideoTask(StreamTask):
    """Base of all video tasks: which activities go on, frame by frame?"""

    @property
    @abstractmethod
    def class_names(self) -> tuple[str, ...]:
        """What the activities are called, in the order of the answers."""

    @property
    @abstractmethod
    def frame_shape(self) -> tuple[int, int, int] | None:
        """Rows, columns and 3 of a frame; None where steps are features."""
