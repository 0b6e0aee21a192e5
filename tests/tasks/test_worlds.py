"""What every world of the table keeps, whatever its rules are."""

import math
from dataclasses import replace

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.utils.env_checker import check_env

from recollect.tasks import TASKS
from recollect.tasks.gymnasium.views import RecollectEnv
from recollect.tasks.worlds.contract import Advance, Step, TensorWorld, WorldConfig

FIELDS = {
    "t-maze": [{"length": 6}, {"length": 3, "active": True, "slack": 4}],
    "visual-match": [{"distractor_steps": 10}, {"choices": 4, "cue_steps": 1, "distractor_steps": 0}],
    "ballet": [
        {"observation": "tiles", "max_steps": 70},
        {"dancers": (1, 2), "delays": (4, 5), "max_steps": 45},
    ],
    "word-learning": [{}, {"num_objects": 2, "distractor_phases": (0, 1), "lessons": 2, "pause_steps": 3}],
    "object-permanence": [
        {"jumps": 1},
        {"delays": (0, 4), "jumps": 1, "side": 7, "free_steps": 28, "random_places": False, "random_colours": False},
    ],
    "street-learn": [
        {"steps": 60, "rule": "collect", "observation": "symbols"},
        {"steps": 60, "observation": "rendered"},
    ],
    "catch": [{"side": 42, "balls": 2}, {"side": 42, "balls": 1, "blackout": 9}],
    "track": [{"side": 42, "cue_steps": 2, "run_steps": 4}],
    "key-door": [{"side": 42, "max_steps": 63}],
    "goal-shown-once": [{"side": 20}, {"num_pads": 6, "num_blocks": 3, "delay": 0}],
    "order-shown-once": [{"side": 20}, {"num_buttons": 2, "backwards": True, "delay": 0}],
    "covered-objects": [{"side": 20}, {"num_cups": 5, "delay": 0}],
    "gym": [{"masked": (1, 3)}, {"native": False}],
}
"""Small forms of the worlds; a world that is not named here is tested as it is."""
WORLDS = {key: entry for key, entry in TASKS.items() if issubclass(entry, WorldConfig)}
CASES = [
    pytest.param(entry(**fields), id=f"{key}-{number}")
    for key, entry in WORLDS.items()
    for number, fields in enumerate(FIELDS.get(key, [{}]))
]
every_world = pytest.mark.parametrize("config", CASES)


def random_actions(world, generator=None):
    space = world.spec.action_space
    if isinstance(space, gymnasium.spaces.Discrete):
        return torch.randint(int(space.n), (world.batch_size,), generator=generator)
    if isinstance(space, gymnasium.spaces.Box):
        low, high = torch.from_numpy(space.low), torch.from_numpy(space.high)
        return low + (high - low) * torch.rand(world.batch_size, *space.shape, generator=generator)
    assert isinstance(space, gymnasium.spaces.MultiDiscrete)
    rows = torch.rand(world.batch_size, len(space.nvec), generator=generator)
    return (rows * torch.as_tensor(space.nvec)).long()


def mixed_actions(world, generator=None):
    """The first half of the rows knows what to do, so that whole episodes are seen; the others do anything."""
    actions, known = random_actions(world, generator), world.oracle()
    if known is not None:
        half = world.batch_size // 2
        actions[:half] = known[:half]
    return actions


def horizon(config, most=150):
    return min(config.spec.max_steps or most, most - 3) + 3


def flat(step):
    """All tensors of a step, by name."""
    seen = step.observation if isinstance(step.observation, dict) else {"": step.observation}
    return {f"observation {name}": part for name, part in seen.items()} | {
        name: getattr(step, name) for name in Step._fields[1:]
    }


def assert_same(one, two, rows=slice(None)):
    for (name, first), second in zip(flat(one).items(), flat(two).values(), strict=True):
        assert first.dtype == second.dtype and torch.equal(first[rows], second[rows]), name


def copies(step):
    return {name: part.clone() for name, part in flat(step).items()}


def of_our_own(config):
    world = config.build(2)
    if not isinstance(world, TensorWorld):
        world.close()
        pytest.skip("not a world of ours")


