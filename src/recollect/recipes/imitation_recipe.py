"""How a row's agent is taught: a teacher to imitate, and helps that the world and the core can give.

Tables name teacher and helps beside the row (``training/training_aids.py``).
"""

from dataclasses import dataclass, field, replace

from recollect.cores.causal_transformer import CausalTransformerConfig
from recollect.cores.hcam import HierarchicalChunkMemoryConfig
from recollect.cores.transformer_xl.core import TransformerXLConfig
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
    """How the rows that imitate are taught."""

    steps: int
    """Rollouts that are imitated on."""
    reinforced: int = 0
    """Rollouts of reinforcement behind them."""
    teacher: TeacherConfig = field(default_factory=lambda: TeacherConfig(acts=10, keeps=0.75))
    """Who is imitated. It acts in most rows: where a learner strays, memory decides less of what it is shown."""
    batch_size: int = 64
    """Episodes that are played at a time."""
    unroll: int | None = None
    """Steps of a rollout; None: as many as without a teacher."""
    reuse: ReuseConfig = field(default_factory=lambda: ReuseConfig(passes=2, minibatches=2))
    """What is made of a rollout: four updates."""
    learning_rate: float = 2e-3
    """At the start; it falls as a cosine."""
    floor: float = 0.0
    """Least share of it, where reinforcement behind the imitation needs some."""
    warmup: int = 3
    """Rollouts until it has risen to that."""
    baseline_cost: float = 0.05
    """Of the value. What it is wrong by at a hundred steps must not drown the three at which the teacher decides, and
    where a return is not of size one it drowns everything: gradients are clipped as a whole (docs/log.md, streets)."""
    label_cost: float = 0.0
    """Of naming what must be remembered, beside the divergence from the teacher; for worlds that name it."""
    attention_cost: float = 0.0
    """Of targets for attention, beside the divergence from the teacher; for cores that attend to the past."""
    inside: bool = False
    """Let the targets for attention name steps inside chunks, too."""
    decision_cost: float = 0.0
    """Of the divergence where a decision depends on the past, beside that at all steps."""
    gradients: bool = False
    """Let gradients into the chunks of hcam that a rollout completes: it should hold whole episodes."""
    curriculum: CurriculumConfig = field(default_factory=CurriculumConfig)
    """From easy to hard."""


def with_teacher(config: ImpalaConfig, imitation: ImitationRecipe) -> ImpalaConfig:
    """The run of an agent with a teacher, and with the helps that its core can take."""
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
