from dataclasses import replace
from itertools import product

import gymnasium
import pytest
import torch
from small_worlds import CueConfig

from recollect.agents.actor_critic import ActorCritic
from recollect.agents.config import ActorCriticConfig, SequenceModelConfig
from recollect.cores import CORES
from recollect.cores.hcam import ChunkAttentionVariant
from recollect.layers.tap import listen
from recollect.tasks import TASKS, StreetLearnConfig, TMazeConfig, VisualMatchConfig
from recollect.training import (
    EvaluationConfig,
    FitConfig,
    ImitationConfig,
    ImpalaConfig,
    LossConfig,
    ReuseConfig,
    ScheduleConfig,
    SupervisionConfig,
    fit,
)
from recollect.training.imitation.loss import imitation_loss
from recollect.training.impala import loss as impala_loss
from recollect.training.impala.ground_truth import subsample
from recollect.training.impala.supervision import AttentionRecorder, TrainingAids
from recollect.training.impala.trainer import ImpalaTrainer

HCAM = CORES["hcam"](dim=8, num_layers=2, num_heads=2, memory_len=4, chunk_len=2, num_chunks=5, top_k=2)
APART = replace(HCAM, reading=replace(HCAM.reading, relevance_heads=True))
WINDOW = CORES["transformer-xl"](dim=8, num_layers=2, num_heads=2, memory_len=5)
MATCH = VisualMatchConfig(cue_steps=2, distractor_steps=3, choice_steps=7)
BOTH = SupervisionConfig(label_cost=0.7, attention_cost=0.3)


def config(core=HCAM, world=MATCH, supervision=BOTH, **settings):
    settings = {
        "batch_size": 6,
        "unroll": 9,
        "agent": ActorCriticConfig(width=8),
        "evaluation": EvaluationConfig(episodes=4),
        "loss": LossConfig(supervision=supervision),
        "fit": FitConfig(steps=12, checkpoint_every=4, report_every=4),
    } | settings
    return ImpalaConfig(world=world, core=core, **settings)


def trainer(*arguments, **settings):
    torch.manual_seed(0)
    return ImpalaTrainer(config(*arguments, **settings))


def played(made, rollouts=3):
    """The last of several rollouts, so that memories are full and episodes begin in the middle."""
    for _ in range(rollouts):
        delivery = made.actors.take()
    return delivery.rollout


def clocks(made, rollout):
    """Steps of every row's episode, counted from the truth of a world that starts them all at once."""
    length = made.config.world.spec.max_steps + 1
    return torch.arange(2 * 9, 2 * 9 + 10).remainder(length).expand(6, -1)


def intervals(core, clock, t, row):
    """What every place of a Tap holds at row t, by going through the steps one by one: ``(first, behind)`` or None."""
    now = clock[row, t].item()
    if core is WINDOW:
        return [(now - 5 + s, now - 4 + s) if now - 5 + s >= 0 else None for s in range(6)]
    places = [None] * 5 + [None] * 5  # those that were there, then those that this call may write
    episode = [(i, i + 2) for i in range(0, clock[row, 0].item() - 1, 2)][-5:]  # before the call, if it goes on
    places[5 - len(episode) : 5] = episode
    written = 5
    for step in range(t + 1):
        here = clock[row, step].item()
        if here == 0:
            places = [None] * 10
        if step < t and (here + 1) % 2 == 0:
            places[written] = (here - 1, here + 1)
        written += (here + 1) % 2 == 0 and step < t
    return places


