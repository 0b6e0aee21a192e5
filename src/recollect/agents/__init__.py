"""Observation -> encoder -> core -> heads: plain modules around any memory core. What is imported here is exported."""

from recollect.agents.activity_detector import ActivityDetector, ActivityDetectorConfig, ActivityStream
from recollect.agents.actor_critic import ActorCritic, ActorCriticConfig, ActorCriticOutput, ActorStream
from recollect.agents.contract import ActorInputs, Agent
from recollect.agents.decision_transformer import DecisionTransformer, DecisionTransformerConfig
from recollect.agents.sequence_classifier import SequenceClassifier, SequenceClassifierConfig
from recollect.agents.sequence_model import SequenceModel, SequenceModelConfig, SequenceStream
from recollect.agents.sit import SiT, SiTConfig

AGENTS: dict[
    str,
    type[SequenceModelConfig]
    | type[SequenceClassifierConfig]
    | type[SiTConfig]
    | type[ActorCriticConfig]
    | type[DecisionTransformerConfig]
    | type[ActivityDetectorConfig],
] = {
    "sequence-model": SequenceModelConfig,
    "sequence-classifier": SequenceClassifierConfig,
    "sit": SiTConfig,
    "actor-critic": ActorCriticConfig,
    "decision-transformer": DecisionTransformerConfig,
    "activity-detector": ActivityDetectorConfig,
}
