"""Rapid word learning: hear the names of new things once, do something else, then lift the thing that is asked for.

The rooms are ``side`` x ``side`` tiles. In every one the agent and the objects are dealt anew to the cells with odd
coordinates. The agent moves with eight actions, clockwise from 0 = north (the moves of ballet); stepping onto an
object lifts it. A lesson has three kinds of phases, each in a room of its own:

1. *discovery*: ``num_objects`` objects that were never seen before (shape x colour), each bound to a new word.
   Where the agent stands on an object it hears "this is a dako". The phase is over when every name was heard, or after
   ``discovery_steps``; the step that shows the last name belongs to it, and the action chosen there is swallowed.
2. *distractors*, as many as drawn from ``distractor_phases``: three known objects, "lift the robot". The right one is
   worth ``distractor_reward`` and opens the next phase, as do ``distractor_steps`` steps; wrong ones change nothing.
3. *test*: the learned objects in new places, "lift the dako". The first one that is lifted ends the phase, with
   reward 1 if it is the right one, else 0.

After discovery and after each distractor phase the agent is alone in an empty room for ``pause_steps`` steps: nothing
is said, and actions are swallowed.

An episode is ``lessons`` of them in a row, each with new objects and new words, without a reset. With more than one
the last test asks for an object of an *earlier* lesson, among the objects of that same lesson: it does not help to
remember only which words came together. The score is that of the last test; an episode that never gets there has 0.

Chance: which object has which word is drawn independently of all else, so a policy that does not know what it heard
lifts the right object of ``num_objects`` with probability ``1 / num_objects`` whatever it does; less if it is slow.

Source: a grid analogue of Hill et al., Grounded language learning fast and slow (ICLR 2021), with the distractor
phases and chains of episodes of Lampinen et al. 2021, section 3.3 and appendix B.3 (whose "episodes" are lessons
here, since no reset parts them). Differs: two dimensions, so that pictures and numbers are not comparable with the
paper's; names are heard by touch, not by looking; made-up words; one time limit in steps, of which a test may spend
all that is left.
``num_words`` and ``same_room`` make it easier, for agents that have minutes to learn, and are ours. So is
``pause_steps``: a phase of the paper's room takes seconds, walking over a few tiles takes a few steps.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from recollect.lazy import gymnasium, np, torch
from recollect.tasks.arrangements import arrangement_bits
from recollect.tasks.worlds.contract import NEW_EPISODE, Advance, TensorWorld, Truth, WorldConfig, WorldSpec
from recollect.tasks.worlds.tile_pictures import (
    AGENT,
    COLOURS,
    FLOOR,
    SHAPES,
    WALL,
    Form,
    TilePictures,
    image_space,
    picture,
)
from recollect.tasks.worlds.tile_rooms import (
    EIGHT_NAMES,
    EIGHT_WAYS,
    moves,
    sample_without_replacement,
    spaced_cells,
    windows_around,
)

KNOWN = tuple(SHAPES)[-3:]
"""The objects of the distractor phases, with fixed names and looks; never among the objects to be learned."""
NEW_WORDS = tuple(onset + rest for onset in "bdfghjklmnprstvz" for rest in ("ako", "eli", "ipu", "ofa", "udo", "yme"))
"""The words to be learned."""
WORDS = ("", "this", "is", "a", "lift", "the", *KNOWN, *NEW_WORDS)
"""Word of every number in the key ``language``."""

_SPOKEN = {word: number for number, word in enumerate(WORDS)}
_FIRST_KNOWN = len(SHAPES) - len(KNOWN)
_LOOKS = _FIRST_KNOWN * len(COLOURS)


@dataclass(frozen=True, kw_only=True)
class WordLearningConfig(WorldConfig):
    """Learn the names of new objects in one go, and lift the one that is asked for after distractions."""

    num_objects: int = 3
    """Objects to be learned in a lesson."""
    distractor_phases: tuple[int, ...] = (0,)
    """Numbers of distractor phases between discovery and test; one of them is drawn for every episode."""
    lessons: int = 1
    """Lessons in an episode; with more than one the last question is about an earlier lesson."""
    side: int = 7
    """Tiles along a side of the rooms; odd."""
    view: int = 9
    """Tiles along a side of what the agent sees around itself; odd."""
    observation: Form = "tiles"
    """``tiles``: three symbols a tile; ``pixels``: 9 x 9 pixels a tile."""
    discovery_steps: int = 30
    """Actions after which a discovery phase is over."""
    distractor_steps: int = 20
    """Actions after which a distractor phase is over."""
    test_steps: int = 20
    """Actions that the time limit allows for each test, beside those of all other phases."""
    discovery_reward: float = 0.1
    """For hearing a name for the first time; 0 for none."""
    distractor_reward: float = 0.1
    """For lifting the right object in a distractor phase."""
    num_words: int = len(NEW_WORDS)
    """Words that new objects may be given in an episode; few are soon told apart."""
    same_room: bool = False
    """The objects of a test stand where they stood when their names were heard, and the agent starts in the middle of
    every room: who remembers where a name was heard need not find the thing again by its look."""
    pause_steps: int = 0
    """Steps alone in an empty room after discovery and after each distractor phase."""

    def __post_init__(self) -> None:
        if self.observation not in ("tiles", "pixels"):
            raise ValueError(f"observation={self.observation!r}: use 'tiles' or 'pixels'")
        if self.side % 2 == 0 or self.side < 5:
            raise ValueError(f"side={self.side}: give an odd number from 5")
        if self.view % 2 == 0 or self.view < 3:
            raise ValueError(f"view={self.view}: give an odd number from 3")
        places = len(self.homes)
        if not 2 <= self.num_objects < places:
            raise ValueError(f"num_objects={self.num_objects}: give 2..{places - 1}, or a larger side")
        if not self.distractor_phases or min(self.distractor_phases) < 0:
            raise ValueError(f"distractor_phases={self.distractor_phases}: give one or more numbers from 0")
        if not self.num_objects <= self.num_words <= len(NEW_WORDS):
            raise ValueError(f"num_words={self.num_words}: give num_objects={self.num_objects}..{len(NEW_WORDS)}")
        most = min(self.num_words, _LOOKS) // self.num_objects
        if not 1 <= self.lessons <= most:
            raise ValueError(
                f"lessons={self.lessons}: give 1..{most}; there are num_words={self.num_words} words to be learned"
            )
        across = self.side - 3  # steps between the places that are farthest apart
        for field, least in (
            ("discovery_steps", self.num_objects * across + 1),
            ("distractor_steps", 2 * across),
            ("test_steps", 2 * across),
        ):
            if getattr(self, field) < least:
                raise ValueError(f"{field}={getattr(self, field)}: such a room asks for at least {least}")
        if self.pause_steps < 0:
            raise ValueError(f"pause_steps={self.pause_steps}: give at least 0")

    @property
    def homes(self) -> list[int]:
        """Cells of agents and objects; in the same room the middle is kept for the agent."""
        cells = spaced_cells(self.side, self.side - 2)
        return [cell for cell in cells if cell != self.middle] if self.same_room else cells

    @property
    def middle(self) -> int:
        """The cell in the middle of a room."""
        return self.side**2 // 2

    @property
    def spec(self) -> WorldSpec:
        """An image and four words; eight moves. A name is heard at step 2 at the earliest, seldom at 1."""
        most = max(self.distractor_phases)
        distraction = most * (self.distractor_steps + self.pause_steps) + self.pause_steps
        max_steps = self.lessons * (self.discovery_steps + distraction + self.test_steps)
        names = tuple(f"name of object {1 + i}" for i in range(self.lessons * self.num_objects))
        heard = 1 if self.same_room and self.side % 4 == 1 else 2  # there the middle touches places of objects
        return WorldSpec(
            observation_space=gymnasium.spaces.Dict(
                {
                    "image": image_space(self.observation, self.view),
                    "language": gymnasium.spaces.MultiDiscrete([len(WORDS)] * 4),
                }
            ),
            action_space=gymnasium.spaces.Discrete(len(EIGHT_WAYS)),
            max_steps=max_steps,
            memory_span=max_steps - 1 - heard,
            chance=1 / self.num_objects,
            oracle=1.0,
            events=(*names, *(f"distraction {1 + i}" for i in range(most)), NEW_EPISODE),
            action_names=EIGHT_NAMES,
            num_labels=_LOOKS,
            words=WORDS,
            bits=arrangement_bits(self.num_words, self.lessons * self.num_objects),
        )

    def build(self, batch_size: int, *, seed: int = 0, device: torch.device | str = "cpu") -> WordLearning:
        """The world, with ``batch_size`` rows."""
        return WordLearning(self, batch_size, seed=seed, device=device)


LEVELS: Mapping[str, WordLearningConfig] = {
    "train": WordLearningConfig(distractor_phases=(0, 1, 2)),
    **{f"distractors-{n}": WordLearningConfig(distractor_phases=(n,)) for n in (0, 1, 2, 10, 20)},
    **{f"lessons-{n}-distractors-5": WordLearningConfig(distractor_phases=(5,), lessons=n) for n in (2, 3)},
    **{f"lessons-4-distractors-{n}": WordLearningConfig(distractor_phases=(n,), lessons=4) for n in (0, 1)},
}
"""The paper's levels: one to train on, the others to evaluate on (all are one config, so all fields may be changed)."""


