import math
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from small_worlds import RELEASE, Cue, CueConfig, StepsConfig

from recollect.agents.config import ActorCriticConfig
from recollect.config import to_json
from recollect.cores import CORES
from recollect.evaluation.world_guard import build_world
from recollect.runs import checkpoints
from recollect.runs.errors import NonFiniteError, WorldError
from recollect.runs.metrics import read_rows
from recollect.tasks.process_settings import kept_process_settings
from recollect.training import (
    EvaluationConfig,
    FitConfig,
    ImpalaConfig,
    LossConfig,
    OptimizerConfig,
    ReuseConfig,
    ScheduleConfig,
    VTraceConfig,
    fit,
)
from recollect.training.impala import actor_setup
from recollect.training.impala import loss as impala_loss
from recollect.training.impala import trainer as impala
from recollect.training.impala.trainer import ImpalaTrainer
from recollect.training.saved_run import load_config
from tiers import first

IN_TURN = ScheduleConfig(mode="asynchronous", queue_length=1)
OVERLAPPING = ScheduleConfig(mode="asynchronous", actors=2, queue_length=4, timeout=60.0)
CLOCKS = ("seconds", "frames_per_second")


def config(world=None, **settings):
    settings = {
        "batch_size": 6,
        "unroll": 5,
        "core": CORES["gru"](dim=8),
        "agent": ActorCriticConfig(width=8),
    } | settings
    settings = {
        "evaluation": EvaluationConfig(episodes=8),
        "fit": FitConfig(steps=12, checkpoint_every=4, report_seconds=None),
    } | settings
    return ImpalaConfig(world=world or CueConfig(), **settings)


def trainer(*arguments, **settings):
    torch.manual_seed(0)
    return ImpalaTrainer(config(*arguments, **settings))


def weights(agent):
    return {name: value.clone() for name, value in agent.state_dict().items()}


def same(one, two):
    return one.keys() == two.keys() and all(torch.equal(one[name], two[name]) for name in one)


def run(made, steps):
    try:
        return [made.step() for _ in range(steps)]
    finally:
        made.close()


