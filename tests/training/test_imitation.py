"""Teachers, the loss of imitation, the trainer cloning, and imitation before reinforcement."""

import shutil
from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch
from small_worlds import Counter, CounterConfig, Cue, CueConfig, StepsConfig

from recollect.agents.config import ActorCriticConfig
from recollect.agents.policies import policy_for
from recollect.comparison.compare import compare
from recollect.comparison.curves import read_run
from recollect.cores import CORES
from recollect.recipes.train import training
from recollect.runs.errors import StepError
from recollect.runs.metrics import read_rows
from recollect.tasks import TASKS, TMazeConfig
from recollect.training import (
    CloningConfig,
    EvaluationConfig,
    FitConfig,
    ImitationConfig,
    ImpalaConfig,
    LossConfig,
    OptimizerConfig,
    ReuseConfig,
    ScheduleConfig,
    SupervisionConfig,
    TeacherConfig,
    fit,
    load_model,
)
from recollect.training.imitation.loss import imitation_loss
from recollect.training.imitation.teachers import RunTeacher, WorldTeacher, worlds_with_an_oracle
from recollect.training.impala.loss import impala_loss
from recollect.training.impala.rollouts import Collector
from recollect.training.impala.supervision import TrainingAids

GRU = CORES["gru"](dim=8, num_layers=1)
SMALL = {
    "agent": ActorCriticConfig(width=8),
    "batch_size": 4,
    "unroll": 5,
    "evaluation": EvaluationConfig(episodes=8),
}


@dataclass(frozen=True, kw_only=True)
class TaughtConfig(CueConfig):
    """The world of CueConfig, with an oracle."""

    def build(self, batch_size, *, seed=0, device="cpu"):
        return Taught(self, batch_size, seed=seed, device=device)


class Taught(Cue):
    def plan(self, state):
        if self.config.actions == "box":
            return torch.stack((2.0 * state.cue - 1, 0.5 * state.cue), 1)
        return torch.stack((state.cue, 2 - state.cue), 1) if self.config.actions == "multi" else state.cue.clone()


def impala(imitation, world=None, **settings):
    settings = {
        "core": GRU,
        **SMALL,
        "fit": FitConfig(steps=8, checkpoint_every=1, evaluate_every=4, report_seconds=None),
    } | settings
    return ImpalaConfig(world=world or TaughtConfig(), loss=LossConfig(imitation=imitation), **settings)


def cloning(world=None, **settings):
    settings = {
        "core": GRU,
        **SMALL,
        "fit": FitConfig(steps=6, checkpoint_every=1, evaluate_every=3, report_seconds=None),
    } | settings
    return CloningConfig(world=world or TaughtConfig(), **settings)


def rollout_of(config, teacher, acting=0, rollouts=1):
    """The newest of some rollouts, and who played it."""
    world = config.world.build(config.batch_size, seed=1)
    torch.manual_seed(0)
    agent = config.build_agent()
    teacher.acting = acting
    ours = Collector(agent, world, config.unroll, torch.Generator().manual_seed(2), teacher=teacher)
    for _ in range(rollouts):
        rollout, _ = ours.collect(ours.buffer())
    return agent, ours, rollout


def imitating(teacher):
    return TrainingAids(teacher=teacher, imitates=True)


