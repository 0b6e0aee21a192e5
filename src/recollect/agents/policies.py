"""Policies: from a network's outputs to a distribution over the actions of a Gymnasium space, and back.

    policy = policy_for(action_space)
    parameters = policy.complete(head(features))          # [..., policy.num_parameters]
    actions = policy.distribution(parameters).sample()    # [..., *action_space.shape], elements of the space

A rollout stores ``parameters``, from which the probability of its actions can be computed later.

Discrete        softmax over the actions
MultiDiscrete   one softmax per entry, independent of each other (MultiBinary: two choices per entry)
Box             one Gaussian per entry; the mean depends on the observation, log sigma is learned and does not

**Bounds of a Box.** A bounded entry is drawn in units in which the bounds are -1 and 1, so that the initial policy
covers the range. A sample beyond a bound is clipped to it, and ``log_prob`` of an action on a bound is the logarithm of
the probability beyond it: the world, the storage and the learner all use the clipped action, without bias (Fujita &
Maeda, 2018, Clipped Action Policy Gradient). ``entropy`` is that of the Gaussian before clipping, which an entropy
bonus should keep high. Integer Boxes have no density: use MultiDiscrete.

**Action masks.** Where the observation is a Dict with ``action_mask`` and the actions are Discrete, the logits of
actions whose entry is 0 are replaced by -1e30 (Huang & Ontañón, 2022, A Closer Look at Invalid Action Masking): they
are never drawn and get no gradient. A rollout stores masked logits, so no other code handles masks. A row whose mask
allows nothing (for example after the end of an episode) is not masked.

Everything is computed in float32 or better. Sampling never waits for the device.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import cached_property
from typing import Any, Self

import numpy as np
import torch
from gymnasium import spaces
from torch import Generator, Tensor, nn

_HALF_LOG_2PI = 0.5 * math.log(2 * math.pi)
_NEVER = -1e30  # logit of an impossible choice; finite, so that 0 * log 0 is 0
MOST_CHOICES = 1 << 24  # of a space
ACTION_MASK = "action_mask"  # key of the part of an observation that has 1 for every allowed Discrete action
_FIRST_LOG_STD = -0.5  # sigma 0.6: nine of ten initial actions lie within bounds of -1 and 1


class Distribution(ABC):
    """Distribution over actions; its batch shape is that of the parameters without the last axis."""

    @abstractmethod
    def sample(self, generator: Generator | None = None) -> Tensor:
        """Draw actions ``[..., *action_space.shape]`` with ``generator``, or with torch's global one."""

    @abstractmethod
    def mode(self) -> Tensor:
        """Return the most probable actions ``[..., *action_space.shape]``."""

    @abstractmethod
    def log_prob(self, actions: Tensor) -> Tensor:
        """Return log-probabilities (Box: log-densities) ``[...]`` of actions ``[..., *action_space.shape]``."""

    @abstractmethod
    def entropy(self) -> Tensor:
        """Return the entropy in nats, ``[...]``."""

    @abstractmethod
    def divergence(self, teacher: "Distribution") -> Tensor:
        """Return KL(teacher || this) in nats, ``[...]``, for a teacher's distribution over the same space."""


class Policy(nn.Module, ABC):
    """Distribution of the actions of a space, and their encoding as a network's input."""

    num_outputs: int  # width of the policy head
    num_parameters: int  # p, number of parameters of the distribution
    encoding_dim: int  # width of an encoded action

    def complete(self, outputs: Tensor) -> Tensor:
        """Return parameters ``[..., p]`` for the head's outputs ``[..., num_outputs]``."""
        return outputs

    @abstractmethod
    def distribution(self, parameters: Tensor) -> Distribution:
        """Return the distribution with parameters ``[..., p]``."""

    @abstractmethod
    def encode(self, actions: Tensor) -> Tensor:
        """Encode actions ``[..., *action_space.shape]`` as a network's input, float ``[..., encoding_dim]``."""

    def is_valid(self, actions: Tensor) -> Tensor:
        """Return which of the actions ``[b, *action_space.shape]`` :meth:`encode` can encode, bool ``[b]``."""
        return actions.new_ones(len(actions), dtype=torch.bool)

    def require_valid(self, previous: Tensor, is_first: Tensor, space: spaces.Space[Any]) -> None:
        """Raise ``ValueError`` unless the previous actions ``[b, *shape]`` of all rows that do not begin are valid.

        On a CPU only: elsewhere reading the answer would wait for the device.

        Args:
            previous: action before the observation of each row.
            is_first: bool ``[b]``, rows that begin an episode.
            space: of the actions, for the message.
        """
        if previous.device.type != "cpu" or (valid := self.is_valid(previous)).all():
            return
        wrong = ~(valid | is_first)
        if wrong.any():
            row = int(wrong.nonzero()[0])
            raise ValueError(
                f"action={previous[row].tolist()} in row {row}: it is not in {space}; give the action that was taken "
                "before this observation, or is_first=True where an episode begins"
            )


