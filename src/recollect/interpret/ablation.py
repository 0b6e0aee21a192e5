"""Does memory pay? An agent plays the same episodes with its memory, and with none.

Without memory, the core starts every step from its initial state: what the agent sees, its last action and its last
reward stay. Rows of both start alike, so their difference is taken row by row.
"""

import copy
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from recollect.agents.actor_critic import ActorCritic, ActorCriticOutput
from recollect.agents.contract import ActorInputs
from recollect.evaluation.agents import evaluation_mode, play
from recollect.evaluation.confidence_interval import confidence_interval
from recollect.evaluation.world_guard import GuardedWorld
from recollect.interpret.playback import map_inputs
from recollect.tasks.worlds.contract import WorldConfig


@dataclass(frozen=True, kw_only=True)
class Ablation:
    """Mean score with and without memory over the same episodes."""

    remembering: float
    forgetting: float
    difference: tuple[float, float]
    """95 % interval of the mean difference with - without."""
    episodes: int
    measure: str = "score"
    """``score``, or ``reward``: the sum of rewards of the played steps, where some episodes did not end."""
    chance: float = float("nan")  # expected score of an agent without memory
    oracle: float = float("nan")  # expected score of the best policy


def play_without_memory(
    agent: ActorCritic,
    world: WorldConfig,
    *,
    episodes: int = 32,
    seed: int = 0,
    greedy: bool = True,
    longest: int = 1000,
) -> Ablation:
    """Let an agent play with its memory and without.

    Args:
        agent: plays in ``eval`` mode; its modes and the global generators are restored.
        world: to play in.
        episodes: rows, of which each plays one episode with memory and one without.
        seed: of the world and of sampled actions.
        greedy: take the likeliest action; False draws from the policy.
        longest: most steps of an episode; where one is not over then, rewards are compared instead of scores.

    Raises:
        WorldError: the world raises or returns invalid steps.
    """
    played = [_play(one, world, episodes, seed, greedy, longest) for one in (agent, _forgetful(agent))]
    scored = all(over.all() for _, _, over in played)
    kept, lost = (score if scored else reward for score, reward, _ in played)
    spread = confidence_interval(kept - lost, np.ones(episodes))
    return Ablation(
        remembering=float(kept.mean()),
        forgetting=float(lost.mean()),
        difference=(float(spread[0]), float(spread[1])),
        episodes=episodes,
        measure="score" if scored else "reward",
        chance=world.spec.chance if scored else float("nan"),
        oracle=world.spec.oracle if scored else float("nan"),
    )


def _play(
    agent: ActorCritic, config: WorldConfig, episodes: int, seed: int, greedy: bool, longest: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the score and the sum of rewards of each row's first episode, and whether it ended."""
    device = next(agent.parameters()).device
    score, reward = (torch.zeros(episodes, dtype=torch.float64, device=device) for _ in range(2))
    over = torch.zeros(episodes, dtype=torch.bool, device=device)
    world = GuardedWorld(config, episodes, seed=seed, device=device)
    try:
        with evaluation_mode(agent, seed):
            for number, played in enumerate(play(agent, world, seed=seed, greedy=greedy)):
                step = played.step
                reward += torch.where(over, 0.0, step.reward.double())
                score = torch.where(over | ~step.is_last, score, step.score.double())
                over = over | step.is_last
                if number == longest or bool(over.all()):
                    break
    finally:
        world.close()
    return score.cpu().numpy(), reward.cpu().numpy(), over.cpu().numpy()


class _StreamWithoutMemory:
    """One step at a time, each from the initial state."""

    def __init__(self, agent: ActorCritic, batch_size: int) -> None:
        self.agent, self.state = agent, agent.initial_state(batch_size)

    @torch.no_grad()
    def step(self, inputs: ActorInputs, is_first: Tensor) -> ActorCriticOutput:
        output, _ = self.agent(map_inputs(lambda leaf: leaf[:, None], inputs), self.state, is_first[:, None])
        return type(output)(*(part[:, 0] for part in output))


def _forgetful(agent: ActorCritic) -> ActorCritic:
    """Return an agent with the same weights whose stream remembers nothing."""
    other = copy.copy(agent)
    other.stream = lambda batch_size: _StreamWithoutMemory(other, batch_size)  # type: ignore[method-assign]
    return other
