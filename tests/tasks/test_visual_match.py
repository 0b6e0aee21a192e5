import itertools

import pytest
import torch

from recollect.tasks.worlds.visual_match import (
    AGENT,
    APPLE,
    APPLES,
    BACKGROUND,
    BOARDS,
    CHOICE,
    CUE,
    DOORS,
    FIXED_COLOURS,
    HUES,
    NEVER,
    ORCHARD_SLOTS,
    WALL,
    VisualMatchConfig,
)

MOVES = {0: (-1, 0), 1: (1, 0), 2: (0, -1), 3: (0, 1)}
SHORT = VisualMatchConfig(cue_steps=2, distractor_steps=30, choice_steps=10, respawn=3)


class LiteralGame:
    """One row of the game with dictionaries of cells, from the secrets of a row of the world."""

    def __init__(self, config, state, row):
        self.config, self.row = config, row
        self.cue = int(state.cue[row]) - HUES
        self.worth = float(state.worth[row])
        shows, since = state.shows[row].tolist(), state.since[row].tolist()
        ring = [(y, x) for y, x in itertools.product((2, 3, 4), (4, 5, 6)) if (y, x) != (3, 5)]
        self.lit = ring[next(index for index, shown in enumerate(shows[3:11]) if shown >= HUES)]
        places = [(y, x) for y in range(7) for x in range(11) if BOARDS[1][y][x] == "a"]
        self.apples = {place for place, start in zip(places, since[ORCHARD_SLOTS], strict=True) if start != NEVER}
        self.doors = {(1, x): shown - HUES for x, shown in zip(DOORS[config.choices], shows[33:], strict=True)}
        self.back, self.phase, self.frame, self.choice = {}, 0, 0, None
        self.agent = (3, 5)

    def wall(self, y, x):
        if self.phase == 0:
            return (y, x) != (3, 5)
        return BOARDS[self.phase][y][x] == "#"

    def step(self, action):
        y, x = self.agent[0] + MOVES[action][0], self.agent[1] + MOVES[action][1]
        if not self.wall(y, x):
            self.agent = (y, x)
        self.frame += 1
        reward = 0.0
        if self.phase == 1:
            if self.agent in self.apples:
                self.apples.remove(self.agent)
                self.back[self.agent] = self.frame
                reward = self.worth
            for place, taken in list(self.back.items()):
                if self.config.respawn and self.frame > taken + self.config.respawn:
                    self.apples.add(place)
                    del self.back[place]
        if self.phase == 2 and self.agent in self.doors:
            self.choice = self.doors[self.agent]
            self.doors = {}
            reward = self.config.target_reward * (self.choice == self.cue)
        limits = (self.config.cue_steps, self.config.distractor_steps, self.config.choice_steps)
        over = False
        while self.frame >= limits[self.phase] and not over:
            over = self.phase == 2
            if not over:
                self.phase, self.frame, self.agent = self.phase + 1, 0, (5, 5)
        return reward, over

    def colour(self, y, x):
        if (y, x) == self.agent:
            return AGENT
        if not (0 <= y < 7 and 0 <= x < 11):
            return BACKGROUND
        if self.phase == 0:
            ring = abs(y - 3) <= 1 and abs(x - 5) <= 1
            return HUES + self.cue if (y, x) == self.lit else WALL if ring else BACKGROUND
        if self.phase == 1 and (y, x) in self.apples:
            return APPLE
        if self.phase == 2 and (y, x) in self.doors:
            return HUES + self.doors[y, x]
        return WALL if BOARDS[self.phase][y][x] == "#" else BACKGROUND

    def view(self, palette):
        y, x = self.agent
        return palette[torch.tensor([[self.colour(y + i, x + j) for j in range(-2, 3)] for i in range(-2, 3)])]


def tour(world, generator):
    """Random walks, drawn a little to the north, so that doors are met."""
    weights = torch.tensor([2.0, 1.0, 1.0, 1.0])
    return torch.multinomial(weights, world.batch_size, replacement=True, generator=generator)


@pytest.mark.parametrize(
    "config",
    [
        SHORT,
        VisualMatchConfig(choices=4, cue_steps=1, distractor_steps=25, choice_steps=12, respawn=0, num_apples=22),
        VisualMatchConfig(cue_steps=3, distractor_steps=0, choice_steps=9, shuffle_doors=False),
    ],
)
def test_equals_a_literal_game(config):
    world = config.build(24, seed=2)
    step = world.reset()
    games = [LiteralGame(config, world.state, row) for row in range(24)]
    generator = torch.Generator().manual_seed(1)
    chosen = 0
    for _ in range(config.spec.max_steps):
        for row, game in enumerate(games):
            assert torch.equal(step.observation[row], game.view(world.palette))
        actions = tour(world, generator)
        step = world.step(actions)
        for row, game in enumerate(games):
            reward, over = game.step(int(actions[row]))
            assert float(step.reward[row]) == reward
            assert bool(step.terminated[row]) == over and not step.truncated[row]
            chosen += over and game.choice is not None
            if over:
                assert float(step.score[row]) == float(game.choice == game.cue)
    assert chosen > 0, "somebody chose a door"