def policy_for(space: spaces.Space[Any]) -> Policy:
    """Return the policy for an action space.

    Raises:
        ValueError: no policy is defined over this space; the message has a remedy.
    """
    _require_few_choices(space)
    if isinstance(space, spaces.Discrete):
        return CategoricalPolicy(int(space.n), start=int(space.start))
    if isinstance(space, spaces.MultiDiscrete):
        return MultiCategoricalPolicy(np.asarray(space.nvec), start=np.asarray(space.start))
    if isinstance(space, spaces.MultiBinary):
        return MultiCategoricalPolicy(np.full(space.shape, 2), start=np.zeros(space.shape, np.int64))
    if isinstance(space, spaces.Box):
        if not np.issubdtype(space.dtype, np.floating):
            raise ValueError(
                f"action space {space}: a Box of {space.dtype} has no density; describe integer actions as "
                "MultiDiscrete, with a wrapper around the environment"
            )
        if not math.prod(space.shape):
            raise ValueError(f"action space {space}: there is nothing to choose in an empty Box")
        return GaussianPolicy(space.low, space.high)
    if isinstance(space, (spaces.Dict, spaces.Tuple)):
        remedy = "flatten its parts into one MultiDiscrete or one Box, with a wrapper around the environment"
    else:
        remedy = "use Discrete, MultiDiscrete, MultiBinary or Box"
    raise ValueError(f"action space {space}: no policy is defined over a {type(space).__name__}; {remedy}")


def _require_few_choices(space: spaces.Space[Any]) -> None:
    number = 0
    if isinstance(space, spaces.Discrete):
        number = int(space.n)
    elif isinstance(space, spaces.MultiDiscrete):
        number = max(sum(map(int, space.nvec.flat)), space.nvec.size * int(space.nvec.max()))
    if number > MOST_CHOICES:
        raise ValueError(
            f"{space} has {number:,} choices, and each has a weight of its own: give at most {MOST_CHOICES:,}, split "
            "them into several choices, or give a number in a Box"
        )


def has_action_mask(observation_space: spaces.Space[Any], action_space: spaces.Space[Any]) -> bool:
    """Whether observations have an action mask.

    Raises:
        ValueError: the mask does not fit the actions.
    """
    if not isinstance(observation_space, spaces.Dict) or ACTION_MASK not in observation_space.spaces:
        return False
    mask = observation_space[ACTION_MASK]
    if not isinstance(action_space, spaces.Discrete) or mask.shape != (action_space.n,):
        raise ValueError(
            f"observation {ACTION_MASK} is {mask}, for actions {action_space}: a mask needs Discrete actions and one "
            "number for each; give the entry another name if it is none"
        )
    return True


def mask_logits(logits: Tensor, allowed: Tensor) -> Tensor:
    """Mask logits ``[..., a]`` where ``allowed`` ``[..., a]`` is 0; float16, which has no -1e30, becomes float32."""
    allowed, logits = allowed != 0, _with_range(logits)
    return logits.masked_fill(~(allowed | ~allowed.any(-1, keepdim=True)), _NEVER)


def marginal_policy(parameters: Tensor) -> Tensor:
    """Return parameters ``[..., p]`` of the policy without any input: all allowed choices are equally likely."""
    return parameters.masked_fill(parameters > _NEVER / 2, 0.0)


