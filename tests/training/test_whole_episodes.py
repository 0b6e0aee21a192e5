"""Cloning of whole episodes: batches of them cost what they cost one by one, and a run goes on exactly."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from small_worlds import CueConfig
from test_recorded import GRU, config, episodes

from recollect import learners
from recollect.agents.config import ActorCriticConfig
from recollect.agents.encoder_config import EncoderConfig
from recollect.evaluation.recordings import demonstrate, write_recording
from recollect.gymnasium_ids import BABYAI
from recollect.learners import Learners
from recollect.tasks import GymnasiumConfig, WordLearningConfig
from recollect.training import LossConfig, TeacherConfig, fit, load_model
from recollect.training.imitation.demonstrations import POOL, EpisodeBatches
from recollect.training.imitation.loss import imitation_loss
from recollect.training.imitation.sources import recorded_episodes, successes
from recollect.training.imitation.teachers import NamedActions
from recollect.training.impala.supervision import TrainingAids

LENGTHS = np.array([2, 9, 4, 17, 3, 6, 11])


def rows_of(batch_size=2):
    return EpisodeBatches(episodes(LENGTHS), batch_size, torch.device("cpu"), 0)


def test_a_batch_costs_what_its_episodes_cost_alone():
    torch.manual_seed(0)
    spec = CueConfig().spec
    agent = ActorCriticConfig(width=8).build(GRU, spec.observation_space, spec.action_space)
    costs = LossConfig(baseline_cost=0.0, reduction="sum")
    together = rows_of(3).take(16, agent.initial_state(3))
    whole = imitation_loss(agent, together, TrainingAids(teacher=NamedActions(), imitates=True), costs).loss.item()
    alone = 0.0
    for row in range(3):
        one = together.rows(torch.tensor([row]))
        steps = int(one.valid.sum())
        part = one.between(0, steps + 1, agent.initial_state(1))
        assert bool(one.is_first[0, 0]) and not bool(one.is_first[0, 1 : steps + 1].any())
        alone += imitation_loss(agent, part, TrainingAids(teacher=NamedActions(), imitates=True), costs).loss.item()
    assert whole == pytest.approx(alone, rel=1e-5)


@pytest.mark.parametrize("reduction", ["sum", "mean"])
def test_what_fills_up_a_batch_is_not_restored(reduction):
    world = WordLearningConfig()
    torch.manual_seed(0)
    agent = ActorCriticConfig(width=8, reconstruct=True).build(
        GRU, world.spec.observation_space, world.spec.action_space
    )
    rows = EpisodeBatches(demonstrate(world, 24, seed=0), 6, torch.device("cpu"), 0)
    together = rows.take(64, agent.initial_state(6))
    costs = LossConfig(baseline_cost=0.0, reduction=reduction)
    whole = (
        imitation_loss(agent, together, TrainingAids(teacher=NamedActions(), imitates=True), costs)
        .metrics["reconstruction_loss"]
        .item()
    )
    total = count = 0.0
    for row in range(6):
        one = together.rows(torch.tensor([row]))
        steps = min(int(one.valid.sum()) + 1, one.valid.shape[1])  # with the last observation, where it is read
        part = one.between(0, steps + 1, agent.initial_state(1))
        weight = steps if reduction == "mean" else 1
        total += (
            weight
            * imitation_loss(agent, part, TrainingAids(teacher=NamedActions(), imitates=True), costs)
            .metrics["reconstruction_loss"]
            .item()
        )
        count += weight
    assert whole == pytest.approx(total / count if reduction == "mean" else total, rel=1e-5)
    assert torch.equal(together.seen.sum(1), together.valid.sum(1) + 1) and not together.seen.all()


def test_learners_with_and_without_padding_exchange_the_same_numbers():
    world = WordLearningConfig()
    agent = ActorCriticConfig(width=8, reconstruct=True).build(
        GRU, world.spec.observation_space, world.spec.action_space
    )
    padded = EpisodeBatches(demonstrate(world, 24, seed=0), 6, torch.device("cpu"), 0).take(64, agent.initial_state(6))
    cut = padded.between(0, int(padded.valid.sum(1).min()), padded.state)
    assert cut.seen.all() and not padded.seen[:, :-1].all()

    class Counting(Learners):
        calls = 0

        def total(self, value):
            self.calls += 1
            return value

    aids, calls = TrainingAids(teacher=NamedActions(), imitates=True), []
    for rollout in (padded, cut):
        with learners._presence(Counting(0, 2)):
            imitation_loss(agent, rollout, aids, LossConfig(reduction="mean"))
            calls.append(learners.present().calls)
    assert calls[0] == calls[1] > 0


@pytest.mark.parametrize("whole", [False, True])
def test_running_statistics_are_those_of_the_steps_that_were_seen(tmp_path, whole):
    write_recording(episodes(LENGTHS), tmp_path / "episodes.npz")
    ours = config(tmp_path / "episodes.npz")
    ours = replace(ours, teacher=replace(ours.teacher, whole=whole), unroll=16)
    trainer = replace(ours, agent=replace(ours.agent, encoders=EncoderConfig(norm_numbers=True))).build()
    taken, take = [], trainer.batches.take
    trainer.batches.take = lambda *arguments: taken.append(take(*arguments)) or taken[-1]
    trainer.step()
    rollout, parts = taken[0], []
    for row in range(3):
        for t in range(17 if not whole else rollout.reward.shape[1]):
            ended = t > 0 and bool((rollout.terminated | rollout.truncated)[row, t - 1])
            if not ended or rollout.is_first[row, t]:
                parts.append(rollout.observation["cue"][row, t])
    norm = trainer.model.encoder.encoders["cue"].norm
    assert int(norm.count) == len(parts) and (len(parts) < rollout.reward.numel()) == whole
    torch.testing.assert_close(norm.mean, torch.stack(parts).mean(0))


def test_each_episode_comes_once_before_any_again_and_long_ones_are_cut():
    rows, seen = rows_of(1), []
    for _ in range(7 * POOL):  # as many pools as there are episodes
        rollout = rows.take(8, ())
        seen.append(int(rollout.valid.sum()))
    assert sorted(seen) == sorted([min(length - 1, 8) for length in LENGTHS] * POOL)


def test_a_run_goes_on_exactly(tmp_path):
    write_recording(episodes(), tmp_path / "episodes.npz")
    base = config(tmp_path / "episodes.npz")
    base = replace(base, teacher=replace(base.teacher, whole=True))
    fit(base, tmp_path / "whole")
    fit(replace(base, fit=replace(base.fit, steps=3)), tmp_path / "part")
    fit(base, tmp_path / "part", resume=True)
    one, two = (load_model(tmp_path / name) for name in ("whole", "part"))
    assert all(torch.equal(a, b) for a, b in zip(one.parameters(), two.parameters(), strict=True))


def test_demonstrations_are_for_babyai_alone():
    with pytest.raises(ValueError, match=r"teacher\.name='babyai-bot:5': only BabyAI has this bot"):
        recorded_episodes("babyai-bot:5", CueConfig())
    with pytest.raises(ValueError, match=r"name='babyai-bot:x': give the number of demonstrations"):
        TeacherConfig(name="babyai-bot:x")
    with pytest.raises(ValueError, match=r"teacher\.name='babyai-bot:5': only BabyAI has this bot"):
        recorded_episodes("babyai-bot:5", GymnasiumConfig())
    with pytest.raises(ValueError, match="whole=True: only recorded episodes can be read whole"):
        TeacherConfig(whole=True)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"options": {"room_size": 5, "num_dists": 1}}, r"world\.options=\{'room_size': 5, 'num_dists': 1\}"),
        ({"options": {"levels": ["GoToLocal"]}}, r"world\.options="),
        ({"id": BABYAI, "options": {"levels": ["GoToLocal"], "max_episode_steps": 9}}, r"\{'max_episode_steps': 9\}"),
        ({"wrappers": ("minigrid.wrappers:FullyObsWrapper",)}, r"world\.wrappers=.*leave this away"),
        ({"stack": 2}, r"world\.stack=2: the bot plays the levels as minigrid has them"),
        ({"id": BABYAI, "options": {"levels": "GoToLocal"}}, "levels='GoToLocal': give a list of levels"),
    ],
)
def test_the_bot_is_not_asked_to_play_in_a_world_that_changes_its_levels(fields, message, tmp_path, monkeypatch):
    pytest.importorskip("minigrid")
    monkeypatch.setenv("RECOLLECT_DATA", str(tmp_path))
    with pytest.raises(ValueError, match=message):
        recorded_episodes("babyai-bot:2", GymnasiumConfig(**{"id": "BabyAI-GoToLocal-v0"} | fields))
    assert not list(tmp_path.iterdir())


def test_demonstrations_are_rewarded_as_their_world_rewards(tmp_path, monkeypatch):
    pytest.importorskip("minigrid")
    monkeypatch.setenv("RECOLLECT_DATA", str(tmp_path))
    monkeypatch.setattr("os.cpu_count", lambda: 1)
    level = recorded_episodes("babyai-bot:2", GymnasiumConfig(id="BabyAI-GoToLocal-v0"))
    last = level.lengths.cumsum() - 1
    assert (level.reward[last] > 0).all() and (level.reward[last] < 1).all()
    twice = {"levels": ["GoToLocal", "BabyAI-GoToLocal-v0"]}
    for options in ({}, twice):
        found = recorded_episodes("babyai-bot:2", GymnasiumConfig(id=BABYAI, options=options))
        assert (found.reward[last] == 1).all() and found.reward.sum() == 2 and found.reward.dtype == np.float32
        assert np.array_equal(found.action, level.action) and found.score.tolist() == [1, 1]
    assert len(list((tmp_path / "babyai").glob("*.npz"))) == 1
    on_the_way = level._replace(reward=np.ones_like(level.reward))
    assert successes(on_the_way) is on_the_way