@pytest.mark.long
@pytest.mark.parametrize("passes", [3, 1])
def test_it_learns_to_remember_a_cue(passes):
    made = trainer(
        batch_size=32,
        unroll=8,
        core=CORES["gru"](dim=16),
        optimizer=OptimizerConfig(algorithm="adam", learning_rate=1e-2, clip_norm=40.0),
        loss=LossConfig(reduction="mean", reuse=ReuseConfig(passes=passes, minibatches=passes)),
        evaluation=EvaluationConfig(episodes=64, greedy=False),
    )
    assert made.evaluate()["low"] < 0.7
    run(made, 150 // passes)
    assert made.evaluate()["score"] > 0.9


@pytest.mark.parametrize("unroll", [1, 6, 20])
def test_the_loss_is_that_of_a_plain_loop_over_episodes(unroll):
    """Episodes that are terminated and truncated, in mid-rollout and at its end, with weights that moved on."""
    settings = LossConfig(
        discount=0.9,
        reward_clip=1.0,
        policy_cost=0.7,
        baseline_cost=0.3,
        entropy_cost=0.2,
        vtrace=VTraceConfig(rho_clip=1.1, c_clip=0.9, pg_rho_clip=1.2, lambda_=0.8),
    )
    made = trainer(StepsConfig(), unroll=unroll, batch_size=16)
    rollout = made.actors.take().rollout
    rollout = made.actors.take().rollout
    with torch.no_grad():
        for parameter in made.model.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    losses = impala_loss.impala_loss(made.model, rollout, settings)
    assert unroll == 1 or (rollout.truncated[:, 1:].any() and rollout.terminated[:, 1:].any())
    output, _ = made.model(rollout.inputs, rollout.state, rollout.is_first)
    value = output.value.detach()
    log_pi = output.policy[:, :-1].log_softmax(-1)
    log_mu = rollout.policies.log_softmax(-1)
    policy_loss = baseline = entropy = 0.0
    for row in range(16):
        behind, trace = value[row, -1], 0.0  # v_{t+1}, and v_{t+1} - V_{t+1}
        for t in reversed(range(unroll)):
            if rollout.terminated[row, t] or rollout.truncated[row, t]:
                behind, trace = value[row, t], 0.0
                continue
            action = rollout.actions[row, t]
            ratio = (log_pi[row, t, action] - log_mu[row, t, action]).exp().item()
            gamma = 0.0 if rollout.terminated[row, t + 1] else 0.9
            reward = min(max(rollout.reward[row, t + 1].item(), -1.0), 1.0)
            delta = min(1.1, ratio) * (reward + gamma * value[row, t + 1] - value[row, t])
            trace = delta + gamma * 0.8 * min(0.9, ratio) * trace
            advantage = min(1.2, ratio) * (reward + gamma * behind - value[row, t])
            behind = value[row, t] + trace
            policy_loss -= advantage * log_pi[row, t, action]
            baseline += 0.5 * (behind - output.value[row, t]) ** 2
            entropy -= (log_pi[row, t].exp() * log_pi[row, t]).sum()
    torch.testing.assert_close(losses.metrics["policy_loss"], policy_loss, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(losses.metrics["baseline_loss"], baseline, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(losses.metrics["entropy"] * rollout.valid.sum(), entropy, rtol=1e-4, atol=1e-4)
    total = 0.7 * policy_loss + 0.3 * baseline - 0.2 * entropy
    torch.testing.assert_close(losses.loss, total, rtol=1e-4, atol=1e-4)


def test_a_first_pass_over_fresh_data_has_ratio_one(monkeypatch):
    ratios = []
    original = impala_loss.clipped_surrogate_loss

    def surrogate(log_ratio, *arguments, **settings):
        ratios.append(log_ratio.detach().exp())
        return original(log_ratio, *arguments, **settings)

    monkeypatch.setattr(impala_loss, "clipped_surrogate_loss", surrogate)
    optimizer = OptimizerConfig(learning_rate=0.05)
    made = trainer(optimizer=optimizer, loss=LossConfig(reuse=ReuseConfig(passes=3, minibatches=3)))
    made.step()
    assert len(ratios) == 9
    assert all(ratio.shape == (2, 5) for ratio in ratios)
    assert all((ratio == 1).all() for ratio in ratios[:3])  # though the weights moved between the minibatches
    assert all((ratio != 1).any() for ratio in ratios[3:])


def test_one_pass_of_the_surrogate_is_the_policy_gradient():
    made = trainer()
    rollout = made.actors.take().rollout
    gradients = []
    for passes in (1, 2):
        made.model.zero_grad()
        settings = LossConfig(reuse=ReuseConfig(passes=passes))
        impala_loss.impala_loss(made.model, rollout, settings).loss.backward()
        gradients.append([p.grad.clone() for p in made.model.parameters()])
    for one, two in zip(*gradients, strict=True):
        torch.testing.assert_close(one, two)


def test_rows_are_shared_out_to_as_many_minibatches_as_were_asked_for():
    made = trainer(loss=LossConfig(reuse=ReuseConfig(minibatches=4)))
    parts = [index for _, index in made._minibatches(6)]
    assert [len(index) for index in parts] == [2, 2, 1, 1]
    assert sorted(torch.cat(parts).tolist()) == list(range(6))
    made.close()


@pytest.mark.parametrize("reuse", [ReuseConfig(), ReuseConfig(passes=2, minibatches=3)])
def test_taking_turns_in_two_threads_gives_the_synchronous_numbers(reuse):
    one = trainer(loss=LossConfig(reuse=reuse))
    two = trainer(loss=LossConfig(reuse=reuse), schedule=IN_TURN)
    for left, right in zip(run(one, 10), run(two, 10), strict=True):
        assert {k: v for k, v in left.items() if k not in CLOCKS} == {k: v for k, v in right.items() if k not in CLOCKS}
    assert same(weights(one.model), weights(two.model))
    assert same(one.save()[0], two.save()[0])


def test_overlapping_actors_lag_and_say_so():
    made = trainer(schedule=replace(OVERLAPPING, actors=1, queue_length=3))
    metrics = run(made, 20)
    lags = [row["policy_lag"] for row in metrics]
    assert lags[0] == 0 and max(lags) <= 2
    assert sum(lags) > 0
    assert set().union(*metrics) <= set(made.step_metrics)


def test_steps_of_the_world_are_counted_without_dead_rows():
    made = trainer(StepsConfig(), batch_size=8)
    counted = 0
    for _ in range(6):
        metrics = made.step()
        counted += int(made.actors.buffer.valid.sum())
        assert metrics["environment_steps"] == counted
    assert counted < 6 * 8 * 5


@pytest.mark.parametrize(
    ("actions", "kind"),
    first(4, [
        ("discrete", "adam"), ("multi", "rmsprop"), ("binary", "adam"), ("box", "rmsprop"),
        ("discrete", "rmsprop"), ("multi", "adam"), ("binary", "rmsprop"), ("box", "adam"),
    ]),
)  # fmt: skip
def test_every_kind_of_actions_and_optimiser_resumes_exactly(actions, kind):
    settings = {
        "world": CueConfig(actions=actions),
        "optimizer": OptimizerConfig(algorithm=kind, epsilon=0.01, schedule="linear"),
        "loss": LossConfig(reuse=ReuseConfig(passes=2, minibatches=2)),
    }
    whole = trainer(**settings)
    run(whole, 8)
    half = trainer(**settings)
    run(half, 5)
    tensors, data = half.save()
    rest = trainer(**settings)
    rest.model.load_state_dict(weights(half.model))
    rest.load({name: tensor.clone() for name, tensor in tensors.items()}, data)
    run(rest, 3)
    assert same(weights(whole.model), weights(rest.model))
    assert same(whole.save()[0], rest.save()[0])
    assert whole.save()[1] == rest.save()[1]


def test_rows_are_means_over_episodes_and_not_over_rollouts(tmp_path):
    found = []
    for every in (1, 6):
        run_of = config(
            StepsConfig(), batch_size=16, unroll=1, fit=FitConfig(steps=12, report_every=every, report_seconds=None)
        )
        found.append(read_rows(fit(run_of, tmp_path / str(every)).directory.metrics_file))
    steps, rows = found
    assert len(steps) == 12 and len(rows) == 2
    for number, row in enumerate(rows):
        part = [each for each in steps[6 * number : 6 * number + 6] if each["episode_length"]]
        counts = [float(each["episodes"]) for each in part]
        assert len(set(counts)) > 1
        for name in ("episode_length", "episode_score", "episode_return"):
            total = sum(float(each[name]) * count for each, count in zip(part, counts, strict=True))
            assert float(row[name]) == pytest.approx(total / sum(counts), rel=1e-4)


def test_evaluation_leaves_no_trace():
    one, two = trainer(), trainer()
    one.model.train()
    state = torch.get_rng_state()
    scores = [one.evaluate() for _ in range(2)]
    assert scores[0] == scores[1]
    assert torch.equal(state, torch.get_rng_state()) and one.model.training
    run(one, 4), run(two, 4)
    assert same(weights(one.model), weights(two.model))


def rows_of(path):
    return [{k: v for k, v in row.items() if k not in CLOCKS} for row in read_rows(path / "metrics.csv")]


@pytest.mark.parametrize(
    ("fault", "kind", "message"),
    [
        ("nan-reward", NonFiniteError, "the reward is nan in row 1 of actor 0, 5 steps into a rollout, at step 4"),
        ("nan-observation", NonFiniteError, "the observation.cue is inf in row 2 of actor 0, 5 steps into"),
        (
            "raise",
            WorldError,
            "actor 0: OSError: row 3 fell over .* at step 4: .*fix the world",
        ),
    ],
)
@pytest.mark.parametrize("schedule", [ScheduleConfig(), IN_TURN])
def test_a_fault_stops_saves_and_goes_on(tmp_path, monkeypatch, fault, kind, message, schedule):
    faulty = config(CueConfig(fault=fault), schedule=schedule)
    monkeypatch.setattr(Cue, "faults", False)
    whole = fit(faulty, tmp_path / "whole")
    with monkeypatch.context() as patched, pytest.raises(kind, match=f"(?i){message}"):
        patched.setattr(Cue, "faults", True)
        patched.setattr(ImpalaTrainer, "evaluate", lambda self: {"score": 0.0})
        fit(faulty, tmp_path / "run")
    assert checkpoints.steps(tmp_path / "run" / "checkpoint") == [3]
    resumed = fit(faulty, tmp_path / "run", resume=True)
    assert same(weights(whole.agent), weights(resumed.agent))
    assert rows_of(tmp_path / "whole") == rows_of(tmp_path / "run")


@pytest.mark.long
@pytest.mark.parametrize(
    ("reuse", "call"),
    [(ReuseConfig(), 4), (ReuseConfig(passes=2, minibatches=3), 13), (ReuseConfig(passes=2, minibatches=3), 17)],
)
def test_a_loss_that_is_not_finite_leaves_the_step_before(tmp_path, monkeypatch, reuse, call):
    settings = config(loss=LossConfig(reuse=reuse))
    whole = fit(settings, tmp_path / "whole")
    original, calls = impala.impala_loss, []

    def poisoned(*arguments, **named):
        losses = original(*arguments, **named)
        calls.append(1)
        return losses._replace(loss=losses.loss * (math.nan if len(calls) == call else 1))

    with monkeypatch.context() as patched:
        patched.setattr(impala, "impala_loss", poisoned)
        step = (call - 1) // (reuse.passes * reuse.minibatches) + 1
        with pytest.raises(NonFiniteError, match=f"the loss is nan at step {step}: stopped, step {step - 1} is saved"):
            fit(settings, tmp_path / "run")
    resumed = fit(settings, tmp_path / "run", resume=True)
    assert same(weights(whole.agent), weights(resumed.agent))


def test_a_loss_that_large_rewards_spoil_names_them():
    made = trainer(CueConfig(fault="large-reward"))
    with pytest.raises(NonFiniteError, match=r"largest reward of the rollout is 1e\+30") as caught:
        run(made, 20)
    assert caught.value.advice() == "Scale each reward of the world to numbers near 1, then start again"


def test_an_actor_that_raises_is_named_in_the_learner():
    made = trainer(CueConfig(fault="raise"), schedule=OVERLAPPING)
    with pytest.raises(WorldError, match=r"actor [01]: OSError: row 3 fell over"):
        run(made, 20)
    assert made.save()[1]["updates"] > 0


@pytest.mark.long
def test_an_actor_that_hangs_is_named_and_given_up(monkeypatch, tmp_path):
    monkeypatch.setattr("recollect.training.impala.actors.PATIENCE", 0.1)
    monkeypatch.setattr("recollect.training.impala.placement.PATIENCE", 0.1)
    made = trainer(CueConfig(fault="hang"), schedule=replace(OVERLAPPING, timeout=4.0))
    RELEASE.clear()
    try:
        with pytest.raises(WorldError, match=r"no rollout for \d+ s from actor [01] \(4 steps into it\)"):
            run(made, 50)
        monkeypatch.chdir(tmp_path)
        with kept_process_settings():  # the next call of any world
            pass
        assert os.getcwd() == str(tmp_path)
    finally:
        RELEASE.set()
        for thread in made.actors.placement.threads:
            thread.join(5)
    assert made.save()[1]["updates"] > 0


def test_worlds_are_closed_when_a_later_actor_gets_none(monkeypatch):
    built, closed = [], []

    def build(*args, **settings):
        if built:
            raise WorldError("actor 1: no room")
        built.append(build_world(*args, **settings))
        return built[-1]

    monkeypatch.setattr(actor_setup, "build_world", build)
    monkeypatch.setattr(actor_setup, "close_world", lambda world, name: closed.append(world))
    with pytest.raises(WorldError, match="actor 1: no room"):
        ImpalaTrainer(config(schedule=ScheduleConfig(mode="asynchronous", actors=2)))
    assert closed == built


def test_a_world_that_cannot_be_saved_begins_anew_and_says_so(tmp_path):
    settings = config(CueConfig(saveable=False))
    with pytest.MonkeyPatch.context() as patched:
        original = ImpalaTrainer.step

        def stepping(self):
            if self.updates == 5:
                os.kill(os.getpid(), signal.SIGTERM)
            return original(self)

        patched.setattr(ImpalaTrainer, "step", stepping)
        outcome = fit(settings, tmp_path / "run")
    assert (outcome.status, outcome.step) == ("interrupted", 6)
    resumed = fit(settings, tmp_path / "run", resume=True)
    assert resumed.status == "finished"
    assert "Cue cannot be saved" in resumed.message and "new episodes began on resume" in resumed.message


KILLED = """
import os, signal, sys
sys.path.insert(0, sys.argv[1])
import torch
from recollect.training.impala.trainer import ImpalaTrainer
from test_impala import config, fit
torch.set_num_threads(1)
original = ImpalaTrainer.step
def stepping(self):
    if self.updates == 7:
        os.kill(os.getpid(), signal.SIGKILL)
    return original(self)
ImpalaTrainer.step = stepping
fit(config(), sys.argv[2])
"""


@pytest.mark.long
def test_sigkill_and_resume_give_the_same_weights(tmp_path):
    whole = fit(config(), tmp_path / "whole")
    command = [sys.executable, "-c", KILLED, str(Path(__file__).parent), str(tmp_path / "run")]
    shared = {"PYTHONPATH": os.pathsep.join((str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH", "")))}
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, env=os.environ | shared)
    assert done.returncode == -signal.SIGKILL, done.stderr
    resumed = fit(config(), tmp_path / "run", resume=True)
    assert same(weights(whole.agent), weights(resumed.agent))
    assert rows_of(tmp_path / "whole") == rows_of(tmp_path / "run")
    assert resumed.evaluation == whole.evaluation


def test_bfloat16_learns_in_float32_losses():
    made = trainer(bfloat16=True)
    metrics = run(made, 3)
    assert all(math.isfinite(value) for value in metrics[-1].values())
    rollout = made.actors.buffer
    losses = impala_loss.impala_loss(
        made.model, rollout._replace(state=made.model.initial_state(6)), LossConfig(), bfloat16=True
    )
    assert all(value.dtype == torch.float32 for value in losses.scalars().values())


def test_the_mean_divides_by_the_valid_steps():
    made = trainer(StepsConfig())
    rollout = made.actors.take().rollout
    total, mean = (impala_loss.impala_loss(made.model, rollout, LossConfig(reduction=r)) for r in ("sum", "mean"))
    torch.testing.assert_close(total.loss / rollout.valid.sum(), mean.loss)
    assert total.metrics["entropy"] == mean.metrics["entropy"]


@pytest.mark.parametrize(
    ("mistake", "message"),
    [
        (lambda: ScheduleConfig(mode="both"), "mode='both'"),
        (lambda: ScheduleConfig(actors=2), "actors=2: a synchronous schedule has one"),
        (lambda: ScheduleConfig(mode="asynchronous", actors=3), "queue_length=2: give at least one rollout for each"),
        (lambda: ScheduleConfig(timeout=0), "timeout=0"),
        (lambda: EvaluationConfig(episodes=0), "episodes=0"),
        (lambda: config(batch_size=0), "batch_size=0"),
        (lambda: config(unroll=0), "unroll=0"),
        (
            lambda: config(loss=LossConfig(reuse=ReuseConfig(minibatches=7))),
            "minibatches=7: .*set loss.reuse.minibatches to at most",
        ),
        (lambda: LossConfig(discount=1.1), "discount=1.1"),
        (lambda: LossConfig(entropy_cost=-1), "entropy_cost=-1"),
        (lambda: LossConfig(reduction="max"), "reduction='max'"),
        (lambda: LossConfig(reward_clip=0), "reward_clip=0"),
        (lambda: VTraceConfig(c_clip=0), "c_clip=0"),
        (lambda: VTraceConfig(lambda_=2), "lambda_=2"),
        (lambda: ReuseConfig(passes=0), "passes=0"),
        (lambda: ReuseConfig(surrogate_clip=0), "surrogate_clip=0"),
        (lambda: OptimizerConfig(algorithm="sgd"), "algorithm='sgd'"),
        (lambda: OptimizerConfig(smoothing=1), "smoothing=1"),
        (lambda: OptimizerConfig(epsilon=0), "epsilon=0"),
    ],
)
def test_mistakes_are_explained(mistake, message):
    with pytest.raises(ValueError, match=message):
        mistake()


def test_torchbeasts_optimiser_can_be_had():
    settings = {"algorithm": "rmsprop", "learning_rate": 4.8e-4, "smoothing": 0.99, "epsilon": 0.01}
    settings = OptimizerConfig(**settings, schedule="linear", clip_norm=40.0)
    model = torch.nn.Linear(2, 2)
    ours, theirs = settings.build(model), torch.nn.Linear(2, 2)
    theirs.load_state_dict(model.state_dict())
    reference = torch.optim.RMSprop(theirs.parameters(), lr=4.8e-4, alpha=0.99, eps=0.01, momentum=0)
    for _ in range(3):
        x = torch.randn(4, 2)
        for each, optimizer in ((model, ours), (theirs, reference)):
            optimizer.zero_grad()
            each(x).square().sum().backward()
            optimizer.step()
    assert same(weights(model), weights(theirs))
    assert settings.rate(0, 10) == 4.8e-4
    assert settings.rate(5, 10) == pytest.approx(2.4e-4)


def test_a_run_of_an_older_version_goes_on(tmp_path, monkeypatch):
    def older(config, kinds):
        data = to_json(config, kinds)
        return {"rows" if name == "batch_size" else name: value for name, value in data.items()}

    with monkeypatch.context() as patched:
        patched.setitem(fit.__globals__, "to_json", older)
        fit(config(fit=FitConfig(steps=2)), tmp_path / "run")
    assert '"rows": 6' in (tmp_path / "run/config.json").read_text()
    assert "nothing to do" in fit(config(fit=FitConfig(steps=2)), tmp_path / "run", resume=True).message
    assert load_config(tmp_path / "run").batch_size == 6
