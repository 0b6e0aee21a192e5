"""Worlds: b episodes that advance together, with one action and one observation per step.

    world = config.build(batch_size=64, seed=0)
    step = world.reset()                       # every row is_first
    while True:
        step = world.step(actions)             # actions chosen on the observation of the step before

**One rule for the end of an episode** (Gymnasium calls it NEXT_STEP): the step that ends an episode shows its true
final observation, with ``terminated`` or ``truncated`` set; the step after it ignores that row's action, gives no
reward and shows the first observation of a new episode, with ``is_first`` set. The final observation is thus a row like
any other: a learner can bootstrap from its value where a time limit truncated the episode.

The worlds of this library are batches of rows in torch on any device (:class:`TensorWorld`), and become Gymnasium
environments in ``tasks/gymnasium/views.py``. Other Gymnasium environments become worlds in
``tasks/gymnasium/worlds.py``.
"""

from __future__ import annotations

import math
import re
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, Self, TypeAlias, TypeVar

from recollect.config import CheckedConfig
from recollect.lazy import gymnasium, torch
from recollect.state import map_state, named_leaves, put_rows, where_first

S = TypeVar("S")

NEW_EPISODE = "new episode"
"""Name of the event, in ``spec.events``, that begins an episode inside another one without a reset. The last such
episode decides the score."""

Observation: TypeAlias = "torch.Tensor | dict[str, torch.Tensor]"
"""``[b, ...]``, or a dict of such: the observation space with a leading batch axis."""


@dataclass(frozen=True, kw_only=True)
class WorldSpec:
    """Description of a world, for agents and tables."""

    observation_space: gymnasium.Space[Any]
    """Observation of one row. In a Dict the key ``language`` has words: MultiDiscrete, one per word, 0 is padding."""
    action_space: gymnasium.Space[Any]
    """Action of one row."""
    max_steps: int
    """Actions after which an episode is truncated; 0 when unknown."""
    memory_span: int
    """Most steps between an observation and the latest decision that depends on it; 0 when unknown."""
    chance: float
    """Expected score of an agent without memory; NaN when unknown."""
    oracle: float
    """Expected score of the best policy (see :meth:`World.oracle`); NaN when unknown."""
    events: tuple[str, ...] = ()
    """Names of events, for :class:`Truth`."""
    object_names: tuple[str, ...] = ()
    """Names of the objects in a frame, for :class:`Scene`."""
    action_names: tuple[str, ...] = ()
    """Names of the actions of a Discrete space, for videos; empty when unknown."""
    num_labels: int = 0
    """Number of classes of what must be remembered, for :class:`Truth`; 0 without such labels."""
    labels_per_step: int = 1
    """Labels per step, each one of these classes."""
    bits: float = math.nan
    """Largest amount that must be remembered for a later decision, in bits; NaN when unknown."""
    words: tuple[str, ...] = ()
    """Word of every number in ``language``, the first of them empty; empty when unknown."""
    policies: tuple[str, ...] = ()
    """Names of policies, other than the oracle, to compare scores with: see :meth:`World.expert`."""


class Step(NamedTuple):
    """Observation, reward and episode flags of b rows after a step."""

    observation: Any
    """An :data:`Observation`; the world never writes to it again."""
    reward: torch.Tensor
    """float32 ``[b]``: of the previous action; 0 at ``is_first``."""
    is_first: torch.Tensor
    """bool ``[b]``: first observation of an episode."""
    terminated: torch.Tensor
    """bool ``[b]``: last observation of an episode that ended without a time limit; its value is 0."""
    truncated: torch.Tensor
    """bool ``[b]``: last observation of an episode that a time limit ended; never with ``terminated``."""
    score: torch.Tensor
    """float32 ``[b]``: score of the episode at its last observation, 0 elsewhere; the unit of ``chance`` and
    ``oracle``."""

    @property
    def is_last(self) -> torch.Tensor:
        """Rows with the last observation of an episode, bool ``[b]``."""
        return self.terminated | self.truncated


class Truth(NamedTuple):
    """Ground truth about the present step of every row, for probes, pictures and training targets.

    Agents never read it.
    """

    event: torch.Tensor
    """long ``[b]``: index of the present event in ``spec.events``; -1 where there is none."""
    start: torch.Tensor
    """long ``[b]``: the present decision depends on steps ``start .. stop - 1`` of this episode; -1 where on none."""
    stop: torch.Tensor
    """long ``[b]``: see ``start``."""
    label: torch.Tensor | None = None
    """long ``[b]``: class of what must be remembered now, below ``spec.num_labels``; -1 where nothing must be. ``[b,
    q]`` where ``spec.labels_per_step`` is q > 1. None in a world without labels."""


