"""Catch, track, key and door: the rules against literal games, and what a policy without memory can get."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from recollect.tasks import CatchConfig, KeyDoorConfig, TrackConfig
from recollect.tasks.worlds.arcade import catch, frames, key_door, track

CONFIGS = [
    CatchConfig(),
    CatchConfig(blackout=9),
    TrackConfig(),
    TrackConfig(balls=7, run_steps=3),
    KeyDoorConfig(),
    KeyDoorConfig(distractors=0),
]
every_game = pytest.mark.parametrize("config", CONFIGS, ids=str)


def play(world, policy, steps):
    """Scores of all episodes that end within ``steps``."""
    scores = []
    for _ in range(steps):
        step = world.step(policy(world))
        scores.append(step.score[step.is_last])
    return torch.cat(scores)


def draw_one(config, places, sprites, greys):
    """A frame, unit by unit and pixel by pixel."""
    unit = config.side // 42
    frame = np.zeros((config.side, config.side), np.uint8)
    for (y, x), sprite, grey in zip(places, sprites, greys, strict=True):
        for dy, row in enumerate(sprite.rows):
            for dx, mark in enumerate(row):
                if mark != " ":
                    block = frame[(y + dy) * unit : (y + dy + 1) * unit, (x + dx) * unit : (x + dx + 1) * unit]
                    block[...] = np.maximum(block, grey)
    return frame


def fold(phase, span):
    """Literally: to the right end, a step of rest, and back."""
    return ([*range(span), *reversed(range(span))] * 2)[phase % (2 * span)]


@every_game
def test_all_sizes_show_the_same_game(config):
    small, large = (replace(config, side=side).build(16, seed=4) for side in (42, 84))
    one, two = small.reset(), large.reset()
    for _ in range(60):
        assert torch.equal(one.observation.repeat_interleave(2, 2).repeat_interleave(2, 3), two.observation)
        boxes = small.scene().boxes * 2
        assert torch.equal(boxes, large.scene().boxes)
        actions = small.oracle()
        one, two = small.step(actions), large.step(actions)
        assert torch.equal(one.reward, two.reward) and torch.equal(one.score, two.score)


@every_game
def test_objects_are_where_the_frame_shows_them(config):
    world = config.build(32, seed=2)
    step = world.reset()
    for _ in range(50):
        truth = world.scene()
        assert truth.boxes.shape == (32, len(config.spec.object_names), 4)
        inside = torch.zeros_like(step.observation[:, 0], dtype=torch.bool)
        for row in range(32):
            for box, visible in zip(truth.boxes[row].tolist(), truth.visible[row].tolist(), strict=True):
                top, left, bottom, right = box
                assert 0 <= top < bottom <= config.side and 0 <= left < right <= config.side
                if visible:
                    assert step.observation[row, 0, top:bottom, left:right].any()
                    inside[row, top:bottom, left:right] = True
        assert not step.observation[:, 0][~inside].any(), "something is drawn where no visible thing is"
        assert truth.matters.any(1).all()
        step = world.step(world.oracle())


@every_game
def test_the_oracle_wins(config):
    world = config.build(256, seed=0)
    world.reset()
    scores = play(world, lambda world: world.oracle(), 200)
    assert len(scores) > 400 and float(scores.mean()) > 0.995


def test_catch_equals_a_literal_game():
    config = CatchConfig(side=42, balls=2, blackout=8)
    world = config.build(64, seed=1)
    step = world.reset()
    generator = torch.Generator().manual_seed(0)
    balls = [(int(start), int(drift)) for start, drift in zip(world.state.start, world.state.drift, strict=True)]
    paddles, caught = [18] * 64, [0] * 64
    for count in range(2 * 19):
        fallen = count % 19
        for row, (start, drift) in enumerate(balls):
            column = fold(start + drift * fallen, 40)
            greys = (0 if fallen >= 11 else 255, 160)
            seen = draw_one(config, ((2 * fallen, column), (40, paddles[row])), (frames.BALL, catch.PADDLE), greys)
            assert np.array_equal(step.observation[row, 0].numpy(), seen)
        actions = torch.randint(3, (64,), generator=generator)
        step = world.step(actions)
        for row, (start, drift) in enumerate(balls):
            if fallen >= 11:
                paddles[row] = min(max(paddles[row] + {0: 0, 1: -2, 2: 2}[int(actions[row])], 0), 35)
            hit = False
            if fallen == 18:
                column = fold(start + drift * 19, 40)
                hit = bool({column, column + 1, column + 2} & set(range(paddles[row], paddles[row] + 7)))
                caught[row] += hit
                paddles[row] = 18
                balls[row] = (int(world.state.start[row]), int(world.state.drift[row]))
            assert float(step.reward[row]) == float(hit)
    assert step.terminated.all() and step.score.tolist() == [count / 2 for count in caught]
    assert 0 < sum(caught) < 128


@pytest.mark.parametrize("goal", [0, 8, 18, 34])
def test_catch_in_the_dark_is_at_chance_without_memory(goal):
    """Whatever place one goes to in the dark, it catches 9 of 40 at most, since the paddle was held before."""
    config = CatchConfig(blackout=9, side=42)
    world = config.build(2000, seed=3)
    world.reset()

    def policy(world):
        ahead = goal - world.state.paddle
        return torch.where(ahead >= 2, catch.RIGHT, torch.where(ahead <= -2, catch.LEFT, catch.STAY))

    score = float(play(world, policy, config.spec.max_steps).mean())
    most = {0: 7, 34: 8}.get(goal, 9)
    assert score == pytest.approx(most / 40, abs=0.012) and score < config.spec.chance + 0.012


def test_the_memory_span_of_the_dark_is_reached():
    config = CatchConfig(blackout=9, side=42, balls=2)
    world = config.build(8, seed=5)
    step, clock, lags = world.reset(), torch.zeros(8, dtype=torch.long), []
    for _ in range(2 * config.spec.max_steps):
        start = world.truth().start
        lags += (clock - start)[start >= 0].tolist()
        step = world.step(world.oracle())
        clock = torch.where(step.is_first, 0, clock + 1)
    assert max(lags) == config.spec.memory_span == 10
    assert CatchConfig().spec.memory_span == 0


def test_nothing_in_the_dark_tells_where_the_ball_is():
    config = CatchConfig(blackout=9, side=42, balls=1)
    world = config.build(512, seed=5)
    world.reset()
    for _ in range(9):
        world.step(torch.randint(3, (512,)))
    assert (world.truth().start == -1).all()
    step = world.step(torch.randint(3, (512,)))
    for _ in range(8):
        step = world.step(torch.full((512,), catch.STAY))
        if not step.is_last.any():
            assert (step.observation == step.observation[:1]).all()
            assert (world.truth().start == 8).all() and (world.truth().stop == 10).all()


def test_track_equals_a_literal_game():
    config = TrackConfig(side=42, balls=3, cue_steps=2, run_steps=3)
    world = config.build(48, seed=6)
    step = world.reset()
    starts, steps = world.state.start.tolist(), world.state.step.tolist()
    marked = world.state.marked.tolist()
    cursors = [[20, 20] for _ in range(48)]
    generator = torch.Generator().manual_seed(1)
    over, wins = [False] * 48, 0
    for now in range(config.spec.max_steps):
        run, picking = min(now, 5), now >= 5
        actions = torch.randint(5, (48,), generator=generator)
        balls = [
            [
                [fold(p + d * run, 40) for p, d in zip(phase, move, strict=True)]
                for phase, move in zip(*row, strict=True)
            ]
            for row in zip(starts, steps, strict=True)
        ]
        for row in range(48):
            greys = [110] * 3
            if now < 2:
                greys[marked[row]] = 255
            if not over[row]:
                seen = draw_one(
                    config,
                    (*balls[row], cursors[row]),
                    (*[frames.BALL] * 3, track.CURSOR),
                    (*greys, 200 if picking else 0),
                )
                assert np.array_equal(step.observation[row, 0].numpy(), seen)
                y, x = balls[row][marked[row]]
                assert world.truth().label[row] == 6 * ((y + 1) // 7) + (x + 1) // 7
        step = world.step(actions)
        for row in range(48):
            if over[row]:
                continue
            if picking and actions[row] == track.PICK:
                away = [(y - cursors[row][0]) ** 2 + (x - cursors[row][1]) ** 2 for y, x in balls[row]]
                win = away[marked[row]] == min(away)
                assert step.terminated[row] and float(step.score[row]) == float(win)
                over[row], wins = True, wins + win
            elif picking:
                move = [(-2, 0), (2, 0), (0, -2), (0, 2)][int(actions[row])]
                cursors[row] = [min(max(c + m, 0), 39) for c, m in zip(cursors[row], move, strict=True)]
    assert sum(over) > 40 and 0 < wins < 40


def test_track_is_at_chance_for_one_that_missed_the_cue():
    config = TrackConfig(side=42)
    world = config.build(4000, seed=7)
    world.reset()

    def nearest_to_the_middle(world):
        state = world.state
        away = (world._balls(state) - 20).square().sum(2)
        blind = state._replace(marked=away.argmin(1))
        return world.plan(blind)

    score = float(play(world, nearest_to_the_middle, config.spec.max_steps).mean())
    assert score == pytest.approx(0.25, abs=0.02)


@pytest.mark.parametrize("other", [(5, 2), (4, 2), (6, 2), (4, 1), (5, 1)])
def test_the_oracle_of_track_finds_a_way_beside_another_ball(other):
    world = TrackConfig(side=42, balls=2, cue_steps=1, run_steps=0).build(1, seed=0)
    world.reset()
    places = torch.tensor([[(5, 1), other]])
    world.state = world.state._replace(start=places, step=torch.zeros_like(places), marked=torch.tensor([0]))
    assert play(world, lambda world: world.oracle(), world.spec.max_steps).tolist()[:1] == [1.0]


@pytest.mark.long
def test_key_and_door_in_order():
    config = KeyDoorConfig(side=42, distractors=2)
    world = config.build(256, seed=8)
    world.reset()
    took, opened, bumps = torch.zeros(256, dtype=torch.bool), torch.zeros(256, dtype=torch.bool), 0
    over = torch.zeros(256, dtype=torch.bool)
    for _ in range(config.max_steps):
        step = world.step(torch.randint(4, (256,)))
        state = world.state
        live = ~over & ~step.is_first
        for row in live.nonzero()[:, 0].tolist():
            agent = set(_units(state.agent[row], 3))
            key, door = (set(_units(place, 5)) for place in state.goals[row])
            before = bool(took[row])
            wins = 0.0
            if agent & key and not before:
                took[row], wins = True, wins + 1
            if agent & door and before:
                opened[row], wins = True, wins + 1
            hurt = any(agent & set(_units(place, 3)) for place in world._distractors(state)[row])
            bumps += hurt
            assert float(step.reward[row]) == pytest.approx(wins - 0.1 * hurt)
            assert bool(step.terminated[row]) == bool(opened[row])
            assert (step.observation[row, 0, state.goals[row, 0, 0], state.goals[row, 0, 1]] > 0) or took[row]
            if step.is_last[row]:
                assert float(step.score[row]) == (int(took[row]) + int(opened[row])) / 2
        over |= step.is_last
    assert bumps > 100 and took.sum() > 20 and opened.any()


def _units(place, size):
    y, x = (int(value) for value in place)
    return [(y + dy, x + dx) for dy in range(size) for dx in range(size)]


def test_key_door_and_agent_are_apart():
    state = KeyDoorConfig().build(5000, seed=9).begin(5000)
    agent, (key, door) = state.agent, state.goals.unbind(1)
    for one, two in ((agent, key), (agent, door), (key, door)):
        assert ((one - two).abs().amax(1) >= 5).all()
    assert state.goals.min() == 0 and state.goals.max() == key_door.LARGE - 1


def test_the_oracle_reaches_any_key_and_door_in_the_shortest_episode():
    """From a corner to a key in another one, and back to a door anywhere: nothing is farther."""
    ends = (0, 4, 11, 15, 22, 26, 33, 37)
    far = torch.tensor([(37, 37), (37, 33), (33, 37), (37, 36), (36, 37), (36, 36)])
    key, door = (part.flatten(0, 1) for part in torch.broadcast_tensors(far[:, None], torch.cartesian_prod(
        *[torch.tensor(ends)] * 2)[None]))  # fmt: skip
    apart = (door // 11 != key // 11).any(1) & (door // 11 > 0).any(1)
    key, door = key[apart], door[apart]
    world = KeyDoorConfig(side=42, distractors=0, max_steps=key_door.LONGEST_ROUTE).build(len(key))
    world.reset()
    world.state = world.state._replace(agent=torch.zeros_like(key), goals=torch.stack([key, door], 1))
    last = torch.zeros(len(key), dtype=torch.long)
    for number in range(1, key_door.LONGEST_ROUTE + 1):
        step = world.step(world.oracle())
        last = torch.where(step.terminated & (last == 0), number, last)
    assert last.min() > 0 and last.max() == key_door.LONGEST_ROUTE


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: CatchConfig(side=80), "side=80"),
        (lambda: CatchConfig(blackout=5), "blackout=5"),
        (lambda: CatchConfig(blackout=18), "blackout=18"),
        (lambda: CatchConfig(balls=0), "balls=0"),
        (lambda: TrackConfig(balls=1), "balls=1"),
        (lambda: TrackConfig(pick_steps=3), "pick_steps=3"),
        (lambda: KeyDoorConfig(distractors=-1), "distractors=-1"),
        (lambda: KeyDoorConfig(max_steps=62), "max_steps=62: give at least 63"),
        (lambda: KeyDoorConfig(bump=float("nan")), "bump=nan"),
    ],
)
def test_mistakes_are_named(make, words):
    with pytest.raises(ValueError, match=words):
        make()
