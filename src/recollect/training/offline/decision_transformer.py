"""The trainer ``decision-transformer``: predict what was done, given what was gained.

    loss = mean over steps of the cross-entropy of the recorded action, given returns-to-go and the past of a context

The agent is scored in its world, told to reach ``agent.target_return``; ``evaluation.targets`` adds others.

Source: Chen et al. (2021), Decision Transformer, algorithm 1 and the authors' code for Atari.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from recollect.agents.decision_transformer import DecisionTransformer, DecisionTransformerConfig
from recollect.config import require, require_types
from recollect.cores.config import CoreConfig
from recollect.evaluation.agents import METRICS, TIME_LIMIT, AgentEvaluation, evaluate_agent
from recollect.objectives.policy_gradient import reduce_steps
from recollect.tasks.worlds.contract import WorldConfig
from recollect.training.acting import ActingConfig
from recollect.training.drawn import DrawnTrainer
from recollect.training.frame import evaluation_seed
from recollect.training.offline.data import Contexts, OfflineData, OfflineDataConfig
from recollect.training.optimizers import OptimizerConfig, begin_step, drawing_again, take_step

SEEN = 10_000
"""Steps of the data, evenly spread, whose observations running statistics are taken of."""
OTHERS = 4
"""Other targets are tried in as many times fewer episodes."""


@dataclass(frozen=True, kw_only=True)
class TargetsConfig:
    """How the agent is scored, in fresh episodes of its world."""

    episodes: int = 64
    """Episodes of an evaluation."""
    greedy: bool = False
    """Take the likeliest action; else draw from the policy, as published."""
    targets: tuple[float, ...] = ()
    """Other returns that a finished run is told to reach, for a table of what it makes of them."""
    time_limit: float = TIME_LIMIT
    """Seconds that an evaluation may take."""

    def __post_init__(self) -> None:
        require_types(self)
        require(self.episodes >= 1, "episodes", self.episodes, "evaluate at least one")
        require(self.time_limit > 0, "time_limit", self.time_limit, "give some seconds")


@dataclass(frozen=True, kw_only=True)
class TargetedEvaluation(AgentEvaluation):
    """Scores of an agent that was told what to reach."""

    target: float
    """The return that it was told to reach."""
    by_target: Mapping[str, float] = field(default_factory=dict)
    """Mean returns that it reached when it was told to reach others."""

    def to_json(self) -> dict[str, Any]:
        """Those of every agent, the target, and mean returns by target."""
        return {**super().to_json(), "target": self.target, "by_target": dict(self.by_target)}


@dataclass(frozen=True, kw_only=True)
class OfflineConfig(ActingConfig):
    """Train a Decision Transformer on recorded episodes of a world."""

    core: CoreConfig
    """What reads the tokens."""
    agent: DecisionTransformerConfig = field(default_factory=DecisionTransformerConfig)
    """What surrounds it."""
    data: OfflineDataConfig = field(default_factory=OfflineDataConfig)
    """What is learned from."""
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
    def is_greedy(self) -> bool:
        """As ``evaluation`` says."""
        return self.evaluation.greedy

    @property
    def taught_by(self) -> str:
        """The episodes that were learned from."""
        return f"offline, {self.data.source}"

    @property
    def helps(self) -> tuple[str, ...]:
        """Of the core."""
        return self.core.helps

    @property
    def title(self) -> str:
        """World and core."""
        return f"{self.world.title} · {type(self.core).__name__.removesuffix('Config')} · offline"

    def build_agent(self) -> DecisionTransformer:
        """The agent alone, with new weights, on the CPU."""
        spec = self.world.spec
        return self.agent.build(self.core, spec.observation_space, spec.action_space)

    def learning_rate(self, step: int) -> float:
        """That of the optimiser."""
        return self.optimizer.rate(step, self.fit.steps)

    def build(self) -> "OfflineTrainer":
        """The trainer."""
        return OfflineTrainer(self)

    def evaluate(
        self,
        model: DecisionTransformer,
        task: WorldConfig | None = None,
        *,
        samples: int,
        seed: int,
        batch_size: int | None = None,
        greedy: bool | None = None,
    ) -> TargetedEvaluation:
        """Score an agent in ``samples`` fresh episodes, told its own target; then, in fewer, told the others."""
        where = self.world if task is None else task
        model.require_actions(where.spec.action_space, where.title)
        how: dict[str, Any] = {
            "seed": seed,
            "greedy": self.evaluation.greedy if greedy is None else greedy,
            "batch_size": 64 if batch_size is None else batch_size,
            "time_limit": self.evaluation.time_limit,
        }
        found = evaluate_agent(model, where, samples, **how)
        others = {}
        for target in self.evaluation.targets:
            with told(model, target):
                others[f"{target:g}"] = evaluate_agent(model, where, -(-samples // OTHERS), **how).mean_return
        numbers = {name: getattr(found, name) for name in found.__dataclass_fields__}
        return TargetedEvaluation(**numbers, target=model.config.target_return, by_target=others)

    def experience(self, rows: Sequence[Mapping[str, str]]) -> dict[str, Any]:
        """Contexts that were learned from."""
        return {"contexts": int(rows[-1]["step"]) * self.batch_size, "samples_to_perfect": None}


@contextmanager
def told(agent: DecisionTransformer, target: float) -> Iterator[None]:
    """Within this context an agent is told to reach another return."""
    before = agent.config
    agent.config = replace(before, target_return=target)
    try:
        yield
    finally:
        agent.config = before


class OfflineTrainer(DrawnTrainer[DecisionTransformer]):
    """One step learns from ``batch_size`` contexts.

    Args:
        config: of the run.
    """

    step_metrics = ("loss", "agreement", "gradient_norm", "learning_rate")
    evaluation_metrics = METRICS

    def __init__(self, config: OfflineConfig) -> None:
        recording, stack = config.data.read(config.world.spec, config.fit.seed)
        super().__init__(config.build_agent(), config.optimizer, config.fit, config.device)
        self.config = config
        self.data = OfflineData(recording, stack=stack, device=self.device)
        if self.model.encoder.keeps_statistics:
            for seen in self.data.observations(SEEN):
                self.model.encoder.update_statistics(seen)

    def step(self) -> dict[str, float]:
        """Learn from the next contexts."""
        config = self.config
        rate = config.optimizer.rate(self.updates, config.fit.steps)
        with drawing_again(self.generator):
            contexts = self.data.draw(config.batch_size, config.agent.context, self.generator)
            self.model.train()
            begin_step(self.optimizer, rate)
            with torch.autocast(self.device.type, torch.bfloat16, enabled=config.bfloat16):
                loss, agreement = context_loss(self.model, contexts)
            numbers = take_step(
                self.model,
                self.optimizer,
                config.optimizer,
                loss,
                finite={"loss": loss},
                others={"agreement": agreement},
            )
        self.updates += 1
        return numbers | {"learning_rate": rate}

    def evaluate(self) -> dict[str, float]:
        """Score in fresh episodes of the world, the same at every evaluation, told the run's own target."""
        config = replace(self.config, evaluation=replace(self.config.evaluation, targets=()))
        seed = evaluation_seed(config.fit.seed)
        return config.evaluate(self.model, samples=config.evaluation.episodes, seed=seed).metrics()


def context_loss(agent: DecisionTransformer, contexts: Contexts) -> tuple[Tensor, Tensor]:
    """Mean cross-entropy of the recorded actions, and the share of steps where the likeliest action is the recorded."""
    policy = agent(contexts.observation, contexts.action, contexts.return_to_go, contexts.timestep)
    distribution = agent.distribution(policy.float())
    loss = reduce_steps(-distribution.log_prob(contexts.action), contexts.valid, "mean")
    same = (distribution.mode() == contexts.action).reshape(*contexts.valid.shape, -1).all(2)
    return loss, reduce_steps(same.float(), contexts.valid, "mean")
