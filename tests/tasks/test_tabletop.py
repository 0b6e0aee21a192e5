"""The worlds of a table seen from above: what is shown once decides what is right, and nothing else does."""

import pytest
import torch

from recollect.tasks import TASKS, memory_requirements
from recollect.tasks.worlds.tabletop.table import COLOURS, HOME, LIGHT

KEYS = ("goal-shown-once", "order-shown-once", "covered-objects")
each = pytest.mark.parametrize("key", KEYS)


@each
def test_what_is_done_while_it_is_shown_leaves_no_trace(key):
    """The ceiling of policies without memory is exact: no action reaches the world before the secret is gone."""
    config = TASKS[key](side=20)
    one, two = config.build(16, seed=1), config.build(16, seed=1)
    generator = torch.Generator().manual_seed(0)
    one.reset()
    two.reset()
    for clock in range(config.locked_steps):
        first = one.step(torch.zeros(16, 3))
        second = two.step(2 * torch.rand(16, 3, generator=generator) - 1)
        for name, part in first.observation.items():
            assert torch.equal(part, second.observation[name]), (clock, name)


@each
def test_once_it_is_free_pictures_do_not_tell_secrets_apart(key):
    """Two worlds that differ in the secret alone show the same from then on, whatever is done."""
    config = TASKS[key](side=20)
    one, two = config.build(32, seed=2), config.build(32, seed=2)
    first, second = one.reset(), two.reset()
    changed = {
        "goal-shown-once": lambda s: s._replace(goal=(s.goal + 1) % config.num_pads),
        "order-shown-once": lambda s: s._replace(order=s.order.roll(1, 1)),
        "covered-objects": lambda s: s._replace(colours=s.colours.roll(1, 1)),
    }[key]
    two.state = changed(two.state)
    differed, generator = False, torch.Generator().manual_seed(3)
    for clock in range(config.locked_steps + 2):
        actions = 2 * torch.rand(32, 3, generator=generator) - 1
        actions[:, 2] = -1  # a grip tells, because it ends the episode or darkens a button
        first, second = one.step(actions), two.step(actions)
        same = all(torch.equal(part, second.observation[name]) for name, part in first.observation.items())
        differed |= not same
        assert same or clock + 1 < config.shown_steps, clock
    assert differed


@each
def test_whoever_guesses_is_at_the_ceiling(key):
    """The oracle of another secret knows all but what has to be remembered."""
    config = TASKS[key](side=20)
    world = config.build(400, seed=5)

    secret = {"goal-shown-once": "goal", "order-shown-once": "order", "covered-objects": "colours"}[key]
    world.reset()
    scores, done = play_with(world, secret, getattr(world.begin(400), secret), config.max_steps)
    assert done.all()
    error = float(scores.std()) / 20
    assert float(scores.mean()) == pytest.approx(config.spec.chance, abs=4 * error)


@each
def test_the_ruler_finds_the_lag_and_the_bits(key):
    config = TASKS[key](side=20)
    needs = memory_requirements.measure(config, 64)
    assert needs is not None and needs.lag > config.delay and needs.bits == pytest.approx(config.spec.bits, abs=1e-3)
    later = memory_requirements.measure(TASKS[key](side=20, delay=config.delay + 10), 64)
    assert later is not None and later.lag == pytest.approx(needs.lag + 10, abs=1)


def test_a_block_follows_the_hand_and_stays_where_it_is_let_go():
    world = TASKS["goal-shown-once"](delay=0, show_steps=1).build(1, seed=0)
    world.reset()
    world.step(torch.zeros(1, 3))
    while int(world.state.held) < 0:
        world.step(world.oracle())
    block = world.state.blocks[0, int(world.state.held)]
    assert torch.equal(block, world.state.hand.place[0])
    held = int(world.state.held)
    world.step(torch.tensor([[0.1, 0.1, 1.0]]))
    assert torch.allclose(world.state.blocks[0, held], world.state.hand.place[0])
    step = world.step(torch.tensor([[0.0, 0.0, -1.0]]))
    assert int(world.state.held) == -1 and not step.is_last.any(), "beside the pads nothing ends"
    world.step(torch.tensor([[1.0, 1.0, -1.0]]))
    assert not torch.allclose(world.state.blocks[0, held], world.state.hand.place[0], atol=0.1)