@pytest.mark.parametrize("core", [HCAM, APART, WINDOW], ids=["hcam", "hcam-apart", "transformer-xl"])
@pytest.mark.parametrize("reduction", ["sum", "mean"])
def test_the_loss_and_its_gradients_are_those_of_a_literal_loop(core, reduction):
    loss = LossConfig(reduction=reduction, supervision=BOTH)
    made = trainer(core, loss=loss)
    rollout, model = played(made), made.model
    clock = clocks(made, rollout)
    assert torch.equal(rollout.truth["clock"], clock) and rollout.is_first[:, 1:].any()
    heard = {}
    with listen(model.core, heard.__setitem__, gradients=True):
        output, _ = model(rollout.inputs, rollout.state, rollout.is_first)
    taps = [heard[name] for name in heard if name.endswith("tap" if core is WINDOW else "choice_tap")]
    taps = [weights.mean(1) if weights.ndim == 4 else weights for weights in taps]
    assert len(taps) == 2
    named, looked = [], []
    for row in range(6):
        for t in range(9):
            label, start, stop = (rollout.truth[part][row, t].item() for part in ("label", "start", "stop"))
            if label >= 0:
                named.append(-model.predict_labels(output.features[row, t]).log_softmax(-1)[label])
            places = intervals(core, clock, t, row)
            chosen = [
                s for s, place in enumerate(places) if place and start >= 0 and place[0] < stop and place[1] > start
            ]
            if chosen and stop <= clock[row, t]:
                mass = sum(weights[row, t, s] for weights in taps for s in chosen) / 2
                looked.append(-mass.clamp(min=1e-6).log())
    assert len(named) > 20 and len(looked) > 3
    mean = (
        (lambda terms: torch.stack(terms).mean()) if reduction == "mean" else (lambda terms: torch.stack(terms).sum())
    )
    want = 0.7 * mean(named) + 0.3 * mean(looked)

    without = impala_loss.impala_loss(model, rollout, loss)
    helped = impala_loss.impala_loss(model, rollout, loss, TrainingAids(loss.supervision, 0.5))
    torch.testing.assert_close(helped.metrics["label_loss"], mean(named))
    torch.testing.assert_close(helped.metrics["attention_loss"], mean(looked))
    assert without.scalars().keys() == set(impala_loss.REPORTED)
    parameters = list(model.parameters())
    kept = {"retain_graph": True, "allow_unused": True}
    one = torch.autograd.grad(helped.loss - without.loss, parameters, **kept)
    other = torch.autograd.grad(0.5 * want, parameters, **kept)
    for got, expected in zip(one, other, strict=True):
        expected = torch.zeros(()) if expected is None else expected
        got = torch.zeros_like(expected) if got is None else got
        torch.testing.assert_close(got, expected.expand_as(got), rtol=1e-3, atol=2e-5)
    made.close()


@pytest.mark.parametrize("apart", [False, True])
def test_targets_inside_chunks_are_those_of_a_literal_loop(apart):
    made = trainer(replace(HCAM, reading=replace(HCAM.reading, relevance_heads=apart)))
    rollout, model = played(made), made.model
    clock, heard = clocks(made, rollout), {}
    recorder = AttentionRecorder(model.core, rollout.truth, inside=True)
    with listen(model.core, heard.__setitem__), recorder:
        model(rollout.inputs, rollout.state, rollout.is_first)
    mass, valid = recorder.mass()
    wanted = 0
    for row in range(6):
        for t in range(9):
            start, stop = (rollout.truth[part][row, t].item() for part in ("start", "stop"))
            found = [
                (n, place[0] + j)
                for n, place in enumerate(intervals(HCAM, clock, t, row))
                if place and start >= 0 and stop <= clock[row, t]
                for j in range(2)
            ]
            inside = [(n, step) for n, step in found if start <= step < stop]
            assert bool(valid[row, t]) == bool(inside)
            if not inside:
                continue
            wanted += 1
            total = 0.0
            for layer, (n, step) in product(range(2), inside):
                relevance = heard[f"layers.{layer}.memory.relevance_tap"][row, ..., t, n]  # one, or of each head
                total += (relevance * heard[f"layers.{layer}.memory.tap"][row, :, t, n, step % 2]).mean()
            torch.testing.assert_close(mass[row, t], total / 2)
    assert wanted > 3
    made.close()
    assert "attention targets inside chunks" in replace(BOTH, inside=True).training_aids
    with pytest.raises(ValueError, match="inside=True: it changes the targets of attention: give attention_cost too"):
        SupervisionConfig(label_cost=1.0, inside=True)
    windows = trainer(WINDOW)
    rollout = played(windows)
    masses = []
    for inside in (False, True):
        with AttentionRecorder(windows.model.core, rollout.truth, inside) as recorder:
            windows.model(rollout.inputs, rollout.state, rollout.is_first)
        masses.append(recorder.mass()[0])
    assert torch.equal(*masses), "who reads no chunks has steps anyway"
    windows.close()


