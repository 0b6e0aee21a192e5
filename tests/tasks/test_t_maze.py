import pytest
import torch

from recollect.tasks.worlds.t_maze import DOWN, LEFT, RIGHT, UP, TMazeConfig
from recollect.tasks.worlds.t_maze_picture import AGENT, CELL, CUE, PAPER, RIGHT_SIDE, VIEW, WRONG_SIDE


def literal_episode(config, up, actions):
    """The rules, one row and one action at a time: yields (observation, reward, terminated, truncated)."""
    x, seen, cue = 0, not config.active, -1 if config.active else 0
    shortest = config.length + 1 + (2 if config.active else 0)

    def look():
        here = x == cue
        return [float(x == 0), float(x == config.length), float(here and up), float(here and not up)]

    yield look(), 0.0, False, False
    for count, action in enumerate(actions, start=1):
        reward, over = 0.0, False
        if x == config.length and action in (UP, DOWN):
            over, reward = True, float((action == UP) == up)
        else:
            fetching = config.active and not seen and x == 0 and action == LEFT
            walking = action == RIGHT and x < config.length
            if not walking and not fetching:
                reward = -config.penalty
        if action == RIGHT:
            x = min(x + 1, config.length)
        if action == LEFT:
            x = max(x - 1, cue)
        seen = seen or x == cue
        yield look(), reward, over, count == shortest + config.slack and not over
        if over or count == shortest + config.slack:
            return


@pytest.mark.parametrize("active", [False, True])
@pytest.mark.parametrize("length", [1, 2, 4])
def test_equals_a_literal_maze(active, length):
    config = TMazeConfig(length=length, active=active, slack=6, penalty=0.25)
    world = config.build(64, seed=3)
    step = world.reset()
    weights = torch.tensor([5.0, 1.0, 2.0, 1.0])  # mostly to the right, or nobody gets there
    taken = [torch.multinomial(weights, 64, replacement=True) for _ in range(config.spec.max_steps)]
    up = world.state.up.clone()
    steps = [step] + [world.step(actions) for actions in taken]
    ends = 0
    for row in range(64):
        script = literal_episode(config, bool(up[row]), [int(actions[row]) for actions in taken])
        for now, (view, reward, terminated, truncated) in zip(steps, script, strict=False):
            assert now.observation[row].tolist() == view
            assert float(now.reward[row]) == pytest.approx(reward)
            assert (bool(now.terminated[row]), bool(now.truncated[row])) == (terminated, truncated)
            if terminated or truncated:
                ends += 1
                assert float(now.score[row]) == (1.0 if reward == 1 else 0.0)
    assert ends == 64


@pytest.mark.parametrize("active", [False, True])
def test_the_shortest_path(active):
    config = TMazeConfig(length=7, active=active)
    world = config.build(32)
    world.reset()
    steps = [world.step(world.oracle()) for _ in range(10 if active else 8)]
    assert not any(step.is_last.any() for step in steps[:-1])
    step = steps[-1]
    assert step.terminated.all() and (step.score == 1).all() and (step.reward == 1).all()


@pytest.mark.parametrize("active", [False, True])
@pytest.mark.parametrize("side", [UP, DOWN])
def test_the_best_blind_policies_are_at_chance(active, side):
    config = TMazeConfig(length=3, active=active)
    world = config.build(20_000, seed=1)
    world.reset()
    for _ in range(config.spec.max_steps):
        at_junction = world.state.x == config.length
        step = world.step(torch.where(at_junction, side, RIGHT))
        if step.is_last.all():
            break
    assert step.score.mean() == pytest.approx(config.spec.chance, abs=0.015)


def test_all_of_the_corridor_looks_the_same():
    world = TMazeConfig(length=6).build(8)
    world.reset()
    views = [world.step(torch.full((8,), RIGHT)).observation for _ in range(6)]
    assert all((view == 0).all() for view in views[:-1])
    assert (views[-1] == torch.tensor([0.0, 1, 0, 0])).all()


def test_truth_names_the_latest_sight_of_the_cue():
    world = TMazeConfig(length=2, active=True).build(1)
    world.reset()
    for action in (LEFT, LEFT, RIGHT, RIGHT):
        assert int(world.truth().start[0]) == -1
        world.step(torch.tensor([action]))
    world.step(torch.tensor([RIGHT]))
    assert [int(part[0]) for part in world.truth()] == [1, 2, 3, int(world.state.up[0])]


def test_at_the_junction_without_the_cue_nothing_can_be_known():
    world = TMazeConfig(length=1, active=True).build(1)
    world.reset()
    world.step(torch.tensor([RIGHT]))
    assert [int(part[0]) for part in world.truth()] == [1, -1, -1, -1]


def colour(picture, row, column):
    return tuple(picture[row * CELL + CELL // 2, column * CELL + CELL // 2])


@pytest.mark.parametrize("right", [True, False])
def test_the_picture_shows_the_cue_the_corridor_and_the_answer(right):
    world = TMazeConfig(length=40).build(1, seed=1)
    step, pictures = world.reset(), []
    while True:
        pictures.append(world.render(0))
        if step.is_last[0]:
            break
        best = world.oracle()
        step = world.step(best if right or best == RIGHT else UP + DOWN - best)
    assert {picture.shape for picture in pictures} == {(5 * CELL, VIEW * CELL, 3)}
    assert colour(pictures[0], 2, 0) == AGENT and colour(pictures[0], 0, 0) == AGENT  # the arrow
    assert colour(pictures[1], 2, 1) == AGENT and colour(pictures[1], 2, 0) == CUE
    assert colour(pictures[1], 0, 0) == PAPER
    assert colour(pictures[20], 2, VIEW // 2) == AGENT
    before, last, end = pictures[-2], pictures[-1], VIEW - 1
    up = 1 if world.state.up[0] else 3
    assert colour(before, 2, end) == AGENT
    assert colour(before, up, end) == RIGHT_SIDE and colour(before, 4 - up, end) == WRONG_SIDE
    assert colour(last, up if right else 4 - up, end) == AGENT and colour(last, 2, end) not in (AGENT, CUE)


def test_the_picture_of_a_short_active_maze_has_all_of_it():
    world = TMazeConfig(length=2, active=True).build(1)
    world.reset()
    picture = world.render(0)
    assert picture.shape == (5 * CELL, 4 * CELL, 3)
    assert colour(picture, 2, 0) == CUE and colour(picture, 2, 1) == AGENT
    assert not (picture[:CELL] == AGENT).all(-1).any()
    world.step(torch.tensor([LEFT]))
    assert (world.render(0)[:CELL, :CELL] == AGENT).all(-1).any()


@pytest.mark.parametrize(("field", "value"), [("length", 0), ("slack", -1), ("penalty", -0.5)])
def test_bad_fields_are_named(field, value):
    with pytest.raises(ValueError, match=f"{field}={value}"):
        TMazeConfig(**{field: value})