def play_out(config, rows, policy, seed=0):
    """Score of the first episode of every row."""
    world = config.build(rows, seed=seed)
    world.reset()
    scores, done = torch.zeros(rows), torch.zeros(rows, dtype=torch.bool)
    for _ in range(config.spec.max_steps):
        step = world.step(policy(world))
        scores = torch.where(step.is_last & ~done, step.score, scores)
        done |= step.is_last
        if done.all():
            return scores
    raise AssertionError(f"{int((~done).sum())} episodes are longer than max_steps={config.spec.max_steps}")


@every_world
def test_every_step_fits_the_spec(config):
    world = config.build(6, seed=1)
    space = config.spec.observation_space
    step = world.reset()
    assert step.is_first.all() and not step.is_last.any() and not step.reward.any()
    for _ in range(horizon(config, 60)):
        assert step.reward.dtype == step.score.dtype == torch.float32
        assert step.is_first.dtype == step.terminated.dtype == step.truncated.dtype == torch.bool
        assert all(part.shape[0] == 6 for part in flat(step).values())
        for row in range(6):
            if isinstance(step.observation, dict):
                seen = {name: part[row].numpy() for name, part in step.observation.items()}
                assert all(space[name].dtype == part.dtype for name, part in seen.items() if part.ndim)
            else:
                seen = step.observation[row].numpy()
                assert seen.ndim == 0 or space.dtype == seen.dtype
            assert space.contains(seen), f"row {row}: {seen} is not in {space}"
        step = world.step(mixed_actions(world))
    world.close()


@every_world
def test_the_seed_decides(config):
    def run(seed, reseed=None):
        world = config.build(4, seed=seed)
        generator = torch.Generator().manual_seed(0)
        if reseed is not None:
            world.reset()
            world.step(random_actions(world))
        steps = [world.reset(seed=reseed)]
        steps += [world.step(random_actions(world, generator)) for _ in range(horizon(config, 40))]
        world.close()
        return steps

    torch.manual_seed(1)
    one = run(3)
    torch.manual_seed(2)
    for again in (run(3), run(8, reseed=3)):
        for first, second in zip(one, again, strict=True):
            assert_same(first, second)
    other = run(4)
    assert any(
        not torch.equal(first, second)
        for step, changed in zip(one, other, strict=True)
        for first, second in zip(flat(step).values(), flat(changed).values(), strict=True)
    )


@every_world
def test_the_end_of_an_episode(config):
    world = config.build(12, seed=2)
    step, clock, was_last, ends = world.reset(), torch.zeros(12), torch.zeros(12, dtype=torch.bool), 0
    for _ in range(horizon(config)):
        step = world.step(mixed_actions(world))
        clock = torch.where(step.is_first, 0, clock + 1)
        assert torch.equal(step.is_first, was_last), "the step after a final observation is a first one"
        assert not (step.terminated & step.truncated).any()
        assert not step.reward[step.is_first].any() and not step.is_last[step.is_first].any()
        assert not step.score[~step.is_last].any()
        if config.spec.max_steps:
            assert (clock <= config.spec.max_steps).all()
            assert step.is_last[clock == config.spec.max_steps].all()
            assert not step.truncated[clock < config.spec.max_steps].any()
        was_last, ends = step.is_last, ends + int(step.is_last.sum())
    world.close()
    assert ends > 0


@every_world
def test_the_action_after_the_end_is_ignored(config):
    one, two = config.build(8, seed=5), config.build(8, seed=5)
    step = one.reset()
    two.reset()
    other, ends = torch.Generator().manual_seed(9), 0
    for _ in range(horizon(config) + 5):
        actions = mixed_actions(one)
        last = step.is_last.reshape(-1, *[1] * (actions.ndim - 1))
        strange = torch.where(last, random_actions(two, other), actions)
        ends += int(step.is_last.sum())
        step = one.step(actions)
        assert_same(step, two.step(strange))
    one.close()
    two.close()
    assert ends > 0


@every_world
def test_rows_do_not_see_each_other(config):
    one, two = config.build(6, seed=4), config.build(6, seed=4)
    one.reset()
    two.reset()
    for _ in range(horizon(config)):
        actions = mixed_actions(one)
        changed = actions.clone()
        changed[5] = random_actions(one)[5]
        first, second = one.step(actions), two.step(changed)
        assert_same(first, second, slice(0, 5))
        if first.is_last.any() or second.is_last.any():
            break  # new episodes are drawn for the rows that ended, together
    one.close()
    two.close()


