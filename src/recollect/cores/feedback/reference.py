"""The Feedback Transformer as a plain loop over rows, steps, layers, heads and memories.

    m_t   = sum_l softmax(a)_l x_t^l,  l = 0 .. L               x_t^0 is the projected input

    For every layer, with q = W_q x, and k_i = W_k m_{t-i}, v_i = W_v m_{t-i} for the memories i = 1 .. w steps back:

    s_i   = (q . k_i + q . p_i) / sqrt(e)                       a head has e numbers of q, k and v
    z     = W_o [sum_i softmax(s)_i v_i of every head]          0 where there is no memory yet

    norm="post"   y = norm(x + z),       x' = norm(y + FF(y))
    norm="pre"    y = x + z,             x' = y + FF(norm(y)), where W_q, W_k and W_v see normed x and m

    FF(y) = W_2 relu(W_1 y + b_1) + b_2

With ``official_empty`` there are always w memories; those before the episode are zeros. Paper: see ``core.py``.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from recollect.cores.contract import require_no_dropout
from recollect.cores.feedback.attention import FeedbackLayer, Projections
from recollect.cores.feedback.core import FeedbackState, FeedbackTransformer


def reference_unroll(
    core: FeedbackTransformer, inputs: Tensor, state: FeedbackState, is_first: Tensor
) -> tuple[Tensor, FeedbackState]:
    """Compute ``core(inputs, state, is_first)`` for finite inputs and without dropout."""
    config = core.config
    require_no_dropout(core)
    zero = core.zeros(config.dim)
    all_outputs, all_memories, counts = [], [], []
    for row, row_inputs in enumerate(inputs):
        count = int(state.count[row])
        past = list(state.memory[row, config.memory_len - count :])  # oldest first
        outputs = []
        for step, first in zip(row_inputs, is_first[row], strict=True):
            if first:
                past = []
            empty = [zero] * (config.memory_len - len(past))
            x, memory = one_step(core, step, empty + past if config.official_empty else past)
            past = [*past, memory][-config.memory_len :]
            outputs.append(x)
        all_outputs.append(torch.stack(outputs))
        all_memories.append(torch.stack([zero] * (config.memory_len - len(past)) + past))
        counts.append(len(past))
    return torch.stack(all_outputs), FeedbackState(torch.stack(all_memories), state.count.new_tensor(counts))


def one_step(core: FeedbackTransformer, x: Tensor, past: list[Tensor]) -> tuple[Tensor, Tensor]:
    """Compute output and memory ``[d]`` of a step from its input ``[i]`` and the memories before it, oldest first."""
    if isinstance(core.project, nn.Linear):
        x = core.project.weight @ x + core.project.bias
    depths = [x]
    for index, layer in enumerate(core.layers):
        projections = core.projections[0 if core.config.share_projections else index]
        z = layer.out.weight @ attention(layer, projections, x, past)
        if core.config.norm == "pre":
            y = x + z
            x = y + feedforward(layer, layer.feedforward_norm(y))
        else:
            y = layer.attention_norm(x + z)
            x = layer.feedforward_norm(y + feedforward(layer, y))
        depths.append(x)
    memory = torch.stack([share * depth for share, depth in zip(core.mix.softmax(0), depths, strict=True)]).sum(0)
    return core.norm(x), memory


def attention(layer: FeedbackLayer, projections: Projections, x: Tensor, past: list[Tensor]) -> Tensor:
    """Compute the answers ``[d]`` of all heads, one after the other."""
    if not past:
        return torch.zeros_like(x)
    q = (layer.query.weight @ projections.norm(x)).chunk(layer.num_heads)
    keys, values = [], []
    for memory in past:
        seen = projections.norm(memory)
        keys.append((projections.key.weight @ seen).chunk(layer.num_heads))
        values.append((projections.value.weight @ seen).chunk(layer.num_heads))
    positions = layer.positions.table[-len(past) :]  # oldest first
    answers = []
    for head, query in enumerate(q):
        scores = []
        for key, position in zip(keys, positions, strict=True):
            scores.append((query @ key[head] + query @ position) / len(query) ** 0.5)
        answer = torch.zeros_like(query)
        for weight, value in zip(torch.stack(scores).softmax(0), values, strict=True):
            answer = answer + weight * value[head]
        answers.append(answer)
    return torch.cat(answers)


def feedforward(layer: FeedbackLayer, y: Tensor) -> Tensor:
    """Return the feed-forward of one vector ``[d]``."""
    first, second = layer.feedforward.expand, layer.feedforward.contract
    return second.weight @ F.relu(first.weight @ y + first.bias) + second.bias
