"""Recording changes nothing; maps are in absolute steps; memory that is taken away is away; episodes live on."""

from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch

from recollect.agents.config import ActorCriticConfig
from recollect.cores import CORES, HierarchicalChunkMemoryConfig, TransformerXLConfig
from recollect.cores.hcam import ChunkAttentionVariant
from recollect.evaluation.agents import evaluation_mode, play
from recollect.interpret import playback as playback_module
from recollect.interpret.episodes import record_episode
from recollect.interpret.events import find_pairs
from recollect.interpret.occlusion import forget_chunks, hiding, mask_of
from recollect.interpret.playback import Playback
from recollect.interpret.removal import measure_removal, policies_without
from recollect.interpret.score import score
from recollect.recipes.agent_sizes import lite_core
from recollect.state import leaves, nbytes
from recollect.tasks.gymnasium.worlds import GymnasiumConfig
from recollect.tasks.worlds.arcade.catch import CatchConfig
from recollect.tasks.worlds.ballet.world import BalletConfig
from recollect.tasks.worlds.contract import Truth
from recollect.tasks.worlds.t_maze import TMazeConfig

MAZE = TMazeConfig(length=8, slack=10)
SMALL = {"dim": 8, "num_heads": 2, "memory_len": 4, "chunk_len": 3, "num_chunks": 4, "top_k": 2}
HCAM = (
    HierarchicalChunkMemoryConfig(**SMALL),
    HierarchicalChunkMemoryConfig(**SMALL, chunk_overlap=1),
    HierarchicalChunkMemoryConfig(**SMALL, reading=ChunkAttentionVariant.paper()),
    HierarchicalChunkMemoryConfig(**SMALL, reading=ChunkAttentionVariant(relevance_heads=True)),
    HierarchicalChunkMemoryConfig(**SMALL | {"memory_len": 1, "chunk_len": 1, "num_chunks": 9, "top_k": 1}),
)
GATED = ChunkAttentionVariant(gate="gru")
STEPWISE = ("causal-transformer", "transformer-xl", "hcam", "feedback-transformer", "long-short-transformer")


def _agent(key, world=MAZE, **settings):
    torch.manual_seed(1)
    core = lite_core(key, steps=20, window=4, chunk=4, top_k=2) if isinstance(key, str) else key
    return ActorCriticConfig(**settings, policy_gain=1.0).build(
        core, world.spec.observation_space, world.spec.action_space
    )


def _unrecorded(agent, world, seed, steps, greedy):
    world = world.build(1, seed=seed)
    seen = []
    with evaluation_mode(agent, seed):
        for played in play(agent, world, seed=seed, greedy=greedy):
            seen.append((played.action, played.output.policy, played.output.value, played.step.reward))
            if len(seen) == steps:
                return [torch.cat(part).numpy() for part in zip(*seen, strict=True)]
    raise AssertionError


@pytest.fixture(scope="module")
def maze():
    return record_episode(_agent("hcam"), MAZE, seed=3, greedy=False)


@pytest.mark.parametrize("key", CORES)
def test_recording_changes_no_bit(key):
    agent = _agent(key)
    record = record_episode(agent, MAZE, seed=5, greedy=False)
    for ours, plain in zip(
        (record.action, record.logits, record.value, record.reward),
        _unrecorded(agent, MAZE, 5, record.num_steps, greedy=False),
        strict=True,
    ):
        assert np.array_equal(ours, plain)
    assert record.info.core == key
    assert len(record.frames) == record.num_steps == len(record.observations["observation"])
    assert (record.temporal is not None) == (
        key in STEPWISE or key in ("tlb", "spatio-temporal", "timesformer", "hybrid")
    )
    assert record.temporal is not None or record.info.notes  # says plainly that there is nothing to show
    assert bool(record.slots) == (key in ("tlb", "ttm")) or record.slots


