"""Object permanence in two dimensions: remember which box holds which object after the lids are closed and out of view.

A flat version of the three-dimensional task of Lampinen et al. 2021 (section 3.2, appendix B.2), not the task itself.

A room has ``side`` x ``side`` tiles. The agent sees a window ahead: up is its heading, and it is in the middle of the
window's last row. It starts in the middle of a wall, with ``num_boxes`` open boxes at random places in view
(``random_places=False``: at fixed places).

1. *watch*: one object after the other, in random order, jumps ``jumps`` times out of its box and back. A jump takes
   four steps: on the rim, in the air behind the box, on the rim, gone. After the last jump of each object there is a
   delay, drawn from ``delays`` for the episode. Actions are ignored. Objects have different named shapes and any colour
   (``random_colours=False``: one colour per shape).
2. *look backward*: the lids close and the agent may turn left (0), turn right (1) and walk (2). Boxes block the way.
   When no box is in view any more, it receives ``look_reward``.
3. *choice*: the sentence becomes "go to the box containing the duck". The first box that the agent walks into opens and
   ends the episode, with reward 1 if it holds the duck, else 0. The score is this reward.

Chance: closed boxes look the same, and the contents and the requested object are drawn independently of everything
else. A policy that has forgotten what it saw is right with probability at most ``1 / num_boxes``. This holds for agents
that do not observe their previous action: others can pass on what they saw by actions that are ignored.

Source: Lampinen et al. 2021 as above. The paper does not specify objects, frame rate and room, so pictures, jumps and
delays in steps (ten per second of the paper) are ours, and scores are not comparable.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from recollect.config import require, require_at_least, require_one_of
from recollect.lazy import gymnasium, np, torch
from recollect.tasks.arrangements import arrangement_bits
from recollect.tasks.worlds.contract import Advance, TensorWorld, Truth, WorldConfig, WorldSpec
from recollect.tasks.worlds.tile_pictures import (
    AGENT,
    CLOSED_BOX,
    COLOURS,
    FLOOR,
    NO_SHAPE,
    OPEN_BOX,
    SHAPES,
    WALL,
    Form,
    TilePictures,
    image_space,
    picture,
)
from recollect.tasks.worlds.tile_rooms import (
    NORTH_EAST_SOUTH_WEST,
    moves,
    sample_without_replacement,
    spaced_cells,
    windows_ahead,
)

LEFT, RIGHT, WALK = range(3)
JUMP = 4
"""Steps of a jump: on the rim, in the air, on the rim, gone."""
WORDS = ("", "watch", "look", "backward", "go", "to", "the", "box", "containing", *SHAPES)
"""Word of every number in the key ``language``."""
_SENTENCES = (("watch",), ("look", "backward"), ("go", "to", "the", "box", "containing", "the"))
_LENGTH = 7


@dataclass(frozen=True, kw_only=True)
class ObjectPermanenceConfig(WorldConfig):
    """Remember which box holds which object, after the lids were closed and the boxes were out of view."""

    num_boxes: int = 3
    """Boxes, each with one object."""
    jumps: int = 3
    """Jumps of every object."""
    delays: tuple[int, ...] = (0,)
    """Possible delays after an object's last jump, in steps; one is drawn per episode."""
    free_steps: int = 40
    """Actions from the closing of the lids to the time limit, with the longest delays."""
    side: int = 9
    """Side of the room and of the view in tiles; odd."""
    observation: Form = "tiles"
    """``tiles``: three symbols per tile; ``pixels``: 9 x 9 pixels per tile."""
    look_reward: float = 0.3
    """Reward for looking away from all boxes."""
    num_shapes: int = len(SHAPES)
    """Number of shapes to draw from; fewer are easier to tell apart."""
    random_places: bool = True
    """Put boxes at random places; otherwise at fixed places, spread over the room."""
    random_colours: bool = True
    """Draw colours at random; otherwise each shape has a fixed colour."""

    def __post_init__(self) -> None:
        require_one_of(self, "observation")
        require(self.side % 2 == 1 and self.side >= 7, "side", self.side, "give an odd number from 7")
        require(1 <= self.num_shapes <= len(SHAPES), "num_shapes", self.num_shapes, f"give 1..{len(SHAPES)}")
        most = min(self.num_shapes, len(spaced_cells(self.side, self.side - 4)))
        remedy = f"give 2..{most}, or a larger side or num_shapes"
        require(2 <= self.num_boxes <= most, "num_boxes", self.num_boxes, remedy)
        delays = self.delays
        require(bool(delays) and min(delays) >= 0, "delays", delays, "give one or more numbers from 0")
        require_at_least(self, jumps=1, free_steps=4 * self.side)

    @property
    def spec(self) -> WorldSpec:
        """An image and seven words; three actions. The first object is visible at step 0."""
        max_steps = self.num_boxes * (JUMP * self.jumps + max(self.delays)) + self.free_steps
        return WorldSpec(
            observation_space=gymnasium.spaces.Dict(
                {
                    "image": image_space(self.observation, self.side),
                    "language": gymnasium.spaces.MultiDiscrete([len(WORDS)] * _LENGTH),
                }
            ),
            action_space=gymnasium.spaces.Discrete(3),
            max_steps=max_steps,
            memory_span=max_steps - 1,
            chance=1 / self.num_boxes,
            oracle=1.0,
            events=tuple(f"jump of object {1 + i}" for i in range(self.num_boxes)),
            action_names=("left", "right", "walk"),
            num_labels=len(spaced_cells(self.side, self.side - 4)),
            words=WORDS,
            bits=arrangement_bits(self.num_shapes, self.num_boxes),
        )

    def build(self, batch_size: int, *, seed: int = 0, device: torch.device | str = "cpu") -> ObjectPermanence:
        """Build the world with ``batch_size`` rows."""
        return ObjectPermanence(self, batch_size, seed=seed, device=device)


