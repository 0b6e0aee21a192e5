import dataclasses

import pytest
import torch

from recollect.state import take_rows
from recollect.tasks.worlds.object_permanence import JUMP, LEFT, LEVELS, RIGHT, WALK, WORDS, ObjectPermanenceConfig
from recollect.tasks.worlds.tile_pictures import AGENT, CLOSED_BOX, OPEN_BOX, SHAPES, WALL
from recollect.tasks.worlds.tile_rooms import NORTH_EAST_SOUTH_WEST

CASES = {
    **LEVELS,
    "small": ObjectPermanenceConfig(num_boxes=2, jumps=1, delays=(0, 3), side=7, free_steps=28),
    "crowd": ObjectPermanenceConfig(num_boxes=9, jumps=1, side=11, free_steps=60),
    "full": ObjectPermanenceConfig(num_boxes=12, jumps=1, side=9, free_steps=60),
}


def sentence(language):
    return " ".join(WORDS[int(word)] for word in language).strip()


def play(world, policy, steps):
    """All steps and truths, until every row has ended an episode."""
    step = world.reset()
    history, done = [(step, world.truth())], step.is_last
    for _ in range(steps):
        step = world.step(policy(world))
        history.append((step, world.truth()))
        done = done | step.is_last
        if done.all():
            break
    return history


def first_scores(history):
    score, done = torch.zeros_like(history[0][0].score), history[0][0].is_last
    for step, _ in history:
        score = torch.where(step.is_last & ~done, step.score, score)
        done = done | step.is_last
    return score, done


@pytest.mark.long
@pytest.mark.parametrize("name", CASES)
def test_the_oracle_solves_every_level(name):
    config, b = CASES[name], 16
    history = play(config.build(b, seed=3), lambda world: world.oracle(), config.spec.max_steps)
    score, done = first_scores(history)
    assert done.all() and score.mean() == config.spec.oracle == 1
    earned, over = torch.zeros(b), torch.zeros(b, dtype=torch.bool)
    for step, _ in history:
        earned += torch.where(over, 0, step.reward)
        over = over | step.is_last
    assert torch.allclose(earned, torch.tensor(1.3))


@pytest.mark.parametrize("name", ["delay-0", "small", "full"])
def test_a_guesser_is_at_chance(name):
    """It turns away, comes back and walks to some box."""
    config, b = CASES[name], 1024
    guess = torch.randint(config.num_boxes, (b,), generator=torch.Generator().manual_seed(0))

    def policy(world):
        watching = not world._lids_closed(world.state).any()
        return torch.full_like(guess, WALK) if watching else world.plan(world.state._replace(asked=guess))

    score, done = first_scores(play(config.build(b, seed=5), policy, config.spec.max_steps))
    sigma = (config.spec.chance * (1 - config.spec.chance) / b) ** 0.5
    assert done.all()
    assert abs(score.mean() - config.spec.chance) < 4 * sigma


