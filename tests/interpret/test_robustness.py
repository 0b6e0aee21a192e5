"""Exchanged memories, moved boundaries, fewer chunks, blurred places: each where the answer is known."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from synthetic import synthetic_record

from recollect.interpret.controls import place_areas
from recollect.interpret.episodes import record_episode
from recollect.interpret.heads import neighbours, surprise
from recollect.interpret.pointing import GRID, agreement, pointing_game
from recollect.interpret.recall import maps_of, persistence
from recollect.interpret.record import Objects, Pair, Saliency
from recollect.interpret.report import add_up
from recollect.interpret.robustness import delayed, moved_boundaries, recall, sufficiency, with_chunks_of
from recollect.interpret.saliency import policy_with_blur
from recollect.interpret.swaps import cue_swap, put
from recollect.recipes.agent_sizes import lite_core
from recollect.recipes.hierarchical_transformer_memory import short_t_maze
from recollect.tasks.worlds.arcade.catch import CatchConfig
from recollect.tasks.worlds.t_maze import TMazeConfig

MAZE = TMazeConfig(length=6, slack=10, penalty=0.05)


def _agent(core, world):
    memory = lite_core(core, steps=20, window=4, chunk=4, top_k=4)
    torch.manual_seed(3)
    agent = replace(short_t_maze(core), core=memory, world=world).build_agent().eval()
    with torch.no_grad():
        agent.policy_head[-1].weight.mul_(200)  # far from uniform, so that memories show in it
    return agent


@pytest.fixture(scope="module")
def episodes():
    agent = _agent("hcam", MAZE)
    found = [record_episode(agent, MAZE, seed=seed, greedy=False).with_removal() for seed in range(4)]
    return [replace(one, pairs=(Pair(query=(10, 14), key=(0, 3)),)) for one in found]


def test_nothing_moved_and_the_same_chunks_change_nothing(episodes):
    one = episodes[0]
    before = recall(one)
    drawn = replace(one, action=(one.logits.argmax(-1) + 1) % 4)  # as a policy may that is not greedy
    recalled, kept = delayed(drawn, 0)
    assert recalled == before and kept.total == kept.number == 4
    other = with_chunks_of(one.agent, one.agent.core.config.chunk_len)
    assert other.core.config == one.agent.core.config
    assert torch.equal(next(other.core.parameters()), next(one.agent.core.parameters()))
    assert with_chunks_of(one.agent, 64) is None  # longer than the window
    names = [metric.name for metric in moved_boundaries(episodes)]
    assert names == ["recall@1, boundaries moved", "decision kept, boundaries moved", "recall@1, chunks of 2"]


def test_another_memory_lies_where_the_own_one_was(episodes):
    one, other = episodes[:2]
    own, theirs = one.playback().state_before(12), other.playback().state_before(12)
    number = one.agent.core.config.num_chunks
    first, second, last = number - 3, number - 2, number - 1
    edited = put(own, [first, second], theirs, [last])
    for layer, before, source in zip(edited.layers, own.layers, theirs.layers, strict=True):
        assert torch.equal(layer.contents[:, first], source.contents[:, last])
        assert torch.equal(layer.keys[:, first], source.keys[:, last])
        assert torch.equal(layer.contents[:, last], before.contents[:, last])
        assert torch.equal(layer.window, before.window)
    assert edited.lengths[0, [first, second, last]].tolist() == [4, 0, 4]
    assert own.lengths[0, second] == 4  # the episode's own state is as it was


def test_cue_swap_asks_pairs_that_answer_differently(episodes):
    assert cue_swap([episodes[0], episodes[0]]) == []
    for metric in cue_swap(episodes):
        assert 0 <= metric.value <= 1 and metric.against == "another memory in its place"
    assert cue_swap([record_episode(_agent("gru", MAZE), MAZE, longest=4)]) == []


def test_living_on_with_everything_ends_as_the_episode_did(episodes):
    for one in episodes:
        assert one.info.score is not None and one.outcome_from(10) == one.info.score
    found = {metric.name: metric for metric in sufficiency(episodes)}
    assert set(found) == {"success with the 1 most attended"}  # of two chunks
    assert sufficiency([record_episode(_agent("gru", MAZE), MAZE, longest=4)]) == []


def _maps(places, side=GRID):
    maps = np.zeros((len(places), side, side), np.float32)
    for t, (y, x) in enumerate(places):
        maps[t, y : y + 4, x : x + 5] = 1
    return maps


def test_maps_that_agree_and_maps_that_never_move():
    moving = [(0, 0), (6, 0), (0, 5), (6, 5)]
    record = synthetic_record()
    steps = np.arange(4)
    spatial = np.zeros((record.num_steps, 1, GRID, GRID), np.float32)
    spatial[:4, 0] = _maps(moving)
    saliency = Saliency(steps=steps, actor=_maps(moving), critic=_maps(moving[::-1]))
    found = agreement(replace(record, spatial=spatial, saliency=(saliency,)))
    assert found["IoU of attention and perturbation actor"] == (4.0, 0.0, 4)
    assert found["IoU of attention and perturbation critic"] == (0.0, 0.0, 4)
    boxes = np.array([[[y, x, y + 1, x + 1], [0, 0, 1, 1]] for y, x in moving], np.int32) * 10
    there = np.ones((4, 2), bool)
    things = Objects(names=("ball", "wall"), boxes=boxes, visible=there, matters=there)
    seen = {"observation": np.zeros((record.num_steps, 100, 100, 3), np.uint8)}
    looking = replace(record, objects=things, saliency=(saliency,), observations=seen)
    (ball,) = pointing_game([looking])["pointing at ball, perturbation actor"]
    assert ball == (4.0, 0.0, 4)
    still = replace(looking, saliency=(replace(saliency, actor=_maps([(0, 0)] * 4)),))
    (ball,) = pointing_game([still])["pointing at ball, perturbation actor"]
    (wall,) = pointing_game([still])["pointing at wall, perturbation actor"]
    assert ball == (1.0, 1.0, 4) and wall == (4.0, 4.0, 4)  # as often as another step's map
    (mass,) = pointing_game([still])["mass on things, perturbation actor"]
    assert mass.total / 4 == pytest.approx(0.05 + 0.75 * 0) and mass.chance / 4 == pytest.approx(0.0175)


def test_the_right_one_of_things_that_look_alike():
    places = [(0, 0), (6, 0), (0, 5), (6, 5)]
    record = synthetic_record()
    # Ball 1 matters; the map lies on it twice, on ball 0 once, and once on the wall. At the fifth step nothing matters.
    maps = _maps([places[1], places[1], places[0], places[3], places[1]])
    boxes = np.array([[[10 * y, 10 * x, 10 * y + 10, 10 * x + 10] for y, x in places]] * 5, np.int32)
    matters = np.tile([False, True, False, False], (5, 1))
    matters[4] = False
    things = Objects(
        names=("ball 0", "ball 1", "ball 2", "wall"), boxes=boxes, visible=np.ones((5, 4), bool), matters=matters
    )
    seen = {"observation": np.zeros((record.num_steps, 100, 100, 3), np.uint8)}
    saliency = Saliency(steps=np.arange(5), actor=maps, critic=maps)
    looking = replace(record, objects=things, saliency=(saliency,), observations=seen)
    found = pointing_game([looking])
    (right,) = found["right ball, perturbation actor"]
    assert right == (2.0, pytest.approx(3 / 3), 3)  # chance is one of three at each of the three steps
    assert "right wall, perturbation actor" not in found and "pointing at wall, perturbation actor" not in found
    assert found["pointing, perturbation actor"][0].total == 2
    hidden = replace(things, visible=np.tile([False, True, False, True], (5, 1)))
    assert not [name for name in pointing_game([replace(looking, objects=hidden)]) if name.startswith("right")]


def test_surprise_neighbours_and_persistence():
    record = synthetic_record()
    steps = record.num_steps
    reward = np.zeros(steps, np.float32)
    reward[50] = 1
    liking = np.tril(np.ones((steps, steps))) + 5 * (np.arange(steps) == 50)
    rows = np.where(np.tril(np.ones((steps, steps))) > 0, liking, np.nan)[:, None]
    rows = rows / np.nansum(rows, -1, keepdims=True)
    found = add_up(surprise(replace(record, temporal=rows, reward=reward, pairs=()), 0))
    assert found.total / found.number > 0.99 and found.chance / found.number == 0.5
    assert add_up(surprise(replace(record, temporal=rows), 0)).number == 0
    relevance = np.full((steps, 1, 6), 0.1)
    relevance[np.arange(steps), 0, np.arange(steps) % 6] = 1  # the next one every time, and back from the last
    recalled = add_up(neighbours(replace(record, chunk_rel=relevance), 0))
    assert recalled.number == steps - 1 and recalled.total / recalled.number == pytest.approx(5 / 6, abs=0.02)
    kept = add_up(persistence(record, maps_of(record, [1])))
    assert kept.number > 0 and kept.total == kept.number


def test_blurring_nothing_and_everything():
    world = CatchConfig(side=42, balls=1)
    agent = _agent("gru", world)
    record = record_episode(agent, world, longest=6).with_saliency(every=2)
    playback = record.playback()
    masks = torch.stack([torch.zeros(42, 42), torch.ones(42, 42)])
    plain, blurred = policy_with_blur(playback, 0, agent.initial_state(1), masks).numpy()
    np.testing.assert_allclose(plain, record.logits[0], atol=1e-4)
    assert np.abs(blurred - plain).max() > 1e-3
    found = place_areas([record])
    assert set(found) == {"deletion of places, perturbation", "insertion of places, perturbation"}
    (ratio,) = found["deletion of places, perturbation"]
    assert ratio.number == 3 and 0 < ratio.total < 3 and 0 < ratio.chance < 3
