"""The usual way to compute what the cores compute: what their exact algebra is measured against.

The library's own plain forms (``core.reference_unroll``) are for reading and go row by row; these are batched and as
fast as the usual way allows, so that they can be timed against. Each form takes the core (or attention block) itself
and uses its parameters, so that the numbers are equal and the time is all that differs.
``tests/benchmark/test_reference_forms.py`` proves the first half.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import source_tree  # noqa: F401
from recollect.cores.hcam.attention import HierarchicalAttention
from recollect.cores.tlb.blocks import PreNormBlock
from recollect.cores.tlb.core import TemporalLatentBottleneck
from recollect.cores.ttm.core import TokenTuringMachine
from recollect.layers.attention import merge_heads, split_heads


def block_layer(block: PreNormBlock, inputs: Tensor, context: Tensor | None = None) -> Tensor:
    """Pre-norm attention and feed-forward, one operation after the other, with fused attention."""
    attention, heads = block.attention, block.attention.num_heads
    source = block.norm(inputs) if context is None else block.norm_keys(context)
    read = F.scaled_dot_product_attention(
        split_heads(F.linear(block.norm(inputs), attention.query.weight), heads),
        split_heads(F.linear(source, attention.key.weight), heads),
        split_heads(F.linear(source, attention.value.weight), heads),
    )
    stream = inputs + F.linear(merge_heads(read), attention.out.weight)
    net = block.feedforward
    hidden = net.activation(F.linear(block.norm_feedforward(stream), net.expand.weight, net.expand.bias))
    return stream + F.linear(hidden, net.contract.weight, net.contract.bias)


def chunk_loop(core: TemporalLatentBottleneck, inputs: Tensor) -> tuple[Tensor, Tensor]:
    """The bottleneck's equations 1 to 4, chunk by chunk: outputs ``[b, t, d]`` and slots ``[b, N, d]``.

    For two-way chunks, one slow state, no padding and t a multiple of K.
    """
    (level,) = core.levels
    chunk, slots = core.config.chunk_len, core.slots[0].expand(inputs.shape[0], -1, -1)
    outputs = []
    for start in range(0, inputs.shape[1], chunk):
        x = core.project(inputs[:, start : start + chunk]) + core.local_positions()
        for block in [*level.before, *level.inner]:
            x = block_layer(block, x, slots if block.cross else None)
        outputs.append(core.final_norm(x))
        slots = block_layer(level.write, slots, x)
    return torch.cat(outputs, 1), slots


def turing_loop(core: TokenTuringMachine, inputs: Tensor, memory: Tensor) -> tuple[Tensor, Tensor]:
    """Read, process and write over all tokens at every step: outputs ``[b, t, r, d]`` and memory ``[b, m, d]``."""
    outputs = []
    for step in range(inputs.shape[1]):
        tokens = core.project(inputs[:, step])
        out = core.process(core.read(torch.cat((memory, tokens), 1) + core.read_table))
        memory = core.write(torch.cat((memory, out, tokens), 1) + core.write_table)
        outputs.append(out)
    return torch.stack(outputs, 1), memory


def gather_and_project(attention: HierarchicalAttention, queries: Tensor, keys: Tensor, contents: Tensor) -> Tensor:
    """Hierarchical attention that gathers the k chosen chunks for every query and projects them: ``[b, t, d]``.

    Args:
        attention: its parameters are used.
        queries: ``[b, t, d]``.
        keys: ``[b, n, d]``.
        contents: ``[b, n, c, d]``.
    """
    heads, k = attention.num_heads, attention.top_k
    scores = attention.chunk_query(queries) @ attention.chunk_key(keys.detach()).mT
    best, index = (scores * queries.shape[-1] ** -0.5).topk(k, -1)  # b t k
    rows = contents.detach() + attention.positions(contents.shape[2])
    rows = rows[torch.arange(len(rows))[:, None, None], index]  # b t k c d
    projected_keys = split_heads(F.linear(rows, attention.key.weight), heads)
    projected_values = split_heads(F.linear(rows, attention.value.weight, attention.value.bias), heads)
    query = split_heads(attention.query(queries)[:, :, None, None], heads)  # b t 1 h 1 e
    read = F.scaled_dot_product_attention(query, projected_keys, projected_values)  # b t k h 1 e
    read = F.linear(merge_heads(read)[..., 0, :], attention.out.weight, attention.out.bias)
    return (best.softmax(-1)[..., None] * read).sum(2)


class CellStream:
    """Steps of a stack of ``nn.LSTMCell``."""

    def __init__(self, lstm: nn.LSTM, batch_size: int) -> None:
        self.cells = []
        for layer, weights in enumerate(lstm.all_weights):
            cell = nn.LSTMCell(lstm.hidden_size if layer else lstm.input_size, lstm.hidden_size)
            for own, weight in zip(cell.parameters(), weights, strict=True):
                own.data.copy_(weight)
            self.cells.append(cell)
        self.states = [(torch.zeros(batch_size, lstm.hidden_size),) * 2 for _ in self.cells]

    @torch.no_grad()
    def step(self, inputs: Tensor) -> Tensor:
        """``[b, i] -> [b, d]``."""
        for layer, cell in enumerate(self.cells):
            self.states[layer] = cell(inputs, self.states[layer])
            inputs = self.states[layer][0]
        return inputs


def lstm_loop(lstm: nn.LSTM, inputs: Tensor, is_first: Tensor) -> Tensor:
    """``nn.LSTM`` stepped in a loop, its state set to zero at resets: ``[t, b, i] -> [t, b, d]``."""
    keep = (~is_first).to(inputs.dtype).T[:, None, :, None]  # t 1 b 1
    state = (inputs.new_zeros(lstm.num_layers, inputs.shape[1], lstm.hidden_size),) * 2
    outputs = []
    for step, kept in zip(inputs.split(1), keep.unbind(0), strict=True):
        output, state = lstm(step, (state[0] * kept, state[1] * kept))
        outputs.append(output)
    return torch.cat(outputs)