@every_world
def test_what_was_shown_is_never_written_to(config):
    world = config.build(4, seed=6)
    kept = [(step, copies(step)) for step in [world.reset()]]
    for _ in range(horizon(config, 40)):
        step = world.step(mixed_actions(world))
        kept.append((step, copies(step)))
    world.close()
    for step, copy in kept:
        for name, part in flat(step).items():
            assert torch.equal(part, copy[name]), name


@every_world
def test_saved_in_the_middle_of_an_episode_it_continues_bit_for_bit(config):
    of_our_own(config)
    one = config.build(6, seed=7)
    one.reset()
    for _ in range(horizon(config) // 2):
        one.step(mixed_actions(one))
    tensors, data = one.save()
    tensors = {name: part.clone() for name, part in tensors.items()}
    two = config.build(6, seed=99)
    two.load(tensors, data)
    for _ in range(horizon(config)):
        actions = mixed_actions(one)
        assert_same(one.step(actions), two.step(actions))
        for first, second in zip(one.truth() or (), two.truth() or (), strict=True):
            assert first is second is None or torch.equal(first, second)


class Strange(TensorWorld):
    """A world of one number."""

    def begin(self, batch_size):
        return torch.zeros(batch_size)

    def advance(self, state, actions):
        return Advance(state, state, state > 0, state)

    def observe(self, state):
        return state[:, None]


@every_world
def test_what_another_world_saved_is_refused_and_changes_nothing(config):
    of_our_own(config)
    world, twin, more = config.build(1, seed=7), config.build(1, seed=7), config.build(3, seed=7)
    strange = Strange(config.spec, 1)
    for other in (world, twin, more, strange):
        other.reset()
    with pytest.raises(ValueError, match=r"was saved as \[3.*\], and is \[1.*\] here: .* batch_size=1"):
        world.load(*more.save())
    with pytest.raises(ValueError, match=f"not saved by a {type(world).__name__} "):
        world.load(*strange.save())
    with pytest.raises(ValueError, match="not saved by"):
        world.load({}, {})
    for _ in range(horizon(config, 40)):
        actions = world.oracle()
        assert_same(world.step(actions), twin.step(actions))


@every_world
def test_the_oracle_scores_what_the_spec_says(config):
    of_our_own(config)
    scores = play_out(config, 64, lambda world: world.oracle(), seed=11)
    error = float(scores.std()) / 64**0.5
    assert scores.mean() == pytest.approx(config.spec.oracle, abs=4 * error + 0.02 * max(1.0, config.spec.oracle))


@every_world
def test_random_actions_do_not_beat_chance(config):
    of_our_own(config)
    scores = play_out(config, 128, random_actions, seed=12)
    error = float(scores.std()) / 128**0.5
    if not config.spec.memory_span:  # nothing need be remembered: no chance to compare with
        assert math.isnan(config.spec.chance) and scores.mean() < config.spec.oracle - 4 * error
        return
    assert scores.mean() <= config.spec.chance + 4 * error + 0.02
    assert config.spec.chance < config.spec.oracle


@every_world
def test_truth_names_the_past_and_stays_within_the_span(config):
    of_our_own(config)
    world = config.build(16, seed=13)
    step, clock = world.reset(), torch.zeros(16, dtype=torch.long)
    events, labels, depended = set(), set(), 0
    for _ in range(horizon(config)):
        truth = world.truth()
        assert truth is not None and (truth.label is not None) == bool(config.spec.num_labels)
        known_parts = [part for part in truth if part is not None]
        assert all(part.shape[:1] == (16,) and part.dtype == torch.int64 for part in known_parts)
        assert all(part.shape == (16,) for part in truth[:3])
        if truth.label is not None:
            several = config.spec.labels_per_step
            assert truth.label.shape == ((16, several) if several > 1 else (16,))
            assert truth.label.min() >= -1 and truth.label.max() < config.spec.num_labels
            named = (truth.label >= 0).view(16, -1).any(1)
            assert (truth.label[step.is_last] == -1).all() and named[truth.start >= 0].all()
            labels |= set(truth.label.flatten().tolist())
        assert truth.event.min() >= -1 and truth.event.max() < len(config.spec.events)
        assert torch.equal(truth.start >= 0, truth.stop >= 0)
        known = (truth.start >= 0) & ~step.is_last  # at the end there is nothing left to decide
        assert (truth.start < truth.stop)[known].all() and (truth.stop <= clock + 1)[known].all()
        if known.any():
            assert int((clock - (truth.stop - 1))[known].max()) <= config.spec.memory_span
        depended += int((known & (truth.stop <= clock)).sum())
        events |= set(truth.event.tolist())
        step = world.step(mixed_actions(world))
        clock = torch.where(step.is_first, 0, clock + 1)
    assert (depended > 0) == (config.spec.memory_span > 0), "somewhere a decision depends on the past"
    assert events - {-1}, "something happens"
    assert not config.spec.num_labels or len(labels - {-1}) > 1, "different things have to be remembered"


@every_world
@pytest.mark.parametrize("kind", [torch.uint8, torch.int16, torch.int32, torch.float64])
def test_actions_mean_the_same_in_every_kind_of_numbers(config, kind):
    space = config.spec.action_space
    if kind.is_floating_point != isinstance(space, gymnasium.spaces.Box):
        pytest.skip("numbers of another kind are refused")
    # As many rows as actions: a byte for each action could be taken for a mask of them.
    rows = int(getattr(space, "n", 3))
    one, two = (config.build(rows, seed=3) for _ in range(2))
    generator = torch.Generator().manual_seed(3)
    assert_same(one.reset(), two.reset())
    for _ in range(12):
        actions = random_actions(one, generator)
        assert_same(one.step(actions), two.step(actions.to(kind)))
    one.close()
    two.close()


@every_world
def test_wrong_use_is_caught(config):
    world = config.build(3, seed=0)
    with pytest.raises(RuntimeError, match="reset"):
        world.step(random_actions(world))
    world.reset()
    good = random_actions(world)
    with pytest.raises(ValueError, match="actions"):
        world.step(good[:2])
    with pytest.raises(ValueError, match="actions"):
        world.step(good.long() if good.is_floating_point() else good.float())
    with pytest.raises(ValueError, match=r"actions are torch\.bool"):
        world.step(good > 0)
    with pytest.raises(ValueError, match="actions are a ndarray; this world takes a tensor of"):
        world.step(good.numpy())
    if isinstance(config.spec.action_space, gymnasium.spaces.Discrete):
        for bad in (-1, int(config.spec.action_space.n)):
            with pytest.raises(ValueError, match=f"action {bad} is out of range"):
                world.step(torch.tensor([0, bad, 0]))
    world.close()
    with pytest.raises(ValueError, match="batch_size=0"):
        config.build(0)


def test_actions_may_begin_at_another_number():
    world = WORLDS["t-maze"]().build(2)
    assert world.spec.action_space.n == 4
    world.spec = replace(world.spec, action_space=gymnasium.spaces.Discrete(2, start=2))
    world.reset()
    world.step(torch.tensor([2, 3]))
    for bad in (1, 4):
        with pytest.raises(ValueError, match=rf"action {bad} is out of range: use 2\.\.3"):
            world.step(torch.tensor([2, bad]))


@every_world
@pytest.mark.filterwarnings("ignore:.*A Box observation space m.* value is.*infinity")
def test_it_is_a_gymnasium_environment(config):
    env = RecollectEnv(config, render_mode="rgb_array")
    check_env(env, skip_render_check=True)  # by name it is checked in test_gymnasium_views.py
    env.reset(seed=1)
    picture = env.render()
    assert picture.dtype == np.uint8 and picture.ndim == 3 and picture.shape[2] == 3 and min(picture.shape[:2]) > 8
    env.close()


@every_world
def test_every_named_policy_acts_everywhere(config):
    of_our_own(config)
    world = config.build(6, seed=14)
    world.reset()
    for _ in range(40):
        for name in ("oracle", *config.spec.policies):
            actions = world.expert(name)
            like = random_actions(world)
            assert actions.shape == like.shape and actions.dtype == like.dtype, name
        world.step(mixed_actions(world))
    assert world.expert("nobody") is None
    assert config.spec.bits > 0 or config.spec.bits != config.spec.bits
