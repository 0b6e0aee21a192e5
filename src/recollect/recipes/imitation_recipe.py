"""Imitation of a teacher, with the training aids that a world and a core offer.

Tables name teacher and training aids beside the row (``training/training_aids.py``).
"""

from dataclasses import dataclass, field, replace

from recollect.cores.causal_transformer import CausalTransformerConfig
from recollect.cores.hcam import HierarchicalChunkMemoryConfig
from recollect.cores.transformer_xl.config import TransformerXLConfig
from recollect.training import (
    CurriculumConfig,
    ImitationConfig,
    ImpalaConfig,
    OptimizerConfig,
    ReuseConfig,
    SupervisionConfig,
    TeacherConfig,
)


@dataclass(frozen=True, kw_only=True)
class ImitationRecipe:
    """Settings of runs that imitate a teacher."""

    steps: int
    """Rollouts with imitation."""
    reinforced: int = 0
    """Rollouts of reinforcement after them."""
    teacher: TeacherConfig = field(default_factory=lambda: TeacherConfig(acts=10, keeps=0.75))
    """Teacher that is imitated. It acts in most rows, because a learner's own mistakes lead to states in which memory
    matters less."""
    batch_size: int = 64
    """Parallel episodes."""
    unroll: int | None = None
    """Steps of a rollout; as many as without a teacher when None."""
    reuse: ReuseConfig = field(default_factory=lambda: ReuseConfig(passes=2, minibatches=2))
    """Updates per rollout: four."""
    learning_rate: float = 2e-3
    """Initial learning rate; it decays as a cosine."""
    floor: float = 0.0
    """Final share of it, where reinforcement after imitation needs some."""
    warmup: int = 3
    """Rollouts of linear warm-up."""
    baseline_cost: float = 0.05
    """Cost of the value. It is small, because gradients are clipped as a whole: errors of the value at a hundred steps
    must not outweigh the three steps at which the teacher decides (docs/log.md, streets)."""
    label_cost: float = 0.0
    """Cost of predicting the label of what must be remembered, in worlds that have one."""
    attention_cost: float = 0.0
    """Cost of targets for attention, for cores that attend to the past."""
    inside: bool = False
    """Also use targets for attention to steps inside chunks."""
    decision_cost: float = 0.0
    """Additional cost of the divergence from the teacher at steps whose decision depends on the past."""
    gradients: bool = False
    """Let gradients into the chunks of hcam that a rollout completes; rollouts should contain whole episodes."""
    curriculum: CurriculumConfig = field(default_factory=CurriculumConfig)
    """Curriculum of the world."""


def with_teacher(config: ImpalaConfig, imitation: ImitationRecipe) -> ImpalaConfig:
    """Return the config with a teacher, and with the training aids that its core supports."""
    core = config.core
    supervision = SupervisionConfig(label_cost=imitation.label_cost, decision_cost=imitation.decision_cost, until=1.0)
    if isinstance(core, (HierarchicalChunkMemoryConfig, TransformerXLConfig, CausalTransformerConfig)):
        supervision = replace(supervision, attention_cost=imitation.attention_cost)
    if isinstance(core, HierarchicalChunkMemoryConfig):
        supervision = replace(supervision, inside=imitation.inside)
    if isinstance(core, HierarchicalChunkMemoryConfig) and imitation.gradients:
        core = replace(core, reading=replace(core.reading, chunk_gradients="call"))
    return replace(
        config,
        core=core,
        batch_size=imitation.batch_size,
        unroll=imitation.unroll or config.unroll,
        fit=replace(config.fit, steps=imitation.steps + imitation.reinforced, evaluate_every=40),
        optimizer=OptimizerConfig(
            algorithm="adam",
            learning_rate=imitation.learning_rate,
            schedule="cosine",
            floor=imitation.floor,
            warmup_steps=imitation.warmup,
            clip_norm=1.0,
        ),
        loss=replace(
            config.loss,
            baseline_cost=imitation.baseline_cost,
            reuse=imitation.reuse,
            imitation=ImitationConfig(steps=imitation.steps, teacher=imitation.teacher),
            supervision=supervision,
        ),
        schedule=replace(config.schedule, curriculum=imitation.curriculum),
    )
