"""The smallest config of every trainer, and the tasks that they train on."""

from recollect.agents.config import ActivityDetectorConfig, ActorCriticConfig, DecisionTransformerConfig, SiTConfig
from recollect.cores import CORES
from recollect.encoders.config import TransformerConfig
from recollect.tasks import ListOps, Recall, ShapeActivities, Shapes
from recollect.tasks.worlds.t_maze import TMazeConfig
from recollect.training import (
    ClassificationConfig,
    DetectionConfig,
    EvaluationConfig,
    ImpalaConfig,
    OfflineConfig,
    SelfSupervisedConfig,
    SupervisedConfig,
    TargetsConfig,
    make_cloning_config,
)


def recall(length=11):
    """One pair and one question, in rows of ``length`` steps."""
    return Recall(num_keys=3, num_values=2, num_cues=1, num_queries=1, min_blank=0, max_blank=2, length=length)


LISTOPS = ListOps(min_length=5, max_length=20, train_rows=60, validation_rows=20, test_rows=20)
ACTIVITIES = ShapeActivities(length=12, max_lag=4, size=16, boxes=1)
GRU = CORES["gru"](dim=8, num_layers=1)
IMPALA = ImpalaConfig(
    world=TMazeConfig(length=3),
    core=GRU,
    agent=ActorCriticConfig(width=8),
    batch_size=4,
    unroll=5,
    evaluation=EvaluationConfig(episodes=8),
)
RUNS = {
    "supervised": SupervisedConfig(task=recall(), core=GRU, batch_size=4, evaluation_rows=8),
    "classification": ClassificationConfig(
        task=LISTOPS, encoder=TransformerConfig(dim=8, num_layers=1, num_heads=2), batch_size=4
    ),
    "self-supervised": SelfSupervisedConfig(
        task=Shapes(size=16),
        encoder=TransformerConfig(dim=8, num_layers=1, num_heads=2),
        agent=SiTConfig(embedding_dim=16, contrast_dim=8),
        batch_size=4,
        probe_rows=20,
    ),
    "detection": DetectionConfig(
        task=ACTIVITIES,
        core=GRU,
        agent=ActivityDetectorConfig(size=16, width=8),
        batch_size=4,
        evaluation_rows=8,
    ),
    "impala": IMPALA,
    "cloning": make_cloning_config(IMPALA),
    "decision-transformer": OfflineConfig(
        world=TMazeConfig(length=3),
        core=GRU,
        agent=DecisionTransformerConfig(width=16, context=6),
        evaluation=TargetsConfig(episodes=4, targets=(0.0,)),
    ),
}
