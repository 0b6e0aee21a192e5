"""Small temporal latent bottlenecks of every kind, and what their tests compare."""

import torch

from recollect.cores.tlb import TemporalLatentBottleneckConfig
from recollect.cores.tlb import TemporalLatentBottleneckVariant as Variant

SIZES = {"dim": 8, "num_heads": 2, "hidden_dim": 12, "chunk_len": 4, "num_slots": 3}
VARIANTS = {
    "default": {},
    "crosses": {"num_layers": 3, "self_per_cross": 1, "positions": "learned"},
    "alg1": {"num_layers": 4, "positions": "none", "details": Variant(cross_placement="alg1_literal")},
    "per-layer": {"num_layers": 3, "feedback": "per_layer", "details": Variant(value_norm="separate", head_dim=3)},
    "per-layer-alg1": {
        "num_layers": 3,
        "self_per_cross": 1,
        "feedback": "per_layer",
        "details": Variant(cross_placement="alg1_literal", activation="relu"),
    },
    "no-past": {"feedback": "none", "details": Variant(initial_slots="sinusoid_once", activation="gelu")},
    "released": {"details": Variant.released(cross_feedforward=False, norm_eps=1e-4)},
    "cut": {"num_layers": 2, "self_per_cross": 1, "details": Variant(detach_every=2)},
    "one-step": {"chunk_len": 1, "details": Variant(detach_every=1)},
    "one-slot": {"num_slots": 1, "chunk_len": 7},
}


def build(causal=True, input_dim=5, **options):
    return TemporalLatentBottleneckConfig(**{**SIZES, **options}, causal=causal).build(input_dim).double()


def assert_same_with_gradients(core, inputs, got, want):
    """Two (outputs, slots): equal in value, and in the gradient of a random weighted sum."""
    weights = [torch.randn_like(tensor) for tensor in want]
    names, targets = zip(("inputs", inputs), *core.named_parameters(), strict=True)
    gradients = []
    for results in (got, want):
        loss = sum((w * r).sum() for w, r in zip(weights, results, strict=True))
        gradients.append(torch.autograd.grad(loss, targets, allow_unused=True, materialize_grads=True))
    for a, b in zip(got, want, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-9)
    for name, a, b in zip(names, *gradients, strict=True):
        torch.testing.assert_close(
            a, b, rtol=1e-8, atol=1e-8, msg=lambda text, name=name: f"gradient of {name}: {text}"
        )


def random_resets(batch, steps, seed=0):
    is_first = torch.rand(batch, steps, generator=torch.Generator().manual_seed(seed)) < 0.12
    is_first[0] = False
    is_first[0, 0] = True
    return is_first