class Scene(NamedTuple):
    """Bounding boxes of the objects in the present frame of every row, for measures of attention."""

    boxes: torch.Tensor
    """long ``[b, objects, 4]``: first row, first column, and the row and column after the last ones, in pixels."""
    visible: torch.Tensor
    """bool ``[b, objects]``: the object is visible."""
    matters: torch.Tensor
    """bool ``[b, objects]``: the present decision depends on the object."""


class World(ABC):
    """b episodes that advance together, made by :meth:`WorldConfig.build`."""

    spec: WorldSpec
    batch_size: int
    device: torch.device

    @abstractmethod
    def reset(self, seed: int | None = None) -> Step:
        """Begin new episodes in all rows, with a generator seeded by ``seed`` (None continues the present one)."""

    @abstractmethod
    def step(self, actions: torch.Tensor) -> Step:
        """Advance every row.

        Args:
            actions: ``[b, *action_space.shape]``, integers for Discrete and MultiDiscrete, floats for Box. Ignored in
                rows whose last step ended an episode.

        Raises:
            ValueError: actions of the wrong shape or dtype, or out of range.
            RuntimeError: before the first reset.
        """

    def begin_rows(self, rows: torch.Tensor) -> Step:
        """Begin new episodes in ``rows``, bool ``[b]``, without advancing the others; for other rules than NEXT_STEP.

        Returns:
            The present observation of every row; nothing is first, over or rewarded except that ``rows`` are first.

        Raises:
            ValueError: this world only begins an episode with the step that follows the last one.
        """
        raise ValueError(f"{type(self).__name__} begins episodes by the NEXT_STEP rule only")

    def oracle(self) -> torch.Tensor | None:
        """Return the best action of every row, computed from the world's hidden state; None where unknown."""
        return None

    def expert(self, name: str) -> torch.Tensor | None:
        """Return the actions of a named policy of the world: ``oracle``, or one in ``spec.policies``.

        The policy must have an action in every state, whatever actions led there. A world with further policies
        overrides this method.

        Returns:
            Actions ``[b, *action_space.shape]``; None for an unknown policy.
        """
        return self.oracle() if name == "oracle" else None

    def truth(self) -> Truth | None:
        """Return the ground truth about the present step; None where unknown."""
        return None

    def scene(self) -> Scene | None:
        """Return the objects in the present frame; None where unknown."""
        return None

    def save(self) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
        """Return the complete state of the world: tensors, and JSON data.

        Raises:
            ValueError: this world cannot be saved within an episode.
        """
        raise ValueError(f"{type(self).__name__} cannot be saved: use reset() instead")

    def load(self, tensors: Mapping[str, torch.Tensor], data: Mapping[str, Any]) -> None:
        """Restore the state that :meth:`save` returned."""
        raise ValueError(f"{type(self).__name__} cannot be loaded: use reset() instead")

    def close(self) -> None:
        """Release processes and windows."""
        return


def escape_key(key: str) -> str:
    """Return a key as it stands in names of parts, of modules and in files: ``.`` as ``%2E`` and ``/`` as ``%2F``.

    Both separate the keys of a name. A ``%`` is kept unless it would be read as an escape.
    """
    return re.sub("%(?=2[5EF])", "%25", key).replace(".", "%2E").replace("/", "%2F")