class Literal:
    """One row, by the rules at the top of the file, with plain numbers."""

    def __init__(self, config, state):
        self.config, self.clock = config, 0
        self.boxes = [divmod(cell, config.side) for cell in state.boxes.tolist()]
        self.shapes, self.colours = state.shapes.tolist(), state.colours.tolist()
        self.asked, self.delay = int(state.asked), int(state.delay)
        self.y, self.x, self.heading, self.looked = config.side - 1, config.side // 2, 0, False

    def closed(self):
        return self.clock >= self.config.num_boxes * (self.config.jumps * JUMP + self.delay)

    def sees(self, y, x):
        """Where in the view a tile is; None where it is not."""
        down, right = NORTH_EAST_SOUTH_WEST[self.heading]
        side_down, side_right = NORTH_EAST_SOUTH_WEST[(self.heading + 1) % 4]
        ahead = (y - self.y) * down + (x - self.x) * right
        aside = (y - self.y) * side_down + (x - self.x) * side_right
        side = self.config.side
        where = (side - 1 - ahead, side // 2 + aside)
        return where if 0 <= where[0] < side and 0 <= where[1] < side else None

    def step(self, action):
        """Reward, terminated and score."""
        free = self.closed()
        self.clock += 1
        if not free:
            return 0.0, False, 0.0
        if action == WALK:
            down, right = NORTH_EAST_SOUTH_WEST[self.heading]
            y, x = self.y + down, self.x + right
            inside = 0 <= y < self.config.side and 0 <= x < self.config.side
            if inside and (self.looked or (y, x) not in self.boxes):
                self.y, self.x = y, x
            if (self.y, self.x) in self.boxes:
                right_one = float(self.boxes[self.asked] == (self.y, self.x))
                return right_one, True, right_one
        else:
            self.heading = (self.heading + (1 if action == RIGHT else -1)) % 4
        if not self.looked and all(self.sees(*box) is None for box in self.boxes):
            self.looked = True
            return self.config.look_reward, False, 0.0
        return 0.0, False, 0.0

    def says(self):
        if self.looked:
            return f"go to the box containing the {list(SHAPES)[self.shapes[self.asked]]}"
        return "look backward" if self.closed() else "watch"

    def jump(self):
        """Who jumps, and the frame of the jump."""
        for i in range(self.config.num_boxes):
            since = self.clock - i * (self.config.jumps * JUMP + self.delay)
            if 0 <= since < self.config.jumps * JUMP:
                return i, since % JUMP
        return None, 0

    def tiles(self):
        side = self.config.side
        view = torch.zeros(side, side, 3, dtype=torch.uint8)
        view[..., 0] = WALL
        for y in range(side):
            for x in range(side):
                if self.sees(y, x):
                    view[(*self.sees(y, x), 0)] = 0

        def draw(y, x, backdrop, shape=0, colour=0):
            if self.sees(y, x):
                view[self.sees(y, x)] = torch.tensor([backdrop, shape, colour], dtype=torch.uint8)

        draw(self.y, self.x, AGENT)
        jumper, frame = self.jump()
        for i, (y, x) in enumerate(self.boxes):
            inside = (y, x) == (self.y, self.x)
            thing = (1 + self.shapes[i], 1 + self.colours[i])
            lid = OPEN_BOX if inside or not self.closed() else CLOSED_BOX
            draw(y, x, lid, *(thing if inside or (jumper == i and frame in (0, 2)) else ()))
            if jumper == i and frame == 1:
                draw(y - 1, x, 0, *thing)
        return view


@pytest.mark.parametrize(
    "config",
    [
        ObjectPermanenceConfig(jumps=1, delays=(0, 2, 5)),
        ObjectPermanenceConfig(num_boxes=6, jumps=2, side=7, free_steps=28),
    ],
)
def test_it_is_the_same_as_plain_rules(config):
    b = 4
    world = config.build(b, seed=7)
    world.reset()
    rows = [Literal(config, take_rows(world.state, i)) for i in range(b)]
    generator, ended, cut = torch.Generator().manual_seed(1), 0, 0
    for t in range(200):
        wander = torch.randint(3, (b,), generator=generator)
        actions = torch.where(torch.rand(b, generator=generator) < (t // 70) / 2, wander, world.oracle())
        step, truth = world.step(actions), world.truth()
        for i, row in enumerate(rows):
            if step.is_first[i]:
                rows[i] = row = Literal(config, take_rows(world.state, i))
                reward, terminated, score = 0.0, False, 0.0
            else:
                reward, terminated, score = row.step(int(actions[i]))
            truncated = not terminated and row.clock == config.spec.max_steps
            assert step.reward[i] == pytest.approx(reward)
            assert (step.terminated[i], step.truncated[i]) == (terminated, truncated)
            assert step.score[i] == score
            assert sentence(step.observation["language"][i]) == row.says()
            assert torch.equal(step.observation["image"][i], row.tiles())
            jumper, frame = row.jump()
            assert truth.event[i] == (-1 if jumper is None or frame == 3 else jumper)
            decides = row.looked and not terminated and not truncated
            assert (truth.start[i] >= 0) == decides
            ended, cut = ended + terminated, cut + truncated
    assert ended > 5 and cut > 0


def test_the_source_interval_shows_the_object_that_is_asked_for():
    """In steps start .. stop - 1 it is the only one to be seen, and it is seen nowhere else before the choice."""
    config, b = ObjectPermanenceConfig(delays=(4,)), 12
    world = config.build(b, seed=2)
    history = play(world, lambda world: world.oracle(), config.spec.max_steps)
    asked = torch.full((b, 3), -1)  # word, start, stop
    closed = (3 * (12 + world.state.delay)).tolist()
    for step, truth in history:
        words = torch.stack((step.observation["language"][:, 6], truth.start, truth.stop), 1)
        asked = torch.where(((asked[:, :1] < 0) & (truth.start >= 0)[:, None]), words, asked)
    for i, (word, start, stop) in enumerate(asked.tolist()):
        shape = 1 + word - (len(WORDS) - len(SHAPES))
        seen = [t for t, (step, _) in enumerate(history) if (step.observation["image"][i, ..., 1] == shape).any()]
        seen = [t for t in seen if t <= closed[i]]  # later the box that was chosen shows it
        assert seen == [t for t in range(start, stop) if (t - start) % JUMP != 3]
        assert len(seen) == 9


@pytest.mark.parametrize("delay", [0, 10])
def test_timing(delay):
    config = ObjectPermanenceConfig(delays=(delay,))
    history = play(config.build(3, seed=0), lambda world: world.oracle(), config.spec.max_steps)
    said = [sentence(step.observation["language"][0]).split()[0] for step, _ in history]
    assert said.index("look") == 3 * (12 + delay)
    assert said.index("go") <= said.index("look") + 2
    jumps = [int(truth.event[0]) for _, truth in history]
    assert [jumps.index(i) for i in range(3)] == [0, 12 + delay, 24 + 2 * delay]


def test_boxes_block_the_way_until_the_agent_has_looked_away():
    world = ObjectPermanenceConfig(num_boxes=2, jumps=1, side=7, free_steps=60).build(64, seed=1)
    world.reset()
    for _ in range(8):
        world.step(torch.full((64,), LEFT))
    in_front = (world.state.boxes % 7 == 3).any(1)
    assert in_front.any()
    for _ in range(10):
        step = world.step(torch.full((64,), WALK))
        assert not step.terminated.any() or world.state.looked[step.terminated].all()
        assert not (world.state.boxes == world.state.agent[:, None]).any()
    assert not world.state.looked[in_front].any()
    assert (world.state.agent[~in_front] == 3).all()


def test_what_is_where_is_drawn_independently():
    config = LEVELS["varying"]
    state = config.build(1, seed=0).begin(4000)
    assert (state.shapes.sort(1).values.diff(dim=1) > 0).all() and (state.boxes.sort(1).values.diff(dim=1) > 0).all()
    assert (torch.bincount(state.asked) > 1200).all()
    assert {0, 100, 200, 300} == set(state.delay.tolist())
    leftmost = (state.boxes % 9 * 9 + state.boxes // 9).argmin(1)
    assert (torch.bincount(leftmost * 3 + state.asked, minlength=9) > 340).all()
    start = config.build(64, seed=4)
    image = start.reset().observation["image"]
    assert ((image[..., 0] == OPEN_BOX).sum((1, 2)) == 3).all(), "all boxes are in view"


def test_pixels_show_the_same_as_tiles():
    config = ObjectPermanenceConfig(jumps=1, delays=(0, 1), observation="pixels", free_steps=36)
    one, tiles = config.build(5, seed=1), dataclasses.replace(config, observation="tiles").build(5, seed=1)
    one.reset(), tiles.reset()
    generator = torch.Generator().manual_seed(0)
    for _ in range(120):
        actions = torch.where(torch.rand(5, generator=generator) < 0.3, RIGHT, one.oracle())
        image = one.step(actions).observation["image"]
        tiles.step(actions)
        assert image.shape == (5, 81, 81, 3) and image.dtype == torch.uint8
        assert (tiles.render(2) == image[2].numpy()).all()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"side": 8}, "side=8"),
        ({"observation": "words"}, "observation="),
        ({"side": 5}, "side=5"),
        ({"num_boxes": 13}, "num_boxes=13"),
        ({"num_boxes": 1}, "num_boxes=1"),
        ({"num_boxes": 3, "num_shapes": 2}, "num_boxes=3"),
        ({"num_shapes": 99}, "num_shapes=99"),
        ({"jumps": 0}, "jumps=0"),
        ({"delays": ()}, "delays"),
        ({"delays": (0, -1)}, "delays"),
        ({"free_steps": 10}, "free_steps=10"),
    ],
)
def test_mistakes_are_named(change, message):
    with pytest.raises(ValueError, match=message):
        ObjectPermanenceConfig(**change)