@pytest.mark.parametrize("actions", ["discrete", "multi", "box"])
def test_loss_and_gradients_are_those_of_a_literal_loop(actions):
    config = cloning(TaughtConfig(actions=actions), unroll=7)
    teacher = WorldTeacher("oracle")
    agent, _, rollout = rollout_of(config, teacher, acting=2)
    costs = LossConfig(baseline_cost=0.7, discount=0.9, reduction="mean")
    losses = imitation_loss(agent, rollout, imitating(teacher), costs)
    losses.loss.backward()
    found = [parameter.grad.clone() for parameter in agent.parameters()]

    agent.zero_grad()
    state, values, ces = rollout.state, [], []
    for t in range(8):
        inputs = type(rollout.inputs)(
            {"cue": rollout.observation["cue"][:, t : t + 1]},
            rollout.action[:, t : t + 1],
            rollout.reward[:, t : t + 1],
        )
        output, state = agent(inputs, state, rollout.is_first[:, t : t + 1])
        values.append(output.value[:, 0])
        if t < 7:
            ces.append(-agent.distribution(output.policy[:, 0]).log_prob(rollout.target[:, t]))
    total, count = 0.0, 0
    for b in range(4):
        later = values[7][b].detach()  # whole returns as far as the unroll goes: lambda is 1
        for t in reversed(range(7)):
            if rollout.terminated[b, t] or rollout.truncated[b, t]:
                later = values[t][b].detach()
                continue
            behind = 0.0 if rollout.terminated[b, t + 1] else 0.9 * later
            later = rollout.reward[b, t + 1] + behind
            total = total + ces[t][b] + 0.7 * 0.5 * (later - values[t][b]) ** 2
            count += 1
    (total / count).backward()
    assert count == int(rollout.valid.sum())
    torch.testing.assert_close(losses.loss, total / count)
    for one, parameter in zip(found, agent.parameters(), strict=True):
        torch.testing.assert_close(one, parameter.grad, rtol=1e-4, atol=1e-6)


def test_a_cost_of_0_leaves_the_value_alone():
    teacher = WorldTeacher("oracle")
    agent, _, rollout = rollout_of(cloning(), teacher)
    losses = imitation_loss(agent, rollout, imitating(teacher), LossConfig(baseline_cost=0.0))
    losses.loss.backward()
    assert losses.targets is None and losses.metrics["baseline_loss"] == 0
    assert agent.value_head[-1].weight.grad is None and agent.policy_head[-1].weight.grad.abs().sum() > 0


@pytest.mark.parametrize("space", ["discrete", "multi", "box"])
def test_the_divergence_is_the_mean_difference_of_log_likelihoods(space):
    policy = policy_for(CueConfig(actions=space).spec.action_space)
    torch.manual_seed(0)
    parameters = 0.5 * torch.randn(2, policy.num_parameters)
    if space == "box":  # far within the bounds, where clipping does nothing
        parameters = torch.cat((0.2 * parameters[:, :2], 0.2 * parameters[:, 2:] - 2), 1)
    learner, teacher = (policy.distribution(row.expand(200_000, -1)) for row in parameters)
    actions = teacher.sample(torch.Generator().manual_seed(1))
    expected = (teacher.log_prob(actions) - learner.log_prob(actions)).mean()
    torch.testing.assert_close(learner.divergence(teacher)[0], expected, rtol=0.03, atol=1e-3)
    torch.testing.assert_close(teacher.divergence(teacher), torch.zeros(200_000))


@pytest.mark.parametrize("key", worlds_with_an_oracle())
def test_an_oracle_labels_whatever_the_learner_reaches(key):
    config = TASKS[key]()
    space = config.spec.action_space
    world = config.build(8, seed=0)
    world.reset()
    space.seed(0)
    for _ in range(200):
        shown = world.expert("oracle")
        assert world.expert("nobody") is None
        assert all(space.contains(action) for action in shown.numpy())
        world.step(torch.from_numpy(np.stack([space.sample() for _ in range(8)])))


def test_targets_are_the_oracle_s_at_the_states_that_the_learner_reached():
    teacher = WorldTeacher("oracle")
    config = cloning(TMazeConfig(length=3), unroll=40)
    _, ours, rollout = rollout_of(config, teacher)
    world = config.world.build(4, seed=1)
    world.reset()
    for t in range(40):
        assert torch.equal(rollout.target[:, t], world.oracle())
        world.step(rollout.actions[:, t])
    assert not torch.equal(rollout.target, rollout.actions)
    assert ours.snapshot.teacher == ()


def test_the_teacher_plays_a_falling_share_of_the_rows():
    teacher = WorldTeacher("oracle")
    _, _, rollout = rollout_of(cloning(TMazeConfig(length=3), unroll=40), teacher, acting=2)
    assert torch.equal(rollout.target[:2], rollout.actions[:2])
    assert all((rollout.target[row] != rollout.actions[row]).any() for row in (2, 3))
    rows = [TeacherConfig(acts=8).rows(step, 4) for step in range(10)]
    assert rows == sorted(rows, reverse=True) and rows[0] == 4 and rows[8:] == [0, 0]
    assert TeacherConfig(acts=0).rows(0, 4) == 0
    assert [TeacherConfig(acts=2, keeps=0.5).rows(step, 4) for step in range(4)] == [4, 2, 2, 2]
    config = ImitationConfig(steps=4, teacher=TeacherConfig(acts=8))
    assert [config.rows(step, 4) for step in range(6)] == [4, 4, 3, 2, 0, 0]  # never beside reinforcement


