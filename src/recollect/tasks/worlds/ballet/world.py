"""The ballet: watch dancers perform one after the other, then go to the dancer whose dance is named.

The room has 9 x 9 cells and a wall around them. The agent stands in the middle, n dancers (1..8) at homes around it,
all of different shape and colour. One after the other performs a different dance of 16 moves that ends at its home.
Then the language, ``watch`` so far, becomes the name of one dance, and the agent walks. It has eight moves, clockwise
from 0 = north, and cannot stand still; it is always in the middle of its view. Touching a dancer ends the episode, with
reward 1 if that dancer performed the named dance, else with 0.

Observations by index (0 is the first), with period = 15 + delay:

    0                        the first dancer has already made its first move
    i period + (0..15)       dance i, after move 1..16
    (i + 1) period - 1       end of the pause after dance i: a delay of 16 leaves 15 still observations, not 16
    n period                 the language names a dance; the action chosen here is the first that has an effect
    max_steps                truncated by the time limit (320 for a delay of 16, else 1024)

Earlier actions are ignored, and so is a move into a wall, also a diagonal one. ``true_delay`` makes the period 16 +
delay, with as many still observations as the delay. The last observation shows the dancer that was touched, not the
agent beneath it.

Chance: the named dance is drawn uniformly and independently of everything visible after the dances, so a policy that
has forgotten them is right with probability at most 1 / n; chance is its mean over ``dancers``. A policy that remembers
is always right, three moves after the name. This holds for agents that do not observe their previous action: others can
pass on what they saw by actions that are ignored.

Source: Lampinen et al. 2021, section 3.1, appendix B.1 and listing 1; timing, limits and pictures are those of the
official environment (google-deepmind/deepmind-research, hierarchical_transformer_memory/pycolab_ballet): both show the
same observations for the same level. Differs: images are uint8 (theirs are ours / 255); words are numbers; random
levels have the same distribution, but other random numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from recollect.config import require, require_one_of
from recollect.lazy import gymnasium, np, torch
from recollect.state import take_rows
from recollect.tasks.arrangements import arrangement_bits
from recollect.tasks.worlds.ballet.dances import (
    CELLS,
    DANCE,
    DANCES,
    HOMES,
    NOWHERE,
    SIDE,
    START,
    STILL,
    dance_table,
    move_table,
    route_table,
)
from recollect.tasks.worlds.ballet.levels import BalletLevel
from recollect.tasks.worlds.ballet.render import COLOURS, SHAPES, Form, Painter, image_space, patch_index
from recollect.tasks.worlds.contract import Advance, Step, TensorWorld, Truth, WorldConfig, WorldSpec
from recollect.tasks.worlds.tile_rooms import EIGHT_NAMES

WORDS = ("", "watch", *DANCES)
"""Word of every number in the key ``language``; 0 is unused padding."""

OFFICIAL_STEPS = {16: 320}
"""Official time limits by delay."""
OTHER_STEPS = 1024
"""Official time limit for all other delays."""

WAY = 3
"""Steps from the middle of the room to a dancer."""

COMMON_MULTIPLE = 840
"""Least common multiple of 1..8: remainders of uniform numbers below it are uniform."""


@dataclass(frozen=True, kw_only=True)
class BalletConfig(WorldConfig):
    """Watch dancers perform, then go to the one whose dance is named.

    The paper trains on all six levels at once: ``BalletConfig(dancers=(2, 4, 8), delays=(16, 48))``.
    """

    dancers: tuple[int, ...] = (2,)
    """Possible numbers of dancers, 1..8; one is drawn per episode."""
    delays: tuple[int, ...] = (16,)
    """Possible delays after a dance; one is drawn per episode."""
    dances: tuple[str, ...] = tuple(DANCES)
    """Dances to draw from. The official task has all; fewer are easier to tell apart."""
    true_delay: bool = False
    """Let a delay of 16 leave 16 observations without a move after each dance; the official task leaves 15."""
    observation: Form = "pixels"
    """``pixels``: 99 x 99 x 3, as published; ``tiles``: 11 x 11 symbols."""
    max_steps: int | None = None
    """Time limit of every episode; None is the official one, 320 for a delay of 16, else 1024."""
    walk_steps: int | None = None
    """Time limit from the naming on, if it ends earlier than ``max_steps``; None sets none. It shortens episodes with
    few dancers, which otherwise have hundreds of remaining steps."""
    approach_reward: float = 0.0
    """Reward for a step towards the nearest dancer, subtracted for a step away from it (a potential: Ng et al., 1999).
    It reveals where dancers are, not which one is right; it speeds up learning. Official: 0."""

    def __post_init__(self) -> None:
        dancers, delays, dances = self.dancers, self.delays, self.dances
        valid = bool(dancers) and all(1 <= n <= len(HOMES) for n in dancers)
        require(valid, "dancers", dancers, f"give one or more numbers 1..{len(HOMES)}")
        least = 0 if self.true_delay else 1
        require(bool(delays) and min(delays) >= least, "delays", delays, f"give one or more numbers from {least}")
        valid = set(dances) <= set(DANCES) and max(dancers) <= len(set(dances)) == len(dances)
        remedy = f"give at least {max(dancers)} different ones, one per dancer, of {', '.join(DANCES)}"
        require(valid, "dances", dances, remedy)
        require_one_of(self, "observation")
        remedy = f"a dancer is {WAY} steps away; give at least {WAY}"
        require(self.walk_steps is None or self.walk_steps >= WAY, "walk_steps", self.walk_steps, remedy)
        for delay in delays:
            needed = max(dancers) * self.period(delay) + WAY
            remedy = (
                f"{max(dancers)} dancers with a delay of {delay} may need all of {needed} steps: give at least {needed}"
            )
            require(self.limit(delay) >= needed, "max_steps", self.max_steps, remedy)

    def period(self, delay: int) -> int:
        """Return the steps from the beginning of a dance to the beginning of the next."""
        return DANCE - 1 + self.true_delay + delay

    def limit(self, delay: int) -> int:
        """Return the time limit of episodes with this delay, without ``walk_steps``."""
        return OFFICIAL_STEPS.get(delay, OTHER_STEPS) if self.max_steps is None else self.max_steps

    def level_limit(self, dancers: int, delay: int) -> int:
        """Return the time limit of episodes with this number of dancers and this delay."""
        limit = self.limit(delay)
        return limit if self.walk_steps is None else min(limit, dancers * self.period(delay) + self.walk_steps)

    @property
    def spec(self) -> WorldSpec:
        """An image and one word; eight moves. Step 0 may be needed at the last action before the longest time limit."""
        limit = max(self.level_limit(max(self.dancers), delay) for delay in self.delays)
        return WorldSpec(
            observation_space=gymnasium.spaces.Dict(
                {
                    "image": image_space(self.observation),
                    "language": gymnasium.spaces.MultiDiscrete([len(WORDS)]),
                }
            ),
            action_space=gymnasium.spaces.Discrete(8),
            max_steps=limit,
            memory_span=limit - 1,
            chance=sum(1 / n for n in self.dancers) / len(self.dancers),
            oracle=1.0,
            events=(*(f"dance {1 + i}" for i in range(max(self.dancers))), "cue"),
            action_names=EIGHT_NAMES,
            num_labels=len(HOMES),
            words=WORDS,
            bits=arrangement_bits(len(self.dances), max(self.dancers)),
        )

    def build(self, batch_size: int, *, seed: int = 0, device: torch.device | str = "cpu") -> Ballet:
        """Build the world with ``batch_size`` rows."""
        return Ballet(self, batch_size, seed=seed, device=device)


class BalletState(NamedTuple):
    """State of the world; n dancers in the order in which they dance, of which the last may not exist."""

    homes: torch.Tensor  # long [b, n]: cells
    dances: torch.Tensor  # long [b, n]
    looks: torch.Tensor  # long [b, n]: shape and colour
    target: torch.Tensor  # long [b]: the dancer to go to
    period: torch.Tensor  # long [b]: steps from dance to dance
    cue: torch.Tensor  # long [b]: the observation that names the dance
    limit: torch.Tensor  # long [b]: actions of the episode at most
    agent: torch.Tensor  # long [b]: its cell
    frame: torch.Tensor  # long [b]: number of the present observation in its episode


class Ballet(TensorWorld[BalletState]):
    """The world of :class:`BalletConfig`; the rules are at the top of this module."""

    def __init__(
        self, config: BalletConfig, batch_size: int, *, seed: int = 0, device: torch.device | str = "cpu"
    ) -> None:
        super().__init__(config.spec, batch_size, seed=seed, device=device)
        self.config = config
        self.places = max(config.dancers)
        self.offsets, self.moves = dance_table().to(self.device), move_table().to(self.device)
        self.ways = route_table().to(self.device)
        self.order = torch.arange(self.places, device=self.device)
        self.homes = torch.tensor(HOMES, device=self.device)
        self.levels = torch.tensor(
            [
                (count, config.period(delay), count * config.period(delay), config.level_limit(count, delay))
                for count in config.dancers
                for delay in config.delays
            ],
            device=self.device,
        )
        self.decks = self._decks()
        self.dances = torch.tensor([list(DANCES).index(name) for name in config.dances], device=self.device)
        self.painter = Painter(config.observation, self.device)

    def _decks(self) -> torch.Tensor:
        # Added to random numbers below 1 before sorting, this puts existing items before missing ones.
        sizes = torch.tensor([len(HOMES), len(self.config.dances), len(SHAPES), len(COLOURS)])
        return (torch.arange(int(sizes.max())) >= sizes[:, None]).float().to(self.device)

    def begin(self, batch_size: int) -> BalletState:
        """Return episodes of random levels: homes, dances, shapes and colours are drawn without replacement."""
        draws = {"generator": self.generator, "device": self.device}
        level = self.levels[torch.randint(len(self.levels), (batch_size,), **draws)]
        count, period, cue, limit = level.unbind(1)
        shuffled = (torch.rand(batch_size, *self.decks.shape, **draws) + self.decks).argsort(-1)[..., : self.places]
        home, dance, shape, colour = shuffled.unbind(1)
        absent = self.order >= count[:, None]
        return BalletState(
            homes=torch.where(absent, NOWHERE, self.homes[home]),
            dances=torch.where(absent, STILL, self.dances[dance.clamp(max=len(self.dances) - 1)]),
            looks=patch_index(shape, colour),
            target=torch.randint(COMMON_MULTIPLE, (batch_size,), **draws) % count,
            period=period,
            cue=cue,
            limit=limit,
            agent=torch.full_like(count, START),
            frame=torch.zeros_like(count),
        )

    def stage(self, levels: Sequence[BalletLevel]) -> Step:
        """Begin the given episodes, one per row, instead of random ones. Later episodes are random again.

        Raises:
            ValueError: not one level per row, or a level outside the config.
        """
        require(len(levels) == self.batch_size, "number of levels", len(levels), f"give {self.batch_size}, one per row")
        for level in levels:
            if len(level.dancers) not in self.config.dancers or level.delay not in self.config.delays:
                raise ValueError(
                    f"a level has {len(level.dancers)} dancers and delay={level.delay}: add them to the config's "
                    f"dancers={self.config.dancers} and delays={self.config.delays}"
                )
            strange = sorted({dancer.dance for dancer in level.dancers} - set(self.config.dances))
            if strange:
                raise ValueError(f"a level has the dance {strange[0]!r}: add it to the config's dances")
        step = self.reset()
        self.state = self._opening(levels)
        return step._replace(observation=self.observe(self.state))

    def _opening(self, levels: Sequence[BalletLevel]) -> BalletState:
        def per_row(numbers: list[int]) -> torch.Tensor:
            return torch.tensor(numbers, device=self.device)

        casts = torch.tensor([level.to_indices(self.places) for level in levels], device=self.device)
        homes, dances, shapes, colours = casts.unbind(1)
        target = per_row([level.target for level in levels])
        return BalletState(
            homes=homes,
            dances=dances,
            looks=patch_index(shapes, colours),
            target=target,
            period=per_row([self.config.period(level.delay) for level in levels]),
            cue=per_row([len(level.dancers) * self.config.period(level.delay) for level in levels]),
            limit=per_row([self.config.level_limit(len(level.dancers), level.delay) for level in levels]),
            agent=torch.full_like(target, START),
            frame=torch.zeros_like(target),
        )

    def step(self, actions: torch.Tensor) -> Step:
        """Advance every row; the time limit of an episode is that of its level."""
        step = super().step(actions)
        late = (self.clock >= self._present().limit) & ~step.is_last
        self.over = self.over | late
        return step._replace(truncated=step.truncated | late)

    def advance(self, state: BalletState, actions: torch.Tensor) -> Advance:
        """Walk after the naming; touching a dancer ends the episode."""
        # During the dances the agent is in the middle, which is no home.
        walking = state.frame >= state.cue
        agent = torch.where(walking, self.moves[state.agent * 8 + actions], state.agent)
        touched = state.homes == agent[:, None]
        right = touched.gather(1, state.target[:, None])[:, 0].float()
        reward = right
        if self.config.approach_reward:
            nearer = self.distance(state.homes, state.agent) - self.distance(state.homes, agent)
            reward = right + self.config.approach_reward * nearer
        return Advance(state._replace(agent=agent, frame=state.frame + 1), reward, touched.any(1), right)

    @staticmethod
    def distance(homes: torch.Tensor, agent: torch.Tensor) -> torch.Tensor:
        """Return the number of moves to the nearest home without obstacles, ``[b]``, from cells ``[b]`` and homes ``[b,
        n]``.
        """
        down = (homes // SIDE - (agent // SIDE)[:, None]).abs()
        along = (homes % SIDE - (agent % SIDE)[:, None]).abs()
        return torch.maximum(down, along).masked_fill(homes == NOWHERE, CELLS).amin(1)

    def observe(self, state: BalletState) -> dict[str, torch.Tensor]:
        """Return the image around the agent, uint8 ``[b, y, x, 3]``, and the word, long ``[b, 1]``."""
        named = state.dances.gather(1, state.target[:, None]) + WORDS.index("watch") + 1
        word = torch.where((state.frame >= state.cue)[:, None], named, WORDS.index("watch"))
        return {"image": self.painter(state.agent, self.dancer_cells(state), state.looks), "language": word}

    def dancer_cells(self, state: BalletState) -> torch.Tensor:
        """Return the cells of the dancers, long ``[b, n]``."""
        moves = (state.frame[:, None] - state.period[:, None] * self.order + 1).clamp(0, DANCE)
        return state.homes + self.offsets[state.dances * (DANCE + 1) + moves]

    def plan(self, state: BalletState) -> torch.Tensor:
        """Return the first move of a shortest path to the target around others; 0 while actions are ignored."""
        home = state.homes.gather(1, state.target[:, None])[:, 0]
        way = self.ways[state.agent * CELLS + home]
        return torch.where(state.frame >= state.cue, way, 0)  # an imitated policy must not reveal the next request

    def look(self, state: BalletState) -> Truth:
        """Return the ground truth: after the naming, decisions depend on the target's dance; the label is its home."""
        deciding = (state.frame >= state.cue) & ~self.over
        dance, moves = state.frame // state.period, state.frame % state.period
        shown = torch.where(moves < DANCE, dance, -1)
        start = torch.where(deciding, state.target * state.period, -1)
        home = (state.homes.gather(1, state.target[:, None]) == self.homes).long().argmax(1)
        return Truth(
            torch.where(state.frame >= state.cue, self.places, shown),
            start,
            torch.where(deciding, start + DANCE, -1),
            torch.where(deciding, home, -1),
        )

    @cached_property
    def camera(self) -> Painter:
        """Painter of pixels, for either form of observations."""
        return self.painter if self.config.observation == "pixels" else Painter("pixels", self.device)

    def render(self, row: int = 0) -> np.ndarray:
        """Draw the view of a row, uint8 ``[99, 99, 3]``."""
        state = take_rows(self._present(), slice(row, row + 1))
        return self.camera(state.agent, self.dancer_cells(state), state.looks)[0].cpu().numpy()