def test_places_and_colours_can_be_fixed():
    random = ObjectPermanenceConfig(delays=(0,)).build(256, seed=0)
    fixed = ObjectPermanenceConfig(delays=(0,), random_places=False, random_colours=False).build(256, seed=0)
    random.reset()
    fixed.reset()
    one, other = random.state, fixed.state
    assert len({tuple(sorted(boxes)) for boxes in other.boxes.tolist()}) == 1 < len(one.boxes.unique())
    assert len({tuple(boxes) for boxes in other.boxes.tolist()}) == 6, "which object is in which box is still drawn"
    by_shape = {}
    for shape, colour in zip(other.shapes.flatten().tolist(), other.colours.flatten().tolist(), strict=True):
        assert by_shape.setdefault(shape, colour) == colour
    assert len(by_shape) > 10
    known = {(s, c) for s, c in zip(one.shapes.flatten().tolist(), one.colours.flatten().tolist(), strict=True)}
    assert len(known) > 100
    right = torch.zeros(256)
    for _ in range(fixed.spec.max_steps):
        right = torch.maximum(right, fixed.step(fixed.oracle()).score)
    assert right.all()


def test_a_second_of_the_paper_is_ten_steps():
    assert LEVELS["varying"].delays == (0, 100, 200, 300)
    assert LEVELS["delay-30"].spec.max_steps > 900
