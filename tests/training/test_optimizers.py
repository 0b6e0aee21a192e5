import inspect

import pytest
import torch
from torch import nn

from recollect.training import OptimizerConfig
from recollect.training.optimizers import Undo, begin_step, optimizer_tensors, split_rates


def test_undo_puts_weights_averages_settings_and_generator_back():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    generator = torch.Generator().manual_seed(5)

    def step():
        inputs = torch.randn(8, 3, generator=generator)
        optimizer.zero_grad()
        model(inputs).square().sum().backward()
        optimizer.step()
        return inputs

    def everything():
        tensors = {**model.state_dict(), **optimizer_tensors(optimizer)}
        rates = [group["lr"] for group in optimizer.param_groups]
        return {name: tensor.clone() for name, tensor in tensors.items()}, rates

    step()
    (before, rates), undo = everything(), Undo(model, optimizer, generator)
    drawn = step()
    optimizer.param_groups[0]["lr"] = 7.0
    step()
    changed, _ = everything()
    assert all(not torch.equal(changed[name], tensor) for name, tensor in before.items()), "nothing to put back"
    undo()
    after, rates_after = everything()
    assert after.keys() == before.keys() and rates_after == rates
    assert all(torch.equal(after[name], tensor) for name, tensor in before.items())
    assert torch.equal(step(), drawn), "the same draws come again"
    assert not torch.equal(model[0].weight, before["0.weight"]), "and the optimiser goes on"


@pytest.mark.parametrize("factor", [1.0, 0.25, 0.0])
def test_some_parameters_may_have_a_rate_of_their_own(factor):
    slow, other = nn.Linear(2, 3), nn.Linear(3, 2)
    optimizer = OptimizerConfig(weight_decay=0.1).build(nn.ModuleList([slow, other]))
    split_rates(optimizer, slow.parameters(), factor)
    begin_step(optimizer, 0.5)
    rates = {id(parameter): group["lr"] for group in optimizer.param_groups for parameter in group["params"]}
    assert [rates[id(parameter)] for parameter in slow.parameters()] == [0.5 * factor] * 2
    assert [rates[id(parameter)] for parameter in other.parameters()] == [0.5] * 2


def test_weight_decay_spares_what_its_text_says():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.words, self.linear, self.norm = nn.Embedding(5, 4), nn.Linear(4, 4), nn.LayerNorm(4)
            self.positions, self.slots = nn.Parameter(torch.ones(3, 4)), nn.Parameter(torch.ones(2, 4))

    model = Model()
    decayed = {id(p) for p in OptimizerConfig(weight_decay=0.1).build(model).param_groups[0]["params"]}
    assert {name for name, p in model.named_parameters() if id(p) in decayed} == {"linear.weight", "positions", "slots"}
    text = " ".join(inspect.getsource(OptimizerConfig).split())
    assert "but also learned tables of positions, tokens and slots. Biases, norms and nn.Embedding are excluded" in text


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"warmup_steps": 2.5}, r"warmup_steps=2\.5: give a whole number"),
        ({"learning_rate": float("inf")}, "learning_rate=inf: give a finite number"),
        ({"betas": (0.9, 1.0)}, r"betas=\(0\.9, 1\.0\): give two factors from 0 to below 1"),
        ({"betas": (0.9,)}, r"betas=\(0\.9,\): give a tuple of 2 finite numbers"),
    ],
)
def test_settings_that_cannot_be_are_named(settings, message):
    with pytest.raises(ValueError, match=message):
        OptimizerConfig(**settings)