class Script(NamedTuple):
    """All that chance decides about b episodes, drawn when they begin.

    e lessons, n objects, r rooms of an episode (each lesson has one for discovery, one for each distractor phase
    and one for the test), k places of objects in a room.
    """

    looks: torch.Tensor
    """long ``[b, e, n]``: shape and colour of the new objects, as ``shape * colours + colour``."""
    words: torch.Tensor
    """long ``[b, e, n]``: their words."""
    distractors: torch.Tensor
    """long ``[b]``: distractor phases in each lesson."""
    start: torch.Tensor
    """long ``[b, r]``: the agent's cell."""
    places: torch.Tensor
    """long ``[b, r, k]``: the objects' cells."""
    asked: torch.Tensor
    """long ``[b, r]``: the object to be lifted."""
    about: torch.Tensor
    """long ``[b]``: the lesson that the last question is about."""


class WordLearningState(NamedTuple):
    """What a row of the world is."""

    script: Script
    lesson: torch.Tensor
    """long ``[b]``."""
    phase: torch.Tensor
    """long ``[b]``: 0 is discovery, the last one the test."""
    elapsed: torch.Tensor
    """long ``[b]``: actions taken in this phase."""
    agent: torch.Tensor
    """long ``[b]``: its cell."""
    touched: torch.Tensor
    """long ``[b]``: 1 + the object that the agent stands on, 0 for none."""
    heard: torch.Tensor
    """long ``[b, e * n]``: the latest step at which an object's name was heard, -1 before that."""
    pause: torch.Tensor
    """long ``[b]``: steps that are left alone in an empty room."""


