"""Cloning of recorded episodes: endless rows, memory carried, the same loss as whole episodes."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
import torch
from small_worlds import CounterConfig, CueConfig, StepsConfig

from recollect.agents.config import ActorCriticConfig
from recollect.agents.contract import ActorInputs
from recollect.agents.encoder_config import EncoderConfig
from recollect.cores import CORES
from recollect.evaluation.recordings import Recording, write_recording
from recollect.runs.errors import NonFiniteError
from recollect.training import CloningConfig, EvaluationConfig, FitConfig, LossConfig, TeacherConfig, fit, load_model
from recollect.training.imitation import trainers
from recollect.training.imitation.demonstrations import DemonstrationBatches
from recollect.training.imitation.loss import imitation_loss
from recollect.training.imitation.teachers import NamedActions
from recollect.training.impala.supervision import TrainingAids

LENGTHS = np.array([2, 9, 4, 17, 3, 6, 11])
GRU = CORES["gru"](dim=8, num_layers=1)
HCAM = CORES["hcam"](dim=8, num_layers=1, num_heads=2, memory_len=3, chunk_len=2, num_chunks=4, top_k=2)


def episodes(lengths=LENGTHS, seed=0):
    """Of the world of CueConfig, made up; the first observation names the episode."""
    draw = np.random.default_rng(seed)
    steps = int(lengths.sum())
    return Recording(
        observation={"cue": draw.normal(size=(steps, 2)).astype(np.float32)},
        action=draw.integers(0, 2, steps),
        reward=draw.normal(size=steps).astype(np.float32),
        lengths=lengths,
        terminated=np.arange(len(lengths)) % 2 == 0,
        score=np.arange(len(lengths), dtype=np.float32),
        action_space=None,
    )


def config(path, core=GRU, **settings):
    return CloningConfig(
        world=CueConfig(),
        core=core,
        agent=ActorCriticConfig(width=8),
        teacher=TeacherConfig(name=str(path)),
        batch_size=3,
        unroll=4,
        evaluation=EvaluationConfig(episodes=4),
        fit=FitConfig(steps=6, report_seconds=None, checkpoint_every=1, evaluate_every=3),
        **settings,
    )


def rows_of(recording, batch_size=3, seed=0):
    return DemonstrationBatches(recording, batch_size, torch.device("cpu"), seed)


def test_every_row_is_whole_episodes_one_behind_the_other_and_each_comes_before_any_again():
    recording = episodes()
    rows = rows_of(recording, batch_size=2)
    parts = [rows.take(5, ()) for _ in range(20)]
    for one, two in itertools.pairwise(parts):  # the last row of one is the first of the next
        assert torch.equal(one.observation["cue"][:, -1], two.observation["cue"][:, 0])
        assert torch.equal(one.is_first[:, -1], two.is_first[:, 0]) and torch.equal(one.action[:, -1], two.action[:, 0])
    starts = np.concatenate(([0], LENGTHS.cumsum()[:-1]))
    seen = []
    for row in range(2):
        cue = torch.cat([part.observation["cue"][row, :-1] for part in parts])
        first = torch.cat([part.is_first[row, :-1] for part in parts])
        score = torch.cat([part.score[row, :-1] for part in parts])
        begins = first.nonzero()[:, 0].tolist()
        assert begins[0] == 0
        for begin, end in itertools.pairwise(begins):
            number = next(
                n for n, s in enumerate(starts) if np.array_equal(recording.observation["cue"][s], cue[begin])
            )
            assert end - begin == LENGTHS[number] and score[end - 1] == number
            place = starts[number]
            assert np.array_equal(recording.observation["cue"][place : place + end - begin], cue[begin:end])
            seen.append((row, begin, number))
    early = sorted(number for _, _, number in sorted(seen, key=lambda entry: entry[1])[:4])
    assert len(set(early)) == 4  # drawn without replacement


def test_actions_before_and_after_every_step_are_the_recorded_ones():
    recording = episodes()
    rows = rows_of(recording)
    rollout = rows.take(40, ())
    inside = ~rollout.is_first[:, 1:]
    assert torch.equal(rollout.action[:, 1:][inside], rollout.target[inside])
    assert (rollout.action[rollout.is_first] == 0).all()
    ends = (rollout.terminated | rollout.truncated)[:, :-1]
    assert torch.equal(ends, rollout.is_first[:, 1:]) and torch.equal(rollout.valid, ~ends)
    assert not (rollout.terminated & rollout.truncated).any()


@pytest.mark.parametrize("core", [GRU, HCAM, CounterConfig()], ids=["gru", "hcam", "counter"])
@pytest.mark.parametrize("steps", [1, 3, 16])
def test_unrolls_cost_what_whole_episodes_do(core, steps):
    recording = episodes()
    torch.manual_seed(0)
    spec = CueConfig().spec
    agent = ActorCriticConfig(width=8).build(core, spec.observation_space, spec.action_space).double()
    costs = LossConfig(baseline_cost=0.0, reduction="sum")
    rows = rows_of(recording, batch_size=1)
    state, total = agent.initial_state(1), 0.0
    while True:
        order = rows.next
        episode, step = rows.places[0].tolist()
        left = int(LENGTHS[episode]) - step  # steps to the end of the episode, its last row included
        if order == len(LENGTHS) and left <= steps:
            break
        rollout = rows.take(steps, state)
        rollout = rollout._replace(
            observation={"cue": rollout.observation["cue"].double()}, reward=rollout.reward.double()
        )
        losses = imitation_loss(agent, rollout, TrainingAids(teacher=NamedActions(), imitates=True), costs)
        state, total = losses.state, total + losses.loss.detach()
    begin, whole = 0, 0.0
    done = set(rows.order[: len(LENGTHS)].tolist())
    assert done == set(range(len(LENGTHS)))
    for number, length in enumerate(LENGTHS):
        at = slice(begin, begin + length)
        seen = torch.from_numpy(recording.observation["cue"][at]).double()[None]
        action = torch.from_numpy(np.concatenate(([0], recording.action[at][:-1])))[None]
        reward = torch.from_numpy(recording.reward[at]).double()[None]
        first = torch.arange(length)[None] == 0
        output, _ = agent(ActorInputs({"cue": seen}, action, reward), agent.initial_state(1), first)
        log_prob = agent.distribution(output.policy).log_prob(torch.from_numpy(recording.action[at])[None])
        count = length - 1
        if number == episode:  # the episode in which the walk was left
            count = min(count, step)
        whole = whole - log_prob[0, :count].sum().detach()
        begin += length
    torch.testing.assert_close(total, whole, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("core", [GRU, HCAM], ids=["gru", "hcam"])
def test_a_run_goes_on_bit_for_bit(tmp_path, core):
    write_recording(episodes(), tmp_path / "e.npz")
    ours = config(tmp_path / "e.npz", core)
    whole = fit(ours, tmp_path / "whole")
    fit(replace(ours, fit=replace(ours.fit, steps=4)), tmp_path / "parts")
    parts = fit(ours, tmp_path / "parts", resume=True)
    one, two = whole.agent.state_dict(), parts.agent.state_dict()
    assert all(torch.equal(one[name], two[name]) for name in one)
    assert ours.experience([{"recorded_steps": "72.0"}])["recorded_steps"] == 72


def test_a_number_that_is_none_changes_nothing(tmp_path):
    write_recording(episodes(), tmp_path / "e.npz")
    ours = config(tmp_path / "e.npz")
    ours = replace(ours, agent=replace(ours.agent, norm_values=True))
    trainer = ours.build()
    trainer.batches.parts["reward"][40:] = torch.nan  # no file may have it: as if it came from the arithmetic
    with pytest.raises(NonFiniteError):
        for _ in range(20):
            before = {name: value.clone() for name, value in trainer.agent.state_dict().items()}
            saved = {name: value.clone() for name, value in trainer.save()[0].items()}
            trainer.step()
    after, kept = trainer.agent.state_dict(), trainer.save()[0]
    assert all(torch.equal(before[name], after[name]) for name in before)
    assert all(torch.equal(saved[name], kept[name]) for name in saved)


@pytest.mark.parametrize("whole", [False, True])
def test_the_first_values_have_the_scale_of_the_returns(tmp_path, whole):
    recording = episodes()
    write_recording(recording._replace(reward=1000 * recording.reward), tmp_path / "e.npz")
    ours = config(tmp_path / "e.npz")
    ours = replace(ours, agent=replace(ours.agent, norm_values=True), teacher=replace(ours.teacher, whole=whole))
    assert ours.build().step()["baseline_loss"] < 10


@pytest.mark.parametrize("norms", [False, True])
@pytest.mark.parametrize("whole", [False, True])
def test_a_step_without_memory_changes_nothing(tmp_path, monkeypatch, norms, whole):
    write_recording(episodes(), tmp_path / "e.npz")
    ours = config(tmp_path / "e.npz")
    ours = replace(ours, teacher=replace(ours.teacher, whole=whole))
    ours = replace(ours, agent=replace(ours.agent, encoders=EncoderConfig(norm_numbers=norms)))
    trainer = ours.build()
    trainer.step()
    before = {name: value.clone() for name, value in trainer.agent.state_dict().items()}
    saved = {name: value.clone() for name, value in trainer.save()[0].items()}

    def broken(*arguments, **settings):
        raise MemoryError("not enough memory")

    monkeypatch.setattr(trainers, "imitation_loss", broken)
    with pytest.raises(MemoryError):
        trainer.step()
    after, kept = trainer.agent.state_dict(), trainer.save()[0]
    assert all(torch.equal(before[name], after[name]) for name in before)
    assert all(torch.equal(saved[name], kept[name]) for name in saved)


@pytest.mark.parametrize("kind", [np.uint8, np.int16, np.int32, ">i8"])
@pytest.mark.parametrize("whole", [False, True])
def test_what_stands_behind_the_last_action_and_its_type_do_not_matter(tmp_path, kind, whole):
    recording = episodes()
    last = recording.lengths.cumsum() - 1
    action = recording.action.astype(kind)
    action[last] = -1 if np.issubdtype(kind, np.signedinteger) else 200
    seen = recording.observation["cue"].astype(">f4")
    arrays = {"observation.cue": seen, "action": action, "lengths": LENGTHS.astype(np.uint8)}
    np.savez(tmp_path / "e.npz", **arrays, terminated=np.ones(len(LENGTHS), np.uint8))
    ours = config(tmp_path / "e.npz")
    trainer = replace(ours, teacher=replace(ours.teacher, whole=whole)).build()
    for _ in range(12):
        assert np.isfinite(trainer.step()["imitation_loss"])


def test_episodes_that_do_not_fit_leave_nothing_behind(tmp_path):
    write_recording(episodes(), tmp_path / "e.npz")
    ours = replace(config(tmp_path / "e.npz"), world=StepsConfig())
    with pytest.raises(ValueError, match=r"e.npz: its observations are cue \[2\], and the world shows an array \[1\]"):
        fit(ours, tmp_path / "run")
    assert not (tmp_path / "run").exists()
    fit(config(tmp_path / "e.npz"), tmp_path / "run")
    write_recording(episodes(LENGTHS[:3]), tmp_path / "e.npz")
    with pytest.raises(ValueError, match="there were 7 recorded episodes, and now 3"):
        fit(replace(config(tmp_path / "e.npz"), fit=FitConfig(steps=9)), tmp_path / "run", resume=True)
    assert load_model(tmp_path / "run") is not None


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"agent": ActorCriticConfig(previous_action="logits")}, "agent.previous_action=.logits.: .* do not hold"),
        ({"core": CounterConfig(told=1)}, "core='CounterConfig': .*e.npz do not hold"),
    ],
)
def test_agents_that_are_shown_what_they_said_do_not_learn_from_recorded_episodes(settings, message):
    with pytest.raises(ValueError, match=message):
        replace(config("e.npz"), **settings)
    replace(config("oracle"), **settings)


def test_recorded_actions_are_learned(tmp_path):
    recording = episodes(np.full(12, 8))
    right = (recording.observation["cue"][:, 0] > 0).astype(np.int64)
    write_recording(recording._replace(action=right), tmp_path / "e.npz")
    ours = config(tmp_path / "e.npz")
    ours = replace(ours, fit=FitConfig(steps=150, report_every=50, evaluate_every=150), batch_size=8, unroll=8)
    ours = replace(ours, optimizer=replace(ours.optimizer, learning_rate=1e-2))
    trainer = ours.build()
    for _ in range(150):
        numbers = trainer.step()
    assert numbers["agreement"] > 0.95 and numbers["imitation_loss"] < 0.2
