"""Observation -> encoder -> core -> heads: plain modules around any memory core."""

from recollect.agents.sequence_model import SequenceModel, SequenceModelConfig, SequenceStream

AGENTS = {
    "sequence-model": SequenceModelConfig,
}

__all__ = ["AGENTS", "SequenceModel", "SequenceModelConfig", "SequenceStream"]