def _with_range(parameters: Tensor) -> Tensor:
    """Return parameters in a dtype that has ``_NEVER``."""
    return parameters.float() if parameters.dtype == torch.float16 else parameters


def _float(parameters: Tensor) -> Tensor:
    return parameters.to(torch.promote_types(parameters.dtype, torch.float32))


def _flatten(actions: Tensor, shape: tuple[int, ...]) -> Tensor:
    """Join the axes of an action: ``[..., *shape] -> [..., k]``."""
    return actions.reshape(*actions.shape[: actions.ndim - len(shape)], math.prod(shape))  # -1 needs a row


def _draw(logits: Tensor, generator: Generator | None) -> Tensor:
    """Draw from softmaxes ``[..., a] -> [...]``: the first of a exponential clocks with rates exp(logits)."""
    clocks = torch.empty_like(logits).exponential_(generator=generator).log_()
    return torch.sub(logits, clocks).argmax(-1)


class _Choices(Distribution):
    """Base of the distributions over one choice or several independent ones."""

    entry_axes: tuple[int, ...]  # axes of the choices of an action, in `logits`

    def __init__(self, logits: Tensor) -> None:
        self.logits = _float(logits)

    @abstractmethod
    def _to_actions(self, choices: Tensor) -> Tensor:
        """Return the actions of choices that are numbered from 0."""

    @cached_property
    def log_probs(self) -> Tensor:
        """Log-probabilities of all choices, shaped as ``logits``."""
        return self.logits.log_softmax(-1)

    def sample(self, generator: Generator | None = None) -> Tensor:
        """Draw one action per row, as integers."""
        return self._to_actions(_draw(self.logits.detach(), generator))

    def mode(self) -> Tensor:
        """Return the most probable actions, long."""
        return self._to_actions(self.logits.argmax(-1))

    def entropy(self) -> Tensor:
        """Return the entropy in nats, summed over the choices."""
        return -(self.log_probs.exp() * self.log_probs).sum(self.entry_axes)

    def divergence(self, teacher: Distribution) -> Tensor:
        """Return KL(teacher || this) in nats, summed over the choices."""
        assert isinstance(teacher, type(self))
        return (teacher.log_probs.exp() * (teacher.log_probs - self.log_probs)).sum(self.entry_axes)


class Categorical(_Choices):
    """Distribution over one of a choices.

    Args:
        logits: ``[..., a]``.
        start: number of the first action.
    """

    entry_axes = (-1,)

    def __init__(self, logits: Tensor, start: int = 0) -> None:
        super().__init__(logits)
        self.start = start

    def _to_actions(self, choices: Tensor) -> Tensor:
        return choices + self.start if self.start else choices

    def log_prob(self, actions: Tensor) -> Tensor:
        """Return log-probabilities of actions ``[...]``."""
        index = actions - self.start if self.start else actions
        return self.log_probs.gather(-1, index[..., None]).squeeze(-1)


class CategoricalPolicy(Policy):
    """Policy over a Discrete action space.

    Args:
        num_actions: a.
        start: number of the first action.
    """

    choices: Tensor

    def __init__(self, num_actions: int, *, start: int = 0) -> None:
        super().__init__()
        self.num_outputs = self.num_parameters = self.encoding_dim = num_actions
        self.start = start
        self.register_buffer("choices", torch.arange(start, start + num_actions), persistent=False)

    def distribution(self, parameters: Tensor) -> Categorical:
        """Return the distribution with logits ``[..., a]``."""
        return Categorical(parameters, self.start)

    def encode(self, actions: Tensor) -> Tensor:
        """Encode actions as one-hot ``[..., a]``; a number that is no action as zeros."""
        return (actions[..., None] == self.choices).float()

    def is_valid(self, actions: Tensor) -> Tensor:
        """Return which numbers ``[b]`` are actions."""
        return (actions[..., None] == self.choices).any(-1)


