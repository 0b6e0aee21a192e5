"""Cores with random weights, and the differences between two forms of one computation."""

import torch


def scramble(core):
    """Random numbers in every parameter, so that a forgotten bias, scale or table has an effect."""
    with torch.no_grad():
        for parameter in core.parameters():
            parameter.copy_(torch.randn_like(parameter) * (0.5 if parameter.ndim < 2 else parameter.shape[-1] ** -0.5))
    return core


def problem(config, input_dim=4, batch=2, steps=5, resets=0.3):
    """A core in float64 with inputs, a state in the middle of an episode, and resets."""
    core = scramble(config.build(input_dim).double())
    inputs = torch.randn(batch, steps, config.num_tokens, input_dim, dtype=torch.float64, requires_grad=True)
    memory = torch.randn_like(core.initial_state(batch).memory).requires_grad_()
    is_first = torch.rand(batch, steps) < resets
    return core, inputs, type(core.initial_state(1))(memory), is_first


def assert_equals_plain_form(core, inputs, state, is_first):
    """Outputs, memory, and the gradients of a random sum of both."""
    outputs, new = core(inputs, state, is_first)
    want_outputs, want = core.reference_unroll(inputs, state, is_first)
    leaves = {"inputs": inputs, "memory": state.memory, **dict(core.named_parameters())}
    leaves = {name: leaf for name, leaf in leaves.items() if leaf.requires_grad}
    worst = differences((outputs, new.memory), (want_outputs, want.memory), leaves)
    assert max(worst.values()) < 1e-9, worst


def differences(got, want, leaves):
    """Largest difference of each value, and of the gradients of one random scalar with respect to each leaf.

    Values relative to their largest entry; gradients relative to the largest of all, because some are zero except for
    rounding (a bias before a softmax).
    """
    weights = [torch.randn_like(tensor) for tensor in want]
    gradients = []
    for tensors in (got, want):
        scalar = sum((tensor * weight).sum() for tensor, weight in zip(tensors, weights, strict=True))
        gradients.append(torch.autograd.grad(scalar, list(leaves.values()), allow_unused=True, materialize_grads=True))
    result = {}
    for number, (a, b) in enumerate(zip(got, want, strict=True)):
        result[f"value {number}"] = (a - b).abs().max().item() / max(1.0, b.abs().max().item())
    largest = max(1.0, *(b.abs().max().item() for b in gradients[1]))
    for name, a, b in zip(leaves, *gradients, strict=True):
        result[f"gradient {name}"] = (a - b).abs().max().item() / largest
    return result