def test_a_wrong_block_or_a_wrong_pad_scores_nothing():
    config = TASKS["goal-shown-once"]()
    for other in ("asked", "goal"):
        world = config.build(50, seed=1)
        world.reset()
        wrong = (getattr(world.state, other) + 1) % (config.num_blocks if other == "asked" else config.num_pads)
        scores, done = play_with(world, other, wrong, config.max_steps)
        assert done.all() and not scores.any(), other


def play_with(world, name, value, steps):
    """Scores of the first episodes, and whether they are over; the oracle takes something else for true."""
    scores, done = torch.zeros(world.batch_size), torch.zeros(world.batch_size, dtype=torch.bool)
    for _ in range(steps):
        step = world.step(world.plan(world.state._replace(**{name: value})))
        scores = torch.where(step.is_last & ~done, step.score, scores)
        done |= step.is_last
        if done.all():
            break
    return scores, done


def test_pressed_buttons_are_dark_and_the_reverse_is_asked_for_late():
    config = TASKS["order-shown-once"](backwards=True)
    world = config.build(64, seed=3)
    step = world.reset()
    while not world.is_free.all():
        assert (step.observation["language"] == step.observation["language"][0]).all()
        step = world.step(torch.zeros(64, 3))
    assert 0 < int(world.state.reverse.sum()) < 64
    assert step.observation["language"].unique(dim=0).shape[0] == 2
    bright = step.observation["image"].float().sum()
    while int(world.state.pressed.min()) < 2:
        step = world.step(world.oracle())
        assert not (step.is_last & (step.score == 0)).any()
    assert step.observation["image"].float().sum() < bright


def test_one_button_is_lit_at_a_time_and_none_once_the_hand_is_free():
    config = TASKS["order-shown-once"]()
    world = config.build(16, seed=0)
    step, lit = world.reset(), []
    for _ in range(config.locked_steps + 1):
        image = step.observation["image"].long()
        light, plain = ((image - torch.tensor(colour)).abs().amax(-1).le(60) for colour in (LIGHT, COLOURS["blue"]))
        shown = light.flatten(1).sum(1)
        assert (shown < plain.flatten(1).sum(1)).all(), "the others are as they were"
        assert torch.equal(shown > 0, world.is_shown)
        lit.append(light[world.is_shown])
        step = world.step(torch.zeros(16, 3))
    first, last = lit[0], [places for places in lit if len(places)][-1]
    assert not (first & last).flatten(1).any(1).all(), "other buttons are lit later"


def test_pictures_show_places_finer_than_a_pixel():
    world = TASKS["covered-objects"](delay=0)
    built = world.build(1, seed=0)
    built.reset()
    for _ in range(world.locked_steps):
        step = built.step(torch.zeros(1, 3))
    assert torch.allclose(built.state.hand.place[0], torch.tensor(HOME))
    before = step.observation["image"]
    after = built.step(torch.tensor([[0.05, 0.0, -1.0]])).observation["image"]
    assert not torch.equal(before, after), "a hundredth of the table is a sixth of a pixel, and is to be seen"


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"num_pads": 7}, "num_pads=7"),
        ({"num_blocks": 0}, "num_blocks=0"),
        ({"show_steps": 0}, "show_steps=0"),
        ({"delay": -1}, "delay=-1"),
        ({"speed": 0.0}, "speed=0.0"),
        ({"slack": 5}, "slack=5: give at least 34"),
        ({"side": 8}, "side=8"),
    ],
)
def test_impossible_tables_are_named(fields, message):
    with pytest.raises(ValueError, match=message):
        TASKS["goal-shown-once"](**fields)
