"""Recorded inputs of an episode given to its agent again, step by step and in many variants."""

from collections.abc import Collection, Iterator
from typing import Any

import torch
from torch import Tensor

from recollect.agents.actor_critic import ActorCritic, ActorCriticOutput
from recollect.agents.contract import ActorInputs
from recollect.cores import CORES
from recollect.state import batch_size

BLOCK = 64
"""Most steps of a call: maps of a long episode need much memory."""


class Playback:
    """The inputs of an agent in one episode.

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
        """Inputs of the core, ``[1, T, *input_shape]``."""

    def part(self, start: int, stop: int) -> ActorInputs:
        """Return the inputs of some steps, ``[1, stop - start, ...]``."""
        return map_inputs(lambda leaf: leaf[:, start:stop], self.inputs)

    @torch.no_grad()
    def step(self, t: int, state: Any, encoded: Tensor | None = None) -> tuple[ActorCriticOutput, Any]:
        """Run step t in r variants.

        Args:
            t: of the episode.
            state: before it, of r rows.
            encoded: inputs of the core, ``[r, 1, *input_shape]``; None: those of the episode, in all rows.

        Returns:
            Policy and value, ``[r, 1, ...]``, and the states after the step.
        """
        agent, rows = self.agent, batch_size(state)
        if encoded is None:
            encoded = self.encoded[:, t : t + 1]
        encoded = encoded.expand(rows, *encoded.shape[1:])
        outputs, state = agent.core(encoded, state, self.is_first[:, t : t + 1].expand(rows, 1))
        return agent.decide(outputs, encoded, self.part(t, t + 1)), state

    @torch.no_grad()
    def states(self, steps: Collection[int] | None = None) -> Iterator[tuple[int, Any]]:
        """Yield steps, in their order, with the state before each, of one row; None: all steps."""
        state, done = self.agent.initial_state(1), 0
        for t in range(self.num_steps) if steps is None else sorted(steps):
            while done < t:
                stop = min(done + BLOCK, t)
                _, state = self.agent.core(self.encoded[:, done:stop], state, self.is_first[:, done:stop])
                done = stop
            yield t, state

    def state_before(self, step: int) -> Any:
        """Return the memory before a step."""
        if not 0 <= step < self.num_steps:
            raise ValueError(f"step={step}: this episode has steps 0..{self.num_steps - 1}")
        ((_, state),) = self.states([step])
        return state


def map_inputs(change: Any, inputs: ActorInputs) -> ActorInputs:
    """Apply a function to every tensor of an agent's inputs; None stays None."""

    def changed(part: Any) -> Any:
        if isinstance(part, dict):
            return {name: changed(child) for name, child in part.items()}
        return None if part is None else change(part)

    return ActorInputs._make(changed(part) for part in inputs)


def core_key(agent: ActorCritic) -> str:
    """Return the key of an agent's core; empty for a user-defined core."""
    return next((key for key, kind in CORES.items() if type(agent.core_config) is kind), "")