@pytest.mark.parametrize("core", [HCAM, WINDOW], ids=["hcam", "transformer-xl"])
def test_imitation_takes_the_same_targets(core):
    loss = LossConfig(reduction="mean", supervision=BOTH, imitation=ImitationConfig(steps=12))
    made = trainer(core, loss=loss)
    rollout, model = played(made), made.model
    parameters, found = list(model.parameters()), []
    for cost in (
        lambda weight: impala_loss.impala_loss(model, rollout, loss, TrainingAids(BOTH, weight)),
        lambda weight: imitation_loss(model, rollout, TrainingAids(BOTH, weight, made.teacher, imitates=True), loss),
    ):
        without, helped = cost(0.0), cost(0.5)
        aids = {name: helped.metrics[name] for name in ("label_loss", "label_accuracy", "attention_loss")}
        assert helped.metrics.keys() - without.metrics.keys() == aids.keys()
        grads = torch.autograd.grad(helped.loss - without.loss, parameters, allow_unused=True)
        found.append((aids, grads))
    (one, grads), (other, others) = found
    torch.testing.assert_close(one, other)
    for got, expected in zip(grads, others, strict=True):
        both = [torch.zeros(()) if grad is None else grad for grad in (got, expected)]
        torch.testing.assert_close(*torch.broadcast_tensors(*both), rtol=1e-3, atol=2e-5)
    assert "attention_loss" in made.step()
    made.close()


@pytest.mark.parametrize("core", [HCAM, WINDOW], ids=["hcam", "transformer-xl"])
def test_a_memory_that_begins_empty_has_targets_as_if_the_episode_began_there(core, monkeypatch):
    agent = ActorCriticConfig(width=8, previous_action="none", previous_reward=False)
    supervision = SupervisionConfig(attention_cost=1.0)
    loss = LossConfig(supervision=supervision, reuse=ReuseConfig(learner_memory="empty"))
    world = VisualMatchConfig(cue_steps=3, distractor_steps=0, choice_steps=7)
    made = trainer(core, world, loss=loss, agent=agent, unroll=5)
    learned, found = [], []
    monkeypatch.setattr(made, "_optimize", lambda rollout, *others: learned.append(rollout) or [{"loss": 0.0}])
    for _ in range(11):
        rollout = made.actors.take().rollout
        made._learn(rollout)
        first = rollout.is_first.clone()
        first[:, 0] = True
        begins = rollout.truth["clock"][:, :1]
        goes_on = rollout.truth["clock"] >= begins
        rest = {name: (part - begins).clamp(min=0) for name, part in rollout.truth.items()}
        anew = {name: torch.where(goes_on & (part >= 0), rest[name], part) for name, part in rollout.truth.items()}
        missed = goes_on & (rollout.truth["stop"] <= begins)  # cues that were over before row 0
        anew |= {name: torch.where(missed, -1, anew[name]) for name in ("start", "stop")}
        for some in (learned[-1], rollout._replace(is_first=first, truth=anew)):
            aids = TrainingAids(supervision, 1.0)
            found.append(impala_loss.impala_loss(made.model, some, loss, aids).metrics["attention_loss"])
    found = torch.stack(found).detach()
    assert int((found[::2] > 0).sum()) >= 2
    torch.testing.assert_close(found[::2], found[1::2])
    made.close()


def test_decisions_that_depend_on_the_past_may_weigh_more_in_imitation():
    costs = SupervisionConfig(decision_cost=2.0)
    loss = LossConfig(reduction="mean", baseline_cost=0.0, supervision=costs, imitation=ImitationConfig(steps=12))
    made = trainer(loss=loss)
    rollout = played(made)
    both = (TrainingAids(costs, weight, made.teacher, imitates=True) for weight in (0.0, 0.5))
    without, helped = (imitation_loss(made.model, rollout, aids, loss) for aids in both)
    output, _ = made.model(rollout.inputs, rollout.state, rollout.is_first)
    log_prob = made.model.distribution(output.policy[:, :-1]).log_prob(rollout.target)
    decided = []
    for row in range(6):
        for t in range(9):
            clock, start, stop = (rollout.truth[part][row, t].item() for part in ("clock", "start", "stop"))
            if start >= 0 and stop <= clock and rollout.valid[row, t]:
                decided.append(-log_prob[row, t])
    assert 3 < len(decided) < int(rollout.valid.sum())
    torch.testing.assert_close(helped.metrics["decision_loss"], torch.stack(decided).mean())
    torch.testing.assert_close(helped.loss - without.loss, 0.5 * 2.0 * torch.stack(decided).mean())
    assert costs.training_aids == ("weight on decisions",) and "decision_loss" in made.step()
    made.close()


