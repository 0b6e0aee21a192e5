"""Record the torch code of transformers: outputs, final states and gradients, for tests/cores/test_linear_parity.py.

python benchmarks/linear_recordings.py        writes tests/golden/linear.npz; needs transformers 5
"""

from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import DynamicCache, Mamba2Config, Qwen3NextConfig, RecurrentGemmaConfig, xLSTMConfig
from transformers.models.mamba2.modeling_mamba2 import Mamba2Mixer
from transformers.models.qwen3_next.modeling_qwen3_next import Qwen3NextGatedDeltaNet
from transformers.models.recurrent_gemma.modeling_recurrent_gemma import RecurrentGemmaRecurrentBlock
from transformers.models.xlstm.modeling_xlstm import xLSTMBlock

TARGET = Path(__file__).parents[1] / "tests/golden/linear.npz"
ROWS, STEPS, DIM = 2, 24, 12


def mamba2() -> tuple[torch.nn.Module, Any]:
    """Two groups of two heads."""
    config = Mamba2Config(
        hidden_size=DIM, num_heads=4, head_dim=6, expand=2, state_size=5, n_groups=2, conv_kernel=4, chunk_size=8,
        num_hidden_layers=1, layer_norm_epsilon=1e-6,
    )  # fmt: skip
    return Mamba2Mixer(config, 0), config


def gated_deltanet() -> tuple[torch.nn.Module, Any]:
    """Two heads, values wider than keys."""
    config = Qwen3NextConfig(
        hidden_size=DIM, linear_num_value_heads=2, linear_num_key_heads=2, linear_key_head_dim=4,
        linear_value_head_dim=6, linear_conv_kernel_dim=4, num_hidden_layers=1, layer_types=["linear_attention"],
    )  # fmt: skip
    return Qwen3NextGatedDeltaNet(config, 0), config


def rg_lru() -> tuple[torch.nn.Module, Any]:
    """Three blocks of gates."""
    config = RecurrentGemmaConfig(hidden_size=DIM, lru_width=DIM, num_attention_heads=3, conv1d_width=4)
    return RecurrentGemmaRecurrentBlock(config, 0), config


def mlstm() -> tuple[torch.nn.Module, Any]:
    """A whole block of two heads, with its feed-forward."""
    config = xLSTMConfig(
        hidden_size=DIM, num_heads=2, num_hidden_layers=1, chunk_size=8, autocast_kernel_dtype="float32",
        ffn_round_up_to_multiple_of=1, ffn_proj_factor=2.0, mode="train",
    )  # fmt: skip
    return xLSTMBlock(config), config


def call(name: str, module: Any, config: Any, inputs: torch.Tensor) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    """Run all steps from an empty memory; return outputs and final states."""
    if name == "mlstm":
        outputs, (matrix, total, stabilizer) = module(inputs)
        return outputs, {"matrix": matrix, "total": total, "stabilizer": stabilizer}
    if name == "rg-lru":
        # Positions from 1: at position 0 the released code leaves out a factor of the paper.
        positions = torch.arange(1, STEPS + 1).expand(ROWS, -1)
        outputs, _ = module(inputs, positions, None, use_cache=False)
        return outputs, {"h": module.rg_lru.recurrent_states}
    cache = DynamicCache(config=config)
    outputs = module(inputs, cache)
    return outputs, {"matrix": cache.get_recurrent_state(0, state_idx=0)}


def peer_layer(key: str, ours: Any) -> torch.nn.Module:
    """Return the layer of transformers with the sizes of a config of ours, for benchmarks/linear.py."""
    if key == "mamba2":
        config: Any = Mamba2Config(
            hidden_size=ours.dim, num_heads=ours.num_heads, head_dim=ours.expand * ours.dim // ours.num_heads,
            expand=ours.expand, state_size=ours.state_dim, n_groups=ours.num_groups, chunk_size=64,
            num_hidden_layers=1,
        )  # fmt: skip
        return Mamba2Mixer(config, 0)
    keys, values = ours.head_sizes
    config = Qwen3NextConfig(
        hidden_size=ours.dim, linear_num_value_heads=ours.num_heads, linear_num_key_heads=ours.num_heads,
        linear_key_head_dim=keys, linear_value_head_dim=values, num_hidden_layers=1, layer_types=["linear_attention"],
    )  # fmt: skip
    return Qwen3NextGatedDeltaNet(config, 0)


def record() -> dict[str, np.ndarray]:
    """Return all arrays, named ``core/kind/name``."""
    found = {}
    for name, make in {"mamba2": mamba2, "gated-deltanet": gated_deltanet, "rg-lru": rg_lru, "mlstm": mlstm}.items():
        torch.manual_seed(0)
        module, config = make()
        with torch.no_grad():
            for parameter in module.parameters():
                parameter.copy_(0.3 * torch.randn_like(parameter) + (1.0 if parameter.ndim == 1 else 0.0))
        inputs = torch.randn(ROWS, STEPS, DIM, requires_grad=True)
        outputs, states = call(name, module.train(), config, inputs)
        direction = torch.randn_like(outputs)
        weights = dict(module.named_parameters())
        grads = torch.autograd.grad((outputs * direction).sum(), [inputs, *weights.values()])
        kinds = {
            "weight": weights,
            "grad": dict(zip(("inputs", *weights), grads, strict=True)),
            "state": states,
            "call": {"inputs": inputs, "outputs": outputs, "direction": direction},
        }
        for kind, tensors in kinds.items():
            found |= {f"{name}/{kind}/{key}": tensor.detach().numpy() for key, tensor in tensors.items()}
    return found


if __name__ == "__main__":
    np.savez_compressed(TARGET, **record())
    print(f"{TARGET}: {TARGET.stat().st_size:,} bytes")
