"""Score of an agent on recorded episodes: how often it would act as they do, and how probable it finds them.

    whole numbers   score   share of the steps at which the likeliest action is the recorded one
    floats          score   1 - mean over steps and numbers of ((mode - action) / deviation)^2

The deviation is that of the training part's actions. The agent reads the recorded episode and not its own actions.
"""

import math
from dataclasses import dataclass
from typing import Any

import gymnasium
import numpy as np
import torch
from torch import Tensor

from recollect.agents.contract import ActorInputs
from recollect.agents.spaces import nest_parts
from recollect.config import require
from recollect.evaluation.confidence_interval import confidence_interval
from recollect.evaluation.predictions import PredictionLog
from recollect.evaluation.recorded_world import RecordingConfig, action_scale
from recollect.evaluation.recordings import Recording
from recollect.evaluation.sequences import Evaluation, eval_mode
from recollect.runs.progress import ProgressReporter

METRICS = ("score", "low", "high", "held_out_loss", "action_error")
UNROLL = 256
"""Steps per call; the memory is carried."""


@dataclass(frozen=True, kw_only=True)
class RecordedScore(Evaluation):
    """Evaluation of an agent on held-out episodes."""

    action_error: float
    """Share of wrong actions, or root mean squared error of floats in the units of the action."""

    def metrics(self) -> dict[str, float]:
        """Return the numbers of a row of metrics.csv, by the names of :data:`METRICS`."""
        numbers = (self.score, self.low, self.high, self.loss, self.action_error)
        return dict(zip(METRICS, numbers, strict=True))

    def to_json(self) -> dict[str, Any]:
        """Return all numbers but those of single steps."""
        return {**self.metrics(), "chance": self.chance, "episodes": len(self.asked), "steps": sum(self.asked)}

    def describe(self) -> str:
        """Describe the evaluation in one line."""
        return (
            f"score {self.score:.4f} ({self.interval()}{len(self.asked)} held-out episodes), "
            f"loss {self.loss:.4g}, action error {self.action_error:.4g}, chance {self.chance:.4f}"
        )


@torch.no_grad()
def score_recorded(
    agent: Any, config: RecordingConfig, *, episodes: int, batch_size: int, bfloat16: bool = False
) -> RecordedScore:
    """Score an agent on held-out episodes of a recording.

    Args:
        agent: an actor-critic; its mode is restored afterwards.
        config: of the recording, with the part that scores.
        episodes: most episodes.
        batch_size: episodes at a time.
        bfloat16: use autocast.

    Raises:
        ValueError: fewer than one episode.
    """
    require(episodes >= 1, "episodes", episodes, "score at least one")
    numbers = config.numbers(config.part)[:episodes]
    recording, space = config.recording.select(numbers), config.spec.action_space
    are_floats = isinstance(space, gymnasium.spaces.Box)
    device = next(agent.parameters()).device
    scale = torch.as_tensor(action_scale(config.episodes("train")), device=device) if are_floats else None
    score, asked, loss, squares = [], [], 0.0, 0.0
    log, count = PredictionLog(), ProgressReporter(len(numbers), "episodes")
    with eval_mode(agent):
        for first in range(0, len(numbers), batch_size):
            count.update(lambda done=first: done)
            part = recording.select(np.arange(first, min(first + batch_size, len(numbers))))
            policy, action, taken = _answers(agent, part, device, bfloat16)
            loss -= float(policy.log_prob(action)[taken].double().sum())
            mode = policy.mode()
            flat, right = (one.reshape(*taken.shape, -1) for one in (mode, action))
            if scale is None:
                step_score = (flat == right).all(2).double()
            else:
                errors = (flat.double() - right.double()).square()
                squares += float(errors[taken].mean(-1).sum())
                step_score = 1 - (errors / scale.square()).mean(2)
            score += torch.where(taken, step_score, 0.0).sum(1).tolist()
            asked += taken.sum(1).tolist()
            if isinstance(space, gymnasium.spaces.Discrete):
                log.add(policy.logits, action - int(space.start), taken)
            elif are_floats:
                log.add(flat, right.float(), taken)
    total = sum(asked)
    low, high = confidence_interval(np.array(score), np.array(asked))
    mean = sum(score) / total
    return RecordedScore(
        score=mean,
        low=low,
        high=high,
        perfect=math.nan if are_floats else float(np.mean([s == n for s, n in zip(score, asked, strict=True)])),
        loss=loss / total,
        action_error=math.sqrt(squares / total) if are_floats else 1 - mean,
        chance=config.spec.chance,
        correct=score,
        asked=asked,
        predictions=log.finish("episode", numbers.tolist(), {}) if log.parts else None,
    )


def _answers(agent: Any, recording: Recording, device: torch.device, bfloat16: bool) -> tuple[Any, Tensor, Tensor]:
    """Read whole episodes; return the policies, and recorded actions and whether one was taken, ``[b, t, ...]``."""
    lengths = torch.from_numpy(recording.lengths)
    step = torch.arange(int(lengths.max()) - 1)
    starts = lengths.cumsum(0) - lengths
    taken = (step < lengths[:, None] - 1).to(device)

    def gather(array: np.ndarray, ends: Tensor) -> Tensor:
        index = starts[:, None] + torch.minimum(step, ends[:, None] - 1)  # b t, behind an end its step again
        return torch.from_numpy(array)[index].to(device)

    action = gather(recording.action, lengths - 1)  # none is taken at the last step
    previous = torch.cat((torch.zeros_like(action[:, :1]), action[:, :-1]), 1)
    observation = {name: gather(leaf, lengths) for name, leaf in recording.observation.items()}
    is_first = (step == 0).expand(len(lengths), -1).to(device)
    reward, state, policies = gather(recording.reward, lengths).float(), agent.initial_state(len(lengths)), []
    for begin in range(0, len(step), UNROLL):
        cut = slice(begin, begin + UNROLL)
        seen = {name: leaf[:, cut] for name, leaf in observation.items()}
        unknown = reward.new_empty((*reward[:, cut].shape, 0))
        part = seen[""] if "" in seen else nest_parts(seen, ".")
        inputs = ActorInputs(part, previous[:, cut], reward[:, cut], unknown, unknown)
        with torch.autocast(device.type, torch.bfloat16, enabled=bfloat16):
            output, state = agent(inputs, state, is_first[:, cut])
        policies.append(output.policy.float())
    return agent.distribution(torch.cat(policies, 1)), action, taken