@pytest.mark.parametrize("key", [*STEPWISE, "tlb"])
def test_maps_are_causal_and_sum_to_one(key):
    record = record_episode(_agent(key), MAZE, seed=5, greedy=False)
    steps = np.arange(record.num_steps)
    assert np.isnan(record.temporal.swapaxes(0, 1)[:, steps[None] > steps[:, None]]).all()
    sums = np.nansum(record.temporal, -1)
    windows = [i for i, head in enumerate(record.heads) if head.kind == "window"]
    read = ~np.isnan(record.temporal).all(-1)
    assert np.allclose(sums[read], 1, atol=1e-5)
    assert read[1:, windows].all()  # the feedback transformer does not attend to the present step
    chunks = np.nansum(record.chunk_rel, -1)
    assert (chunks < 1 + 1e-5).all()


@pytest.mark.parametrize("block", [1, 3, 64])
def test_states_before_some_steps_are_those_of_single_steps(maze, monkeypatch, block):
    monkeypatch.setattr(playback_module, "BLOCK", block)
    playback, state, plain = maze.playback(), maze.agent.initial_state(1), []
    for t in range(maze.num_steps):
        plain.append(state)
        _, state = playback.step(t, state)
    wanted = {maze.num_steps - 1, 0, 5}
    found = dict(playback.states(wanted))
    assert list(found) == sorted(wanted)
    for t, state in found.items():
        torch.testing.assert_close(leaves(state), leaves(plain[t]))


def test_heads_find_the_step_that_they_attend_to():
    """Weights by absolute step are those that a tap hears at that step, window place by window place."""
    agent = _agent(TransformerXLConfig(dim=8, num_heads=2, num_layers=2, memory_len=4))
    record = record_episode(agent, MAZE, seed=5, greedy=False)
    heard = {}
    playback = Playback(agent, record.inputs)
    for t, state in playback.states():
        tap = agent.core.layers[1].tap
        tap._listeners.append(lambda weights: heard.update(now=weights[0, :, 0]))
        playback.step(t, state)
        tap._listeners.pop()
        places = range(max(0, t - 4), t + 1)
        assert np.allclose(record.temporal[t, 2:, places[0] : t + 1], heard["now"][:, -len(places) :], atol=1e-6)
        assert np.isnan(record.temporal[t, :, : places[0]]).all()


@pytest.mark.parametrize("config", HCAM)
def test_chunk_maps_are_relevance_times_attention_inside(config):
    record = record_episode(_agent(config).eval(), MAZE, seed=5, greedy=False)
    for i, head in enumerate(record.heads):
        if head.kind == "chunks":
            for t in range(1, record.num_steps):
                visible = [n for n, (_, stop) in enumerate(record.chunks) if stop <= t][-config.num_chunks :]
                assert np.flatnonzero(~np.isnan(record.chunk_rel[t, i])).tolist() == visible
                assert record.chunk_read[t, i].sum() == min(config.top_k, len(visible))
                rel, read = record.chunk_rel[t, i], record.chunk_read[t, i]
                if visible:
                    assert np.nansum(rel) == pytest.approx(1, abs=1e-5)
                    assert record.chunk_tail[t, i] == pytest.approx(np.nansum(rel[~read]), abs=1e-5)
                    used = 1.0 if config.reading.relevance == "topk_softmax" else rel[read].sum()
                    assert np.nansum(record.temporal[t, i]) == pytest.approx(used, abs=1e-5)


def test_heads_that_choose_for_themselves_show_chunks_of_their_own():
    agent = _agent(HCAM[3]).eval()
    with torch.no_grad():
        agent.core.layers[0].memory.chunk_query.weight.mul_(50)  # so that heads are sure, each of its own chunk
    record = record_episode(agent, MAZE, seed=5, greedy=False)
    first, second = [i for i, head in enumerate(record.heads) if head.layer == 0 and head.kind == "chunks"]
    steps = [t for t in range(record.num_steps) if (~np.isnan(record.chunk_rel[t, first])).sum() > 2]
    for one in (first, second):
        inside = [np.nansum(record.temporal[steps, one, start:stop], -1) for start, stop in record.chunks]
        # What is read is the relevance of this head, over its own k chunks.
        kept = np.where(record.chunk_read[steps, one], record.chunk_rel[steps, one], 0)
        assert np.allclose(np.stack(inside, -1), kept / kept.sum(-1, keepdims=True), atol=1e-5)
    assert (record.chunk_read[steps, first] != record.chunk_read[steps, second]).any()
    assert not np.allclose(record.chunk_tail[steps, first], record.chunk_tail[steps, second])


