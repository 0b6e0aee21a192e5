"""The polygons of MDP Playground as a world."""

import sys

import pytest
import torch

from recollect.tasks.gymnasium.polygons import PolygonsConfig

SMALL = PolygonsConfig(states=5, steps=7, side=84)


@pytest.mark.parametrize(("field", "value"), [("states", 1), ("states", 13), ("steps", 0), ("side", 40), ("table", -1)])
def test_a_config_that_cannot_be_names_its_field(field, value):
    with pytest.raises(ValueError, match=f"{field}={value}: give"):
        PolygonsConfig(**{field: value})


def test_a_missing_package_is_named_with_the_line_that_installs_it(monkeypatch):
    for module in ("mdp_playground", "mdp_playground.envs", "mdp_playground.envs.rl_toy_env"):
        monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ValueError, match=r"pip install 'recollect-torch\[mdp\]'"):
        SMALL.build(1)
    assert SMALL.spec.oracle == 1.0, "tables need no package"


def test_the_oracle_is_rewarded_at_every_step_and_random_actions_at_one_in_five(capsys):
    world = SMALL.build(3, seed=2)
    step = world.reset()
    for _ in range(SMALL.steps):
        step = world.step(world.oracle())
        assert torch.allclose(step.reward, torch.tensor(1 / SMALL.steps))
    assert step.truncated.all() and not step.terminated.any()
    assert torch.allclose(step.score, torch.ones(3)), "the score is the share of rewarded steps"
    world, scores = PolygonsConfig(steps=200).build(8, seed=1), []
    world.reset()
    actions = torch.Generator().manual_seed(0)
    for _ in range(402):
        step = world.step(torch.randint(8, (8,), generator=actions))
        scores += step.score[step.is_last].tolist()
    assert len(scores) == 16
    assert sum(scores) / 16 == pytest.approx(PolygonsConfig().spec.chance, abs=0.025), (
        "4 standard errors of 3 200 steps"
    )
    assert capsys.readouterr().out == "", "the package prints its settings; a world does not"


def test_a_new_episode_begins_after_the_last_observation_of_the_old_one():
    world = SMALL.build(2)
    step = world.reset()
    assert step.is_first.all() and (step.reward == 0).all()
    for _ in range(SMALL.steps):
        step = world.step(world.oracle())
        assert not step.is_first.any()
    final = step.observation.clone()
    step = world.step(torch.zeros(2, dtype=torch.long))
    assert step.is_first.all() and not step.is_last.any() and (step.reward == 0).all() and (step.score == 0).all()
    assert not torch.equal(step.observation, final)


def test_a_seed_repeats_an_episode_and_rows_differ():
    def play(seed):
        world = SMALL.build(2, seed=seed)
        frames = [world.reset().observation]
        frames += [world.step(torch.tensor([1, 1])).observation for _ in range(5)]
        return torch.stack(frames)

    assert torch.equal(play(4), play(4))
    assert not torch.equal(play(4), play(5))
    assert not torch.equal(play(4)[:, 0], play(4)[:, 1]), "places and angles are drawn for every row"


def test_a_reset_with_a_seed_repeats_an_episode_also_within_a_world():
    def play(world):
        frames = [world.reset(seed=4).observation]
        frames += [world.step(torch.tensor([1, 1])).observation for _ in range(5)]
        return torch.stack(frames)

    world = SMALL.build(2, seed=1)
    first = play(world)
    assert torch.equal(first, play(world)) and torch.equal(first, play(SMALL.build(2, seed=2)))


def test_a_table_is_that_of_its_seed_in_all_rows():
    one, two = SMALL.build(3).rows, PolygonsConfig(states=5, table=1).build(1).rows
    assert all((row.transition_matrix == one[0].transition_matrix).all() for row in one)
    assert all(sorted(line) == list(range(5)) for line in one[0].transition_matrix), "all states in one step"
    assert (two[0].transition_matrix != one[0].transition_matrix).any()


def test_the_box_holds_all_that_is_drawn():
    world = PolygonsConfig(side=84).build(4, seed=7)
    frames = world.reset().observation[..., 0]
    scene = world.scene()
    for frame, (top, left, bottom, right) in zip(frames, scene.boxes[:, 0].tolist(), strict=True):
        inside = frame[top:bottom, left:right]
        assert inside.sum() == frame.sum() > 0
        assert all(edge.any() for edge in (inside[0], inside[-1], inside[:, 0], inside[:, -1])), "and not more"
        assert bottom - top <= 41 and right - left <= 41, "polygons are in circles of radius 20"
    assert scene.visible.all() and scene.matters.all()


def test_a_smaller_frame_has_the_means_of_squares():
    whole = PolygonsConfig(side=84).build(2, seed=3).reset().observation.float()
    small = PolygonsConfig(side=28).build(2, seed=3).reset().observation
    means = whole.reshape(2, 28, 3, 28, 3, 1).mean((2, 4)).floor()
    assert torch.equal(small.float(), means)


@pytest.mark.parametrize(("actions", "error"), [([0, 5], "action 5 is out of range: use 0..4"), ([-1, 0], "action -1")])
def test_actions_that_do_not_exist_are_refused(actions, error):
    world = SMALL.build(2)
    with pytest.raises(RuntimeError, match="reset"):
        world.step(torch.tensor([0, 0]))
    world.reset()
    with pytest.raises(ValueError, match=error):
        world.step(torch.tensor(actions))