def test_a_teacher_s_episodes_are_not_counted_as_the_learner_s():
    """Rows are let go in the middle of episodes, which are nobody's own; counted by a plain loop."""
    config, teacher = cloning(TMazeConfig(length=3), unroll=7), WorldTeacher("oracle")
    _, ours, rollout = rollout_of(config, teacher, acting=3)
    taught, ended, own, score = [False] * 4, 0, 0, 0.0
    taken_over = 0
    for acting in (3, 3, 2, 2, 0, 0, 4, 1, *[0] * 12, 3, *[0] * 12):
        teacher.acting = acting
        before = ours.snapshot
        taught = before.taught.tolist()
        rollout, episodes = ours.collect(ours.buffer())
        mine = [[] for _ in range(4)]
        for row in range(4):
            for t in range(1, 8):
                if rollout.is_first[row, t]:
                    taught[row] = False
                    continue
                taught[row] |= row < acting
                if rollout.terminated[row, t] | rollout.truncated[row, t]:
                    taken_over += taught[row] and row >= acting
                    mine[row] += [] if taught[row] else [float(rollout.score[row, t])]
        assert episodes.own_scores(0) == mine
        assert episodes.own_scores(acting) == [None] * acting + mine[acting:]
        assert ours.snapshot.taught.tolist() == taught
        ended, own, score = ended + episodes.ended, own + sum(map(len, mine)), score + sum(map(sum, mine))
    assert 1 < own < ended and taken_over > 1 and 0 < score <= own


def test_the_weight_of_the_divergence_falls_to_0_at_its_share_of_the_reinforcement():
    config = ImitationConfig(steps=10, cost=2.0, until=0.5)
    assert [config.weight(step, 30) for step in (10, 15, 20, 25)] == [2.0, 1.0, 0.0, 0.0]
    assert ImitationConfig(steps=0, until=0.0).weight(0, 30) == 0


def test_the_divergence_adds_to_the_loss_of_reinforcement():
    config = cloning(unroll=6)
    teacher = WorldTeacher("oracle")
    agent, _, rollout = rollout_of(config, teacher)
    plain = impala_loss(agent, rollout, LossConfig())
    taught = impala_loss(agent, rollout, LossConfig(), TrainingAids(teacher=teacher, teacher_cost=0.25))
    output, _ = agent(rollout.inputs, rollout.state, rollout.is_first)
    log_prob = agent.distribution(output.policy[:, :-1]).log_prob(rollout.target)
    extra = -log_prob[rollout.valid].sum()
    torch.testing.assert_close(taught.metrics["imitation_loss"], extra)
    torch.testing.assert_close(taught.loss, plain.loss + 0.25 * extra)
    assert "imitation_loss" not in plain.metrics


@pytest.fixture(scope="module")
def teacher_run(tmp_path_factory):
    path = tmp_path_factory.mktemp("teacher") / "run"
    fit(impala(ImitationConfig(), fit=FitConfig(steps=2)), path)
    return path


def test_a_run_teaches_with_a_memory_of_its_own(teacher_run):
    config = cloning(batch_size=3)
    teacher = RunTeacher(str(teacher_run), config.world.spec, 3, torch.device("cpu"))
    world = config.world.build(3, seed=1)
    agent = config.build_agent()
    ours = Collector(agent, world, 4, torch.Generator().manual_seed(2), teacher=teacher)
    first, _ = ours.collect(ours.buffer())
    first = first._replace(**{name: getattr(first, name).clone() for name in ("action", "reward", "is_first")},
                           observation={"cue": first.observation["cue"].clone()})  # fmt: skip
    saved = {name: tensor.clone() for name, tensor in ours.snapshot.tensors().items()}
    second, _ = ours.collect(ours.buffer())
    other = load_model(teacher_run)
    with torch.no_grad():
        output, _ = other(first.inputs, other.initial_state(3), first.is_first)
    torch.testing.assert_close(first.target, output.policy[:, :4])
    # The memory after the first rollout is saved: a second collector goes on with the same targets.
    twin_teacher = RunTeacher(str(teacher_run), config.world.spec, 3, torch.device("cpu"))
    twin = Collector(agent, config.world.build(3), 4, torch.Generator(), teacher=twin_teacher)
    twin.load(saved, ours.snapshot.world[1], 0)
    again, _ = twin.collect(twin.buffer())
    assert torch.equal(again.target, second.target)
    assert (teacher.divergence(agent.distribution(again.target), again.target) == 0).all()