def test_events_and_pairs_are_the_world_s(maze):
    ballet = BalletConfig(dancers=(2,), delays=(16,), observation="tiles")
    record = record_episode(_agent("gru", ballet), ballet, seed=1)
    assert [event.kind for event in record.events][:3] == ["dance 1", "dance 2", "cue"]
    (pair,) = record.pairs
    danced = [event for event in record.events if (event.t, event.t1) == pair.key]
    assert len(danced) == 1 and pair.query[0] >= record.events[2].t
    assert maze.events[0].kind == "cue" and not maze.done[:-1].any()


@pytest.mark.parametrize(("world", "terminated"), [(CatchConfig(), True), (MAZE, False)])
def test_an_end_is_told_from_a_limit_of_time(world, terminated):
    record = record_episode(_agent("gru", world), world, seed=3)
    assert record.done[-1] and record.terminated == terminated


def test_objects_are_the_scene_s():
    record = record_episode(_agent("gru", CatchConfig()), CatchConfig(), seed=1, longest=10)
    assert record.objects.boxes.shape == (10, 2, 4) and record.objects.names == CatchConfig().spec.object_names
    top, left, bottom, right = record.objects.boxes[3, 1]
    assert record.observations["observation"][3, -1, top:bottom, left:right].min() > 0
    assert any("cut after 10 steps" in note for note in record.info.notes)


def test_gymnasium_worlds_are_recorded_too():
    world = GymnasiumConfig(id="CartPole-v1")
    record = record_episode(_agent("transformer-xl", world), world, seed=1)
    assert record.done[-1] and not record.pairs and record.temporal is not None
    again = record.rerun_from(4)
    assert np.array_equal(again.action, record.action)


@pytest.mark.parametrize("key", ["causal-transformer", "transformer-xl", "hcam", "long-short-transformer"])
def test_hidden_steps_leave_no_trace_in_what_is_read(key):
    """At the first layer the past is raw steps: with all of it hidden, the step decides as if it were the first."""
    core = replace(lite_core(key, steps=20, window=4, chunk=4, top_k=2), num_layers=1)
    if key == "transformer-xl":
        core = replace(core, final_norm=False)
    agent = _agent(core).eval()
    record = record_episode(agent, MAZE, seed=5, greedy=False)
    playback = Playback(agent, record.inputs)
    t = 11
    state = playback.state_before(t)
    hidden = torch.zeros(2, record.num_steps, dtype=torch.bool)
    hidden[0, :t] = True
    everything, nothing = policies_without(playback, t, state, hidden).policy[1:, 0]
    untouched = playback.step(t, state)[0].policy[0, 0]
    alone = playback.step(t, agent.initial_state(1))[0].policy[0, 0]
    assert torch.allclose(nothing, untouched, atol=1e-5)
    assert not torch.allclose(everything, untouched, atol=1e-5)
    if key != "long-short-transformer":  # its landmarks' number is seen in their positions
        assert torch.allclose(everything, alone, atol=1e-5)


def test_a_hidden_chunk_frees_its_place_among_the_k():
    config = HierarchicalChunkMemoryConfig(
        dim=8, num_heads=2, num_layers=1, memory_len=3, chunk_len=4, num_chunks=4, top_k=1
    )
    agent = _agent(config).eval()
    record = record_episode(agent, MAZE, seed=5, greedy=False)
    t, playback = 15, Playback(agent, record.inputs)  # the window shows steps of the chunk in progress only
    (read,) = np.flatnonzero(record.chunk_read[t, 2])
    hidden = torch.zeros(3, record.num_steps, dtype=torch.bool)
    for c, (start, stop) in enumerate(record.chunks[:3]):
        hidden[c, start:stop] = True
    policies = policies_without(playback, t, playback.state_before(t), hidden).policy[:, 0]
    changed = [not torch.allclose(policies[1 + c], policies[0], atol=1e-6) for c in range(3)]
    assert changed == [c == read for c in range(3)]


