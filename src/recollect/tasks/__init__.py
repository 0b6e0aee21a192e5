"""The worlds: they know nothing of models."""

from recollect.tasks.base import Batch, StreamTask, TaskSpec
from recollect.tasks.copying import Copying
from recollect.tasks.recall import Recall

TASKS: dict[str, type[StreamTask]] = {
    "copying": Copying,
    "recall": Recall,
}

__all__ = ["TASKS", "Batch", "Copying", "Recall", "StreamTask", "TaskSpec"]
