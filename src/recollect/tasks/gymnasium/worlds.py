"""Any Gymnasium environment as a world: CartPole without velocities, MiniGrid, Atari, or your own.

    world = GymnasiumConfig(id="CartPole-v1", masked=(1, 3)).build(batch_size=16)
    world = GymnasiumConfig(id="MiniGrid-MemoryS13-v0").build(batch_size=16)
    world = GymnasiumConfig(id="my_package:MyEnv-v0", processes=4).build(batch_size=16)

An environment has the wrappers of its registration and those in ``wrappers``; its time limit is a truncation. Rows come
from the environment's own vector form where it has one, else from single environments in this or other processes.
Wrappers apply to single environments, so the vector form is not used with them; nor with the option
``max_episode_steps=-1`` (no limit), which vector forms do not support. For every source the world follows the rule of
``tasks/worlds/contract.py`` at the end of an episode.

    id                        meaning
    CartPole-v1               in Gymnasium's registry
    my_package:MyEnv-v0       imports my_package, which registers it; the current folder is searched too
    my_module:MyEnv           a class derived from gymnasium.Env; it need not be registered
    ALE/Pong-v5               Atari, with or without ale_py: in front
    PongNoFrameskip-v4        an old name that ale-py registers too; see below

Atari uses ale-py's vector form: 4 stacked grey frames of 84 x 84, each the maximum of the last two of 4 emulated ones,
up to 30 no-ops and FIRE at the start, complete games (a lost life does not end an episode), rewards as the game gives
them, and sticky actions as defined by the id (0.25 in v5 and v0, none in v4). ``options`` changes any of these. Old
names have no vector form and use that of ``ALE/...-v5`` with their own sticky actions. ``Pong-v4`` then shows every 4th
frame, where ale-py draws 2 to 4 at random. ``native=False`` uses ale-py's single environments as registered, with raw
frames: ``wrappers=("gymnasium.wrappers:AtariPreprocessing",)``, ``options={"frameskip": 1}`` and ``stack=4`` give the
usual preprocessing (AtariPreprocessing needs opencv-python).

**Action masks.** Where the observation is a Dict with ``action_mask`` (one number per Discrete action, 0 where it is
not allowed), an agent takes only allowed actions. The wrapper ``recollect.tasks.gymnasium.wrappers:mask_from_info``
adds a mask that an environment gives in its info.

**Ground truth.** An environment may say in the info of ``reset`` and ``step`` what a memory needs:

    info["recollect"] = {"event": "question", "depends_on": [3, 5]}

The present decision then depends on steps 3 and 4 of this episode (0 is the first observation), and the step is part of
an event. Both keys may be absent. This becomes :meth:`GymnasiumWorld.truth`. Vector forms do not say it: use
``native=False``.

The score is the undiscounted return of the episode. Chance, oracle and memory span are unknown.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from recollect.config import import_user_module, load_object, require, require_at_least
from recollect.gymnasium_ids import HOMES, OLD_ATARI, entry
from recollect.lazy import gymnasium, np, torch
from recollect.tasks.gymnasium.atari import ATARI, action_after_life_loss, require_options, require_rom
from recollect.tasks.gymnasium.rows import BrokenEnvironmentError, LocalRows, ProcessRows, Rows, VectorRows
from recollect.tasks.gymnasium.spaces import ActionWriter, Arrays, ObservationReader
from recollect.tasks.gymnasium.stacking import StackedRows, stacked_space
from recollect.tasks.process_settings import kept_process_settings
from recollect.tasks.worlds.contract import Step, Truth, World, WorldConfig, WorldSpec, require_form

if TYPE_CHECKING:
    from gymnasium.envs.registration import EnvSpec

ATARI_CLASS = "ale_py.env:AtariEnv"


class _Spaces(NamedTuple):
    reader: ObservationReader
    writer: ActionWriter
    max_steps: int
    native: bool
    action_names: tuple[str, ...]
    draws: bool


@dataclass(frozen=True, kw_only=True)
class GymnasiumConfig(WorldConfig):
    """Any Gymnasium environment, by its id."""

    id: str = "CartPole-v1"
    """Id of the environment; ``package:Id-v0`` imports the package that registers it, ``module:Class`` names a class.
    """
    masked: tuple[int, ...] = ()
    """Entries of a vector observation that are hidden; (1, 3) hides the velocities of CartPole."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """Keywords for ``gymnasium.make``, or ``make_vec`` where the vector form is used."""
    wrappers: tuple[str, ...] = ()
    """Wrappers of each environment, the innermost first: ``package.module:function``, called with the environment."""
    stack: int = 1
    """Number of latest observations to stack; Boxes only."""
    native: bool = True
    """Use the environment's own vector form, where it has one."""
    processes: int = 0
    """Number of processes that share the rows, with single environments; 0 uses this process. For slow environments."""
    timeout: float = 60.0
    """Seconds after which an environment in another process counts as hanging."""
    words: int = 16
    """Largest number of words read from a text observation."""
    vocabulary: int = 1024
    """Numbers that words are hashed to."""

    def __post_init__(self) -> None:
        require_at_least(self, processes=0, stack=1, words=1, vocabulary=2)
        require(self.timeout > 0, "timeout", self.timeout, "give seconds, more than 0")

    @property
    def imports(self) -> tuple[str, ...]:
        """Modules named by id and wrappers, which an untrusted run may choose freely."""
        named = [name.rpartition(":")[0] for name in (self.id, *self.wrappers) if ":" in name]
        return tuple(name for name in named if name not in dict(HOMES.values()))

    @property
    def spec(self) -> WorldSpec:
        """Spaces of the environment, which is created briefly to read them."""
        found = self._spaces
        seen = found.reader.space
        return WorldSpec(
            observation_space=seen if self.stack == 1 else stacked_space(seen, self.stack),
            action_space=found.writer.space,
            max_steps=found.max_steps,
            memory_span=0,
            chance=float("nan"),
            oracle=float("nan"),
            action_names=found.action_names,
        )

    def build(self, batch_size: int, *, seed: int = 0, device: torch.device | str = "cpu") -> GymnasiumWorld:
        """Build the world with ``batch_size`` environments."""
        return GymnasiumWorld(self, batch_size, seed=seed, device=device)

    @property
    def title(self) -> str:
        """The environment's id."""
        return self.id

    def with_rendering(self) -> Self:
        """Return the config with ``render_mode="rgb_array"``, where the environment has it and a picture can be made.

        A warning says why there is none although the environment has that mode.
        """
        if not self._spaces.draws or "render_mode" in self.options:
            return self
        options = {**self.options, "render_mode": "rgb_array"}
        drawing = replace(self, options=options, native=False, processes=0)
        with kept_process_settings():
            try:
                if drawing.spec.observation_space != self.spec.observation_space:
                    return self  # the single form of an Atari game shows other frames than the vector form
                world = drawing.build(1)
                try:
                    world.reset()
                    world._render(0)
                finally:
                    world.close()
            except Exception as error:  # whatever a library for drawing raises
                reason = f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"
                warnings.warn(
                    f"{self.id} has render_mode='rgb_array', but cannot draw itself ({reason}): its observations are "
                    "shown",
                    RuntimeWarning,
                    stacklevel=2,
                )
                return self
        return drawing

    def rows(self, batch_size: int) -> Rows:
        """Create the environments."""
        rows = self._rows(batch_size)
        return rows if self.stack == 1 else StackedRows(rows, self._spaces.reader.space, self.stack)

    def _rows(self, batch_size: int) -> Rows:
        found = self._spaces
        if found.native:
            # ale-py's seeds, one a row, are signed numbers of 32 bits.
            limit = 2**31 - batch_size if self._entry.id.startswith("ALE/") else None
            restart_action = action_after_life_loss(self.options, found.action_names)
            return VectorRows(self._make_vector(batch_size), found.reader, found.writer, limit, restart_action)
        arguments = (self._make, self.id, batch_size, found.reader, found.writer)
        if self.processes:
            return ProcessRows(*arguments, processes=self.processes, timeout=self.timeout)
        return LocalRows(*arguments)

    @cached_property
    def _spaces(self) -> _Spaces:
        with kept_process_settings():
            return self._read_spaces()

    def _read_spaces(self) -> _Spaces:
        entry = self.register()
        native = self._native and entry.vector_entry_point is not None and not self._has_no_limit
        if not native and entry.entry_point is None:
            raise ValueError(
                f"id={self.id!r} exists in vector form only, which takes no wrappers: use native=True, processes=0, "
                "wrappers=() and no max_episode_steps=-1"
            )
        environment = self._make_vector(1) if native else self._make()
        if isinstance(environment, gymnasium.vector.VectorEnv):
            seen, done = environment.single_observation_space, environment.single_action_space
        else:
            seen, done = environment.observation_space, environment.action_space
        for name, space in (("observation_space", seen), ("action_space", done)):
            if not isinstance(space, gymnasium.Space):
                raise ValueError(f"id={self.id!r} has {name}={space!r:.80}: set it to a space of gymnasium.spaces")
        names = action_names(environment, done)
        draws = "rgb_array" in ((environment.metadata or {}).get("render_modes") or ())
        environment.close()
        if entry.id.startswith("ALE/") and not names:
            names = _atari_names(entry, self.options, done)
        reader = ObservationReader(source=seen, masked=self.masked, words=self.words, vocabulary=self.vocabulary)
        keywords = {**entry.kwargs, **self.options}
        limit = keywords.get("max_episode_steps")
        limit = entry.max_episode_steps if limit is None else None if limit == -1 else limit  # -1 is no limit
        if limit is None and "max_num_frames_per_episode" in keywords:
            skip = keywords.get("frameskip", 4)
            limit = -(-keywords["max_num_frames_per_episode"] // (skip if isinstance(skip, int) else min(skip)))
        return _Spaces(reader, ActionWriter(target=done), limit or 0, native, names, draws)

    @property
    def _native(self) -> bool:
        return self.native and not self.processes and not self.wrappers

    @property
    def _has_no_limit(self) -> bool:
        """Whether no time limit is requested: vector forms do not support -1 and would end episodes immediately."""
        return self.options.get("max_episode_steps") == -1 and not self._entry.id.startswith("ALE/")

    def register(self) -> EnvSpec:
        """Import the module that registers the environment, and return its registry entry.

        Raises:
            ValueError: a package is missing, or the id is unknown.
        """
        return self._entry

    @cached_property
    def _entry(self) -> EnvSpec:
        package, _, name = self.id.rpartition(":")
        module = import_user_module(package, f"id={self.id!r}") if package else None
        if module is not None and name.isidentifier() and name in vars(module):
            from gymnasium.envs.registration import EnvSpec  # not at import: help does without Gymnasium

            return EnvSpec(id=name, entry_point=_require_environment_class(vars(module)[name], self.id))
        found, old = entry(name), OLD_ATARI.fullmatch(name)
        if old and self._native and found.entry_point == ATARI_CLASS:
            return _vector_form(f"ALE/{old[1]}-v5", found)
        return found

    def _make(self) -> gymnasium.Env[Any, Any]:
        with _describe_errors(self.id, self.options):
            environment = gymnasium.make(self._entry, disable_env_checker=True, **self.options)
        for name in self.wrappers:
            wrapper = load_object(name, "wrappers")
            try:
                environment = wrapper(environment)
            except TypeError as error:
                raise ValueError(
                    f"wrappers={name!r}: {error}; a wrapper is called with the environment only: write a function that "
                    "passes its other arguments"
                ) from None
            except gymnasium.error.Error as error:
                raise ValueError(f"wrappers={name!r}: {error}") from None
            if not isinstance(environment, gymnasium.Env):
                raise ValueError(
                    f"wrappers={name!r} made a {type(environment).__name__}: it must return a gymnasium.Env"
                )
        return environment

    def _make_vector(self, batch_size: int) -> gymnasium.vector.VectorEnv[Any, Any, Any]:
        entry = self._entry
        atari = entry.id.startswith("ALE/")
        # None means the limit of the id, which make_vec uses by default.
        given = {key: x for key, x in self.options.items() if key != "max_episode_steps" or x is not None}
        keywords = {**(ATARI if atari else {}), **given}
        if atari:
            require_rom(entry.kwargs.get("game", ""), self.id)
            require_options(self.options)
        with _describe_errors(self.id, self.options):
            return gymnasium.make_vec(entry, batch_size, vectorization_mode="vector_entry_point", **keywords)


@contextmanager
def _describe_errors(name: str, options: Mapping[str, Any]) -> Iterator[None]:
    """Turn errors about missing packages or rejected options into a ``ValueError`` that names them."""
    try:
        yield
    except (ImportError, gymnasium.error.DependencyNotInstalled) as error:
        raise ValueError(f"id={name!r} needs a package that is missing: {error}") from error
    except (TypeError, gymnasium.error.Error) as error:
        if not options:
            raise
        reason = str(error).partition("\n")[0]
        raise ValueError(
            f"options={dict(options)}: {reason}: these are keywords of the environment; remove or change those that "
            "it does not accept"
        ) from error


def action_names(environment: Any, space: gymnasium.Space[Any]) -> tuple[str, ...]:
    """Return the names of Discrete actions, from Atari's ``get_action_meanings`` or MiniGrid's ``actions``, or none."""
    if not isinstance(space, gymnasium.spaces.Discrete):
        return ()
    inner = environment.unwrapped
    names: Any = getattr(inner, "get_action_meanings", tuple)
    found = [str(name).lower() for name in names()]
    actions: Any = getattr(inner, "actions", None)
    if not found and isinstance(actions, type) and issubclass(actions, Enum):
        found = [action.name for action in actions]
    return tuple(found) if len(found) == space.n else ()


def _atari_names(entry: EnvSpec, options: Mapping[str, Any], space: gymnasium.Space[Any]) -> tuple[str, ...]:
    """Return the names of a game's actions, which only its single form provides."""
    keywords = {name: value for name, value in options.items() if name == "full_action_space"}
    single = gymnasium.make(entry.id, **keywords)
    try:
        return action_names(single, space)
    finally:
        single.close()


def _require_environment_class(found: Any, name: str) -> Any:
    # No other callable: the id may come from an untrusted file, and os:system can be called too.
    if isinstance(found, type) and issubclass(found, gymnasium.Env):
        return found
    raise ValueError(
        f"id={name!r} is a {type(found).__name__}: name a class derived from gymnasium.Env, or register it"
    )


def _vector_form(name: str, old: EnvSpec) -> EnvSpec:
    """Return the vector form of a game, with the sticky actions, actions and frame limit of an older id."""
    entry = copy.deepcopy(gymnasium.spec(name))
    same = ("repeat_action_probability", "full_action_space", "max_num_frames_per_episode")
    entry.kwargs.update({key: old.kwargs[key] for key in same if key in old.kwargs})
    return entry


class GymnasiumWorld(World):
    """The world of :class:`GymnasiumConfig`.

    An environment that raises an error is named with its row in a :class:`BrokenEnvironmentError`; so is one that hangs
    in another process. The world cannot be used after that. It cannot be saved within an episode.
    """

    def __init__(
        self, config: GymnasiumConfig, batch_size: int, *, seed: int = 0, device: torch.device | str = "cpu"
    ) -> None:
        if batch_size < 1:
            raise ValueError(f"batch_size={batch_size}: a world has at least one row")
        self.config = config
        self.spec = config.spec
        self.batch_size = batch_size
        self.device = torch.device(device)
        self.rows = config.rows(batch_size)
        actions: Any = self.spec.action_space
        self.choices = actions.n if isinstance(actions, gymnasium.spaces.Discrete) else getattr(actions, "nvec", None)
        self.seed: int | None = seed
        self.begun = False
        self.over = np.zeros(batch_size, dtype=bool)
        self.returns = np.zeros(batch_size)  # float64, for sums of many small rewards
        self.clock = np.zeros(batch_size, dtype=np.int64)
        self.has_truth = False
        self.render = self._render if config.options.get("render_mode") == "rgb_array" else None

    def reset(self, seed: int | None = None) -> Step:
        """Begin new episodes in all rows; row i is seeded with ``seed + i``."""
        seed, self.seed = self.seed if seed is None else seed, None
        observation = self.rows.reset(seed)
        self.begun = True
        self.over, self.returns = np.zeros_like(self.over), np.zeros_like(self.returns)
        self.clock = np.zeros_like(self.clock)
        self._read_needs()
        return self._step(observation, np.zeros(self.batch_size, np.float32), ~self.over, self.over, self.over)

    def step(self, actions: torch.Tensor) -> Step:
        """Advance every row."""
        if not self.begun:
            raise RuntimeError("GymnasiumWorld: call reset() first")
        first = self.over
        observation, reward, terminated, truncated = self.rows.step(self._check(actions), first)
        reward = np.where(first, np.float32(0), reward)
        terminated = terminated & ~first
        truncated = truncated & ~first & ~terminated
        self.returns = np.where(first, 0.0, self.returns + reward)
        self.over = terminated | truncated
        self.clock = np.where(first, 0, self.clock + 1)
        self._read_needs()
        return self._step(observation, reward, first, terminated, truncated)

    def truth(self) -> Truth | None:
        """Return what the environments say about the present step; None where none ever said anything."""
        if not self.has_truth:
            return None
        numbers = np.full((3, self.batch_size), -1)
        for row, need in enumerate(self.rows.needs):
            if need is not None and need.event is not None:
                numbers[0, row] = self.spec.events.index(need.event)
            if need is not None and need.depends_on is not None and not self.over[row]:
                numbers[1:, row] = need.depends_on
        return Truth(*torch.from_numpy(numbers).to(self.device))

    def _read_needs(self) -> None:
        """Add new events to the spec, and refuse a dependence on steps that are still to come."""
        for row, need in enumerate(self.rows.needs):
            if need is None:
                continue
            self.has_truth = True
            if need.event is not None and need.event not in self.spec.events:
                self.spec = replace(self.spec, events=(*self.spec.events, need.event))
            if need.depends_on is not None and need.depends_on[1] > self.clock[row] + 1:
                raise BrokenEnvironmentError(
                    f"row {row} of {self.config.id}: info['recollect']['depends_on'] is {list(need.depends_on)} at "
                    f"step {self.clock[row]}: a decision depends on steps of this episode up to the present one"
                )

    def _render(self, row: int) -> np.ndarray:
        """Return the environment's own picture of a row, uint8 ``[y, x, 3]``."""
        found = self.rows.render(row)
        found = found[-1] if isinstance(found, list) else found  # of an environment that returns all frames so far
        array = np.asarray(found)
        if array.ndim != 3 or array.shape[2] != 3 or array.dtype.kind not in "iu":
            raise BrokenEnvironmentError(
                f"row {row} of {self.config.id}: render() returned {type(found).__name__} {list(array.shape)} of "
                f"{array.dtype}: with render_mode='rgb_array' return a picture uint8 [y, x, 3]"
            )
        return array.astype(np.uint8)

    def close(self) -> None:
        """Close the environments and end their processes."""
        self.rows.close()

    def _step(self, observation: Arrays, reward: Any, first: Any, terminated: Any, truncated: Any) -> Step:
        if isinstance(observation, dict):
            seen: Any = {name: torch.from_numpy(array).to(self.device) for name, array in observation.items()}
        else:
            seen = torch.from_numpy(observation).to(self.device)
        score = np.where(self.over, self.returns, 0.0).astype(np.float32)
        numbers = (torch.tensor(part, device=self.device) for part in (reward, first, terminated, truncated, score))
        return Step(seen, *numbers)

    def _check(self, actions: torch.Tensor) -> np.ndarray:
        require_form(actions, self.spec.action_space, self.batch_size)
        array = actions.detach().cpu().numpy()
        if self.choices is not None and ((array < 0) | (array >= self.choices)).any():
            wrong = array[(array < 0) | (array >= self.choices)]
            raise ValueError(f"action {wrong[0]} is out of range: use {self.spec.action_space}")
        return array
