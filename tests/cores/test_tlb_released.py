"""The numbers of the authors' code (Long Range Arena), from its own weights."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from recollect.cores.tlb import SlotReadout, TemporalLatentBottleneckConfig
from recollect.cores.tlb import TemporalLatentBottleneckVariant as Variant
from recollect.layers.positions import sinusoid

GOLDEN = Path(__file__).parents[1] / "golden" / "tlb_lra.npz"


def golden_cases():
    return {case["name"]: case for case in json.loads(str(np.load(GOLDEN)["meta_json"]))["cases"]}


def load_block(block, arrays):
    """A block of the released encoder; the numbers in its names count its sub-modules."""
    first = 2 if block.cross else 1
    norms = [(block.norm, 0), (block.key_norm, 1)] if block.cross else [(block.norm, 0)]
    if block.feedforward is not None:
        norms.append((block.norm_feedforward, first + 1))
        for linear, name in ((block.feedforward.expand, "Dense_0"), (block.feedforward.contract, "Dense_1")):
            load_dense(linear, arrays(f"MlpBlock_{first + 2}/{name}"))
    for norm, number in norms:
        load_norm(norm, arrays(f"LayerNorm_{number}"))
    attention = arrays(f"MultiHeadDotProductAttention_{first}")
    for name in ("query", "key", "value"):
        getattr(block.attention, name).weight.copy_(attention(f"{name}/kernel").flatten(1).T)
    block.attention.out.weight.copy_(attention("out/kernel").flatten(0, 1).T)


def load_dense(linear, arrays):
    linear.weight.copy_(arrays("kernel").T)
    linear.bias.copy_(arrays("bias"))


def load_norm(norm, arrays):
    norm.weight.copy_(arrays("scale"))
    norm.bias.copy_(arrays("bias"))


def reader(data, prefix):
    """``arrays(name)``: the array of that name, or a reader of what is below it."""

    def arrays(name):
        full = f"{prefix}/{name}"
        return torch.from_numpy(data[full]).double() if full in data else reader(data, full)

    return arrays


@torch.no_grad()
def load_encoder(case, arrays):
    learned = case["learn_pos_emb"] and not case["use_global_pos_encoding"]
    local = "learned" if learned else "sinusoid"
    ratio, blocks = case["self_to_cross_ratio_input_updater"], case["num_cross_layers_input_updater"]
    config = TemporalLatentBottleneckConfig(
        dim=case["emb_dim"],
        num_layers=ratio * blocks,
        num_heads=case["num_heads"],
        hidden_dim=case["mlp_dim"],
        self_per_cross=ratio,
        chunk_len=case["block_size"],
        num_slots=case["num_state_tokens"],
        causal=False,
        positions="none" if case["use_global_pos_encoding"] else local,
        details=Variant.released(head_dim=case["qkv_dim"] // case["num_heads"], cross_feedforward=case["use_residual"]),
    )
    core = config.build(case["emb_dim"]).double()
    (level,) = core.levels
    names = [
        f"horizontal_block_{b}_{k}" for b in range(blocks) for k in (*(f"self_{i}" for i in range(ratio)), "cross")
    ]
    for block, name in zip((*level.before, *level.inner), names, strict=True):
        load_block(block, arrays(name))
    load_block(level.write, arrays(f"vertical_block_{blocks - 1}_cross"))
    if learned:
        core.positions.copy_(arrays("posembed_input/pos_embedding")[0, : case["block_size"]])
    readout = SlotReadout(config).double()
    load_norm(readout.norm, arrays("encoder_norm"))
    return core, readout


@pytest.mark.parametrize("name", golden_cases())
@torch.no_grad()
def test_the_released_code_is_reproduced(name):
    data, case = np.load(GOLDEN), golden_cases()[name]
    params = reader(data, f"{name}/param")
    arrays = params("stateful_encoder") if case["dual"] else params
    core, readout = load_encoder(case, arrays)
    means = []
    for key in ("tokens1", "tokens2") if case["dual"] else ("tokens",):
        tokens = torch.from_numpy(data[f"{name}/in/{key}"]).long()
        inputs = arrays("Embed_0/embedding")[tokens]
        if case["use_global_pos_encoding"]:
            table = sinusoid(torch.arange(tokens.shape[1], dtype=torch.float64), case["emb_dim"])
            if case["learn_pos_emb"]:
                table = arrays("global_posembed_input/pos_embedding")[0, : tokens.shape[1]]
            inputs = inputs + table
        means.append(readout(core.encode(inputs, tokens == 0)[1]))
        if f"{name}/out/encoded_after_chunk" in data:
            want = torch.from_numpy(data[f"{name}/out/encoded_after_chunk"]).double()  # b n N d
            for chunk in range(want.shape[1]):
                end = (chunk + 1) * case["block_size"]
                _, state = core.encode(inputs[:, :end], tokens[:, :end] == 0)
                torch.testing.assert_close(readout.norm(state.slots[:, 0]), want[:, chunk], atol=2e-5, rtol=1e-5)
    hidden = means[0]
    if case["dual"]:
        a, b = means
        hidden = torch.cat([a, b, a * b, a - b] if "nli" in name else [a, b], -1)
    for dense in ("mlp", "mlp2") if case["dual"] else ("mlp",):
        hidden = (hidden @ params(f"{dense}/kernel") + params(f"{dense}/bias")).relu()
    logits = hidden @ params("logits/kernel") + params("logits/bias")
    torch.testing.assert_close(logits, torch.from_numpy(data[f"{name}/out/logits"]).double(), atol=2e-5, rtol=1e-5)
