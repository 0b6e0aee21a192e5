"""An episode told to its agent again, step by step and in many variants, the memory known at every step."""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from recollect.agents.actor_critic import ActorCritic, ActorCriticOutput
from recollect.agents.contract import ActorInputs
from recollect.state import batch_size


class Playback:
    """What an agent was told in one episode.

    Args:
        agent: in ``eval`` mode.
        inputs: of one row, ``[1, T, ...]``, from the episode's start.
    """

    @torch.no_grad()
    def __init__(self, agent: ActorCritic, inputs: ActorInputs) -> None:
        self.agent, self.inputs = agent, inputs
        self.num_steps = inputs.reward.shape[1]
        self.is_first = torch.zeros(1, self.num_steps, dtype=torch.bool, device=inputs.reward.device)
        self.is_first[:, 0] = True
        self.encoded = agent.encode(inputs, self.is_first)
        """``[1, T, *input_shape]``: what the core reads."""

    def part(self, start: int, stop: int) -> ActorInputs:
        """The inputs of some steps, ``[1, stop - start, ...]``."""
        return ActorInputs._make(None if part is None else _cut(part, start, stop) for part in self.inputs)

    @torch.no_grad()
    def step(self, t: int, state: Any, encoded: Tensor | None = None) -> tuple[ActorCriticOutput, Any]:
        """Step t in r variants.

        Args:
            t: of the episode.
            state: before it, of r rows.
            encoded: what the core reads, ``[r, 1, *input_shape]``; None: what it read in the episode, in all rows.

        Returns:
            Policy and value, ``[r, 1, ...]``, and the states after the step.
        """
        agent, rows = self.agent, batch_size(state)
        if encoded is None:
            encoded = self.encoded[:, t : t + 1]
        encoded = encoded.expand(rows, *encoded.shape[1:])
        outputs, state = agent.core(encoded, state, self.is_first[:, t : t + 1].expand(rows, 1))
        return agent.decide(outputs, encoded, self.part(t, t + 1)), state

    def states(self) -> Iterator[tuple[int, Any]]:
        """Every step with the state before it, of one row."""
        state = self.agent.initial_state(1)
        for t in range(self.num_steps):
            yield t, state
            _, state = self.step(t, state)

    def state_before(self, step: int) -> Any:
        """The memory with which the agent met a step."""
        if not 0 <= step < self.num_steps:
            raise ValueError(f"step={step}: this episode has steps 0..{self.num_steps - 1}")
        state = self.agent.initial_state(1)
        if step:
            with torch.no_grad():
                _, state = self.agent.core(self.encoded[:, :step], state, self.is_first[:, :step])
        return state


def _cut(part: Any, start: int, stop: int) -> Any:
    if isinstance(part, dict):
        return {name: _cut(child, start, stop) for name, child in part.items()}
    return part[:, start:stop]