def observation_leaves(tree: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the name and the part of every leaf of an observation, or of its space.

    A single leaf has an empty name, the name of an entry of a dict begins with a dot.
    """
    if not isinstance(tree, Mapping):
        yield prefix, tree
        return
    for key, part in tree.items():
        yield from observation_leaves(part, f"{prefix}.{escape_key(str(key))}")


def require_form(actions: torch.Tensor, space: gymnasium.Space[Any], batch_size: int) -> None:
    """Raise ``ValueError`` unless actions are a tensor with the shape and the dtype kind of a space, in every row."""
    integers = not isinstance(space, gymnasium.spaces.Box)
    expected = (batch_size, *(space.shape or ()))
    wanted = f"{'integers' if integers else 'floats'} {list(expected)}"
    if not isinstance(actions, torch.Tensor):
        raise ValueError(f"actions are a {type(actions).__name__}; this world takes a tensor of {wanted}")
    whole = not (actions.is_floating_point() or actions.is_complex() or actions.dtype == torch.bool)
    if tuple(actions.shape) != expected or not (whole if integers else actions.is_floating_point()):
        raise ValueError(f"actions are {actions.dtype} {list(actions.shape)}; this world takes {wanted}")


def require_range(actions: torch.Tensor, first: int, last: int) -> None:
    """Raise ``ValueError`` unless all actions are whole numbers from ``first`` to ``last``."""
    low, high = int(actions.min()), int(actions.max())
    if low < first or high > last:
        raise ValueError(f"action {low if low < first else high} is out of range: use {first}..{last}")


@dataclass(frozen=True, kw_only=True)
class WorldConfig(CheckedConfig, ABC):
    """Base of the configs of worlds, whose fields set the difficulty."""

    @property
    @abstractmethod
    def spec(self) -> WorldSpec:
        """Description of the world with these settings."""

    @abstractmethod
    def build(self, batch_size: int, *, seed: int = 0, device: torch.device | str = "cpu") -> World:
        """Build the world with ``batch_size`` rows."""

    @property
    def title(self) -> str:
        """Name for people."""
        return type(self).__name__.removesuffix("Config")

    def with_rendering(self) -> Self:
        """Return the config whose world is shown in pictures: one that draws itself, where another has to be made."""
        return self


class Advance(NamedTuple):
    """Result of a step of :class:`TensorWorld`, before new episodes begin."""

    state: Any
    """The world's state after the actions."""
    reward: torch.Tensor
    """float32 ``[b]``."""
    terminated: torch.Tensor
    """bool ``[b]``: the episode is over."""
    score: torch.Tensor
    """float32 ``[b]``: the episode's score if it ends here."""


class TensorWorld(World, Generic[S]):
    """A world as pure functions of a state tree; this base class adds time limits, new episodes, checks and saving.

    A subclass defines ``begin``, ``advance`` and ``observe``, and optionally ``look`` (ground truth) and ``plan``
    (oracle), which all worlds of this library have. ``self.clock`` (long ``[b]``) is the number of actions in the
    present episode: in ``advance`` without the present one, in ``observe`` with it. ``self.over`` (bool ``[b]``) marks
    rows at their last observation. All randomness comes from ``self.generator``, on ``self.device``.

    Discrete actions out of range are refused on the CPU only: looking at them would wait for another device.
    """

    def __init__(self, spec: WorldSpec, batch_size: int, *, seed: int = 0, device: torch.device | str = "cpu") -> None:
        if batch_size < 1:
            raise ValueError(f"batch_size={batch_size}: a world has at least one row")
        self.spec = spec
        self.batch_size = batch_size
        self.device = torch.device(device)
        self.generator = torch.Generator(self.device).manual_seed(seed)
        self.state: S | None = None
        self.clock = torch.zeros(batch_size, dtype=torch.long, device=self.device)
        self.over = torch.zeros(batch_size, dtype=torch.bool, device=self.device)
        self.rows = torch.arange(batch_size, device=self.device)

    def draw_integers(self, high: int, *shape: int) -> torch.Tensor:
        """Draw uniform integers of 0 .. ``high - 1``, long ``[*shape]``."""
        return torch.randint(high, shape, generator=self.generator, device=self.device)

    @abstractmethod
    def begin(self, batch_size: int) -> S:
        """Return the state at the first observation of ``batch_size`` new episodes."""

    @abstractmethod
    def advance(self, state: S, actions: torch.Tensor) -> Advance:
        """Return the state after the actions, as new tensors; any finite state in rows whose episode is over."""

    @abstractmethod
    def observe(self, state: S) -> Observation:
        """Return the observation of every row, as new tensors."""

    def plan(self, state: S) -> torch.Tensor | None:
        """Return the best action of every row, by an oracle that sees everything."""
        return None

    def look(self, state: S) -> Truth | None:
        """Return the ground truth about the present step."""
        return None

    def place(self, state: S) -> Scene | None:
        """Return the objects in the present frame."""
        return None

    def reset(self, seed: int | None = None) -> Step:
        """Begin new episodes in all rows."""
        if seed is not None:
            self.generator.manual_seed(seed)
        self.state = self.begin(self.batch_size)
        self.clock = torch.zeros_like(self.clock)
        self.over = torch.zeros_like(self.over)
        nothing = torch.zeros(self.batch_size, device=self.device)
        return Step(self.observe(self.state), nothing, ~self.over, self.over, self.over, nothing)

    def step(self, actions: torch.Tensor) -> Step:
        """Advance every row; begin a new episode where the last step ended one."""
        state = self._present()
        actions = self._check(actions)
        is_first = self.over
        moved = self.advance(state, actions)
        self.clock = torch.where(is_first, 0, self.clock + 1)
        self.state = self._renew(moved.state, is_first)
        terminated = moved.terminated & ~is_first
        truncated = (self.clock >= self.spec.max_steps) & ~terminated & ~is_first
        if not self.spec.max_steps:
            truncated = torch.zeros_like(truncated)
        self.over = terminated | truncated
        return Step(
            self.observe(self.state),
            torch.where(is_first, 0.0, moved.reward),
            is_first,
            terminated,
            truncated,
            torch.where(self.over, moved.score, 0.0),
        )

    def begin_rows(self, rows: torch.Tensor) -> Step:
        """Begin new episodes in some rows."""
        self.state = self._renew(self._present(), rows)
        self.clock = torch.where(rows, 0, self.clock)
        self.over = self.over & ~rows
        nothing, never = torch.zeros(self.batch_size, device=self.device), torch.zeros_like(rows)
        return Step(self.observe(self.state), nothing, rows, never, never, nothing)

    def oracle(self) -> torch.Tensor | None:
        """Return the best action of every row."""
        return self.plan(self._present())

    def truth(self) -> Truth | None:
        """Return the ground truth about the present step of every row."""
        return self.look(self._present())

    def scene(self) -> Scene | None:
        """Return the objects in the present frame of every row."""
        return self.place(self._present())

    def save(self) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
        """Return state, clocks and generator."""
        tensors = {f"state.{name}": leaf for name, leaf in named_leaves(self._present())}
        return tensors | {"clock": self.clock, "over": self.over, "generator": self.generator.get_state()}, {}

    def load(self, tensors: Mapping[str, torch.Tensor], data: Mapping[str, Any]) -> None:
        """Restore the state that :meth:`save` returned; leaves that an older version lacks are as in a new episode.

        Raises:
            ValueError: saved by another world, or with other rows or settings; the world is then unchanged.
        """
        before = self.generator.get_state()
        example = self.begin(self.batch_size)
        self.generator.set_state(before)
        leaves = {f"state.{name}": leaf for name, leaf in named_leaves(example)}
        self._require_own(tensors, leaves)
        names = iter(leaves)
        self.state = map_state(lambda leaf: tensors.get(next(names), leaf).to(leaf.device), example)
        self.clock, self.over = tensors["clock"].to(self.device), tensors["over"].to(self.device)
        self.generator.set_state(tensors["generator"].cpu())

    def _require_own(self, tensors: Mapping[str, torch.Tensor], leaves: Mapping[str, torch.Tensor]) -> None:
        name, of_all = type(self).__name__, {"clock": self.clock, "over": self.over}
        found = leaves.keys() & tensors.keys()  # not all, so that files of older versions load
        if 2 * len(found) <= len(leaves) or not {*of_all, "generator"} <= tensors.keys():
            parts = ", ".join(sorted(tensors)) or "nothing"
            raise ValueError(f"this was not saved by a {name} (it has {parts}): give what save() of such a world gave")
        for key, own in {**leaves, **of_all}.items():
            if key in tensors and tensors[key].shape != own.shape:
                raise ValueError(
                    f"{key} was saved as {list(tensors[key].shape)}, and is {list(own.shape)} here: load it into a "
                    f"{name} with the same settings and rows; this one has batch_size={self.batch_size}"
                )

    def _present(self) -> S:
        if self.state is None:
            raise RuntimeError(f"{type(self).__name__}: call reset() before anything else")
        return self.state

    def _renew(self, state: S, ended: torch.Tensor) -> S:
        if self.device.type != "cpu":  # looking whether a row ended would wait for the device
            return where_first(ended, self.begin(self.batch_size), state)
        index = ended.nonzero()[:, 0]
        return put_rows(state, index, self.begin(len(index))) if len(index) else state

    def _check(self, actions: torch.Tensor) -> torch.Tensor:
        space = self.spec.action_space
        require_form(actions, space, self.batch_size)
        if isinstance(space, gymnasium.spaces.Discrete) and self.device.type == "cpu":
            require_range(actions, int(space.start), int(space.start + space.n - 1))
        # Worlds index tables with actions, and bytes would index as a mask.
        return actions if isinstance(space, gymnasium.spaces.Box) else actions.long()
