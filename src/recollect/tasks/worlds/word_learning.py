"""Rapid word learning: learn the names of new objects from one presentation, then lift the named object after
distractions.

Rooms have ``side`` x ``side`` tiles. In every room, agent and objects are at random cells with odd coordinates. The
agent has eight moves, clockwise from 0 = north; stepping onto an object lifts it. A lesson has three kinds of phases,
each in its own room:

1. *discovery*: ``num_objects`` new objects (shape x colour), each with a new word. On an object the agent receives the
   sentence "this is a dako". The phase ends when every object was named, or after ``discovery_steps``. The step that
   names the last object still belongs to it; the action chosen there is ignored.
2. *distractors*, as many as drawn from ``distractor_phases``: three known objects and "lift the robot". Lifting the
   right one gives ``distractor_reward`` and ends the phase, as do ``distractor_steps`` steps; the wrong ones have no
   effect.
3. *test*: the learned objects at new places and "lift the dako". The first object that is lifted ends the phase, with
   reward 1 if it is the right one, else 0.

After discovery and after each distractor phase the agent spends ``pause_steps`` steps in an empty room, without
language; actions are ignored.

An episode has ``lessons`` lessons with new objects and words, without a reset in between. With more than one, the last
test asks for an object of an *earlier* lesson, among the objects of that lesson, so that remembering which words
occurred together is not enough. The score is that of the last test, 0 if it is never reached.

Chance: words are assigned to objects independently of everything else, so a policy that has forgotten the names lifts
the right object of ``num_objects`` with probability at most ``1 / num_objects``. This holds for agents that do not
observe their previous action: others can pass on a name by actions that are ignored.

Source: a grid version of Hill et al., Grounded language learning fast and slow (ICLR 2021), with the distractor phases
and chained episodes of Lampinen et al. 2021, section 3.3 and appendix B.3 (whose "episodes" are lessons here, as no
reset separates them). Differs: two dimensions, so pictures and scores are not comparable with the paper's; objects are
named on touch, not on sight; made-up words; one time limit in steps, all of which a test may use up. ``num_words`` and
``same_room`` are additions that make the task easier to learn within minutes. So is ``pause_steps``: a phase takes
seconds in the paper's room, and only a few steps here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from recollect.config import require, require_at_least, require_one_of
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
"""Objects of the distractor phases, with fixed names and appearance; never among the objects to be learned."""
NEW_WORDS = tuple(onset + rest for onset in "bdfghjklmnprstvz" for rest in ("ako", "eli", "ipu", "ofa", "udo", "yme"))
"""Words to be learned."""
WORDS = ("", "this", "is", "a", "lift", "the", *KNOWN, *NEW_WORDS)
"""Word of every number in the key ``language``."""

_WORD_INDEX = {word: number for number, word in enumerate(WORDS)}
_FIRST_KNOWN = len(SHAPES) - len(KNOWN)
_LOOKS = _FIRST_KNOWN * len(COLOURS)


@dataclass(frozen=True, kw_only=True)
class WordLearningConfig(WorldConfig):
    """Learn the names of new objects from one presentation, and lift the named one after distractions."""

    num_objects: int = 3
    """New objects per lesson."""
    distractor_phases: tuple[int, ...] = (0,)
    """Possible numbers of distractor phases between discovery and test; one is drawn per episode."""
    lessons: int = 1
    """Lessons per episode; with more than one, the last test is about an earlier lesson."""
    side: int = 7
    """Side of a room in tiles; odd."""
    view: int = 9
    """Side of the visible square around the agent in tiles; odd."""
    observation: Form = "tiles"
    """``tiles``: three symbols per tile; ``pixels``: 9 x 9 pixels per tile."""
    discovery_steps: int = 30
    """Time limit of a discovery phase, in actions."""
    distractor_steps: int = 20
    """Time limit of a distractor phase, in actions."""
    test_steps: int = 20
    """Actions added to the episode's time limit per test."""
    discovery_reward: float = 0.1
    """Reward for visiting an object that was not named before."""
    distractor_reward: float = 0.1
    """Reward for lifting the right object in a distractor phase."""
    num_words: int = len(NEW_WORDS)
    """Number of words to draw names from; fewer are easier to tell apart."""
    same_room: bool = False
    """Test in the layout of the discovery room, and start in the middle of every room: the place where a name was given
    then identifies the object without its appearance."""
    pause_steps: int = 0
    """Steps in an empty room after discovery and after each distractor phase."""

    def __post_init__(self) -> None:
        require_one_of(self, "observation")
        require(self.side % 2 == 1 and self.side >= 5, "side", self.side, "give an odd number from 5")
        require(self.view % 2 == 1 and self.view >= 3, "view", self.view, "give an odd number from 3")
        n, places, phases = self.num_objects, len(self.homes), self.distractor_phases
        require(2 <= n < places, "num_objects", n, f"give 2..{places - 1}, or a larger side")
        remedy = "give one or more numbers from 0"
        require(bool(phases) and min(phases) >= 0, "distractor_phases", phases, remedy)
        remedy = f"give {n}..{len(NEW_WORDS)}: each of num_objects={n} has its own word"
        require(n <= self.num_words <= len(NEW_WORDS), "num_words", self.num_words, remedy)
        most = min(self.num_words, _LOOKS) // n
        remedy = f"give 1..{most}; there are num_words={self.num_words} words to be learned"
        require(1 <= self.lessons <= most, "lessons", self.lessons, remedy)
        across = self.side - 3  # steps between the places that are farthest apart
        least = {"discovery_steps": n * across + 1, "distractor_steps": 2 * across, "test_steps": 2 * across}
        require_at_least(self, **least, pause_steps=0)

    @property
    def homes(self) -> list[int]:
        """Cells for agents and objects; with ``same_room`` the middle is reserved for the agent."""
        cells = spaced_cells(self.side, self.side - 2)
        return [cell for cell in cells if cell != self.middle] if self.same_room else cells

    @property
    def middle(self) -> int:
        """The middle cell of a room."""
        return self.side**2 // 2

    @property
    def spec(self) -> WorldSpec:
        """An image and four words; eight moves. A name is given at step 2 at the earliest, or at 1 in some layouts."""
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
        """Build the world with ``batch_size`` rows."""
        return WordLearning(self, batch_size, seed=seed, device=device)


