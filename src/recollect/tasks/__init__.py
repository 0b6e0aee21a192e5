"""Tasks, independent of models: supervised streams and worlds. ``TASKS`` lists all by name.

Names that are imported ``as`` themselves are exported.
"""

from recollect.tasks.gymnasium.worlds import GymnasiumConfig as GymnasiumConfig
from recollect.tasks.images.cifar import CIFAR as CIFAR
from recollect.tasks.images.contract import ImageTask as ImageTask
from recollect.tasks.images.contract import Pictures as Pictures
from recollect.tasks.images.shapes import Shapes as Shapes
from recollect.tasks.images.stl10 import STL10 as STL10
from recollect.tasks.long_range.aan import AAN as AAN
from recollect.tasks.long_range.cifar import GreyCIFAR as GreyCIFAR
from recollect.tasks.long_range.imdb import IMDB as IMDB
from recollect.tasks.long_range.listops import ListOps as ListOps
from recollect.tasks.long_range.pathfinder import Pathfinder as Pathfinder
from recollect.tasks.streams.arrays import Arrays as Arrays
from recollect.tasks.streams.associative_inference import AssociativeInference as AssociativeInference
from recollect.tasks.streams.contract import Batch as Batch
from recollect.tasks.streams.contract import StreamTask as StreamTask
from recollect.tasks.streams.contract import TaskSpec as TaskSpec
from recollect.tasks.streams.copying import Copying as Copying
from recollect.tasks.streams.mixture import Mixture as Mixture
from recollect.tasks.streams.recall import Recall as Recall
from recollect.tasks.videos.charades import Charades as Charades
from recollect.tasks.videos.contract import VideoTask as VideoTask
from recollect.tasks.videos.shape_activities import ShapeActivities as ShapeActivities
from recollect.tasks.videos.thumos import Thumos as Thumos
from recollect.tasks.worlds.arcade.catch import CatchConfig as CatchConfig
from recollect.tasks.worlds.arcade.key_door import KeyDoorConfig as KeyDoorConfig
from recollect.tasks.worlds.arcade.track import TrackConfig as TrackConfig
from recollect.tasks.worlds.ballet.world import BalletConfig as BalletConfig
from recollect.tasks.worlds.contract import Scene as Scene
from recollect.tasks.worlds.contract import Step as Step
from recollect.tasks.worlds.contract import Truth as Truth
from recollect.tasks.worlds.contract import World as World
from recollect.tasks.worlds.contract import WorldConfig as WorldConfig
from recollect.tasks.worlds.contract import WorldSpec as WorldSpec
from recollect.tasks.worlds.object_permanence import ObjectPermanenceConfig as ObjectPermanenceConfig
from recollect.tasks.worlds.street_learn.world import StreetLearnConfig as StreetLearnConfig
from recollect.tasks.worlds.t_maze import TMazeConfig as TMazeConfig
from recollect.tasks.worlds.tabletop.covered import CoveredObjectsConfig as CoveredObjectsConfig
from recollect.tasks.worlds.tabletop.goal import GoalShownOnceConfig as GoalShownOnceConfig
from recollect.tasks.worlds.tabletop.order import OrderShownOnceConfig as OrderShownOnceConfig
from recollect.tasks.worlds.visual_match import VisualMatchConfig as VisualMatchConfig
from recollect.tasks.worlds.word_learning import WordLearningConfig as WordLearningConfig

TASKS: dict[str, type[StreamTask] | type[WorldConfig]] = {
    "copying": Copying,
    "recall": Recall,
    "associative-inference": AssociativeInference,
    "mixture": Mixture,
    "arrays": Arrays,
    "listops": ListOps,
    "pathfinder": Pathfinder,
    "imdb": IMDB,
    "aan": AAN,
    "grey-cifar": GreyCIFAR,
    "shapes": Shapes,
    "cifar": CIFAR,
    "stl-10": STL10,
    "shape-activities": ShapeActivities,
    "charades": Charades,
    "thumos": Thumos,
    "t-maze": TMazeConfig,
    "visual-match": VisualMatchConfig,
    "ballet": BalletConfig,
    "word-learning": WordLearningConfig,
    "object-permanence": ObjectPermanenceConfig,
    "street-learn": StreetLearnConfig,
    "catch": CatchConfig,
    "track": TrackConfig,
    "key-door": KeyDoorConfig,
    "goal-shown-once": GoalShownOnceConfig,
    "order-shown-once": OrderShownOnceConfig,
    "covered-objects": CoveredObjectsConfig,
    "gym": GymnasiumConfig,
}
