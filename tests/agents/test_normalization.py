import torch
from torch import nn

from recollect.agents.normalization import LARGEST, LEAST_SPREAD, ReturnNorm, RunningNorm


def test_running_statistics_are_those_of_all_that_was_seen():
    norm = RunningNorm(3).double()
    parts = [torch.randn(n, 3, dtype=torch.float64) * torch.tensor([1.0, 100.0, 1e-2]) + 5 for n in (1, 7, 64, 3)]
    for part in parts:
        norm.update(part)
    seen = torch.cat(parts)
    torch.testing.assert_close(norm.mean, seen.mean(0))
    torch.testing.assert_close(norm.variance, seen.var(0, unbiased=False))
    assert norm.count == len(seen)
    torch.testing.assert_close(norm(seen).std(0, unbiased=False), torch.ones(3).double(), rtol=1e-3, atol=0)


def test_before_the_first_update_nothing_changes_and_outliers_are_cut():
    norm = RunningNorm(2)
    inputs = torch.tensor([[0.5, -3.0], [1e9, -1e9]])
    torch.testing.assert_close(norm(inputs), inputs.clamp(-LARGEST, LARGEST))


def test_a_number_that_never_moves_stays_small():
    norm = RunningNorm(1)
    norm.update(torch.full((100, 1), 7.0))
    assert norm(torch.tensor([[7.0]])).abs() < 1e-3
    assert norm(torch.tensor([[8.0]])).isfinite()


def test_values_stay_when_the_scale_of_returns_moves():
    head, norm = nn.Linear(4, 1), ReturnNorm()
    features = torch.randn(9, 4)
    with torch.no_grad():
        for scale, shift in ((1.0, 0.0), (300.0, -1000.0), (0.01, 5.0)):
            before = norm(head(features))
            norm.update(torch.randn(50) * scale + shift, head)
            torch.testing.assert_close(norm(head(features)), before, rtol=1e-3, atol=1e-3 * before.abs().max().item())


def test_the_scale_follows_and_does_not_vanish():
    head, norm = nn.Linear(4, 1), ReturnNorm()
    norm.update(torch.full((10,), 50.0), head)
    torch.testing.assert_close(norm.mean, torch.tensor(50.0))
    torch.testing.assert_close(norm.std, torch.tensor(50.0 * LEAST_SPREAD))  # all alike: their size decides
    for _ in range(300):
        norm.update(torch.tensor([-1.0, 1.0]), head)
    assert abs(norm.mean.item()) < 1e-3 and abs(norm.std.item() - 1) < 1e-2


def test_an_empty_update_changes_nothing():
    head, norm = nn.Linear(4, 1), ReturnNorm()
    before = {name: tensor.clone() for name, tensor in norm.state_dict().items()}
    norm.update(torch.empty(0), head)
    assert all(torch.equal(before[name], tensor) for name, tensor in norm.state_dict().items())