@pytest.mark.parametrize("config", [*HCAM, HierarchicalChunkMemoryConfig(**SMALL, reading=GATED)])
def test_rows_that_share_a_memory_decide_as_the_core_with_a_copy_each(config):
    record = record_episode(_agent(config).eval(), MAZE, seed=5, greedy=False)
    playback, core = record.playback(), record.agent.core
    playback.encoded = torch.randn_like(playback.encoded)  # steps of a corridor look alike: their order is rounding
    for t, state in playback.states():
        hidden = torch.stack([mask_of([chunk], record.num_steps) for chunk in record.chunks])
        found = policies_without(playback, t, state, hidden)
        for row in range(1 + len(hidden)):
            one = hidden[row - 1 : row] if row else torch.zeros_like(hidden[:1])
            with hiding(core, one, t):
                expected = playback.step(t, forget_chunks(core, state, one, t))[0]
            for ours, alone in zip(found, expected, strict=True):
                torch.testing.assert_close(ours[row : row + 1], alone, atol=1e-5, rtol=1e-5)


def test_copies_of_a_large_memory_are_run_in_parts(maze, monkeypatch):
    whole = maze.with_removal().removal
    rows = []

    def counted(core, hidden, t):
        rows.append(len(hidden))
        return hiding(core, hidden, t)

    monkeypatch.setattr("recollect.interpret.removal.hiding", counted)
    monkeypatch.setattr("recollect.interpret.removal.MOST_BYTES", 3 * nbytes(maze.playback().state_before(0)))
    parts = maze.with_removal().removal
    assert max(rows) == 3 < len(maze.chunks)
    for name in ("kl", "dv", "logits"):
        np.testing.assert_allclose(getattr(parts, name), getattr(whole, name), atol=1e-5, rtol=1e-5)


def test_removal_names_what_is_not_there(maze):
    removal = maze.with_removal().removal
    assert removal.unit == "chunk" and removal.kl.shape == (maze.num_steps, len(maze.chunks))
    for c, (_, stop) in enumerate(maze.chunks):
        assert np.isnan(removal.kl[:stop, c]).all() and (removal.kl[stop:, c] >= 0).all()
    assert np.isfinite(removal.logits[-1]).all()


UNITS = [("ttm", "slot"), ("tlb", "slot"), ("gated-deltanet", "head"), ("lstm", "all"), ("memoryless", "all")]


@pytest.mark.parametrize(("key", "unit"), UNITS)
def test_removal_of_slots_and_whole_memories(key, unit):
    agent = _agent(key)
    record = record_episode(agent, MAZE, seed=5, greedy=False).with_removal()
    assert record.removal.unit == unit
    assert np.allclose(record.removal.kl[0], 0, atol=1e-6)  # nothing is remembered yet
    if key == "memoryless":
        assert np.allclose(record.removal.kl, 0, atol=1e-6)
    else:
        assert record.removal.kl[-1].max() > 0
    with pytest.raises(ValueError, match="unit='chunk'"):
        measure_removal(record.playback(), record.chunks, "chunk")


def test_the_effect_of_the_whole_memory_has_the_direction_of_that_of_its_parts():
    record = record_episode(_agent("lstm"), MAZE, seed=5, greedy=False).with_removal("all")
    removal = record.removal
    own, without = (torch.as_tensor(logits).log_softmax(-1) for logits in (record.logits, removal.whole))
    expected = (own.exp() * (own - without)).sum(-1).numpy()
    np.testing.assert_allclose(removal.whole_kl, expected, atol=1e-6)
    np.testing.assert_allclose(removal.whole_kl, removal.kl[:, 0], atol=1e-6)