def weights(agent):
    return {name: value.clone() for name, value in agent.state_dict().items()}


def same(one, two):
    return one.keys() == two.keys() and all(torch.equal(one[name], two[name]) for name in one)


@pytest.mark.long
@pytest.mark.parametrize("kind", ["oracle", "run", "passes"])
def test_a_run_goes_on_bit_for_bit_in_either_phase(tmp_path, teacher_run, kind):
    teacher = TeacherConfig(name=str(teacher_run) if kind == "run" else "oracle", acts=3)
    settings = {"steps": 8, "evaluate_every": 4, "checkpoint_every": 1, "keep_checkpoints": 8}
    config = impala(ImitationConfig(steps=4, teacher=teacher), fit=FitConfig(**settings))
    if kind == "passes":
        config = replace(config, agent=replace(config.agent, norm_values=True))
        config = replace(config, loss=replace(config.loss, reuse=ReuseConfig(passes=2, minibatches=2)))
    whole = fit(config, tmp_path / "whole")
    for stop in (2, 4, 6):  # while it imitates, at the seam, while it is reinforced
        parts = tmp_path / f"stopped-{stop}"
        shutil.copytree(tmp_path / "whole", parts)
        for later in range(stop + 1, 9):
            shutil.rmtree(parts / "checkpoint" / f"step-{later:09d}")
        again = fit(config, parts, resume=True)
        assert again.step == whole.step == 8 and same(weights(again.agent), weights(whole.agent))
        assert timeless(parts) == timeless(tmp_path / "whole")
    assert read_run(tmp_path / "whole").title == f"gru, imitated {teacher.name} for 4 steps"


@pytest.mark.long
@pytest.mark.parametrize("core", [
    CORES["hcam"](dim=8, num_heads=2, memory_len=4, chunk_len=3, num_chunks=4, top_k=2),
    CORES["causal-transformer"](dim=8, num_heads=2, memory_len=4),
], ids=["chunks", "turned keys"])  # fmt: skip
def test_a_teacher_whose_stream_keeps_its_memory_in_another_form_goes_on_bit_for_bit(tmp_path, core):
    fit(impala(ImitationConfig(), TMazeConfig(length=20), core=core, fit=FitConfig(steps=1)), tmp_path / "teacher")
    teacher = TeacherConfig(name=str(tmp_path / "teacher"), acts=0)
    config = impala(ImitationConfig(steps=6, teacher=teacher), TMazeConfig(length=20), fit=FitConfig(steps=6))
    whole = fit(config, tmp_path / "whole")
    fit(replace(config, fit=FitConfig(steps=3)), tmp_path / "parts")
    again = fit(config, tmp_path / "parts", resume=True)
    assert same(weights(again.agent), weights(whole.agent))


def timeless(run):
    clocks = ("seconds", "frames_per_second")
    return [{key: cell for key, cell in row.items() if key not in clocks} for row in read_rows(run / "metrics.csv")]


def test_rows_of_the_metrics_say_which_phase_it_was(tmp_path):
    config = impala(
        ImitationConfig(steps=4, teacher=TeacherConfig(acts=2)),
        fit=FitConfig(steps=8, report_every=1, report_seconds=None),
    )
    fit(config, tmp_path / "run")
    rows = read_rows(tmp_path / "run" / "metrics.csv")
    assert [bool(row["agreement"]) for row in rows] == [True] * 4 + [False] * 4
    assert [bool(row["policy_loss"]) for row in rows] == [False] * 4 + [True] * 4
    assert all(row["imitation_loss"] for row in rows)
    assert [float(row["teacher_rows"]) for row in rows] == [4, 2, 0, 0, 0, 0, 0, 0]


