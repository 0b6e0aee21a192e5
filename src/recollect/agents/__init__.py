"""Observation -> encoder -> core -> heads: modules around any memory core. ``AGENTS`` lists their configs by key.

Importing this package does not import torch: the classes that need it are imported when they are first used.
"""

from typing import TYPE_CHECKING

from recollect.agents.config import (
    ActivityDetectorConfig,
    ActorCriticConfig,
    DecisionTransformerConfig,
    SequenceClassifierConfig,
    SequenceModelConfig,
    SiTConfig,
)
from recollect.lazy import attach

if TYPE_CHECKING:
    from recollect.agents.activity_detector import ActivityDetector as ActivityDetector
    from recollect.agents.activity_detector import ActivityStream as ActivityStream
    from recollect.agents.actor_critic import ActorCritic as ActorCritic
    from recollect.agents.actor_critic import ActorCriticOutput as ActorCriticOutput
    from recollect.agents.actor_critic import ActorStream as ActorStream
    from recollect.agents.contract import ActorInputs as ActorInputs
    from recollect.agents.contract import Agent as Agent
    from recollect.agents.decision_transformer import DecisionTransformer as DecisionTransformer
    from recollect.agents.sequence_classifier import SequenceClassifier as SequenceClassifier
    from recollect.agents.sequence_model import SequenceModel as SequenceModel
    from recollect.agents.sequence_model import SequenceStream as SequenceStream
    from recollect.agents.sit import SiT as SiT

AGENTS: dict[str, type] = {
    "sequence-model": SequenceModelConfig,
    "sequence-classifier": SequenceClassifierConfig,
    "sit": SiTConfig,
    "actor-critic": ActorCriticConfig,
    "decision-transformer": DecisionTransformerConfig,
    "activity-detector": ActivityDetectorConfig,
}

__getattr__ = attach(
    __name__,
    {
        "ActivityDetector": "activity_detector",
        "ActivityStream": "activity_detector",
        "ActorCritic": "actor_critic",
        "ActorCriticOutput": "actor_critic",
        "ActorInputs": "contract",
        "ActorStream": "actor_critic",
        "Agent": "contract",
        "DecisionTransformer": "decision_transformer",
        "SequenceClassifier": "sequence_classifier",
        "SequenceModel": "sequence_model",
        "SequenceStream": "sequence_model",
        "SiT": "sit",
    },
)