LEVELS: Mapping[str, WordLearningConfig] = {
    "train": WordLearningConfig(distractor_phases=(0, 1, 2)),
    **{f"distractors-{n}": WordLearningConfig(distractor_phases=(n,)) for n in (0, 1, 2, 10, 20)},
    **{f"lessons-{n}-distractors-5": WordLearningConfig(distractor_phases=(5,), lessons=n) for n in (2, 3)},
    **{f"lessons-4-distractors-{n}": WordLearningConfig(distractor_phases=(n,), lessons=4) for n in (0, 1)},
}
"""The paper's levels: one for training, the others for evaluation."""


class Script(NamedTuple):
    """All random choices of b episodes, drawn when they begin.

    e lessons, n objects, r rooms of an episode (per lesson one for discovery, one for each distractor phase and one for
    the test), k objects in a room.
    """

    looks: torch.Tensor  # long [b, e, n]: shape and colour of the new objects, as shape * colours + colour
    words: torch.Tensor  # long [b, e, n]: their words
    distractors: torch.Tensor  # long [b]: distractor phases in each lesson
    start: torch.Tensor  # long [b, r]: the agent's cell
    places: torch.Tensor  # long [b, r, k]: the objects' cells
    asked: torch.Tensor  # long [b, r]: the object to be lifted
    about: torch.Tensor  # long [b]: the lesson that the last question is about


class WordLearningState(NamedTuple):
    """State of the world."""

    script: Script
    lesson: torch.Tensor  # long [b]
    phase: torch.Tensor  # long [b]: 0 is discovery, the last one the test
    elapsed: torch.Tensor  # long [b]: actions taken in this phase
    agent: torch.Tensor  # long [b]: its cell
    touched: torch.Tensor  # long [b]: 1 + the object that the agent stands on, 0 for none
    heard: torch.Tensor  # long [b, e * n]: the latest step at which an object was named, -1 before that
    pause: torch.Tensor  # long [b]: remaining steps in an empty room