STEPS_PER_SECOND = 10
"""Steps per second of the paper."""

LEVELS: Mapping[str, ObjectPermanenceConfig] = {
    "varying": ObjectPermanenceConfig(delays=tuple(STEPS_PER_SECOND * n for n in (0, 10, 20, 30))),
    **{f"delay-{n}": ObjectPermanenceConfig(delays=(STEPS_PER_SECOND * n,)) for n in (0, 10, 20, 30)},
}
"""The paper's levels, named by their delay in seconds."""


class ObjectPermanenceState(NamedTuple):
    """State of the world; n objects in the order in which they jump."""

    boxes: torch.Tensor  # long [b, n]: the cell of every object's box
    shapes: torch.Tensor  # long [b, n]
    colours: torch.Tensor  # long [b, n]
    asked: torch.Tensor  # long [b]: the object that will be asked for
    delay: torch.Tensor  # long [b]: steps of the delay after an object's last jump
    agent: torch.Tensor  # long [b]: its cell
    heading: torch.Tensor  # long [b]: where it looks, clockwise from 0 = north
    looked: torch.Tensor  # bool [b]: it has looked away


class ObjectPermanence(TensorWorld[ObjectPermanenceState]):
    """The world of :class:`ObjectPermanenceConfig`; the rules are at the top of this module."""

    def __init__(
        self, config: ObjectPermanenceConfig, batch_size: int, *, seed: int = 0, device: torch.device | str = "cpu"
    ) -> None:
        super().__init__(config.spec, batch_size, seed=seed, device=device)
        self.config = config
        self.cells = config.side**2
        homes = torch.tensor(spaced_cells(config.side, config.side - 4))
        if not config.random_places:
            spread = torch.linspace(0, len(homes) - 1, config.num_boxes).round().long()
            homes = homes[spread]
        self.homes = homes.to(self.device)
        self.moves = moves(config.side, NORTH_EAST_SOUTH_WEST).to(self.device)
        self.turns = torch.tensor([-1, 1, 0], device=self.device)
        self.delays = torch.tensor(config.delays, device=self.device)
        self.objects = torch.arange(config.num_boxes, device=self.device)
        windows = windows_ahead(config.side, config.side)
        self.in_view = torch.zeros(4 * self.cells, self.cells + 1, dtype=torch.bool).scatter_(1, windows, True)
        self.in_view = self.in_view.to(self.device)
        self.camera = TilePictures(config.observation, windows.to(self.device))
        room = torch.full((1, self.cells + 2), int(picture(FLOOR)), device=self.device)
        room[:, self.cells :] = int(picture(WALL))
        self.empty_room, self.nowhere = room, self.cells + 1
        lines = [[WORDS.index(word) for word in line] for line in _SENTENCES]
        padded = [[*line, *[0] * (_LENGTH - len(line))] for line in lines]
        self.sentences = torch.tensor(padded, device=self.device)

    def begin(self, batch_size: int) -> ObjectPermanenceState:
        """Return episodes with open boxes, before the first jump."""
        n, side, below = self.config.num_boxes, self.config.side, self.draw_integers
        zero = torch.zeros(batch_size, dtype=torch.long, device=self.device)
        boxes = self.homes[sample_without_replacement(n, len(self.homes), batch_size, generator=self.generator)]
        shapes = sample_without_replacement(n, self.config.num_shapes, batch_size, generator=self.generator)
        colours = below(len(COLOURS), batch_size, n)
        return ObjectPermanenceState(
            boxes=boxes,
            shapes=shapes,
            colours=colours if self.config.random_colours else shapes % len(COLOURS),
            asked=below(n, batch_size),
            delay=self.delays[below(len(self.delays), batch_size)],
            agent=zero + self.cells - 1 - side // 2,
            heading=zero,
            looked=zero.bool(),
        )

    def advance(self, state: ObjectPermanenceState, actions: torch.Tensor) -> Advance:
        """Turn or walk, once the lids are closed."""
        free = self._lids_closed(state)
        heading = torch.where(free, (state.heading + self.turns[actions]) % 4, state.heading)
        ahead = self.moves[state.agent, state.heading]
        ahead_is_box = (state.boxes == ahead[:, None]).any(1)
        walks = free & (actions == WALK) & (state.looked | ~ahead_is_box)
        agent = torch.where(walks, ahead, state.agent)

        in_view = self.in_view[(heading * self.cells + agent)[:, None], state.boxes].any(1)
        newly_looked_away = free & ~state.looked & ~in_view
        chosen = walks & ahead_is_box
        score = (chosen & (agent == state.boxes[self.rows, state.asked])).float()
        moved = state._replace(agent=agent, heading=heading, looked=state.looked | newly_looked_away)
        return Advance(moved, score + self.config.look_reward * newly_looked_away, chosen, score)

    def observe(self, state: ObjectPermanenceState) -> dict[str, torch.Tensor]:
        """Return the image ahead of the agent and the sentence."""
        return {"image": self._draw_view(state, self.camera), "language": self._sentence(state)}

    def plan(self, state: ObjectPermanenceState) -> torch.Tensor:
        """Turn away, then take a shortest path to the right box around the others."""
        target = state.boxes[self.rows, state.asked]
        there = self.moves[state.agent]  # b 4
        steps = self._steps_to(target, state).gather(1, there)
        quarters = (torch.arange(4, device=self.device) - state.heading[:, None]) % 4  # to the right
        turning = torch.minimum(quarters, 4 - quarters)
        best = (4 * steps + turning).argmin(1)
        quarter = quarters.gather(1, best[:, None])[:, 0]
        route = torch.where(quarter == 0, WALK, torch.where(quarter == 3, LEFT, RIGHT))
        return torch.where(state.looked, route, RIGHT)

    def _steps_to(self, target: torch.Tensor, state: ObjectPermanenceState) -> torch.Tensor:
        """Return the steps from every cell to the target around the other boxes, long ``[b, cells]``."""
        side, far = self.config.side, self.cells
        blocked = torch.zeros(len(target), self.cells, dtype=torch.bool, device=self.device)
        blocked.scatter_(1, state.boxes, True).scatter_(1, target[:, None], False)
        blocked = blocked.view(-1, side, side)
        steps = torch.full((len(target), self.cells), far, device=self.device).scatter_(1, target[:, None], 0)
        steps = steps.view(-1, side, side)
        for _ in range(2 * side):  # rows plus columns, and a detour of two steps where boxes are in a line
            steps[:, 1:] = torch.minimum(steps[:, 1:], steps[:, :-1] + 1)
            steps[:, :-1] = torch.minimum(steps[:, :-1], steps[:, 1:] + 1)
            steps[:, :, 1:] = torch.minimum(steps[:, :, 1:], steps[:, :, :-1] + 1)
            steps[:, :, :-1] = torch.minimum(steps[:, :, :-1], steps[:, :, 1:] + 1)
            steps.masked_fill_(blocked, far)
        return steps.flatten(1)

    def look(self, state: ObjectPermanenceState) -> Truth:
        """Return which object jumps; the choice depends on all jumps of the requested object.

        The label is the place of its box in the room.
        """
        jumper, frame = self._jump(state)
        shown = self.config.jumps * JUMP
        start = state.asked * (shown + state.delay)
        choosing = state.looked & ~self.over
        place = (state.boxes[self.rows, state.asked, None] == self.homes).long().argmax(1)
        return Truth(
            torch.where((jumper >= 0) & (frame < JUMP - 1), jumper, -1),
            torch.where(choosing, start, -1),
            torch.where(choosing, start + shown - 1, -1),  # the last frame of a jump shows nothing
            torch.where(choosing, place, -1),
        )

    def render(self, row: int) -> np.ndarray:
        """Draw the view of a row, uint8 ``[9 * side, 9 * side, 3]``, for either form of observations."""
        camera = TilePictures("pixels", self.camera.windows)
        return self._draw_view(self._present(), camera)[row].cpu().numpy()

    def _period(self, state: ObjectPermanenceState) -> torch.Tensor:
        """Return the steps from the first jump of an object to that of the next one."""
        return self.config.jumps * JUMP + state.delay

    def _lids_closed(self, state: ObjectPermanenceState) -> torch.Tensor:
        return self.clock >= self.config.num_boxes * self._period(state)

    def _jump(self, state: ObjectPermanenceState) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the object that jumps now, -1 for none, and the frame of its jump, ``0 .. JUMP - 1``."""
        period = self._period(state)
        jumps = (self.clock % period < self.config.jumps * JUMP) & ~self._lids_closed(state)
        return torch.where(jumps, self.clock // period, -1), self.clock % period % JUMP

    def _draw_view(self, state: ObjectPermanenceState, camera: TilePictures) -> torch.Tensor:
        agent, opened = state.agent[:, None], state.boxes == state.agent[:, None]
        jumper, frame = (part[:, None] for part in self._jump(state))
        flies = (self.objects == jumper) & (frame == 1)
        on_rim = (self.objects == jumper) & ((frame == 0) | (frame == 2))
        backdrop = torch.where(self._lids_closed(state)[:, None] & ~opened, CLOSED_BOX, OPEN_BOX)
        content = torch.where(on_rim | opened, state.shapes, NO_SHAPE)
        in_air = torch.where(flies, state.boxes - self.config.side, self.nowhere)

        room = self.empty_room.repeat(len(agent), 1).scatter_(1, agent, int(picture(AGENT)))
        room.scatter_(1, in_air, picture(FLOOR, state.shapes, state.colours))
        room.scatter_(1, state.boxes, picture(backdrop, content, state.colours))
        pose = state.heading * self.cells + state.agent
        return camera.show(room, pose)

    def _sentence(self, state: ObjectPermanenceState) -> torch.Tensor:
        sentence_index = torch.where(state.looked, 2, self._lids_closed(state).long())
        name = len(WORDS) - len(SHAPES) + state.shapes[self.rows, state.asked]
        sentence = self.sentences[sentence_index]
        sentence[:, -1] = torch.where(state.looked, name, 0)
        return sentence
