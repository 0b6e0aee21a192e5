"""Cloning of whole episodes: batches of them cost what they cost one by one, and a run goes on exactly."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from small_worlds import CueConfig
from test_recorded import GRU, config, episodes

from recollect.agents.actor_critic import ActorCriticConfig
from recollect.evaluation.recordings import write_recording
from recollect.training import fit, load_model
from recollect.training.imitation.loss import imitation_loss
from recollect.training.imitation.sources import recorded_episodes
from recollect.training.imitation.teachers import NamedActions, TeacherConfig
from recollect.training.imitation.whole import POOL, WholeEpisodes
from recollect.training.impala.loss import LossConfig

LENGTHS = np.array([2, 9, 4, 17, 3, 6, 11])


def rows_of(batch_size=2):
    return WholeEpisodes(episodes(LENGTHS), batch_size, torch.device("cpu"), 0)


def test_a_batch_costs_what_its_episodes_cost_alone():
    torch.manual_seed(0)
    spec = CueConfig().spec
    agent = ActorCriticConfig(width=8).build(GRU, spec.observation_space, spec.action_space)
    costs = LossConfig(baseline_cost=0.0, reduction="sum")
    together = rows_of(3).take(16, agent.initial_state(3))
    whole = imitation_loss(agent, together, NamedActions(), costs).loss.item()
    alone = 0.0
    for row in range(3):
        one = together.rows(torch.tensor([row]))
        steps = int(one.valid.sum())
        part = one.between(0, steps + 1, agent.initial_state(1))
        assert bool(one.is_first[0, 0]) and not bool(one.is_first[0, 1 : steps + 1].any())
        alone += imitation_loss(agent, part, NamedActions(), costs).loss.item()
    assert whole == pytest.approx(alone, rel=1e-5)


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
    with pytest.raises(ValueError, match=r"name='babyai-bot:x': say how many demonstrations"):
        TeacherConfig(name="babyai-bot:x")
    with pytest.raises(ValueError, match="whole=True: only recorded episodes can be read whole"):
        TeacherConfig(whole=True)