def test_it_is_annealed_and_gone_in_the_end():
    made = trainer(supervision=replace(BOTH, until=0.5))
    assert [made.config.loss.supervision.weight(step, 12) for step in (0, 3, 6, 11)] == [1.0, 0.5, 0.0, 0.0]
    reported = [made.step() for _ in range(8)]
    assert ["label_loss" in numbers for numbers in reported] == [True] * 6 + [False] * 2
    assert {"label_loss", "label_accuracy", "attention_loss"} <= set(made.step_metrics)
    made.close()


@pytest.mark.long
@pytest.mark.parametrize("reuse", [ReuseConfig(), ReuseConfig(passes=2, minibatches=2)])
def test_a_run_that_is_stopped_while_it_is_annealed_resumes_bit_for_bit(tmp_path, reuse):
    run = config(loss=LossConfig(supervision=replace(BOTH, share=0.3, until=0.8), reuse=reuse))

    def stop(step, metrics):
        if step == 8:
            raise KeyboardInterrupt

    whole = fit(run, tmp_path / "whole")
    with pytest.raises(KeyboardInterrupt):
        fit(run, tmp_path / "cut", loggers=[stop])
    again = fit(run, tmp_path / "cut", resume=True)
    assert again.step == whole.step == 12
    one, two = whole.agent.state_dict(), again.agent.state_dict()
    assert all(torch.equal(one[name], two[name]) for name in one)


def test_without_costs_nothing_is_there_and_nothing_changes():
    made, plain = trainer(supervision=SupervisionConfig(until=0.1, share=0.2)), trainer(supervision=SupervisionConfig())
    assert made.model.label_head is None and made.actors.collectors[0].ground_truth is None
    assert [made.step() for _ in range(2)][1]["loss"] == [plain.step() for _ in range(2)][1]["loss"]
    assert made.step_metrics == ImpalaTrainer.step_metrics


def test_tables_hear_of_it():
    assert (
        config().training_aids == ("label targets", "attention targets")
        and config(supervision=SupervisionConfig()).training_aids == ()
    )
    assert config(agent=ActorCriticConfig(reconstruct=True)).training_aids == (
        "reconstruction",
        *config().training_aids,
    )
    core = replace(HCAM, reading=ChunkAttentionVariant(chunk_gradients="call"))
    assert config(core, supervision=SupervisionConfig()).training_aids == ("gradients into chunks",)
    reading = ChunkAttentionVariant(tied_start=True, copying_start=True, relevance_heads=True, initial_scale=2.5)
    names = ("tied start", "copying start", "relevance per head", "initial scale 2.5")
    assert replace(HCAM, reading=reading).training_aids == names
    assert SequenceModelConfig(readout="pointer", identity_readout=True).training_aids == ("identity readout",)


def test_some_of_the_steps_have_targets():
    truth = {"clock": torch.arange(4000).view(40, 100), "label": torch.ones(40, 100, dtype=torch.long)}
    kept = subsample(truth, 0.15, torch.Generator().manual_seed(0))
    assert torch.equal(kept["clock"], truth["clock"])
    assert (kept["label"] == 1).float().mean().item() == pytest.approx(0.15, abs=0.02)
    several = subsample(
        truth | {"label": torch.ones(40, 100, 3, dtype=torch.long)}, 0.15, torch.Generator().manual_seed(0)
    )
    assert torch.equal(several["label"], kept["label"][..., None].expand(-1, -1, 3)), "of a step all or none"


def test_actors_that_overlap_bring_the_truth_along():
    made = trainer(schedule=ScheduleConfig(mode="asynchronous", actors=2, queue_length=4, timeout=60.0))
    try:
        assert all("label_loss" in made.step() for _ in range(4))
    finally:
        made.close()


