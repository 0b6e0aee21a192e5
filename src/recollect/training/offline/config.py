"""Settings of the trainer ``decision-transformer``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from recollect.agents.config import DecisionTransformerConfig
from recollect.config import require, require_types
from recollect.cores.config import CoreConfig
from recollect.training.config import ActingConfig, EvaluationConfig, OptimizerConfig

if TYPE_CHECKING:
    from recollect.agents.decision_transformer import DecisionTransformer
    from recollect.evaluation.score import Score
    from recollect.training.trainer import Trainer


@dataclass(frozen=True, kw_only=True)
class OfflineDataConfig:
    """Recorded episodes that are learned from."""

    source: str = ""
    """FILE.npz or minari:DATASET of recorded episodes; kept:NAME for offline/NAME.npz in the data folder; or
    dqn-replay:FOLDER with files of the DQN replay dataset, relative to the data folder."""
    transitions: int = 500_000
    """Steps that are read of a DQN replay; other episodes are read whole."""

    def __post_init__(self) -> None:
        require_types(self)
        require(self.transitions >= 1, "transitions", self.transitions, "read at least one step")


@dataclass(frozen=True, kw_only=True)
class TargetsConfig(EvaluationConfig):
    """Evaluation of the agent in fresh episodes of its world."""

    episodes: int = 64
    greedy: bool = False
    """Take the likeliest action; else draw from the policy, as published."""
    targets: tuple[float, ...] = ()
    """Other target returns at which a finished run is scored too, for a table of the returns that it reaches."""


@dataclass(frozen=True, kw_only=True)
class OfflineConfig(ActingConfig):
    """Train a Decision Transformer on recorded episodes of a world."""

    core: CoreConfig
    """Core that reads the tokens."""
    agent: DecisionTransformerConfig = field(default_factory=DecisionTransformerConfig)
    """Model around the core."""
    data: OfflineDataConfig = field(default_factory=OfflineDataConfig)
    """Episodes that are learned from."""
    optimizer: OptimizerConfig = field(
        default_factory=lambda: OptimizerConfig(
            learning_rate=6e-4, betas=(0.9, 0.95), weight_decay=0.1, schedule="cosine", floor=0.1, clip_norm=1.0
        )
    )
    """Optimiser and schedule."""
    evaluation: TargetsConfig = field(default_factory=TargetsConfig)
    """Episodes that score the agent."""
    batch_size: int = 128
    """Contexts of a step."""
    bfloat16: bool = False
    """Learn in bfloat16 where torch's autocast does."""

    def __post_init__(self) -> None:
        require(self.batch_size >= 1, "batch_size", self.batch_size, "learn from at least one context")

    @property
    def teacher_description(self) -> str:
        """Episodes that were learned from."""
        return f"offline, {self.data.source}"

    @property
    def training_aids(self) -> tuple[str, ...]:
        """Training aids that the core offers."""
        return self.core.training_aids

    @property
    def title(self) -> str:
        """Names of the world and of the core."""
        return f"{super().title} · offline"

    def build_agent(self) -> DecisionTransformer:
        """Build the agent with new weights, on the CPU."""
        spec = self.world.spec
        return self.agent.build(self.core, spec.observation_space, spec.action_space)

    def build(self) -> Trainer:
        """Build the trainer."""
        from recollect.training.offline.decision_transformer import OfflineTrainer

        return OfflineTrainer(self)

    def evaluate(
        self,
        model: DecisionTransformer,
        task: Any = None,
        *,
        samples: int,
        seed: int,
        batch_size: int | None = None,
        greedy: bool | None = None,
    ) -> Score:
        """Score an agent in ``samples`` fresh episodes with its own target return; then, in fewer, with the others.

        Without a ``batch_size`` it plays 64 episodes at a time: that of the run counts contexts.
        """
        from recollect.training.offline.decision_transformer import evaluate_targets

        where = self.world if task is None else task
        how: dict[str, Any] = {
            "seed": seed,
            "greedy": self.is_greedy(greedy),
            "batch_size": 64 if batch_size is None else batch_size,
            "time_limit": self.evaluation.time_limit,
        }
        return evaluate_targets(model, where, samples, self.evaluation.targets, **how)

    def experience(self, rows: Sequence[Mapping[str, str]]) -> dict[str, Any]:
        """Return the contexts that were learned from."""
        return {"contexts": int(rows[-1]["step"]) * self.batch_size, "samples_to_perfect": None}
