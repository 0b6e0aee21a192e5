"""Every core equals its plain form: outputs, final states and gradients, over all sample configs and random ones."""

import random

import pytest
import torch
from test_contract import samples

from recollect.cores import CORES
from recollect.state import leaves, map_state, named_leaves
from tiers import first

KEYS = [key for key in CORES if CORES[key]().build(8).reference_unroll is not None]
DRAWS = 6


def cases():
    for key in KEYS:
        module = samples(key)
        configs = [*module.CONFIGS, *(module.sample(random.Random(f"reference {key} {i}")) for i in range(DRAWS))]
        found = [pytest.param(config, i, id=f"{key}-{i}") for i, config in enumerate(configs)]
        yield from first(len(module.CONFIGS), found)


def build(config, index):
    torch.manual_seed(index)
    core = config.build(config.dim if index % 2 else config.dim + 3).double()
    with torch.no_grad():
        for weight in core.parameters():  # so that gains, shifts and biases count
            weight += 0.1 * torch.randn_like(weight)
    return core.eval()


def run(unroll, inputs, state, is_first, cut, weights):
    """Two calls; outputs, the final state, and gradients of a random sum of all of it."""
    inputs = inputs.clone().requires_grad_()
    state = map_state(lambda leaf: leaf.clone().requires_grad_(leaf.is_floating_point()), state)
    first, middle = unroll(inputs[:, :cut], state, is_first[:, :cut])
    second, after = unroll(inputs[:, cut:], middle, is_first[:, cut:])
    outputs = torch.cat((first, second), 1)
    torch.manual_seed(0)
    # By shape: randn_like fills in the order of the memory, which the two forms may choose freely.
    loss = (outputs * torch.randn(outputs.shape, dtype=outputs.dtype)).sum()
    for leaf in leaves(after):
        if leaf.is_floating_point():  # a leaf without a gradient takes its numbers too: both forms get the same ones
            loss = loss + (leaf * torch.randn(leaf.shape, dtype=leaf.dtype)).sum()
    sources = [inputs, *(leaf for leaf in leaves(state) if leaf.is_floating_point()), *weights]
    grads = torch.autograd.grad(loss, sources, allow_unused=True)
    return outputs, after, [torch.zeros_like(s) if g is None else g for s, g in zip(sources, grads, strict=True)]


@pytest.mark.parametrize(("config", "index"), list(cases()))
def test_core_equals_its_plain_form(config, index):
    core = build(config, index)
    inputs = torch.randn(2, 13, *core.input_shape, dtype=torch.float64)
    is_first = torch.zeros(2, 13, dtype=torch.bool)
    is_first[0, 0] = is_first[0, 9] = is_first[1, 4] = is_first[1, 5] = True
    with torch.no_grad():  # a state in the middle of things
        _, state = core(torch.randn_like(inputs), core.initial_state(2), torch.zeros_like(is_first))
    weights = list(core.parameters())
    outputs, after, grads = run(core, inputs, state, is_first, 6, weights)
    plain_outputs, plain_after, plain_grads = run(core.reference_unroll, inputs, state, is_first, 6, weights)
    torch.testing.assert_close(plain_outputs, outputs)
    assert type(plain_after) is type(after)
    for (name, plain), leaf in zip(named_leaves(plain_after), leaves(after), strict=True):
        torch.testing.assert_close(plain, leaf, msg=lambda text, name=name: f"state.{name}: {text}")
    for plain, grad in zip(plain_grads, grads, strict=True):
        torch.testing.assert_close(plain, grad)
