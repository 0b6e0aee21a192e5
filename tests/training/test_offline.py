"""Learning from recorded episodes: returns-to-go, contexts, and a run that learns what earns."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from broken_steps import assert_a_step_without_memory_leaves_the_generator
from gymnasium import spaces
from small_worlds import LENGTHS, CueConfig, episodes_of_cues

from recollect.agents.config import DecisionTransformerConfig
from recollect.agents.encoder_config import EncoderConfig
from recollect.cores import CORES
from recollect.evaluation.recordings import demonstrate, write_recording
from recollect.objectives.returns import returns_to_go
from recollect.tasks import TASKS
from recollect.training import (
    FitConfig,
    OfflineConfig,
    OfflineDataConfig,
    OptimizerConfig,
    TargetsConfig,
    fit,
    load_model,
)
from recollect.training.offline.data import OfflineData, read_episodes
from recollect.training.offline.decision_transformer import context_loss

GRU = CORES["gru"](dim=16, num_layers=1)


def config(path, **settings):
    return OfflineConfig(
        world=CueConfig(),
        core=GRU,
        agent=DecisionTransformerConfig(width=16, context=6, dropout=0.0),
        data=OfflineDataConfig(source=str(path)),
        batch_size=4,
        evaluation=TargetsConfig(episodes=4, targets=(0.0,)),
        fit=FitConfig(steps=6, report_seconds=None, checkpoint_every=1, evaluate_every=3),
        **settings,
    )


def test_returns_to_go_are_sums_of_a_literal_loop():
    recording = episodes_of_cues()
    found, begin = returns_to_go(recording.reward, recording.lengths), 0
    for length in LENGTHS:
        for t in range(length):
            rest = sum(float(recording.reward[begin + later]) for later in range(t + 1, length))
            assert found[begin + t] == pytest.approx(rest, abs=1e-5)
        begin += length


def test_a_reward_that_is_none_stays_in_its_episode():
    found = returns_to_go(np.array([0, np.nan, 0, 0, 1, 1, 0, 1e20, 0, 3]), np.array([3, 3, 2, 2]))
    assert np.isnan(found[0]) and found[1:].tolist() == [0, 0, 2, 1, 0, np.float32(1e20), 0, 3, 0]


def test_contexts_lie_in_one_episode_and_every_step_is_drawn():
    recording = episodes_of_cues()
    data = OfflineData(recording)
    starts = np.concatenate(([0], LENGTHS.cumsum()[:-1]))
    generator, seen = torch.Generator().manual_seed(0), set()
    for _ in range(60):
        contexts = data.draw(8, 5, generator)
        for row in range(8):
            places = (contexts.observation["cue"][row, :, 0] / 2).long()
            episode = int(np.searchsorted(starts, int(places[0]), side="right")) - 1
            length, valid = int(LENGTHS[episode]), contexts.valid[row]
            step = int(contexts.timestep[row])
            assert int(places[0]) - starts[episode] == step
            assert int(valid.sum()) == min(5, length - 1)  # shifted back: as much as the episode has
            assert (places[valid] == places[0] + torch.arange(int(valid.sum()))).all()
            assert step + int(valid.sum()) <= length - 1  # nobody acts on the last observation
            assert torch.equal(contexts.action[row][valid], torch.from_numpy(recording.action)[places[valid]])
            seen |= set(places[valid].tolist())
    acted = {int(s + t) for s, n in zip(starts, LENGTHS, strict=True) for t in range(n - 1)}
    assert seen == acted


@pytest.mark.parametrize("kind", [np.int64, np.uint8])
def test_nobody_reads_the_action_of_an_episode_s_last_step(tmp_path, kind):
    recording = episodes_of_cues()
    action = recording.action.astype(kind)
    action[LENGTHS.cumsum() - 1] = np.array(-1).astype(kind)
    parts = {"action": action, "reward": recording.reward, "lengths": LENGTHS}
    np.savez(tmp_path / "e.npz", **{"observation.cue": recording.observation["cue"]}, **parts)
    made = config(tmp_path / "e.npz").build()
    for _ in range(6):
        assert np.isfinite(made.step()["loss"])


@pytest.mark.parametrize(
    ("part", "array", "message"),
    [
        ("terminated", np.array(["yes"] * 5), r"terminated='<U3 \[5\]': .*e\.npz: give True or False"),
        ("reward", np.full(35, np.inf), r"reward=inf: .*e\.npz, step 0 \(step 0 of episode 0\)"),
    ],
)
def test_episodes_that_hold_something_else_are_named(tmp_path, part, array, message):
    recording = episodes_of_cues()
    parts = {"action": recording.action, "lengths": LENGTHS} | {part: array}
    np.savez(tmp_path / "e.npz", **{"observation.cue": recording.observation["cue"]}, **parts)
    with pytest.raises(ValueError, match=message):
        config(tmp_path / "e.npz").build()


def test_a_step_without_memory_leaves_the_generator(tmp_path, monkeypatch):
    write_recording(episodes_of_cues(), tmp_path / "e.npz")
    ours = config(tmp_path / "e.npz").build()
    assert_a_step_without_memory_leaves_the_generator(ours, "forward", monkeypatch)


def test_instructions_are_told_in_the_numbers_of_the_world(tmp_path):
    world = TASKS["order-shown-once"]()
    recording = demonstrate(world, 4)
    words = world.spec.words
    turned = ("", *reversed(words[1:]))
    told = np.array([0, *range(len(words) - 1, 0, -1)])[recording.observation["language"]]
    write_recording(
        recording._replace(observation={**recording.observation, "language": told}, words=turned), tmp_path / "e.npz"
    )
    found, _ = read_episodes(OfflineDataConfig(source=str(tmp_path / "e.npz")), world.spec, 0)
    assert found.words == words and np.array_equal(found.observation["language"], recording.observation["language"])


def test_frames_are_stacked_inside_their_episode_with_zeros_before_it():
    lengths = np.array([3, 4])
    frames = np.arange(1, 8, dtype=np.uint8).reshape(7, 1, 1)
    recording = episodes_of_cues(lengths)._replace(observation={"": frames})
    data = OfflineData(recording, stack=3)
    contexts = data.contexts(torch.tensor([0, 1]), torch.tensor([0, 1]), 2)
    assert contexts.observation[..., 0, 0].tolist() == [[[0, 0, 1], [0, 1, 2]], [[0, 4, 5], [4, 5, 6]]]


def test_statistics_are_taken_of_the_data_once(tmp_path):
    """They are exact, wait for no step, and are the agent's own when a run goes on."""
    recording = episodes_of_cues()
    write_recording(recording, tmp_path / "episodes.npz")
    agent = DecisionTransformerConfig(width=16, context=6, encoders=EncoderConfig(norm_numbers=True))
    made = replace(config(tmp_path / "episodes.npz"), agent=agent).build()
    norm = made.model.encoder.encoders["cue"].norm
    seen = torch.from_numpy(recording.observation["cue"]).double()
    torch.testing.assert_close(norm.mean.double(), seen.mean(0))
    torch.testing.assert_close(norm.variance.double(), seen.var(0, unbiased=False), rtol=1e-4, atol=1e-4)
    before = {name: tensor.clone() for name, tensor in made.model.named_buffers()}
    made.step()
    assert all(torch.equal(tensor, before[name]) for name, tensor in made.model.named_buffers())


