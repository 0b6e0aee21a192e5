"""Cores filled with the weights that the released code was recorded with give its numbers."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from recollect.cores.contract import MemoryCore
from recollect.cores.ttm import RecurrentTransformerConfig, TokenTuringMachineConfig

ARRAYS = np.load(Path(__file__).parents[1] / "golden" / "ttm_unit.npz")
RECORDS = {record["name"]: record for record in json.loads(str(ARRAYS["meta_json"]))["cases"]}
CASES = list(RECORDS)
SUMMARIZERS = {"TL": "mlp", "TL-MHA": "mha", "TL-AddErase": "mlp"}


def golden(
    case: str, dtype: torch.dtype
) -> tuple[MemoryCore[Any], torch.Tensor, torch.Tensor, dict[str, torch.Tensor]]:
    """The core of a recorded case, its input ``[b, t, n, d]``, its first memory, and what the released code gave.

    Outputs ``[b, t, r, d]`` and memories ``[b, t, m, d]`` after every step.
    """
    record = RECORDS[case]
    settings: dict[str, Any] = {
        "dim": record["dim"],
        "num_tokens": record["n_input"],
        "num_slots": record["memory_size"],
        "num_reads": record["process_size"],
        "num_layers": record["num_layers"],
        "num_heads": record["num_heads"],
        "hidden_dim": record["mlp_dim"],
        "processor": record["processing_unit"],
    }
    if case.startswith("simple"):
        config = RecurrentTransformerConfig(**settings, variant="released")
    else:
        config = TokenTuringMachineConfig(
            **settings,
            summarizer=SUMMARIZERS[record["memory_mode"]],
            memory="erase_add_released" if record["memory_mode"] == "TL-AddErase" else "token_summary",
            positions="released" if record["use_positional_embedding"] else "none",
        )
    core = config.build(record["dim"])
    fill(core, case)
    arrays = {
        name: torch.from_numpy(ARRAYS[f"{case}/{name}"]).to(dtype)
        for name in ("in/input_tokens", "out/memory", "out/output")
    }
    if case.startswith("encoder"):
        memory = torch.zeros(record["batch"], record["memory_size"], record["dim"], dtype=dtype)
    else:
        arrays = {name: array[:, None] for name, array in arrays.items()}
        memory = torch.from_numpy(ARRAYS[f"{case}/in/memory_tokens"]).to(dtype)
    want = {"output": arrays["out/output"], "memory": arrays["out/memory"]}
    return core.to(dtype), arrays["in/input_tokens"], memory, want


def fill(core, case):
    """Copy every recorded parameter to its place; none may be left over."""
    prefix = f"{case}/param/" + ("unit_function/" if case.startswith("encoder") else "")
    given = {name.removeprefix(prefix): ARRAYS[name] for name in ARRAYS.files if name.startswith(prefix)}
    used = set()

    def take(name):
        used.add(name)
        return torch.from_numpy(given[name])

    def put(parameter, value):
        assert parameter.numel() == value.numel()
        parameter.data = value.reshape(parameter.shape).clone()

    def dense(layer, name):
        kernel = take(f"{name}/kernel")
        if kernel.ndim == 3:  # a projection to heads is (in, heads, width), the one back is (heads, width, in)
            kernel = kernel.flatten(0, 1) if name.endswith("out") else kernel.flatten(1)
        put(layer.weight, kernel.T)
        put(layer.bias, take(f"{name}/bias"))

    def norm(layer, name):
        put(layer.weight, take(f"{name}/scale"))
        put(layer.bias, take(f"{name}/bias"))

    def net(module, name):
        dense(module.expand, f"{name}/Dense_0")
        dense(module.contract, f"{name}/Dense_1")

    def attention(module, name):
        for part in ("query", "key", "value", "out"):
            dense(getattr(module, part), f"{name}/{part}")

    def summarizer(module, number):
        if core.config.summarizer == "mha":
            put(module.queries, take(f"TokenLearnerMHA_{number}/tokens"))
            attention(module.attention, f"TokenLearnerMHA_{number}/attn")
        else:
            norm(module.norm, f"TokenLearnerModuleV11_{number}/LayerNorm_0")
            net(module.net, f"TokenLearnerModuleV11_{number}/token_masking")

    def erase_add(module, name):
        norm(module.norm, f"{name}/LayerNorm_0")
        net(module.address, f"{name}/MlpBlock_0")
        for number, control in enumerate((module.erase, module.add)):
            norm(control.norm, f"{name}/LayerNorm_{number + 1}")
            net(control.token_mixing.mix, f"{name}/MlpBlock_{2 * number + 1}")
            net(control.channel_mixing, f"{name}/MlpBlock_{2 * number + 2}")

    def processor(module):
        for number, block in enumerate(module.blocks):
            if module.kind == "transformer":
                base = f"Encoder_0/encoderblock_{number}"
                norm(block.attention_norm, f"{base}/LayerNorm_0")
                attention(block.attention, f"{base}/MultiHeadDotProductAttention_0")
                norm(block.feedforward_norm, f"{base}/LayerNorm_1")
                net(block.feedforward, f"{base}/MlpBlock_0")
            elif module.kind == "mixer":
                base = f"MixerBlock_{number}"
                norm(block.token_norm, f"{base}/LayerNorm_0")
                net(block.token_mixing.mix, f"{base}/token_mixing")
                norm(block.channel_norm, f"{base}/LayerNorm_1")
                net(block.channel_mixing, f"{base}/channel_mixing")
            else:
                norm(block.norm, f"LayerNorm_{number}")
                net(block.feedforward, f"MlpBlock_{number}")
        if module.kind == "transformer":
            put(module.table, take("Encoder_0/posembed_input/pos_embedding"))
        last = {
            "transformer": "Encoder_0/encoder_norm",
            "mixer": "LayerNorm_0",
            "mlp": f"LayerNorm_{len(module.blocks)}",
        }
        norm(module.norm, last[module.kind])

    processor(core.process)
    summarizer(core.read if hasattr(core, "read") else core.summarize, 0)
    if getattr(core, "read_table", None) is not None:
        put(core.read_table, take("read_pos_embed/pos_embedding"))
    if getattr(core, "write_table", None) is not None:
        put(core.write_table, take("write_pos_embed/pos_embedding"))
    if getattr(core, "erase_add", None) is not None:
        erase_add(core.erase_add, "TokenAddEraseWrite_0")
    if getattr(core, "write", None) is not None:
        summarizer(core.write, 1)
    left = set(given) - used
    # The released code makes a write table for erase and add, and does not use it.
    assert left <= ({"write_pos_embed/pos_embedding"} if "AddErase" in case else set()), left


@pytest.mark.parametrize("form", ["core", "plain form"])
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_released_numbers(case, dtype, form):
    core, tokens, memory, want = golden(case, dtype)
    never = torch.zeros(tokens.shape[:2], dtype=torch.bool)
    unroll = core if form == "core" else core.reference_unroll
    outputs, state = unroll(tokens, type(core.initial_state(1))(memory), never)
    torch.testing.assert_close(outputs, want["output"], atol=2e-5, rtol=2e-5)
    torch.testing.assert_close(state.memory, want["memory"][:, -1], atol=2e-5, rtol=2e-5)
