"""The worlds and stream tasks: they know nothing of models."""

from recollect.tasks.gymnasium.worlds import GymnasiumConfig
from recollect.tasks.streams.associative_inference import AssociativeInference
from recollect.tasks.streams.contract import Batch, StreamTask, TaskSpec
from recollect.tasks.streams.copying import Copying
from recollect.tasks.streams.recall import Recall
from recollect.tasks.worlds.ballet.world import BalletConfig
from recollect.tasks.worlds.contract import Step, Truth, World, WorldConfig, WorldSpec
from recollect.tasks.worlds.object_permanence import ObjectPermanenceConfig
from recollect.tasks.worlds.street_learn.world import StreetLearnConfig
from recollect.tasks.worlds.t_maze import TMazeConfig
from recollect.tasks.worlds.visual_match import VisualMatchConfig
from recollect.tasks.worlds.word_learning import WordLearningConfig

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
