"""The worlds and stream tasks: they know nothing of models."""

from recollect.tasks.associative_inference import AssociativeInference
from recollect.tasks.ballet import BalletConfig
from recollect.tasks.base import Batch, StreamTask, TaskSpec
from recollect.tasks.copying import Copying
from recollect.tasks.gymnasium_worlds import GymnasiumConfig
from recollect.tasks.object_permanence import ObjectPermanenceConfig
from recollect.tasks.recall import Recall
from recollect.tasks.street_learn import StreetLearnConfig
from recollect.tasks.t_maze import TMazeConfig
from recollect.tasks.visual_match import VisualMatchConfig
from recollect.tasks.word_learning import WordLearningConfig
from recollect.tasks.world import Step, Truth, World, WorldConfig, WorldSpec

TASKS: dict[str, type[StreamTask] | type[WorldConfig]] = {
    "copying": Copying,
    "recall": Recall,
    "associative-inference": AssociativeInference,
    "t-maze": TMazeConfig,
    "visual-match": VisualMatchConfig,
    "ballet": BalletConfig,
    "word-learning": WordLearningConfig,
    "object-permanence": ObjectPermanenceConfig,
    "street-learn": StreetLearnConfig,
    "gym": GymnasiumConfig,
}

__all__ = [
    "TASKS",
    "AssociativeInference",
    "BalletConfig",
    "Batch",
    "Copying",
    "GymnasiumConfig",
    "ObjectPermanenceConfig",
    "Recall",
    "Step",
    "StreamTask",
    "StreetLearnConfig",
    "TMazeConfig",
    "TaskSpec",
    "Truth",
    "VisualMatchConfig",
    "WordLearningConfig",
    "World",
    "WorldConfig",
    "WorldSpec",
]