def test_a_question_begins_when_its_key_was_seen():
    keys = [(-1, -1), (1, 2), (1, 2), (1, 2), (4, 6), (4, 6), (0, 1)]
    truths = [Truth(torch.tensor([-1]), torch.tensor([start]), torch.tensor([stop])) for start, stop in keys]
    assert [(pair.query, pair.key) for pair in find_pairs(truths)] == [((2, 4), (1, 2)), ((6, 7), (0, 1))]


@pytest.mark.parametrize("key", ["hcam", "transformer-xl", "lstm"])
@pytest.mark.parametrize("greedy", [True, False])
def test_without_an_edit_life_goes_on_as_it_was(key, greedy):
    record = record_episode(_agent(key), MAZE, seed=2, greedy=greedy)
    again = record.rerun_from(9)
    assert np.array_equal(again.action, record.action) and np.array_equal(again.frames, record.frames)
    assert np.allclose(again.logits, record.logits, atol=1e-5)
    assert "the same memory" in again.info.notes[0]


def test_life_with_another_memory(maze):
    agent = maze.agent
    other = record_episode(agent, MAZE, seed=4, greedy=False)
    step = min(maze.num_steps, other.num_steps) - 2
    swapped = maze.with_memory_from(other, step)
    expected, _ = maze.playback().step(step, other.playback().state_before(step))
    assert np.allclose(swapped.logits[step], expected.policy[0, 0].detach(), atol=1e-5)
    assert np.array_equal(swapped.logits[:step], maze.logits[:step])
    without = maze.without_memory(0, step)
    assert not np.allclose(without.logits[step], maze.logits[step], atol=1e-6)
    assert np.isnan(without.chunk_rel[0]).all() == np.isnan(maze.chunk_rel[0]).all()
    wiped = maze.rerun_from(step, lambda _: agent.initial_state(1))
    assert not np.allclose(wiped.logits[step], maze.logits[step], atol=1e-6)


def test_bad_questions_have_clear_answers(maze):
    with pytest.raises(ValueError, match=r"step=999: this episode has steps 0\.\."):
        maze.rerun_from(999)
    with pytest.raises(ValueError, match="chunk=77"):
        maze.without_memory(77)
    with pytest.raises(ValueError, match="keeps no single steps"):
        record_episode(_agent("gru"), MAZE, seed=2).rerun_from(3, hide=[(0, 2)])
    with pytest.raises(ValueError, match="longest=0"):
        record_episode(maze.agent, MAZE, longest=0)
    with pytest.raises(ValueError, match=r"agent=Linear: .*give an agent or a run that learned by"):
        record_episode(torch.nn.Linear(1, 1), MAZE)


@dataclass(frozen=True, kw_only=True)
class _BrokenSensor(TMazeConfig):
    def build(self, batch_size, *, seed=0, device="cpu"):
        world = super().build(batch_size, seed=seed, device=device)
        observe = world.observe
        world.observe = lambda state: torch.where((world.clock == 3)[:, None], torch.nan, observe(state))
        return world


def test_a_broken_frame_is_seen_and_does_not_spread():
    record = record_episode(_agent("hcam"), _BrokenSensor(length=8, slack=10), seed=2).with_removal()
    assert np.flatnonzero(np.isnan(record.value)).tolist() == [3]
    assert np.isfinite(record.logits[4:]).all() and np.isfinite(np.nansum(record.temporal))
    report = score(record)
    assert {gate.name: gate.passed for gate in report.gates}["finite"] is False
    assert "do not believe the picture; failed checks: finite" in report.findings
    assert np.array_equal(record.rerun_from(6).action, record.action)


def test_an_episode_of_one_step_is_a_record():
    record = record_episode(_agent("hcam"), MAZE, longest=1).with_removal()
    assert record.num_steps == 1 and record.temporal.shape == (1, len(record.heads), 1)
