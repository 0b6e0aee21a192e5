"""Linear recurrences equal the torch code of transformers: outputs, final states and gradients.

The recordings are by transformers 5.24, whose code is in float32: ``python benchmarks/linear_recordings.py``.
"""

from pathlib import Path

import numpy as np
import pytest
import torch

from recollect.cores.linear import GatedDeltaNetConfig, Mamba2Config, MLSTMConfig, RGLRUConfig
from recollect.state import leaves

RECORDED = Path(__file__).parents[1] / "golden/linear.npz"
DIM = 12
CONFIGS = {
    "mamba2": Mamba2Config(dim=DIM, num_layers=1, num_heads=4, state_dim=5, num_groups=2),
    "gated-deltanet": GatedDeltaNetConfig(dim=DIM, num_layers=1, num_heads=2, key_dim=4, value_dim=6, hidden_dim=0),
    "rg-lru": RGLRUConfig(dim=DIM, num_layers=1, num_heads=3, hidden_dim=0),
    "mlstm": MLSTMConfig(dim=DIM, num_layers=1, num_heads=2, hidden_dim=24),
}


@pytest.fixture(scope="module")
def recorded():
    with np.load(RECORDED) as file:
        return {name: torch.from_numpy(file[name]).double() for name in file.files}


def of(recorded, key, kind):
    return {name.split("/")[2]: value for name, value in recorded.items() if name.startswith(f"{key}/{kind}/")}


def by_head(parts, sizes):
    """Split rows that are grouped by head, as Qwen3-Next has them, and join each part over the heads."""
    split = [part.split(sizes) for part in parts.chunk(2)]
    return [torch.cat(piece) for piece in zip(*split, strict=True)]


def translated(key, w):
    """Names and layout of our parameters, from those of transformers; for weights and gradients alike."""
    if key == "mamba2":
        found = {"expand.weight": w["in_proj.weight"], "convolution.weight": w["conv1d.weight"][:, 0]}
        found |= {
            "convolution.bias": w["conv1d.bias"],
            "norm_groups": w["norm.weight"],
            "out.weight": w["out_proj.weight"],
        }
        return found | {"log_rate": w["A_log"], "step_bias": w["dt_bias"], "skip": w["D"]}
    if key == "gated-deltanet":
        q, k, v, z = by_head(w["in_proj_qkvz.weight"], [4, 4, 6, 6])
        b, a = by_head(w["in_proj_ba.weight"], [1, 1])
        found = {"expand.weight": torch.cat((q, k, v, z, b, a)), "convolution.weight": w["conv1d.weight"][:, 0]}
        found |= {"norm_heads.weight": w["norm.weight"], "out.weight": w["out_proj.weight"]}
        return found | {"log_rate": w["A_log"], "step_bias": w["dt_bias"]}
    if key == "rg-lru":
        found = {
            f"expand.{kind}": torch.cat((w[f"linear_y.{kind}"], w[f"linear_x.{kind}"])) for kind in ("weight", "bias")
        }
        found |= {"convolution.weight": w["conv_1d.weight"][:, 0], "convolution.bias": w["conv_1d.bias"]}
        for kind in ("weight", "bias"):
            gates = w[f"rg_lru.recurrent_gate_{kind}"], w[f"rg_lru.input_gate_{kind}"]
            found |= {f"gates.{kind}": torch.cat(gates, -1), f"out.{kind}": w[f"linear_out.{kind}"]}
        return found | {"decay": w["rg_lru.recurrent_param"]}
    layer = {name.removeprefix("mlstm_layer."): value for name, value in w.items()}
    found = {"expand.weight": torch.cat([layer[f"{name}.weight"] for name in ("q", "k", "v", "ogate_preact")])}
    for kind in ("weight", "bias"):
        found[f"gates.{kind}"] = torch.cat((layer[f"igate_preact.{kind}"], layer[f"fgate_preact.{kind}"]))
    found |= {"norm_heads": layer["multihead_norm.weight"], "out.weight": layer["out_proj.weight"]}
    ups = torch.cat((w["ffn.proj_up_gate.weight"], w["ffn.proj_up.weight"]))
    found |= {
        "refine.feed_forward.expand.weight": ups,
        "refine.feed_forward.contract.weight": w["ffn.proj_down.weight"],
    }
    return found | {"norm.weight": w["norm_mlstm.weight"], "refine.norm.weight": w["norm_ffn.weight"]}


def mixed(key, layer, inputs, memory, first):
    """The block of transformers: xLSTM's is a whole layer, the others lack our norm before and the residual after."""
    if key == "mlstm":
        return layer(inputs, memory, first)
    layer.norm = torch.nn.Identity()
    outputs, memory = layer(inputs, memory, first)
    return outputs - inputs, memory


@pytest.mark.parametrize("key", CONFIGS)
def test_core_equals_transformers(key, recorded):
    core = CONFIGS[key].build(DIM).double()
    layer, call, states = core.layers[0], of(recorded, key, "call"), of(recorded, key, "state")
    weights, theirs = translated(key, of(recorded, key, "weight")), translated(key, grads := of(recorded, key, "grad"))
    layer.load_state_dict(weights, strict=key == "mlstm")
    inputs = call["inputs"].requires_grad_()
    first = torch.zeros(inputs.shape[:2], dtype=torch.bool)
    memory = tuple(leaf[:, 0] for leaf in leaves(core.initial_state(len(inputs))))
    outputs, memory = mixed(key, layer, inputs, memory, first)
    torch.testing.assert_close(outputs, call["outputs"], rtol=1e-4, atol=1e-4)
    fields = core.state_type._fields
    for name, state in states.items():
        own = memory[fields.index(name)]
        turned = state.mT if key == "mamba2" else state.view_as(own)  # theirs is [p, n]
        torch.testing.assert_close(own, turned, rtol=1e-4, atol=1e-4)
    parameters = {name: dict(layer.named_parameters())[name] for name in weights}
    loss = (outputs * call["direction"]).sum()
    ours = torch.autograd.grad(loss, [inputs, *parameters.values()])
    for name, own in zip(("inputs", *parameters), ours, strict=True):
        other = grads["inputs"] if name == "inputs" else theirs[name]
        scale = other.abs().max().clamp(min=1.0)
        torch.testing.assert_close(own / scale, other / scale, rtol=1e-4, atol=1e-4, msg=lambda t, n=name: f"{n}: {t}")
