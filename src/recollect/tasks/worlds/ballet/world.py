"""The ballet: watch dancers dance one after the other, then go to the one whose dance is named.

The room has 9 x 9 cells and a wall around them. The agent stands in the middle, n dancers (1..8) at homes around it,
all of different shape and colour. Each performs a different dance of 16 moves that ends at home; nobody else moves
meanwhile. Then the language, ``watch`` so far, says the name of one dance, and the agent, which sees itself in the
middle of its view, walks: eight directions, 0 is north, then clockwise; there is no standing still. Whichever dancer it
touches, the episode ends: with reward 1 if that is the one who danced so, else with 0.

What happens at which observation (0 is the first), with period = 15 + delay:

    0                        the first dancer has made its first move already
    i period + (0..15)       dance i, after move 1..16
    (i + 1) period - 1       nobody moved since dance i ended: a delay of 16 leaves 15 still observations, not 16
    n period                 the language names a dance; the action chosen at this observation is the first that counts
    max_steps                the time is up: truncated (320 for a delay of 16, else 1024)

Actions before that are ignored, and so is a move into a wall, also a diagonal one. ``true_delay`` makes the period
16 + delay, which leaves as many still observations as the delay says. The last observation shows the dancer that was
touched, not the agent beneath it.

Chance: the named dance is drawn uniformly and independently of everything to be seen after the dances, so whoever has
forgotten them is right with probability 1 / n at best; the mean of that over ``dancers``. Whoever remembers is always
right, three moves after the name.

Source: Lampinen et al. 2021, section 3.1, appendix B.1 and listing 1; timing, limits and pictures are those of the
official environment (google-deepmind/deepmind-research, hierarchical_transformer_memory/pycolab_ballet): a level
performed by both shows the same in every observation. Differs: images are uint8 (theirs are ours / 255); words are
numbers; random levels have the same distribution, but other random numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

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
    way_table,
)
from recollect.tasks.worlds.ballet.levels import BalletLevel
from recollect.tasks.worlds.ballet.render import COLOURS, SHAPES, Form, Painter, image_space, look
from recollect.tasks.worlds.contract import Advance, Step, TensorWorld, Truth, WorldConfig, WorldSpec
from recollect.tasks.worlds.tile_rooms import EIGHT_NAMES

WORDS = ("", "watch", *DANCES)
"""What the numbers of ``language`` mean; 0 is padding and never said."""

OFFICIAL_STEPS = {16: 320}
"""Time limits by delay ..."""
OTHER_STEPS = 1024
"""... and for all other delays."""

WAY = 3
"""Steps from the middle of the room to any dancer."""

COMMON_MULTIPLE = 840
"""The least common multiple of 1..8: a remainder of a number below it is uniform."""


@dataclass(frozen=True, kw_only=True)
class BalletConfig(WorldConfig):
    """Watch dancers dance, then go to the one whose dance is named.

    The paper trains on all six levels at once: ``BalletConfig(dancers=(2, 4, 8), delays=(16, 48))``.
    """

    dancers: tuple[int, ...] = (2,)
    """Dancers in the room, 1..8; one of these numbers is drawn for every episode."""
    delays: tuple[int, ...] = (16,)
    """Delay after a dance; one of these numbers is drawn for every episode."""
    dances: tuple[str, ...] = tuple(DANCES)
    """Dances that may be seen. Officially all; few are easier to tell apart."""
    true_delay: bool = False
    """A delay of 16 leaves 16 observations without a move after each dance; officially they are 15."""
    observation: Form = "pixels"
    """``pixels``: 99 x 99 x 3, as published; ``tiles``: 11 x 11 symbols."""
    max_steps: int | None = None
    """Time limit of every episode; None is the official one, 320 for a delay of 16, else 1024."""
    walk_steps: int | None = None
    """Time limit from the name on, where that is the shorter one; None sets none beside ``max_steps``. With few dancers
    the episode else leaves hundreds of steps to stray in."""
    approach_reward: float = 0.0
    """Added for a step that leads nearer to the nearest dancer, and taken off for one that leads away (a potential:
    Ng et al., 1999). It says where dancers are, never which one; for agents that have minutes to learn. Official: 0."""

    def __post_init__(self) -> None:
        if not self.dancers or not all(1 <= n <= len(HOMES) for n in self.dancers):
            raise ValueError(f"dancers={self.dancers}: give one or more numbers 1..{len(HOMES)}")
        least = 0 if self.true_delay else 1
        if not self.delays or min(self.delays) < least:
            raise ValueError(f"delays={self.delays}: give one or more numbers from {least}")
        different = set(self.dances)
        if not different <= set(DANCES) or len(different) != len(self.dances) or len(different) < max(self.dancers):
            raise ValueError(
                f"dances={self.dances}: give at least {max(self.dancers)} different ones, one for each dancer, of "
                f"{', '.join(DANCES)}"
            )
        if self.observation not in ("pixels", "tiles"):
            raise ValueError(f"observation={self.observation!r}: use 'pixels' or 'tiles'")
        if self.walk_steps is not None and self.walk_steps < WAY:
            raise ValueError(f"walk_steps={self.walk_steps}: a dancer is {WAY} steps away; give at least {WAY}")
        for delay in self.delays:
            needed = max(self.dancers) * self.period(delay) + WAY
            if self.limit(delay) < needed:
                raise ValueError(
                    f"max_steps={self.max_steps}: with {max(self.dancers)} dancers and a delay of {delay} the shortest "
                    f"episode can take {needed} steps, and the limit is {self.limit(delay)}; give at least {needed}"
                )

    def period(self, delay: int) -> int:
        """Steps from the beginning of a dance to the beginning of the next."""
        return DANCE - 1 + self.true_delay + delay

    def limit(self, delay: int) -> int:
        """The time limit of episodes with this delay."""
        return OFFICIAL_STEPS.get(delay, OTHER_STEPS) if self.max_steps is None else self.max_steps

    def level_limit(self, dancers: int, delay: int) -> int:
        """The time limit of episodes with so many dancers and this delay."""
        limit = self.limit(delay)
        return limit if self.walk_steps is None else min(limit, dancers * self.period(delay) + self.walk_steps)

    @property
    def spec(self) -> WorldSpec:
        """An image and one word; eight moves. Step 0 may decide about the last action before the longest time limit."""
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
        """The world, with ``batch_size`` rows."""
        return Ballet(self, batch_size, seed=seed, device=device)


class BalletState(NamedTuple):
    """What a row of the world is; n dancers in the order in which they dance, the last ones may not exist."""

    homes: torch.Tensor
    """long ``[b, n]``: cells."""
    dances: torch.Tensor
    """long ``[b, n]``."""
    looks: torch.Tensor
    """long ``[b, n]``: shape and colour."""
    target: torch.Tensor
    """long ``[b]``: the dancer to go to."""
    period: torch.Tensor
    """long ``[b]``: steps from dance to dance."""
    cue: torch.Tensor
    """long ``[b]``: the observation that names the dance."""
    limit: torch.Tensor
    """long ``[b]``: actions of the episode at most."""
    agent: torch.Tensor
    """long ``[b]``: its cell."""
    frame: torch.Tensor
    """long ``[b]``: number of the present observation in its episode."""


class Ballet(TensorWorld[BalletState]):
    """The world of :class:`BalletConfig`; the rules stand at the top of this file."""

    def __init__(
        self, config: BalletConfig, batch_size: int, *, seed: int = 0, device: torch.device | str = "cpu"
    ) -> None:
        super().__init__(config.spec, batch_size, seed=seed, device=device)
        self.config = config
        self.places = max(config.dancers)
        self.offsets, self.moves = dance_table().to(self.device), move_table().to(self.device)
        self.ways = way_table().to(self.device)
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
        # Added to random numbers below 1 and sorted, this shuffles cards that exist before cards that do not.
        sizes = torch.tensor([len(HOMES), len(self.config.dances), len(SHAPES), len(COLOURS)])
        return (torch.arange(int(sizes.max())) >= sizes[:, None]).float().to(self.device)

    def begin(self, batch_size: int) -> BalletState:
        """Episodes of random levels: homes, dances, shapes and colours are dealt without repetition."""
        draws = {"generator": self.generator, "device": self.device}
        level = self.levels[torch.randint(len(self.levels), (batch_size,), **draws)]
        count, period, cue, limit = level.unbind(1)
        shuffled = (torch.rand(batch_size, *self.decks.shape, **draws) + self.decks).argsort(-1)[..., : self.places]
        home, dance, shape, colour = shuffled.unbind(1)
        absent = self.order >= count[:, None]
        return BalletState(
            homes=torch.where(absent, NOWHERE, self.homes[home]),
            dances=torch.where(absent, STILL, self.dances[dance.clamp(max=len(self.dances) - 1)]),
            looks=look(shape, colour),
            target=torch.randint(COMMON_MULTIPLE, (batch_size,), **draws) % count,
            period=period,
            cue=cue,
            limit=limit,
            agent=torch.full_like(count, START),
            frame=torch.zeros_like(count),
        )

    def stage(self, levels: Sequence[BalletLevel]) -> Step:
        """Begin the given episodes, one a row, instead of random ones. What follows them is random again.

        Raises:
            ValueError: not as many levels as rows, or one that the config does not know.
        """
        if len(levels) != self.batch_size:
            raise ValueError(f"{len(levels)} levels for {self.batch_size} rows: give one a row")
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

        casts = torch.tensor([level.numbers(self.places) for level in levels], device=self.device)
        homes, dances, shapes, colours = casts.unbind(1)
        target = per_row([level.target for level in levels])
        return BalletState(
            homes=homes,
            dances=dances,
            looks=look(shapes, colours),
            target=target,
            period=per_row([self.config.period(level.delay) for level in levels]),
            cue=per_row([len(level.dancers) * self.config.period(level.delay) for level in levels]),
            limit=per_row([self.config.level_limit(len(level.dancers), level.delay) for level in levels]),
            agent=torch.full_like(target, START),
            frame=torch.zeros_like(target),
        )

    def step(self, actions: torch.Tensor) -> Step:
        """Advance every row; an episode's time limit is that of its level."""
        step = super().step(actions)
        late = (self.clock >= self._present().limit) & ~step.is_last
        self.over = self.over | late
        return step._replace(truncated=step.truncated | late)

    def advance(self, state: BalletState, actions: torch.Tensor) -> Advance:
        """Walk, where a dance was named; touching a dancer ends the episode."""
        # During the dances the agent stands in the middle, where no home is.
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
        """Moves from the agent's cell ``[b]`` to the nearest of the homes ``[b, n]``, as the crow flies: ``[b]``."""
        down = (homes // SIDE - (agent // SIDE)[:, None]).abs()
        along = (homes % SIDE - (agent % SIDE)[:, None]).abs()
        return torch.maximum(down, along).masked_fill(homes == NOWHERE, CELLS).amin(1)

    def observe(self, state: BalletState) -> dict[str, torch.Tensor]:
        """The image around the agent, uint8 ``[b, y, x, 3]``, and the word, long ``[b, 1]``."""
        named = state.dances.gather(1, state.target[:, None]) + WORDS.index("watch") + 1
        word = torch.where((state.frame >= state.cue)[:, None], named, WORDS.index("watch"))
        return {"image": self.painter(state.agent, self.dancer_cells(state), state.looks), "language": word}

    def dancer_cells(self, state: BalletState) -> torch.Tensor:
        """Where the dancers are, long ``[b, n]``."""
        moves = (state.frame[:, None] - state.period[:, None] * self.order + 1).clamp(0, DANCE)
        return state.homes + self.offsets[state.dances * (DANCE + 1) + moves]

    def plan(self, state: BalletState) -> torch.Tensor:
        """The first move of a shortest way to the target that touches nobody else; 0 while actions are ignored."""
        home = state.homes.gather(1, state.target[:, None])[:, 0]
        way = self.ways[state.agent * CELLS + home]
        return torch.where(state.frame >= state.cue, way, 0)  # who watches is not to guess what will be asked

    def look(self, state: BalletState) -> Truth:
        """From the naming on, every decision depends on the dance of the target; the label is the target's home."""
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
        """Paints pixels, whatever the form of the observations."""
        return self.painter if self.config.observation == "pixels" else Painter("pixels", self.device)

    def render(self, row: int = 0) -> np.ndarray:
        """What a row sees, as an RGB image for videos, uint8 ``[99, 99, 3]``."""
        state = take_rows(self._present(), slice(row, row + 1))
        return self.camera(state.agent, self.dancer_cells(state), state.looks)[0].cpu().numpy()