def test_without_a_teacher_nothing_is_asked_or_reported(tmp_path):
    trainer = impala(ImitationConfig()).build()
    assert trainer.teacher is None and trainer.actors.collectors[0].teacher is None
    assert "imitation_loss" not in {**trainer.step()} and "imitation_loss" not in trainer.step_metrics
    assert not any(name.startswith("actor0.teacher") for name in trainer.save()[0])
    trainer.close()


def test_cloning_goes_on_bit_for_bit_and_hands_its_weights_to_reinforcement(tmp_path):
    config = cloning(teacher=TeacherConfig(acts=4))
    whole = fit(config, tmp_path / "whole")
    fit(replace(config, fit=replace(config.fit, steps=3)), tmp_path / "parts")
    parts = fit(config, tmp_path / "parts", resume=True)
    assert same(weights(parts.agent), weights(whole.agent))
    assert read_run(tmp_path / "whole").title == "gru, cloned oracle"
    later = fit(impala(ImitationConfig(), fit=FitConfig(steps=1)), tmp_path / "later", start_from=tmp_path / "whole")
    assert later.status == "finished" and read_run(tmp_path / "later").started_from is not None


def test_the_counter_core_keeps_its_count_whoever_acts():
    config = cloning(StepsConfig(), core=CounterConfig(), unroll=5)

    class Right(WorldTeacher):
        def show(self, world, inputs, is_first):
            return torch.ones(world.batch_size, dtype=torch.long)

    for acting in (0, 2, 4):
        agent, _, rollout = rollout_of(config, Right("oracle"), acting=acting, rollouts=3)
        assert isinstance(agent.core, Counter)
        losses = imitation_loss(agent, rollout, imitating(Right("oracle")), LossConfig())
        # Row 5 is not consumed: its count comes from the row itself.
        shown = rollout.observation[:, 4, 0].long()
        assert torch.equal(losses.state.steps, shown + 1)
        assert torch.equal(
            rollout.state.steps[~rollout.is_first[:, 0]], rollout.observation[:, 0, 0].long()[~rollout.is_first[:, 0]]
        )


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (cloning(StepsConfig()), "Steps offers no such policy.*Worlds with an oracle: t-maze, visual-match"),
        (cloning(teacher=TeacherConfig(name="orcale")), "teacher.name='orcale': Taught offers no such policy"),
        (impala(ImitationConfig(steps=1, teacher=TeacherConfig(name="e.npz"))), "Clone them first"),
    ],
)
def test_who_cannot_teach_is_said_before_anything_is_written(tmp_path, config, message):
    with pytest.raises(ValueError, match=message):
        fit(config, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_run_of_another_world_cannot_teach(tmp_path, teacher_run):
    teacher = TeacherConfig(name=str(teacher_run))
    with pytest.raises(
        ValueError, match=r"another world, whose observation space is Dict\(cue: Box \[2\]\); here it is"
    ):
        fit(cloning(TMazeConfig(length=3), teacher=teacher), tmp_path / "run")
    with pytest.raises(ValueError, match=r"whose action space is Discrete\(2\); here it is MultiDiscrete"):
        fit(cloning(TaughtConfig(actions="multi"), teacher=teacher), tmp_path / "run")


@pytest.mark.long
def test_a_run_that_had_targets_teaches_and_is_gone_on_with(tmp_path):
    taught = LossConfig(supervision=SupervisionConfig(label_cost=1.0))
    world, made = TMazeConfig(length=3), FitConfig(steps=2, checkpoint_every=1)
    first = ImpalaConfig(world=world, core=GRU, **SMALL, loss=taught, fit=made)
    fit(first, tmp_path / "first")
    teacher = TeacherConfig(name=str(tmp_path / "first"))
    assert fit(cloning(world, teacher=teacher), tmp_path / "pupil").status == "finished"
    plain = replace(first, loss=LossConfig())
    assert "label_head.weight" in load_model(tmp_path / "first").state_dict()
    later = fit(plain, tmp_path / "later", start_from=tmp_path / "first")
    assert "label_head.weight" not in later.agent.state_dict()
    again = fit(first, tmp_path / "again", start_from=tmp_path / "later")
    assert "label_head.weight" in again.agent.state_dict()
    began_with = read_run(tmp_path / "again").began_with
    assert began_with == ("label targets",)  # through the run between, which had none


@pytest.mark.long
def test_a_run_that_went_on_with_other_weights_is_no_seed_of_those_that_began_anew(tmp_path):
    fit(cloning(), tmp_path / "cloned")
    plain = impala(ImitationConfig())
    fit(plain, tmp_path / "new")
    fit(plain, tmp_path / "later", start_from=tmp_path / "cloned")
    fit(plain, tmp_path / "on", start_from=tmp_path / "new")
    runs = [tmp_path / "new", tmp_path / "later"]
    assert [group.label for group in compare([*runs, tmp_path / "on"]).groups] == [
        "gru",
        "gru, after a run that was helped: cloned oracle",
        "gru, after another run",
    ]
    assert [group.label for group in compare(runs, names=["a", "a"]).groups] == [
        "a",
        "a (after a run that was helped: cloned oracle)",
    ]


def test_a_label_does_not_name_more_steps_than_the_run_has():
    said = [ImitationConfig(steps=steps).label(10) for steps in (None, 0, 3, 10, 99)]
    assert said == [
        None,
        "imitated oracle beside reinforcement",
        "imitated oracle for 3 steps",
        "imitated oracle",
        "imitated oracle",
    ]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: ImitationConfig(steps=-1), "steps=-1: give 0 or more"),
        (lambda: ImitationConfig(steps=1, until=2.0), "until=2.0"),
        (lambda: ImitationConfig(cost=2.0), "cost, until and teacher need steps"),
        (lambda: ImitationConfig(teacher=TeacherConfig(name="runs/x")), "cost, until and teacher need steps"),
        (
            lambda: LossConfig(imitation=ImitationConfig(steps=2), reuse=ReuseConfig(chunk=4)),
            "chunk=4: steps that only imitate read rollouts whole",
        ),
        (lambda: TeacherConfig(name=""), "name=''"),
        (lambda: TeacherConfig(acts=-1), "acts=-1"),
        (lambda: TeacherConfig(keeps=1.5), "keeps=1.5"),
        (
            lambda: impala(ImitationConfig(steps=1), schedule=ScheduleConfig(mode="asynchronous")),
            "synchronous schedule",
        ),
    ],
)
def test_settings_that_mean_nothing_are_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_a_world_that_breaks_while_it_is_imitated_changes_nothing(tmp_path):
    config = cloning(TaughtConfig(fault="nan-reward"), unroll=7)
    with pytest.raises(StepError, match="reward is nan"):
        fit(config, tmp_path / "run")
    assert load_model(tmp_path / "run") is not None


@pytest.mark.slow
def test_a_cloned_agent_remembers(tmp_path):
    config = training("t-maze", "gru", trainer="cloning")
    config = replace(config, world=TMazeConfig(length=20), teacher=TeacherConfig(acts=20), batch_size=32, unroll=64)
    config = replace(config, optimizer=replace(config.optimizer, learning_rate=3e-3, warmup_steps=0))
    config = replace(config, fit=FitConfig(steps=400, evaluate_every=50, stop_score=0.97))
    assert fit(config, tmp_path / "run").evaluation["score"] > 0.95


@pytest.mark.slow
def test_an_agent_that_was_imitated_first_remembers_after_the_teacher_is_gone(tmp_path):
    imitation = ImitationConfig(steps=300, teacher=TeacherConfig(acts=20))
    config = ImpalaConfig(
        world=TMazeConfig(length=20),
        core=CORES["gru"](dim=64, num_layers=1),
        optimizer=OptimizerConfig(algorithm="adam", learning_rate=3e-3, clip_norm=1.0),
        loss=LossConfig(reduction="mean", imitation=imitation),
        unroll=64,
        fit=FitConfig(steps=400, evaluate_every=100),
    )
    assert fit(config, tmp_path / "run").evaluation["score"] > 0.95
