"""What acting needs of an agent: a live form that takes one step of every row at a time, and action distributions.

:class:`~recollect.agents.actor_critic.ActorCritic` is such an agent. Whoever plays (rollouts, evaluations, films)
asks for no more than this.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple, Protocol

from torch import Tensor, nn

from recollect.agents.policies import Distribution, Policy


class ActorInputs(NamedTuple):
    """What an agent reads at every step; without the time axis in :meth:`LiveAgent.step`."""

    observation: Any
    """A tensor or a (nested) dict or tuple of tensors ``[b, t, ...]``, as the observation space says."""
    action: Tensor
    """``[b, t, *action_shape]``: the action taken before this observation, long, or float for a Box; anything at
    ``is_first``."""
    reward: Tensor
    """float ``[b, t]``: received with this observation; anything at ``is_first``."""


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


class LiveAgent(Protocol):
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

    def stream(self, batch_size: int) -> LiveAgent:
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