def test_an_apple_comes_back_after_its_time():
    config = VisualMatchConfig(cue_steps=1, distractor_steps=40, num_apples=22)
    world = config.build(1)
    world.reset()
    step = world.step(torch.tensor([0]))
    apple = torch.tensor(FIXED_COLOURS[APPLE], dtype=torch.uint8)

    def west_of_the_start():  # two cells to the west of (5, 5) is a place of an apple
        return torch.equal(step.observation[0, 2, 0 if int(world.state.cell) == 60 else 1], apple)

    assert west_of_the_start()
    step = world.step(torch.tensor([2]))  # frame 1, at column 4
    step = world.step(torch.tensor([2]))  # frame 2: taken
    assert float(step.reward) in config.apple_rewards
    step = world.step(torch.tensor([3]))  # frame 3, at column 4
    for frame in range(4, 23):
        assert not west_of_the_start()
        step = world.step(torch.tensor([1]))  # against the wall
        assert frame <= 22
    assert not west_of_the_start(), "frame 22: 20 frames after it was taken"
    step = world.step(torch.tensor([1]))
    assert west_of_the_start(), "frame 23"


@pytest.mark.parametrize("respawn", [2**31 - 1, 2**40])
def test_an_apple_that_takes_very_long_does_not_come_back(respawn):
    world = VisualMatchConfig(cue_steps=1, num_apples=22, respawn=respawn).build(1)
    world.reset()
    rewards = [float(world.step(torch.tensor([action])).reward) for action in (0, 0, 2, 3, 2, 3, 2)]
    assert sum(reward > 0 for reward in rewards) == 1


@pytest.mark.parametrize("choices", [3, 4])
def test_every_blind_choice_is_at_chance(choices):
    config = VisualMatchConfig(choices=choices, cue_steps=1, distractor_steps=1, choice_steps=8)
    world = config.build(12_000, seed=5)
    for door in range(choices):
        world.reset()
        for _ in range(config.spec.max_steps):
            phase_is_choice = world.truth().event == CHOICE
            step = world.step(torch.where(phase_is_choice, world.guide[door, world.state.cell], 0))
        assert step.is_last.all()
        assert step.score.mean() == pytest.approx(config.spec.chance, abs=0.02)


def find_colour(world, frames):
    """Return the colour that a row's last frames tell: of the ring, or of the wall at which the agent stands."""
    for phase, frame in frames:
        for colour in range(3):
            if phase == CUE and (frame == world.palette[HUES + colour]).all(-1).any():
                return colour
        if phase == APPLES:  # colour 0 is kept at the wall in the west, 2 at that in the east, 1 at neither
            west, east = ((frame[2, x] == world.palette[WALL]).all() for x in (1, 3))
            return 0 if west else 2 if east else 1
    return None


@pytest.mark.parametrize("random_walk", [False, True])
def test_seven_frames_are_enough_for_every_lag_unless_the_walk_is_random(random_walk):
    config = VisualMatchConfig(cue_steps=1, distractor_steps=60, shuffle_doors=False, random_walk=random_walk)
    world, rows = config.build(300, seed=3), range(300)
    sides = (2, 0, 3)  # west for colour 0, east for 2, whose doors are there too
    step, frames = world.reset(), [[] for _ in rows]
    for t in range(config.spec.max_steps):
        phase, actions = int(world.truth().event[0]), []
        walked = t - config.cue_steps - config.distractor_steps  # in the door phase
        for row in rows:
            frames[row] = [*frames[row], (phase, step.observation[row])][-7:]
            colour = find_colour(world, frames[row])
            aside = phase != CHOICE or 3 <= walked < 6
            actions.append(sides[colour] if aside else 0)
        step = world.step(torch.tensor(actions))
    score = float(step.score.mean())
    assert score == pytest.approx(1 / 3, abs=0.1) if random_walk else score == 1.0


def test_a_random_walk_does_not_depend_on_the_agent():
    def walk(seed):
        world = VisualMatchConfig(cue_steps=2, distractor_steps=40, random_walk=True).build(50, seed=4)
        world.reset()
        generator, cells = torch.Generator().manual_seed(seed), []
        for _ in range(42):
            world.step(torch.randint(4, (50,), generator=generator))
            cells.append(world.state.cell)
        return torch.stack(cells, 1)

    one = walk(0)
    assert torch.equal(one, walk(1))
    assert len(one[:, -2].unique()) > 10, "rows walk on ways of their own"


def test_colours_of_doors_and_cues_are_uniform_and_complete():
    world = VisualMatchConfig(choices=4).build(4000, seed=1)
    world.reset()
    doors = world.state.shows[:, 33:] - HUES
    assert torch.equal(doors.sort(1).values, torch.arange(4, dtype=torch.int32).expand(4000, 4))
    for door, colour in itertools.product(range(4), range(4)):
        assert (doors[:, door] == colour).float().mean() == pytest.approx(0.25, abs=0.04)
    assert ((world.state.since[:, ORCHARD_SLOTS] == 0).sum(1) == 10).all()
    assert torch.bincount(world.state.cue - HUES).min() > 900


def test_doors_may_stay_where_they_are():
    world = VisualMatchConfig(shuffle_doors=False).build(16)
    world.reset()
    assert (world.state.shows[:, 33:] - HUES == torch.arange(3)).all()


def test_the_paper_s_length_is_the_default():
    assert VisualMatchConfig().spec.max_steps == 120


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("choices", 5),
        ("cue_steps", 0),
        ("distractor_steps", -1),
        ("choice_steps", 3),
        ("num_apples", 23),
        ("respawn", -1),
    ],
)
def test_bad_fields_are_named(field, value):
    with pytest.raises(ValueError, match=f"{field}={value}"):
        VisualMatchConfig(**{field: value})