class WordLearning(TensorWorld[WordLearningState]):
    """The world of :class:`WordLearningConfig`; the rules are at the top of this module."""

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
        self.objects = torch.arange(1, self.slots + 1, device=self.device)
        self.names = torch.arange(config.lessons * config.num_objects, device=self.device)
        self.phases = torch.tensor(config.distractor_phases, device=self.device)
        cells = config.side**2
        room = torch.full((1, cells + 2), int(picture(FLOOR)), device=self.device)
        room[:, cells:] = int(picture(WALL))
        self.empty_room, self.nowhere = room, cells + 1
        looks = torch.tensor([(_FIRST_KNOWN + i) * len(COLOURS) + i for i in range(len(KNOWN))])
        self.known_looks = self._padded(looks)
        self.known_words = self._padded(torch.tensor([_WORD_INDEX[name] for name in KNOWN]))
        sentences = (("",) * 4, ("this", "is", "a", ""), ("lift", "the", "", ""))
        self.sentences = torch.tensor([[_WORD_INDEX[word] for word in line] for line in sentences], device=self.device)

    def _padded(self, values: torch.Tensor) -> torch.Tensor:
        """Pad ``[..., objects]`` with zeros to the number of objects in a room, ``[..., k]``."""
        values = values[..., : self.slots].to(self.device)
        return torch.nn.functional.pad(values, (0, self.slots - values.shape[-1]))

    def begin(self, batch_size: int) -> WordLearningState:
        """Return episodes at the first step of the first discovery phase, with new random choices."""
        c, draw, below = self.config, self.generator, self.draw_integers
        e, n = c.lessons, c.num_objects
        rooms = e * (self.most + 2)
        phase = torch.arange(rooms, device=self.device) % (self.most + 2)
        distracts = (phase > 0) & (phase < self.test)
        homes = self.homes[
            sample_without_replacement(1 + self.slots, len(self.homes), batch_size, rooms, generator=draw)
        ]
        looks = sample_without_replacement(e * n, _LOOKS, batch_size, generator=draw).view(batch_size, e, n)
        words = sample_without_replacement(e * n, c.num_words, batch_size, generator=draw).view(batch_size, e, n)
        words = words + len(WORDS) - len(NEW_WORDS)
        distractors = self.phases[below(len(self.phases), batch_size)]
        asked = torch.where(distracts, below(len(KNOWN), batch_size, rooms), below(n, batch_size, rooms))
        about = below(max(e - 1, 1), batch_size)
        if c.same_room:
            homes = homes.gather(1, self._layout_rooms(about, rooms)[..., None].expand_as(homes))
            homes[..., 0] = c.middle
        crowd = torch.where(distracts, len(KNOWN), n)[:, None]
        places = torch.where(self.objects <= crowd, homes[..., 1:], self.nowhere)
        script = Script(looks, words, distractors, homes[..., 0], places, asked, about)
        zero = torch.zeros(batch_size, dtype=torch.long, device=self.device)
        unheard = torch.full((batch_size, e * n), -1, device=self.device)
        return WordLearningState(script, zero, zero, zero, script.start[:, 0], zero, unheard, zero)

    def _layout_rooms(self, about: torch.Tensor, rooms: int) -> torch.Tensor:
        """Return for each of r rooms the room that it looks like, long ``[b, r]``: tests as that of their words."""
        room, phases = torch.arange(rooms, device=self.device), self.test + 1
        layout = torch.where(room % phases == self.test, room // phases * phases, room).repeat(len(about), 1)
        layout[:, -1] = about * phases
        return layout

    def advance(self, state: WordLearningState, actions: torch.Tensor) -> Advance:
        """Move, lift, and enter the next room where the phase is over."""
        c, script, room = self.config, state.script, self._room(state)
        learning, testing, alone = state.phase == 0, state.phase == self.test, state.pause > 0
        finished_discovery = learning & self._all_named(state)
        agent = torch.where(finished_discovery | alone, state.agent, self.moves[state.agent, actions])
        touched = ((script.places[self.rows, room] == agent[:, None]) * self.objects).sum(1)
        right = touched == script.asked[self.rows, room] + 1

        elapsed = state.elapsed + ~alone
        distracted = ~learning & ~testing & right & ~alone
        late = elapsed >= torch.where(learning, c.discovery_steps, c.distractor_steps)
        over = torch.where(testing, touched > 0, finished_discovery | distracted | late) & ~alone

        named = (self.names == self._object_index(state, touched)[:, None]) & (learning & ~over)[:, None]
        newly_named = (named & (state.heard < 0)).any(1)
        heard = torch.where(named, (self.clock + 1)[:, None], state.heard)

        finished = over & testing & (state.lesson == c.lessons - 1)
        lifted = (testing & right & ~alone).float()
        reward = lifted + c.discovery_reward * newly_named + c.distractor_reward * distracted

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
        """Return the image around the agent and the sentence."""
        return {"image": self._draw_view(state, self.camera), "language": self._sentence(state)}

    def plan(self, state: WordLearningState) -> torch.Tensor:
        """Go to the nearest unnamed object, or to the requested one without touching others; 0 in an empty room.

        Objects touch neither each other nor a wall. So there is always a free move that reduces the number of steps to
        the target, or keeps it and reduces the distance in rows plus columns.
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
        blocked = (there[..., None] == places[:, None]).any(-1) & (there != target)
        best = (self._distance(there, target) + far * blocked).argmin(1)
        return torch.where(state.pause > 0, 0, best)  # an imitated policy must not reveal the next request

    def _distance(self, cell: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        """Return the steps to the target in an empty room, with ties broken by rows plus columns."""
        side = self.config.side
        down, right = (cell // side - target // side).abs(), (cell % side - target % side).abs()
        return 2 * side * torch.maximum(down, right) + down + right

    def look(self, state: WordLearningState) -> Truth:
        """Return the object named now, or the phase that begins; a test depends on the latest step that named its
        object.

        The label is the appearance of that object.
        """
        event = torch.where((state.phase == 0) & (state.touched > 0), self._object_index(state, state.touched), -1)
        begins = (state.elapsed == 0) & (state.pause == 0)
        event = torch.where(self._is_distractor_phase(state) & begins, len(self.names) + state.phase - 1, event)
        event = torch.where((state.phase == 0) & (state.lesson > 0) & begins, len(self.spec.events) - 1, event)
        asked = state.script.asked[self.rows, self._room(state)]
        slot = self._lesson_in_view(state) * self.config.num_objects + asked  # meaningless outside a test
        heard = state.heard.gather(1, slot[:, None].clamp(0, state.heard.shape[1] - 1))
        deciding = (state.phase == self.test) & (state.pause == 0) & ~self.over
        start = torch.where(deciding, heard[:, 0], -1)
        look = state.script.looks[self.rows, self._lesson_in_view(state), asked.clamp(max=self.config.num_objects - 1)]
        return Truth(event, start, torch.where(start < 0, -1, start + 1), torch.where(start < 0, -1, look))

    def render(self, row: int) -> np.ndarray:
        """Draw the view of a row, uint8 ``[9 * view, 9 * view, 3]``, for either form of observations."""
        camera = TilePictures("pixels", self.camera.windows)
        return self._draw_view(self._present(), camera)[row].cpu().numpy()

    def _room(self, state: WordLearningState) -> torch.Tensor:
        """Return the index of the present room in the script, long ``[b]``."""
        return state.lesson * (self.most + 2) + state.phase

    def _object_index(self, state: WordLearningState, touched: torch.Tensor) -> torch.Tensor:
        """Return the index of the touched object among all objects of the episode; -1 for none."""
        return torch.where(touched > 0, state.lesson * self.config.num_objects + touched - 1, -1)

    def _lesson_in_view(self, state: WordLearningState) -> torch.Tensor:
        """Return the lesson whose objects are in a discovery or test room."""
        last_test = (state.phase == self.test) & (state.lesson == self.config.lessons - 1)
        return torch.where(last_test, state.script.about, state.lesson)

    def _all_named(self, state: WordLearningState) -> torch.Tensor:
        mine = self.names // self.config.num_objects == state.lesson[:, None]
        return (~mine | (state.heard >= 0)).all(1)

    def _is_distractor_phase(self, state: WordLearningState) -> torch.Tensor:
        return (state.phase > 0) & (state.phase < self.test)

    def _draw_view(self, state: WordLearningState, camera: TilePictures) -> torch.Tensor:
        places = state.script.places[self.rows, self._room(state)]
        learned = self._padded(state.script.looks[self.rows, self._lesson_in_view(state)])
        looks = torch.where(self._is_distractor_phase(state)[:, None], self.known_looks, learned)
        agent = state.agent[:, None]
        places = torch.where(state.pause[:, None] > 0, self.nowhere, places)
        backdrop = torch.where(places == agent, AGENT, FLOOR)
        room = self.empty_room.repeat(len(agent), 1).scatter_(1, agent, int(picture(AGENT)))
        room.scatter_(1, places, picture(backdrop, looks // len(COLOURS), looks % len(COLOURS)))
        return camera.show(room, state.agent)

    def _sentence(self, state: WordLearningState) -> torch.Tensor:
        """Return "this is a dako" on an object in discovery, nothing elsewhere, and "lift the dako" in the other
        phases.
        """
        learning = (state.phase == 0) | (state.pause > 0)
        silent = learning & (state.touched == 0)
        asked = state.script.asked[self.rows, self._room(state)]
        learned = self._padded(state.script.words[self.rows, self._lesson_in_view(state)])
        words = torch.where(self._is_distractor_phase(state)[:, None], self.known_words, learned)
        named_object = torch.where(learning, (state.touched - 1).clamp(min=0), asked)
        word = torch.where(silent[:, None], 0, words.gather(1, named_object[:, None]))
        sentence = self.sentences[torch.where(learning, (~silent).long(), 2)]
        return sentence.scatter_(1, torch.where(learning, 3, 2)[:, None], word)
