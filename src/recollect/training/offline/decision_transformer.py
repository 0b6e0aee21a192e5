"""The trainer ``decision-transformer``: predict the recorded action, given the return that followed.

    loss = mean over steps of the cross-entropy of the recorded action, given returns-to-go and the past of a context

The agent is scored in its world with ``agent.target_return`` as the return to reach; ``evaluation.targets`` adds more.

Source: Chen et al. (2021), Decision Transformer, algorithm 1 and the authors' code for Atari.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from recollect.agents.decision_transformer import DecisionTransformer
from recollect.evaluation.agents import METRICS, AgentEvaluation, evaluate_agent
from recollect.objectives.policy_gradient import reduce_steps
from recollect.state import spread_rows
from recollect.tasks.worlds.contract import WorldConfig
from recollect.training.config import evaluation_seed
from recollect.training.offline.config import OfflineConfig
from recollect.training.offline.data import Contexts, OfflineData, read_episodes
from recollect.training.trainer import SampledDataTrainer

STATISTICS_STEPS = 10_000
"""Steps of the data, evenly spread, for running statistics of the observations."""
FEWER = 4
"""Factor by which other targets are tried in fewer episodes."""


@dataclass(frozen=True, kw_only=True)
class TargetedEvaluation(AgentEvaluation):
    """Scores of an agent with a target return."""

    target: float
    """The return to reach."""
    by_target: Mapping[str, float] = field(default_factory=dict)
    """Mean returns that it reached with other targets."""

    def to_json(self) -> dict[str, Any]:
        """Return the scores of every agent, the target, and mean returns by target."""
        return {**super().to_json(), "target": self.target, "by_target": dict(self.by_target)}


def evaluate_targets(
    model: DecisionTransformer, world: WorldConfig, samples: int, targets: Sequence[float], **how: Any
) -> TargetedEvaluation:
    """Score an agent with its own target return in ``samples`` episodes; then, in fewer, with other targets.

    Args:
        model: the agent.
        world: where it acts.
        samples: episodes.
        targets: other target returns.
        how: keyword arguments of :func:`~recollect.evaluation.agents.evaluate_agent`.
    """
    model.require_actions(world.spec.action_space, world.title)
    found = evaluate_agent(model, world, samples, **how)
    others = {}
    for target in targets:
        with target_return(model, target):
            others[f"{target:g}"] = evaluate_agent(model, world, -(-samples // FEWER), **how).mean_return
    numbers = {name: getattr(found, name) for name in found.__dataclass_fields__}
    return TargetedEvaluation(**numbers, target=model.config.target_return, by_target=others)


@contextmanager
def target_return(agent: DecisionTransformer, target: float) -> Iterator[None]:
    """Change the target return of an agent within this context."""
    before = agent.config
    agent.config = replace(before, target_return=target)
    try:
        yield
    finally:
        agent.config = before


class OfflineTrainer(SampledDataTrainer[OfflineConfig, DecisionTransformer]):
    """One step learns from ``batch_size`` contexts."""

    step_metrics = ("loss", "agreement", "gradient_norm", "learning_rate")
    evaluation_metrics = METRICS

    def __init__(self, config: OfflineConfig) -> None:
        recording, stack = read_episodes(config.data, config.world.spec, config.fit.seed)
        super().__init__(config, config.build_agent())
        self.data = OfflineData(recording, stack=stack, device=self.device)
        if self.model.encoder.keeps_statistics:
            for seen in self.data.observations(STATISTICS_STEPS):
                self.model.encoder.update_statistics(seen)

    def compute_loss(self) -> tuple[Tensor, dict[str, Tensor]]:
        """Draw the next contexts; return their loss and agreement."""
        contexts = self.data.draw(self.config.batch_size, self.config.agent.context, self.generator)
        with self.autocast():
            loss, agreement = context_loss(self.model, contexts)
        return loss, {"agreement": agreement}

    def evaluate(self) -> dict[str, float]:
        """Score in fresh episodes of the world, the same at every evaluation, with the run's own target return."""
        config = replace(self.config, evaluation=replace(self.config.evaluation, targets=()))
        seed = evaluation_seed(config.fit.seed)
        return config.evaluate(self.model, samples=config.evaluation.episodes, seed=seed).metrics()


def context_loss(agent: DecisionTransformer, contexts: Contexts) -> tuple[Tensor, Tensor]:
    """Return the mean cross-entropy of the recorded actions, and how often they are the likeliest ones."""
    policy = agent(contexts.observation, contexts.action, contexts.return_to_go, contexts.timestep)
    distribution = agent.distribution(policy.float())
    # What stands behind an episode's end is no action of a space whose first one is not 0.
    action = torch.where(spread_rows(contexts.valid, contexts.action), contexts.action, contexts.action[:, :1])
    loss = reduce_steps(-distribution.log_prob(action), contexts.valid, "mean")
    same = (distribution.mode() == action).reshape(*contexts.valid.shape, -1).all(2)
    return loss, reduce_steps(same.float(), contexts.valid, "mean")