class MultiCategorical(_Choices):
    """Distribution of k independent choices.

    Args:
        logits: ``[..., k, a]``; a is that of the entry with most choices, the others end with ``-1e30``.
        start: numbers of the first choices, long, of the action's shape.
    """

    entry_axes = (-1, -2)

    def __init__(self, logits: Tensor, start: Tensor) -> None:
        super().__init__(logits)
        self.start = start

    def _to_actions(self, choices: Tensor) -> Tensor:
        return choices.unflatten(-1, self.start.shape) + self.start

    def log_prob(self, actions: Tensor) -> Tensor:
        """Return log-probabilities of actions ``[..., *shape]``, summed over the entries."""
        index = _flatten(actions - self.start, self.start.shape)
        return self.log_probs.gather(-1, index[..., None]).squeeze(-1).sum(-1)


class MultiCategoricalPolicy(Policy):
    """Several discrete choices at once.

    Args:
        sizes: number of choices of every entry, an integer array of the action's shape.
        start: number of the first choice of every entry.
    """

    start: Tensor
    choices: Tensor
    owners: Tensor
    columns: Tensor

    def __init__(self, sizes: np.ndarray, *, start: np.ndarray) -> None:
        super().__init__()
        flat = torch.from_numpy(np.ascontiguousarray(sizes).reshape(-1)).long()
        self.num_outputs = self.num_parameters = self.encoding_dim = int(flat.sum())
        self.entries, self.most = len(flat), int(flat.max())
        choices = torch.arange(self.most).expand(self.entries, self.most)
        offered = choices < flat[:, None]  # k a
        # Column of each choice in the parameters; a choice that an entry does not have reads one column behind the end.
        first = flat.cumsum(0) - flat
        columns = torch.where(offered, choices + first[:, None], self.num_parameters)
        self.even = bool(offered.all())
        self.register_buffer("start", torch.from_numpy(np.ascontiguousarray(start)).long(), persistent=False)
        self.register_buffer("choices", choices[offered], persistent=False)
        self.register_buffer("owners", offered.nonzero()[:, 0], persistent=False)
        self.register_buffer("columns", columns.flatten(), persistent=False)

    def distribution(self, parameters: Tensor) -> MultiCategorical:
        """Return the distribution with logits of all entries side by side, ``[..., p]``."""
        if not self.even:
            padded = nn.functional.pad(_with_range(parameters), (0, 1), value=_NEVER)
            parameters = padded.index_select(-1, self.columns)
        return MultiCategorical(parameters.unflatten(-1, (self.entries, self.most)), self.start)

    def encode(self, actions: Tensor) -> Tensor:
        """Encode actions as one-hots side by side, ``[..., p]``; a number that is no choice as zeros."""
        index = _flatten(actions - self.start, self.start.shape)
        return (index.index_select(-1, self.owners) == self.choices).float()

    def is_valid(self, actions: Tensor) -> Tensor:
        """Return where all entries of the actions ``[b, *shape]`` are choices."""
        return self.encode(actions).sum(-1) == self.entries