class WordLearning(TensorWorld[WordLearningState]):
    """The world of :class:`WordLearningConfig`; the rules stand at the top of this file."""

    def __init__(
        self, config: WordLearningConfig, batch_size: int, *, seed: int = 0, device: torch.device | str = "cpu"
    ) -> None:
        super().__init__(config.spec, batch_size, seed=seed, device=device)
        self.config = config
        self.most = max(config.distractor_phases)
        self.test = self.most + 1  # number of the test phase
        self.slots = max(config.num_objects, len(KNOWN) if self.most else 0)
        self.moves = moves(config.side, EIGHT_WAYS).to(self.device)
        self.homes = torch.tensor(config.homes, device=self.device)
        self.camera = TilePictures(config.observation, windows_around(config.side, config.view).to(self.device))
        self.rows = torch.arange(batch_size, device=self.device)
        self.objects = torch.arange(1, self.slots + 1, device=self.device)
        self.names = torch.arange(config.lessons * config.num_objects, device=self.device)
        self.phases = torch.tensor(config.distractor_phases, device=self.device)
        cells = config.side**2
        room = torch.full((1, cells + 2), int(picture(FLOOR)), device=self.device)
        room[:, cells:] = int(picture(WALL))
        self.empty_room, self.nowhere = room, cells + 1
        self._draw_known()

    def _draw_known(self) -> None:
        looks = torch.tensor([(_FIRST_KNOWN + i) * len(COLOURS) + i for i in range(len(KNOWN))])
        self.known_looks = self._padded(looks)
        self.known_words = self._padded(torch.tensor([_SPOKEN[name] for name in KNOWN]))
        sentences = (("",) * 4, ("this", "is", "a", ""), ("lift", "the", "", ""))
        self.sentences = torch.tensor([[_SPOKEN[word] for word in line] for line in sentences], device=self.device)

    def _padded(self, values: torch.Tensor) -> torch.Tensor:
        """``[..., objects]`` with zeros for the empty places of a room, ``[..., k]``."""
        values = values[..., : self.slots].to(self.device)
        return torch.nn.functional.pad(values, (0, self.slots - values.shape[-1]))

    def begin(self, batch_size: int) -> WordLearningState:
        """Episodes at the first step of the first discovery, their whole script drawn anew."""
        c, draw = self.config, self.generator
        e, n = c.lessons, c.num_objects
        rooms = e * (self.most + 2)
        phase = torch.arange(rooms, device=self.device) % (self.most + 2)
        distracts = (phase > 0) & (phase < self.test)

        def below(high: int, *shape: int) -> torch.Tensor:
            return torch.randint(high, shape, generator=draw, device=self.device)

        homes = self.homes[
            sample_without_replacement(1 + self.slots, len(self.homes), batch_size, rooms, generator=draw)
        ]
        looks = sample_without_replacement(e * n, _LOOKS, batch_size, generator=draw).view(batch_size, e, n)
        words = (
            sample_without_replacement(e * n, c.num_words, batch_size, generator=draw).view(batch_size, e, n)
            + len(WORDS)
            - len(NEW_WORDS)
        )
        distractors = self.phases[below(len(self.phases), batch_size)]
        asked = torch.where(distracts, below(len(KNOWN), batch_size, rooms), below(n, batch_size, rooms))
        about = below(max(e - 1, 1), batch_size)
        if c.same_room:
            homes = homes.gather(1, self._layouts(about, rooms)[..., None].expand_as(homes))
            homes[..., 0] = c.middle
        crowd = torch.where(distracts, len(KNOWN), n)[:, None]
        places = torch.where(self.objects <= crowd, homes[..., 1:], self.nowhere)
        script = Script(looks, words, distractors, homes[..., 0], places, asked, about)
        zero = torch.zeros(batch_size, dtype=torch.long, device=self.device)
        unheard = torch.full((batch_size, e * n), -1, device=self.device)
        return WordLearningState(script, zero, zero, zero, script.start[:, 0], zero, unheard, zero)

    def _layouts(self, about: torch.Tensor, rooms: int) -> torch.Tensor:
        """The room that each room is laid out like, long ``[b, r]``: a test's is where its names were heard."""
        room, phases = torch.arange(rooms, device=self.device), self.test + 1
        layout = torch.where(room % phases == self.test, room // phases * phases, room).repeat(len(about), 1)
        layout[:, -1] = about * phases
        return layout

    def advance(self, state: WordLearningState, actions: torch.Tensor) -> Advance:
        """Walk, lift what is there, and go on to the next room where this phase is over."""
        c, script, room = self.config, state.script, self._room(state)
        learning, testing, alone = state.phase == 0, state.phase == self.test, state.pause > 0
        swallowed = learning & self._all_heard(state)
        agent = torch.where(swallowed | alone, state.agent, self.moves[state.agent, actions])
        touched = ((script.places[self.rows, room] == agent[:, None]) * self.objects).sum(1)
        right = touched == script.asked[self.rows, room] + 1

        elapsed = state.elapsed + ~alone
        distracted = ~learning & ~testing & right & ~alone
        late = elapsed >= torch.where(learning, c.discovery_steps, c.distractor_steps)
        over = torch.where(testing, touched > 0, swallowed | distracted | late) & ~alone

        named = (self.names == self._name(state, touched)[:, None]) & (learning & ~over)[:, None]
        news = (named & (state.heard < 0)).any(1)
        heard = torch.where(named, (self.clock + 1)[:, None], state.heard)

        finished = over & testing & (state.lesson == c.lessons - 1)
        lifted = (testing & right & ~alone).float()
        reward = lifted + c.discovery_reward * news + c.distractor_reward * distracted

        pause = torch.where(over & ~testing, c.pause_steps, (state.pause - 1).clamp(min=0))
        moved = state._replace(elapsed=elapsed, agent=agent, touched=touched, heard=heard, pause=pause)
        return Advance(self._enter_next(moved, over & ~finished), reward, finished, lifted * finished)

    def _enter_next(self, state: WordLearningState, over: torch.Tensor) -> WordLearningState:
        tested = over & (state.phase == self.test)
        following = torch.where(state.phase < state.script.distractors, state.phase + 1, self.test)
        phase = torch.where(over, torch.where(tested, 0, following), state.phase)
        state = state._replace(lesson=state.lesson + tested, phase=phase)
        return state._replace(
            elapsed=torch.where(over, 0, state.elapsed),
            agent=torch.where(over, state.script.start[self.rows, self._room(state)], state.agent),
            touched=torch.where(over, 0, state.touched),
        )

    def observe(self, state: WordLearningState) -> dict[str, torch.Tensor]:
        """What is around the agent, and what is said."""
        return {"image": self._look_around(state, self.camera), "language": self._say(state)}

    def plan(self, state: WordLearningState) -> torch.Tensor:
        """Go to the nearest object without a name, or to the one that is asked for, past all others; 0 when alone.

        Objects touch neither each other nor a wall. So there is always a free move that brings the target closer in
        steps, or as close in steps and closer in rows plus columns.
        """
        room = self._room(state)
        places = state.script.places[self.rows, room]
        asked = places.gather(1, state.script.asked[self.rows, room, None])
        learning = (state.phase == 0)[:, None]
        lesson = state.lesson[:, None] * self.config.num_objects
        slot = (lesson + self.objects - 1).clamp(max=len(self.names) - 1)
        unheard = (state.heard.gather(1, slot) < 0) & (places != self.nowhere)

        far = 4 * self.config.side**2
        nearest = torch.where(unheard, self._distance(state.agent[:, None], places), far).argmin(1, keepdim=True)
        target = torch.where(learning, places.gather(1, nearest), asked)  # b 1
        there = self.moves[state.agent]  # b 8
        foil = (there[..., None] == places[:, None]).any(-1) & (there != target)
        best = (self._distance(there, target) + far * foil).argmin(1)
        return torch.where(state.pause > 0, 0, best)  # who is alone is not to guess what will be asked

    def _distance(self, cell: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        """Steps to the target in an empty room, ties broken by rows plus columns."""
        side = self.config.side
        down, right = (cell // side - target // side).abs(), (cell % side - target % side).abs()
        return 2 * side * torch.maximum(down, right) + down + right

    def look(self, state: WordLearningState) -> Truth:
        """Which name is heard, what begins; a test depends on the latest step that named the object it asks for.

        The label is the look of that object.
        """
        event = torch.where((state.phase == 0) & (state.touched > 0), self._name(state, state.touched), -1)
        begins = (state.elapsed == 0) & (state.pause == 0)
        event = torch.where(self._distracts(state) & begins, len(self.names) + state.phase - 1, event)
        event = torch.where((state.phase == 0) & (state.lesson > 0) & begins, len(self.spec.events) - 1, event)
        asked = state.script.asked[self.rows, self._room(state)]
        slot = self._topic(state) * self.config.num_objects + asked  # of no meaning outside a test
        heard = state.heard.gather(1, slot[:, None].clamp(0, state.heard.shape[1] - 1))
        deciding = (state.phase == self.test) & (state.pause == 0) & ~self.over
        start = torch.where(deciding, heard[:, 0], -1)
        look = state.script.looks[self.rows, self._topic(state), asked.clamp(max=self.config.num_objects - 1)]
        return Truth(event, start, torch.where(start < 0, -1, start + 1), torch.where(start < 0, -1, look))

    def render(self, row: int) -> np.ndarray:
        """What is around the agent of a row, uint8 ``[9 * view, 9 * view, 3]``, whatever form the observation has."""
        camera = TilePictures("pixels", self.camera.windows)
        return self._look_around(self._present(), camera)[row].cpu().numpy()

    def _room(self, state: WordLearningState) -> torch.Tensor:
        """Number of the present room in the script, long ``[b]``."""
        return state.lesson * (self.most + 2) + state.phase

    def _name(self, state: WordLearningState, touched: torch.Tensor) -> torch.Tensor:
        """Number of the touched object among all of the episode; -1 for none."""
        return torch.where(touched > 0, state.lesson * self.config.num_objects + touched - 1, -1)

    def _topic(self, state: WordLearningState) -> torch.Tensor:
        """The lesson whose objects are in a room of discovery or test."""
        last_test = (state.phase == self.test) & (state.lesson == self.config.lessons - 1)
        return torch.where(last_test, state.script.about, state.lesson)

    def _all_heard(self, state: WordLearningState) -> torch.Tensor:
        mine = self.names // self.config.num_objects == state.lesson[:, None]
        return (~mine | (state.heard >= 0)).all(1)

    def _distracts(self, state: WordLearningState) -> torch.Tensor:
        return (state.phase > 0) & (state.phase < self.test)

    def _look_around(self, state: WordLearningState, camera: TilePictures) -> torch.Tensor:
        places = state.script.places[self.rows, self._room(state)]
        learned = self._padded(state.script.looks[self.rows, self._topic(state)])
        looks = torch.where(self._distracts(state)[:, None], self.known_looks, learned)
        agent = state.agent[:, None]
        places = torch.where(state.pause[:, None] > 0, self.nowhere, places)
        backdrop = torch.where(places == agent, AGENT, FLOOR)
        room = self.empty_room.repeat(len(agent), 1).scatter_(1, agent, int(picture(AGENT)))
        room.scatter_(1, places, picture(backdrop, looks // len(COLOURS), looks % len(COLOURS)))
        return camera.show(room, state.agent)

    def _say(self, state: WordLearningState) -> torch.Tensor:
        """Discovery: "this is a dako" on an object, else silence, as when alone. Other phases: "lift the dako"."""
        learning = (state.phase == 0) | (state.pause > 0)
        silent = learning & (state.touched == 0)
        asked = state.script.asked[self.rows, self._room(state)]
        learned = self._padded(state.script.words[self.rows, self._topic(state)])
        words = torch.where(self._distracts(state)[:, None], self.known_words, learned)
        spoken = torch.where(learning, (state.touched - 1).clamp(min=0), asked)
        word = torch.where(silent[:, None], 0, words.gather(1, spoken[:, None]))
        sentence = self.sentences[torch.where(learning, (~silent).long(), 2)]
        return sentence.scatter_(1, torch.where(learning, 3, 2)[:, None], word)
