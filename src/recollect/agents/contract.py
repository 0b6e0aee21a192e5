"""What acting needs of an agent: a live form that takes one step of every row at a time, and action distributions.

:class:`~recollect.agents.actor_critic.ActorCritic` is such an agent. Whoever plays (rollouts, evaluations, films)
asks for no more than this.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple, Protocol

from torch import Tensor, nn

from recollect.agents.policies import Distribution, Policy


class ActorInputs(NamedTuple):
    """What an agent reads at every step; without the time axis in :meth:`AgentStream.step`."""

    observation: Any
    """A tensor or a (nested) dict or tuple of tensors ``[b, t, ...]``, as the observation space says."""
    action: Tensor
    """``[b, t, *action_shape]``: the action taken before this observation, long, or float for a Box; anything at
    ``is_first``."""
    reward: Tensor
    """float ``[b, t]``: received with this observation; anything at ``is_first``."""
    policy: Tensor | None = None
    """``[b, t, p]``: parameters of the agent's own policy at the step before, from which ``action`` was drawn unless a
    teacher acted; anything at ``is_first``. An agent that does not read them takes None."""
    features: Tensor | None = None
    """``[b, t, d]``: what the agent's output had as features at the step before; the same."""


class ActorOutput(Protocol):
    """What an agent says at every step."""

    @property
    def policy(self) -> Tensor:
        """``[b, p]``: parameters for :meth:`Agent.distribution`."""
        ...

    @property
    def value(self) -> Tensor:
        """``[b]``: expected discounted reward from here on."""
        ...

    @property
    def features(self) -> Tensor:
        """``[b, d]``: what the heads read."""
        ...


class AgentStream(Protocol):
    """An agent that lives: it owns its memory."""

    def step(self, inputs: ActorInputs, is_first: Tensor) -> ActorOutput:
        """One step of every row; ``is_first`` (bool ``[b]``) clears a row's memory before it."""
        ...

    @property
    def state(self) -> Any:
        """The memory (a copy): a tree of tensors, leading axis b."""
        ...

    def load_state(self, state: Any) -> None:
        """Continue from a state."""
        ...


class Agent(Protocol):
    """Who acts: a module with a live form and a policy."""

    @property
    def policy(self) -> Policy:
        """How its actions are drawn and stored."""
        ...

    @property
    def feature_dim(self) -> int:
        """Width of the features of its output that it wants to be shown at the next step; 0: it does not."""
        ...

    def stream(self, batch_size: int) -> AgentStream:
        """A live agent with the weights as they are now."""
        ...

    def distribution(self, policy: Tensor) -> Distribution:
        """The action distribution of policy parameters ``[..., p]``."""
        ...

    def parameters(self) -> Iterator[nn.Parameter]:
        """Its weights."""
        ...

    def buffers(self) -> Iterator[Tensor]:
        """Its other tensors."""
        ...

    def modules(self) -> Iterator[nn.Module]:
        """Itself and all modules in it."""
        ...

    def eval(self) -> Any:
        """Switch to acting: no dropout."""
        ...


def no_previous_output(agent: Agent, batch_size: int, like: Tensor) -> tuple[Tensor, Tensor]:
    """What stands for policy ``[b, p]`` and features ``[b, d]`` before a first observation; no agent reads them."""
    return like.new_zeros(batch_size, agent.policy.num_parameters), like.new_zeros(batch_size, agent.feature_dim)


def as_previous_output(agent: Agent, output: ActorOutput) -> tuple[Tensor, Tensor]:
    """Policy ``[b, p]`` and features ``[b, d]`` of an output, as the agent is shown them at the next step."""
    return output.policy, output.features[..., : agent.feature_dim]
