"""Token Turing Machines as a plain loop over rows and steps, with the paper's equations.

    S_k:  w_i = softmax(MLP(V))  or  softmax(q_i V^T / sqrt(d)),   z_i = w_i V        equations 1 to 3

    Z^t     = S_r([M^t | I^t])              [m + n, d] -> [r, d]                      equations 4, 6
    O^t     = Process(Z^t)                  [r, d] -> [r, d]                          equation 7
    M^{t+1} = S_m([M^t | O^t | I^t])        [m + r + n, d] -> [m, d]                  equations 5, 8

Paper: Ryoo et al. 2023 (Token Turing Machines), section 2 and table 5. Every function uses the weights of the core's
modules, and nothing is computed ahead of its step. ``core.py`` gives the same outputs, states and gradients, and lists
where both differ from the paper.

The Recurrent Transformer of table 2 is here too: it has the same S_k and Process.

    Z^t             = S_r(I^t)                      [n, d] -> [r, d]
    [M^{t+1} | O^t] = Process([M^t | Z^t])          [m + r, d] -> [m + r, d]
"""

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from recollect.cores.ttm.config import HEADS, STRIDE
from recollect.cores.ttm.core import TokenTuringMachine, TokenTuringMachineState
from recollect.cores.ttm.erase_add import EraseAdd
from recollect.cores.ttm.processors import MixerBlock, MLPBlock, TokenProcessor, TransformerBlock
from recollect.cores.ttm.recurrent_transformer import RecurrentTransformer, RecurrentTransformerState
from recollect.cores.ttm.summarizers import AttentionSummarizer, MLPSummarizer, QuerySummarizer, Summarizer
from recollect.layers.attention import MultiHeadAttention
from recollect.layers.feedforward import FeedForward


def reference_unroll(
    core: TokenTuringMachine, inputs: Tensor, state: TokenTuringMachineState, is_first: Tensor
) -> tuple[Tensor, TokenTuringMachineState]:
    """Compute ``core(inputs, state, is_first)`` for finite inputs: equations 6 to 8 in a loop."""
    all_outputs, last_memories = [], []
    for row in range(inputs.shape[0]):
        memory, row_outputs = state.memory[row], []
        for t in range(inputs.shape[1]):
            if is_first[row, t]:
                memory = core.initial_state(1).memory[0]
            tokens = project(core.project, inputs[row, t])  # n d
            known = memory[STRIDE - 1 :: STRIDE] if core.config.memory == "sample" else memory
            seen = torch.cat((known, tokens))
            if core.read_table is not None:
                seen = seen + core.read_table
            if core.config.summarizer == "none":
                outputs = process(core.process, seen)[-len(tokens) :]  # n d
            else:
                outputs = process(core.process, summarize(core.read, seen))  # r d
            if core.write is not None:
                memory = summarize(core.write, offered(core, memory, outputs, tokens))
            elif core.erase_add is not None:
                memory = erase_and_add(core.erase_add, memory, outputs)
            elif core.config.memory in ("concatenate", "sample"):
                memory = torch.cat((memory, tokens))[-len(memory) :]
            else:
                memory = torch.zeros_like(memory)
            row_outputs.append(outputs)
        all_outputs.append(torch.stack(row_outputs))
        last_memories.append(memory)
    return torch.stack(all_outputs), TokenTuringMachineState(torch.stack(last_memories))


def offered(core: TokenTuringMachine, memory: Tensor, outputs: Tensor, tokens: Tensor) -> Tensor:
    """Join M^t ``[m, d]``, O^t ``[r, d]`` and I^t ``[n, d]`` for equation 5, with their rows of the table."""
    if core.config.positions == "released":
        joined = torch.cat((memory, tokens, outputs))
    else:
        joined = torch.cat((memory, outputs, tokens))
    return joined if core.write_table is None else joined + core.write_table


def recurrent_reference_unroll(
    core: RecurrentTransformer, inputs: Tensor, state: RecurrentTransformerState, is_first: Tensor
) -> tuple[Tensor, RecurrentTransformerState]:
    """Compute ``core(inputs, state, is_first)`` for finite inputs: the baseline of table 2."""
    m, r = core.config.num_slots, core.config.num_reads
    all_outputs, last_memories = [], []
    for row in range(inputs.shape[0]):
        memory, row_outputs = state.memory[row], []
        for t in range(inputs.shape[1]):
            if is_first[row, t]:
                memory = core.initial_state(1).memory[0]
            summary = summarize(core.summarize, project(core.project, inputs[row, t]))  # r d
            tokens = process(core.process, torch.cat((memory, summary)))  # m + r, d
            if core.config.variant == "released":
                outputs, memory = tokens[:r], tokens[r:]
            else:
                memory, outputs = tokens[:m], tokens[m:]
            row_outputs.append(outputs)
        all_outputs.append(torch.stack(row_outputs))
        last_memories.append(memory)
    return torch.stack(all_outputs), RecurrentTransformerState(torch.stack(last_memories))


