"""The linear probe: its optimum, and what it is scored on."""

import pytest
import torch
import torch.nn.functional as F

from recollect.evaluation.probe import DECAY, fit_linear, linear_probe
from recollect.runs.errors import NonFiniteError
from recollect.tasks import Shapes
from recollect.tasks.images.contract import ImageTask, Pictures


def test_the_fit_is_the_optimum():
    inputs, labels = torch.randn(60, 4, dtype=torch.float64), torch.randint(0, 3, (60,))
    logits = fit_linear(inputs, labels, 3)
    bias = logits(torch.zeros(1, 4, dtype=torch.float64))
    weights = (logits(torch.eye(4, dtype=torch.float64)) - bias).mT.clone().requires_grad_()
    bias = bias.clone().requires_grad_()
    loss = F.cross_entropy(inputs @ weights.T + bias, labels) + DECAY / 2 * weights.square().sum()
    loss.backward()
    assert weights.grad.abs().max() < 1e-4 and bias.grad.abs().max() < 1e-4


def test_features_that_know_the_label_are_perfect_and_noise_is_chance():
    class Known(Shapes):
        def pictures(self, batch_size, generator):
            found = super().pictures(batch_size, generator)
            return Pictures(found.labels.view(-1, 1, 1, 1).expand_as(found.images).float(), found.labels)

    def probe(task: ImageTask, features):
        return linear_probe(features, task, train_rows=200, test_rows=100, batch_size=32, seed=3)

    known = probe(Known(size=8), lambda x: F.one_hot((x[:, 0, 0] * 0.25 + 0.5).round().long(), 8).float())
    assert known.score == known.perfect == 1 and len(known.asked) == 100 and known.chance == 1 / 8
    noise = probe(Shapes(size=8), lambda x: x.flatten(1)[:, :2] * 0)
    assert noise.score < 0.35 and noise.low <= noise.score <= noise.high
    again = probe(Shapes(size=8), lambda x: x.flatten(1)[:, :2] * 0)
    assert again.correct == noise.correct


def probe_of(features, train_rows=38, test_rows=20):
    return linear_probe(features, Shapes(size=8), train_rows=train_rows, test_rows=test_rows, batch_size=40, seed=3)


def test_a_feature_that_never_changes_in_training_is_left_out():
    calls = []

    def features(x, spoiled):
        calls.append(x)
        z = x.flatten(1)[:, :4].double()
        if spoiled:  # the mean of 38 times 0.1 is not 0.1; in the test pictures it is something else
            z = torch.cat((z, z.new_full((len(x), 1), 0.1 if len(calls) == 1 else 1e6)), 1)
        return z

    plain = probe_of(lambda x: features(x, False))
    calls.clear()
    other = probe_of(lambda x: features(x, True))
    assert other.correct == plain.correct and other.loss == pytest.approx(plain.loss, rel=1e-9)


def test_too_few_pictures_and_features_that_are_no_numbers_are_refused():
    with pytest.raises(ValueError, match="train_rows=1: give at least two pictures"):
        probe_of(lambda x: x.flatten(1), train_rows=1)
    with pytest.raises(ValueError, match="test_rows=0: give at least one picture"):
        probe_of(lambda x: x.flatten(1), test_rows=0)
    for bad in (torch.nan, torch.inf):
        with pytest.raises(NonFiniteError, match="the features of 1 of 38 pictures are NaN or infinite"):
            probe_of(lambda x, bad=bad: x.flatten(1).index_put((torch.tensor(3), torch.tensor(5)), torch.tensor(bad)))


def test_train_and_test_pictures_differ():
    seen = []
    linear_probe(
        lambda x: seen.append(x) or x.flatten(1)[:, :3], Shapes(size=8), train_rows=4, test_rows=4, batch_size=4, seed=0
    )
    assert len(seen) == 2 and not torch.equal(*seen)
    with pytest.raises(AssertionError):
        torch.testing.assert_close(*seen)