class DiagonalGaussian(Distribution):
    """k independent Gaussians, clipped to the bounds of a Box.

    Args:
        parameters: ``[..., 2 k]``: means, then log sigmas, in units of ``box.scale``.
        box: the bounds and units.
    """

    def __init__(self, parameters: Tensor, box: "GaussianPolicy") -> None:
        self.mean, self.log_std = _float(parameters).chunk(2, -1)  # ... k
        self.box = box

    def sample(self, generator: Generator | None = None) -> Tensor:
        """Draw actions ``[..., *shape]`` within the bounds."""
        mean = self.mean.detach()
        noise = torch.empty_like(mean).normal_(generator=generator)
        return self._clip(torch.addcmul(mean, noise, self.log_std.detach().exp()))

    def mode(self) -> Tensor:
        """Return the means ``[..., *shape]``, within the bounds."""
        return self._clip(self.mean)

    def log_prob(self, actions: Tensor) -> Tensor:
        """Return log-densities of actions ``[..., *shape]``; on a bound, log-probabilities of the range beyond it."""
        box = self.box
        actions = _flatten(actions, box.shape).to(self.mean.dtype)
        std = self.log_std.exp()
        distance = ((actions - box.center) / box.scale - self.mean) / std
        inside = -0.5 * distance.square() - self.log_std - (box.scale.log() + _HALF_LOG_2PI)
        if not box.bounded:
            return inside.sum(-1)
        below, above = actions <= box.low, actions >= box.high
        beyond = torch.where(below, box.low_edge - self.mean, self.mean - box.high_edge)
        # Selected before the division as well: the gradient of the other branch must be finite.
        mass = torch.special.log_ndtr(torch.where(below | above, beyond, 0.0) / std)
        mass = torch.where(below & above, 0.0, mass)  # an entry with a single value
        return torch.where(below | above, mass, inside).sum(-1)

    def entropy(self) -> Tensor:
        """Return the entropy of the Gaussians before clipping, in nats (in the units of the space)."""
        return (self.log_std + (self.box.scale.log() + _HALF_LOG_2PI + 0.5)).sum(-1)

    def divergence(self, teacher: "Distribution") -> Tensor:
        """Return KL(teacher || this) of the Gaussians before clipping, in nats."""
        assert isinstance(teacher, DiagonalGaussian)
        ratio = (2 * (teacher.log_std - self.log_std)).exp()
        distance = (teacher.mean - self.mean).square() * (-2 * self.log_std).exp()
        return 0.5 * (ratio + distance - 1 - ratio.log()).sum(-1)

    def _clip(self, drawn: Tensor) -> Tensor:
        box = self.box
        actions = torch.addcmul(box.center, drawn, box.scale).clamp(box.low, box.high)
        return actions.reshape(*drawn.shape[:-1], *box.shape)


class GaussianPolicy(Policy):
    """Policy over a Box of continuous actions.

    Bounds and units stay float32 (or float64) where the weights have fewer digits, so that actions stay in the space.

    Args:
        low: least action, of the action's shape; may hold -inf.
        high: largest action; may hold inf.
    """

    low: Tensor
    high: Tensor
    center: Tensor
    scale: Tensor
    low_edge: Tensor
    high_edge: Tensor

    def __init__(self, low: np.ndarray, high: np.ndarray) -> None:
        super().__init__()
        self.shape = low.shape
        lower = torch.from_numpy(np.array(low, np.float32)).flatten()
        upper = torch.from_numpy(np.array(high, np.float32)).flatten()
        self.num_outputs = self.encoding_dim = len(lower)
        self.num_parameters = 2 * len(lower)
        width = upper - lower  # infinite too between bounds that only stand for none, such as those of float32
        both = width.isfinite() & (width > 0)
        center = torch.where(both, (lower + upper) / 2, 0.0)
        scale = torch.where(both, width / 2, 1.0)
        self.bounded = bool((lower.isfinite() | upper.isfinite()).any())
        edges = {"low_edge": (lower - center) / scale, "high_edge": (upper - center) / scale}
        buffers = {"low": lower, "high": upper, "center": center, "scale": scale}
        for name, value in buffers.items():
            self.register_buffer(name, value, persistent=False)
        for name, value in edges.items():  # in the units of the mean; unused where there is no bound
            self.register_buffer(name, torch.where(value.isfinite(), value, 0.0), persistent=False)
        self.log_std = nn.Parameter(torch.full((len(lower),), _FIRST_LOG_STD))

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        exact = dict(self.named_buffers())
        super()._apply(fn, recurse)
        for name, buffer in self.named_buffers():
            if buffer.dtype.itemsize < 4:  # actions clipped to rounded bounds would leave the space
                setattr(self, name, exact[name].to(buffer.device))
        return self

    def complete(self, outputs: Tensor) -> Tensor:
        """Append the learned log sigmas to the means ``[..., k]``: ``[..., 2 k]``."""
        return torch.cat((outputs, self.log_std.to(outputs.dtype).expand_as(outputs)), -1)

    def distribution(self, parameters: Tensor) -> DiagonalGaussian:
        """Return the distribution with parameters ``[..., 2 k]``."""
        return DiagonalGaussian(parameters, self)

    def encode(self, actions: Tensor) -> Tensor:
        """Scale actions to units in which the bounds are -1 and 1, ``[..., k]``."""
        return (_flatten(actions, self.shape) - self.center) / self.scale