def summarize(summarizer: Summarizer, tokens: Tensor) -> Tensor:
    """Compute S_k, equations 1 to 3: V ``[p, d]`` to Z ``[k, d]``."""
    if isinstance(summarizer, MLPSummarizer):
        weights = mlp(summarizer.net, summarizer.norm(tokens)).T.softmax(-1)  # k p, equation 1
        return weights @ tokens  # equation 3
    if isinstance(summarizer, QuerySummarizer):
        weights = (summarizer.queries @ tokens.T / math.sqrt(tokens.shape[-1])).softmax(-1)  # equation 2
        return weights @ tokens
    if isinstance(summarizer, AttentionSummarizer):
        return multi_head(summarizer.attention, summarizer.queries, tokens, HEADS)
    p, k = len(tokens), summarizer.num_out  # pooling: token i belongs to group floor(i k / p)
    groups = [[token for i, token in enumerate(tokens) if i * k // p == group] for group in range(k)]
    return torch.stack([torch.stack(group).mean(0) for group in groups])


def process(unit: TokenProcessor, tokens: Tensor) -> Tensor:
    """Compute Process, equation 7: ``[p, d] -> [p, d]``."""
    if unit.table is not None:
        tokens = tokens + unit.table
    for block in unit.blocks:
        if isinstance(block, TransformerBlock):
            normed = block.attention_norm(tokens)
            tokens = tokens + multi_head(block.attention, normed, normed, block.attention.num_heads)
            tokens = tokens + mlp(block.feedforward, block.feedforward_norm(tokens))
        elif isinstance(block, MixerBlock):
            tokens = tokens + mlp(block.token_mixing.mix, block.token_norm(tokens).T).T
            tokens = tokens + mlp(block.channel_mixing, block.channel_norm(tokens))
        elif isinstance(block, MLPBlock):
            tokens = mlp(block.feedforward, block.norm(tokens))
    return unit.norm(tokens)


def erase_and_add(module: EraseAdd, memory: Tensor, outputs: Tensor) -> Tensor:
    """Compute "Erase and Add" of table 5: ``M * prod_s (1 - w_s e_s^T) + sum_s w_s a_s^T``, controlled by O."""
    weights = mlp(module.address, module.norm(memory)).T.softmax(-1)  # s m
    erase = mlp(module.erase.channel_mixing, mlp(module.erase.token_mixing.mix, module.erase.norm(outputs).T).T)  # s d
    add = mlp(module.add.channel_mixing, mlp(module.add.token_mixing.mix, module.add.norm(outputs).T).T)  # s d
    heads = range(module.num_heads)
    if module.variant == "paper":
        added = sum(torch.outer(weights[s], add[s]) for s in heads)
        erase = erase.sigmoid()
    else:
        added = sum(1 - torch.outer(weights[s], add[s]) for s in heads) / module.num_heads
    for s in heads:
        memory = memory * (1 - torch.outer(weights[s], erase[s]))
    return memory + added


def multi_head(attention: MultiHeadAttention, queries: Tensor, context: Tensor, num_heads: int) -> Tensor:
    """Compute multi-head attention, head by head: ``[k, d], [p, d] -> [k, d]``."""
    projected = (attention.query(queries), attention.key(context), attention.value(context))
    heads = []
    for q, k, v in zip(*(tensor.chunk(num_heads, -1) for tensor in projected), strict=True):
        heads.append((q @ k.T / math.sqrt(q.shape[-1])).softmax(-1) @ v)
    return attention.out(torch.cat(heads, -1))


def project(layer: nn.Module, tokens: Tensor) -> Tensor:
    """Compute ``W x + b``, or return x where it already has the width d."""
    return F.linear(tokens, layer.weight, layer.bias) if isinstance(layer, nn.Linear) else tokens


def mlp(net: FeedForward, x: Tensor) -> Tensor:
    """Compute ``W2 gelu(W1 x + b1) + b2`` along the last axis."""
    hidden = F.gelu(F.linear(x, net.expand.weight, net.expand.bias), approximate="tanh")
    return F.linear(hidden, net.contract.weight, net.contract.bias)