def test_several_things_to_a_step_cost_what_a_loop_says():
    made = trainer(
        world=StreetLearnConfig(observation="symbols", pool=32, steps=20), supervision=replace(BOTH, attention_cost=0.0)
    )
    rollout, model = played(made), made.model
    output, _ = model(rollout.inputs, rollout.state, rollout.is_first)
    named, several = [], model.labels_per_step
    for row, t, move in product(range(6), range(9), range(several)):
        label = int(rollout.truth["label"][row, t, move])
        if label >= 0:
            logits = model.label_head(output.features[row, t]).view(several, -1)[move]
            named.append(-logits.log_softmax(-1)[label])
    helped = impala_loss.impala_loss(
        model, rollout, replace(made.config.loss, reduction="mean"), TrainingAids(made.config.loss.supervision, 1.0)
    ).metrics
    assert several > 1 and len(named) > 50
    torch.testing.assert_close(helped["label_loss"], torch.stack(named).mean())


@pytest.mark.parametrize("world", [MATCH, StreetLearnConfig(observation="symbols", pool=32, steps=20)])
def test_an_agent_with_a_head_for_labels_is_saved_and_loaded(tmp_path, world):
    model = config(world=world).build_agent()
    model.save(tmp_path)
    features = torch.randn(2, 8)
    assert torch.equal(ActorCritic.load(tmp_path).predict_labels(features), model.predict_labels(features))
    with pytest.raises(ValueError, match="num_labels=0: this agent has no head"):
        config(supervision=SupervisionConfig()).build_agent().predict_labels(features)


class Blind(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(0, 1, (2,))
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self.observation_space.sample(), {}

    def step(self, action):
        return self.observation_space.sample(), 0.0, False, False, {}


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"world": CueConfig()}, "label_cost=0.7: Cue names nothing that must be remembered"),
        (
            {"world": CueConfig(), "supervision": replace(BOTH, label_cost=0.0)},
            r"attention_cost=0.3: Cue has no ground truth about its decisions \(World.truth\): use 0 here",
        ),
        ({"core": CORES["lstm"](dim=8)}, "attention_cost=0.3: this LSTM does not attend to steps"),
        ({"core": replace(HCAM, carry_across_episodes=True)}, "attention_cost=0.3: this Hierarch"),
    ],
)  # fmt: skip
def test_what_a_world_or_core_cannot_give_is_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        trainer(**settings)


@pytest.mark.parametrize("supervision", [BOTH, replace(BOTH, label_cost=0.0)])
def test_a_gymnasium_world_has_no_truth(supervision):
    gymnasium.register("Blind-v0", Blind)
    try:
        with pytest.raises(ValueError, match=r"(label|attention)_cost=0\.\d: .*World .*use 0 here"):
            trainer(world=TASKS["gym"](id="Blind-v0"), supervision=supervision)
    finally:
        gymnasium.registry.pop("Blind-v0")


def test_weight_on_decisions_asks_for_a_teacher():
    costs = LossConfig(supervision=SupervisionConfig(decision_cost=1.0))
    for steps in (None, 0):
        with pytest.raises(ValueError, match=r"decision_cost=1\.0: .*loss\.imitation\.steps"):
            config(loss=replace(costs, imitation=ImitationConfig(steps=steps)))


@pytest.mark.parametrize(
    ("field", "value"), [("label_cost", -1.0), ("attention_cost", -0.1), ("until", 0.0), ("share", 1.5)]
)
def test_settings_are_checked(field, value):
    with pytest.raises(ValueError, match=f"{field}={value}: give"):
        SupervisionConfig(**{field: value})


@pytest.mark.slow
def test_labels_teach_a_cue_that_has_left_the_window():
    made = trainer(
        CORES["gru"](dim=32),
        TMazeConfig(length=20),
        SupervisionConfig(label_cost=1.0, until=1.0),
        batch_size=32,
        unroll=40,
        fit=FitConfig(steps=60),
    )
    accuracy = [made.step()["label_accuracy"] for _ in range(60)]
    made.close()
    assert accuracy[0] < 0.7 and accuracy[-1] > 0.95
