"""Running statistics of observations and returns in IMPALA: exact, resumed, undone with a failed step."""

import pytest
import torch
from small_worlds import CueConfig, StepsConfig
from test_impala import run, same, trainer, weights

from recollect.agents.config import ActorCriticConfig
from recollect.agents.encoder_config import EncoderConfig
from recollect.runs.errors import NonFiniteError
from recollect.training import LossConfig, ReuseConfig
from recollect.training.impala import loss as impala_loss
from recollect.training.impala import trainer as impala

AGENT = ActorCriticConfig(encoders=EncoderConfig(norm_numbers=True), norm_values=True)
LOSS = LossConfig(norm_advantages=True, reuse=ReuseConfig(passes=3, minibatches=2, reference="actor", kl_stop=0.5))


def made(**settings):
    return trainer(StepsConfig(), agent=AGENT, loss=LOSS, **settings)


def test_observations_count_once_per_rollout():
    one = made()
    rollouts = []
    take = one.actors.take

    def taking():
        delivery = take()
        rollouts.append(delivery.rollout.observation.clone())
        return delivery

    one.actors.take = taking
    run(one, 4)
    seen = torch.cat([rollout.flatten(0, 1) for rollout in rollouts]).double()
    norm = one.model.encoder.encoders["observation"].norm
    torch.testing.assert_close(norm.mean.double(), seen.mean(0))
    torch.testing.assert_close(norm.variance.double(), seen.var(0, unbiased=False), rtol=1e-4, atol=1e-4)


def test_actors_normalise_as_the_learner_does():
    one = made()
    run(one, 3)
    delivery = one.actors.take()  # copies the newest weights and statistics
    acting = one.actors.collectors[0].agent
    assert same(dict(acting.named_buffers()), dict(one.model.named_buffers()))
    one.actors.give_back(delivery)


def test_a_run_with_statistics_resumes_exactly():
    whole = made()
    run(whole, 6)
    half = made()
    run(half, 4)
    tensors, data = half.save()
    rest = made()
    rest.model.load_state_dict(weights(half.model))
    rest.load({name: tensor.clone() for name, tensor in tensors.items()}, data)
    run(rest, 2)
    assert same(weights(whole.model), weights(rest.model))


def test_a_step_that_fails_leaves_the_statistics(monkeypatch):
    one = made()
    run(one, 2)
    before = {name: tensor.clone() for name, tensor in one.model.state_dict().items()}

    def broken(*arguments, **settings):
        raise NonFiniteError("the loss is nan")

    monkeypatch.setattr(impala, "impala_loss", broken)
    with pytest.raises(NonFiniteError):
        one.step()
    assert same(before, one.model.state_dict())


def test_a_step_without_memory_in_its_second_pass_leaves_all_as_it_was(monkeypatch):
    one = made()
    run(one, 2)
    before = {name: tensor.clone() for name, tensor in one.model.state_dict().items()}
    saved = {name: tensor.clone() for name, tensor in one.save()[0].items()}
    original, calls = impala.impala_loss, []

    def broken(*arguments, **settings):
        calls.append(1)
        if len(calls) == 4:
            raise MemoryError("you tried to allocate 8000000000000 bytes.")
        return original(*arguments, **settings)

    monkeypatch.setattr(impala, "impala_loss", broken)
    with pytest.raises(MemoryError):
        one.step()
    after = one.save()[0]
    assert len(calls) == 4 and same(before, one.model.state_dict()) and same(saved, after)


@pytest.mark.parametrize("far", [1e-9, None])
def test_passes_end_when_the_policy_has_moved(monkeypatch, far):
    reuse = ReuseConfig(passes=4, minibatches=2, reference="actor", kl_stop=far)
    one = trainer(CueConfig(), loss=LossConfig(reuse=reuse))
    calls = []

    def counting(*arguments, **settings):
        calls.append(1)
        return impala_loss.impala_loss(*arguments, **settings)

    monkeypatch.setattr(impala, "impala_loss", counting)
    one.step()
    assert len(calls) == 8 if far is None else 1 < len(calls) < 8


def test_the_ratio_starts_from_the_policy_that_acted():
    one = trainer(CueConfig(), loss=LossConfig(reuse=ReuseConfig(passes=2, reference="actor")))
    rollout = one.actors.take().rollout
    with torch.no_grad():
        for weight in one.model.policy_head.parameters():
            weight += 0.3 * torch.randn_like(weight)
    losses = impala_loss.impala_loss(one.model, rollout, one.config.loss)
    moved = losses.log_prob - one.model.distribution(rollout.policies).log_prob(rollout.actions)
    expected = (moved.exp() - 1 - moved)[rollout.valid].mean()
    torch.testing.assert_close(losses.metrics["kl"], expected)
    assert losses.metrics["kl"] > 1e-3
    learner = LossConfig(reuse=ReuseConfig(passes=2))
    assert impala_loss.impala_loss(one.model, rollout, learner).metrics["kl"] == 0


def test_one_pass_corrects_for_the_lag_whatever_the_reference():
    one = trainer(CueConfig())
    rollout = one.actors.take().rollout
    with torch.no_grad():
        one.model.policy_head[-1].bias += torch.tensor([2.0, 0.0])
    actor, learner = (
        impala_loss.impala_loss(one.model, rollout, LossConfig(reuse=ReuseConfig(reference=reference)))
        for reference in ("actor", "learner")
    )
    assert actor.loss == learner.loss and torch.equal(actor.targets, learner.targets)


def test_normalised_advantages():
    advantages, valid = torch.randn(3, 5) * 40 + 7, torch.rand(3, 5) < 0.7
    found = impala_loss.normalize(advantages.masked_fill(~valid, torch.nan), valid)
    torch.testing.assert_close(found[valid].mean(), torch.tensor(0.0), atol=1e-5, rtol=0)
    torch.testing.assert_close(found[valid].std(unbiased=False), torch.tensor(1.0))
    assert (found[~valid] == 0).all()
    small = impala_loss.normalize(advantages * 1e-6, torch.ones_like(valid))
    assert small.abs().max() < 1e-2, "noise stays noise"
