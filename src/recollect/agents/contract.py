"""Interface of agents that act: a stream that takes one step of every row at a time, and action distributions.

:class:`~recollect.agents.actor_critic.ActorCritic` is such an agent. Rollouts, evaluations and videos use nothing else.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple, Protocol

from torch import Tensor, nn

from recollect.agents.policies import Distribution, Policy


class ActorInputs(NamedTuple):
    """Inputs of an agent at every step; without the time axis in :meth:`AgentStream.step`."""

    observation: Any
    """A tensor or a (nested) dict or tuple of tensors ``[b, t, ...]``, as the observation space defines."""
    action: Tensor
    """``[b, t, *action_shape]``: the action before this observation, long, or float for a Box; anything at
    ``is_first``."""
    reward: Tensor
    """float ``[b, t]``: received with this observation; anything at ``is_first``."""
    policy: Tensor | None = None
    """``[b, t, p]``: parameters of the agent's own policy at the previous step, which drew ``action`` unless a teacher
    acted; anything at ``is_first``. None for an agent that does not read them."""
    features: Tensor | None = None
    """``[b, t, d]``: features of the agent's output at the previous step; otherwise as ``policy``."""


class ActorOutput(Protocol):
    """Output of an agent at every step."""

    @property
    def policy(self) -> Tensor:
        """Parameters of the actions' distribution, for :meth:`Agent.distribution`: ``[b, p]``."""
        ...

    @property
    def value(self) -> Tensor:
        """Expected discounted future reward, ``[b]``."""
        ...

    @property
    def features(self) -> Tensor:
        """Input of the heads, ``[b, d]``."""
        ...


class AgentStream(Protocol):
    """Agent that owns its memory and takes one step at a time."""

    def step(self, inputs: ActorInputs, is_first: Tensor) -> ActorOutput:
        """Take one step of every row; ``is_first`` (bool ``[b]``) resets a row's memory before it."""
        ...

    @property
    def state(self) -> Any:
        """A copy of the memory: a tree of tensors, leading axis b."""
        ...

    def load_state(self, state: Any) -> None:
        """Continue from a state of the memory."""
        ...


class Agent(Protocol):
    """Module with a stream and a policy."""

    @property
    def policy(self) -> Policy:
        """How actions are drawn and stored."""
        ...

    @property
    def feature_dim(self) -> int:
        """Width of its own features that it reads at the next step; 0: none."""
        ...

    def stream(self, batch_size: int) -> AgentStream:
        """Return a stream with the present weights."""
        ...

    def distribution(self, policy: Tensor) -> Distribution:
        """Return the action distribution of policy parameters ``[..., p]``."""
        ...

    def parameters(self) -> Iterator[nn.Parameter]:
        """Yield the agent's weights, as nn.Module does."""
        ...

    def buffers(self) -> Iterator[Tensor]:
        """Yield the tensors that are not trained."""
        ...

    def modules(self) -> Iterator[nn.Module]:
        """Yield the module itself and all modules in it."""
        ...

    def eval(self) -> Any:
        """Switch dropout off."""
        ...


def no_previous_output(agent: Agent, batch_size: int, like: Tensor) -> tuple[Tensor, Tensor]:
    """Return the placeholders of policy ``[b, p]`` and features ``[b, d]`` before a first step; no agent reads them."""
    return like.new_zeros(batch_size, agent.policy.num_parameters), like.new_zeros(batch_size, agent.feature_dim)


def as_previous_output(agent: Agent, output: ActorOutput) -> tuple[Tensor, Tensor]:
    """Return the policy ``[b, p]`` and features ``[b, d]`` of an output that are inputs of the next step."""
    return output.policy, output.features[..., : agent.feature_dim]
