import importlib.util

import numpy as np
import pytest
import torch

from recollect.gymnasium_ids import MEMORY_GYM
from recollect.tasks.gymnasium import mortar_mayhem
from recollect.tasks.gymnasium.mortar_mayhem import (
    EndlessMortarMayhemConfig,
    average_blocks,
    count_completable_commands,
)

MISSING = importlib.util.find_spec("memory_gym") is None
needs_memory_gym = pytest.mark.skipif(MISSING, reason=f"memory-gym is not installed: {MEMORY_GYM}")
SMALL = EndlessMortarMayhemConfig(steps=160, side=42)


def test_a_config_that_cannot_be_names_its_field():
    for field, value in (("steps", 0), ("side", 40), ("commands", 3)):
        with pytest.raises(ValueError, match=f"{field}={value}: give"):
            EndlessMortarMayhemConfig(**{field: value})


def test_a_missing_package_is_named_with_the_line_that_installs_it(monkeypatch):
    for module in ("memory_gym", "memory_gym.endless_mortar_mayhem"):
        monkeypatch.setitem(__import__("sys").modules, module, None)
    with pytest.raises(ValueError, match="pip install --no-deps memory-gym && pip install pygame-ce"):
        SMALL.build(1)


def test_spec_needs_no_package():
    spec = SMALL.spec
    assert spec.oracle == count_completable_commands(160) == 6, "1 + 2 + 3 commands"
    assert spec.chance == pytest.approx(sum(9.0 ** -(n - 1) * (n - 1 + 1 / 9) for n in range(1, 40)))
    assert [count_completable_commands(steps) for steps in (21, 22, 23)] == [0, 1, 1]


@pytest.mark.parametrize("block", [1, 2, 3, 12])
def test_frames_are_means_over_squares_rounded_down(block):
    frame = np.random.default_rng(block).integers(0, 256, (84, 84, 3), dtype=np.uint8).swapaxes(0, 1)
    frame[: 84 // 2] = 255  # sums of the largest bytes
    side = 84 // block
    exact = frame.astype(np.int64).reshape(side, block, side, block, 3).sum((1, 3)) // block**2
    shown = average_blocks(frame, block)
    assert shown.dtype == np.uint8 and np.array_equal(shown, exact)


@needs_memory_gym
def test_the_oracle_makes_no_mistake():
    world = SMALL.build(6, seed=3)
    step = world.reset()
    total, lags = torch.zeros(6), []
    for clock in range(160):
        truth = world.truth()
        assert truth is not None and (truth.stop <= clock + 1).all(), "what is not shown yet is not remembered"
        lags += (clock - truth.start)[truth.start >= 0].tolist()
        step = world.step(world.oracle())
        total += step.reward
        assert not step.terminated.any()
    assert step.truncated.all() and (step.score == SMALL.spec.oracle).all()
    assert torch.allclose(total, step.score / 10), "the official reward is 0.1 a command"
    assert max(lags) > 80, "the first command is asked for in every round"
    again = world.step(world.oracle())
    assert again.is_first.all() and (again.reward == 0).all()


@needs_memory_gym
def test_truth_says_which_command_is_due_and_when_it_was_shown():
    """A player who reads nothing but the frames of the intervals knows the commands."""
    world = EndlessMortarMayhemConfig(steps=300).build(3, seed=5)
    step = world.reset()
    frames, taught = [], {}
    for _ in range(290):
        frames.append(step.observation[:, 30:54, 30:54].float())
        truth = world.truth()
        for row in range(3):
            if truth.label[row] < 0:
                assert (truth.start[row], truth.stop[row]) == (-1, -1)
                continue
            assert truth.stop[row] - truth.start[row] == 3
            bright = (frames[truth.start[row]][row] > 200).all(-1)  # the white sign
            taught.setdefault(int(truth.label[row]), []).append(bright)
        step = world.step(world.oracle())
    assert len(taught) >= 5
    means = {label: torch.stack(signs).float().mean(0) for label, signs in taught.items()}
    for label, signs in taught.items():
        for sign in signs:
            nearest = min(means, key=lambda other: float((means[other] - sign.float()).abs().sum()))
            assert nearest == label


@needs_memory_gym
def test_a_mistake_ends_the_episode_and_rows_do_not_disturb_each_other():
    one, two = SMALL.build(3, seed=1), SMALL.build(2, seed=1)
    first, other = one.reset(), two.reset()
    assert torch.equal(first.observation[:2], other.observation)
    assert first.observation.shape == (3, 42, 42, 3) and SMALL.spec.observation_space.contains(
        first.observation[0].numpy()
    )
    ended = torch.zeros(3, dtype=torch.bool)
    for _ in range(40):
        actions = one.oracle()
        actions[2] = torch.tensor([1, 1])  # for ever to the upper left
        first, other = one.step(actions), two.step(two.oracle())
        assert torch.equal(first.observation[:2], other.observation)
        ended |= first.terminated
    assert ended.tolist() == [False, False, True]


@needs_memory_gym
def test_actions_are_checked():
    world = SMALL.build(2)
    with pytest.raises(RuntimeError, match="reset"):
        world.step(torch.zeros(2, 2, dtype=torch.long))
    world.reset()
    with pytest.raises(ValueError, match="out of range"):
        world.step(torch.full((2, 2), 3))


def test_the_official_class_is_found_or_asked_for():
    if MISSING:
        with pytest.raises(ValueError, match="memory_gym"):
            mortar_mayhem.import_official_class()
    else:
        assert mortar_mayhem.import_official_class().__name__ == "EndlessMortarMayhemEnv"