@pytest.mark.parametrize("stack", [1, 3])
def test_spread_observations_are_those_of_contexts(stack):
    recording = episodes_of_cues()
    data = OfflineData(recording, stack=stack)
    for steps in (1, 7, 10**6):
        found = torch.cat([tree["cue"] for tree in data.observations(steps)])[:, 0]
        every = max(1, int(LENGTHS.sum()) // steps)
        places = range(0, int(LENGTHS.sum()), every)
        assert len(found) == len(places)
        starts = np.concatenate(([0], LENGTHS.cumsum()[:-1]))
        for row, place in zip(found, places, strict=True):
            episode = int(np.searchsorted(starts, place, side="right")) - 1
            step = place - int(starts[episode])
            shown = data.contexts(torch.tensor([episode]), torch.tensor([step]), 1).observation["cue"][0, 0]
            assert torch.equal(row, shown)


def test_steps_that_are_not_valid_cost_nothing():
    data = OfflineData(episodes_of_cues(np.array([3, 3])))
    spec = CueConfig().spec
    torch.manual_seed(0)
    agent = DecisionTransformerConfig(width=16, context=6).build(GRU, spec.observation_space, spec.action_space).eval()
    contexts = data.contexts(torch.tensor([0, 1]), torch.tensor([0, 0]), 6)
    loss, _ = context_loss(agent, contexts)
    short, _ = context_loss(agent, data.contexts(torch.tensor([0, 1]), torch.tensor([0, 0]), 2))
    assert contexts.valid.sum(1).tolist() == [2, 2] and loss.item() == pytest.approx(short.item(), rel=1e-5)


def test_actions_may_begin_at_another_number():
    recording, spec, losses = episodes_of_cues(np.array([3, 3])), CueConfig().spec, []
    taken = np.arange(6) % 3 != 2
    for start in (0, 7):
        actions = spaces.Discrete(int(spec.action_space.n), start=start)
        torch.manual_seed(0)
        agent = DecisionTransformerConfig(width=16, context=6).build(GRU, spec.observation_space, actions).eval()
        data = OfflineData(recording._replace(action=recording.action + start * taken))
        losses.append(context_loss(agent, data.contexts(torch.tensor([0, 1]), torch.tensor([0, 0]), 6)))
    assert losses[0] == losses[1]


def test_a_run_resumes_exactly_and_tells_targets(tmp_path):
    write_recording(episodes_of_cues(), tmp_path / "episodes.npz")
    whole = fit(config(tmp_path / "episodes.npz"), tmp_path / "whole")
    shorter = config(tmp_path / "episodes.npz")
    part = fit(
        OfflineConfig(**{**vars(shorter), "fit": FitConfig(steps=3, checkpoint_every=1, evaluate_every=3)}),
        tmp_path / "part",
    )
    assert part.step == 3
    again = fit(shorter, tmp_path / "part", resume=True)
    one, two = load_model(tmp_path / "whole"), load_model(tmp_path / "part")
    rates = [line.split(",") for line in (tmp_path / "part" / "metrics.csv").read_text().splitlines()]
    assert again.step == whole.step == 6 and len(rates) > 2
    assert [n for n, _ in one.named_parameters()] == [n for n, _ in two.named_parameters()]
    found = shorter.evaluate(one, samples=4, seed=1).to_json()
    assert found["target"] == 1.0 and set(found["by_target"]) == {"0"} and one.config.target_return == 1.0


def test_an_agent_told_more_earns_more():
    """Two kinds of episodes: action 0 was followed by nothing, action 1 by a reward. Told which, it does which."""
    draw = np.random.default_rng(0)
    lengths = np.full(64, 2)
    action = np.zeros(128, np.int64)
    action[::2] = np.arange(64) % 2
    reward = np.zeros(128, np.float32)
    reward[1::2] = action[::2]
    recording = episodes_of_cues(lengths)._replace(
        action=action, reward=reward, observation={"cue": draw.normal(size=(128, 2)).astype(np.float32)}
    )
    data, spec = OfflineData(recording), CueConfig().spec
    torch.manual_seed(0)
    agent = DecisionTransformerConfig(width=16, context=2, dropout=0.0).build(
        GRU, spec.observation_space, spec.action_space
    )
    optimizer, generator = torch.optim.Adam(agent.parameters(), 1e-2), torch.Generator().manual_seed(0)
    for _ in range(60):
        optimizer.zero_grad()
        context_loss(agent, data.draw(32, 2, generator))[0].backward()
        optimizer.step()
    agent.eval()
    seen, done = torch.randn(1, 1, 2), torch.zeros(1, 1, dtype=torch.long)
    for told in (0.0, 1.0):
        policy = agent({"cue": seen}, done, torch.tensor([[told]]), torch.zeros(1, dtype=torch.long))
        assert int(policy.argmax()) == int(told)


def test_sources_that_are_missing_are_named(tmp_path, monkeypatch):
    monkeypatch.setenv("RECOLLECT_DATA", str(tmp_path))
    spec = CueConfig().spec
    with pytest.raises(ValueError, match=r"name the data: --data FILE\.npz"):
        read_episodes(OfflineDataConfig(), spec, 0)
    with pytest.raises(ValueError, match=r"kept:catch: there is no .*catch\.npz: record it from a trained run"):
        read_episodes(OfflineDataConfig(source="kept:catch"), spec, 0)


def test_a_schedule_stays_above_its_floor():
    optimizer = OptimizerConfig(learning_rate=1.0, schedule="cosine", floor=0.1, warmup_steps=2)
    rates = [optimizer.rate(step, 100) for step in range(100)]
    assert rates[0] == 0.5 and min(rates) == 0.1 == rates[-1] and max(rates) == 1.0
    assert OptimizerConfig(schedule="linear").rate(99, 100) == pytest.approx(1e-5)
