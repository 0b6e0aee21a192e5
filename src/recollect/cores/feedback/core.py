"""Feedback Transformer: every layer reads memories that contain the highest layers of the past.

    x_t^0 = input projection
    m_t   = sum_l softmax(a)_l x_t^l,  l = 0 .. L                       one memory vector per step
    z_t^l = Attention(x_t^{l-1}; m_{t-w}, .., m_{t-1})                  the same memories for every layer
    x_t^l = FF(z_t^l)                                                   with ReLU; residuals and norms as below

    Attention: W_o [sum_i softmax_i((q . k_i + q . p_i) / sqrt(e)) v_i of every head],
    q = W_q x_t, k_i = W_k m_{t-i}, v_i = W_v m_{t-i}, and a learned vector p_i per layer for i = 1 .. w steps back

    norm="post"   z = norm(x + attention(x; m)),  x' = norm(z + FF(z))
    norm="pre"    z = x + attention(norm_1(x); norm_1(m)),  x' = z + FF(norm(z)),  and a norm on the output

m_t needs the top layer at t, so steps cannot run in parallel; in return the representation of the past is as deep as
the number of steps. A baseline of Didolkar et al. 2022, section 7.6, on the copying task.

Paper: Fan, Lavril, Grave, Joulin & Sukhbaatar, Addressing Some Limitations of Transformers with Feedback Memory
(2020), equations 4-8, with the shared key and value projections of its section 3.2 (``share_projections``).

Differs: slots before the start of an episode are masked, and a step with an empty memory reads exactly 0.
``official_empty=True`` is the form of the released code, where softmax sees zeros in those slots. The released code
shares projections only as an option; adaptive spans are left out.

Fast form (``attention.py``): a memory is projected once, when it is new. The keys and values of steps before a block of
16 are one tensor for the whole block, so the backward pass adds into one gradient instead of one per step and slot.
The first layer's queries do not depend on the memory and are computed for all steps at once.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from recollect.cores.contract import MemoryCore, Places, companion
from recollect.cores.feedback.attention import FeedbackLayer, LoopLayer, Past, Projections
from recollect.cores.feedback.config import FeedbackTransformerConfig
from recollect.layers.feedforward import input_projection, linear_flops
from recollect.layers.window_attention import next_count, slide, steps_since_first
from recollect.ops.weight_grads import accumulate_weight_grads


class FeedbackState(NamedTuple):
    """The memories of the last w steps."""

    memory: Tensor  # b w d, newest last
    count: Tensor  # type: ignore[assignment]  # b, how many belong to the running episode (hides tuple.count)


class FeedbackTransformer(MemoryCore[FeedbackState]):
    """Layers that all read the memory of whole past steps; equations are at the top of this module."""

    stream_type = companion("recollect.cores.feedback.stream:FeedbackStream")
    reference_unroll = companion("recollect.cores.feedback.reference:reference_unroll")
    runs_in_float16 = True

    layers: list[FeedbackLayer]
    projections: list[Projections]

    def __init__(self, config: FeedbackTransformerConfig, input_dim: int) -> None:
        super().__init__()
        dim, pre = config.dim, config.norm == "pre"
        self.config = config
        self.input_shape, self.output_shape = (input_dim,), (dim,)
        self.project = input_projection(input_dim, dim)
        self.layers = nn.ModuleList(FeedbackLayer(config) for _ in range(config.num_layers))  # type: ignore[assignment]
        groups = 1 if config.share_projections else config.num_layers
        self.projections = nn.ModuleList(Projections(dim, config.num_heads, norm=pre) for _ in range(groups))  # type: ignore[assignment]
        self.group_of = [0 if config.share_projections else layer for layer in range(config.num_layers)]
        self.mix = nn.Parameter(torch.zeros(config.num_layers + 1))
        self.norm = nn.LayerNorm(dim) if pre else nn.Identity()
        if pre:
            for layer in self.layers:
                layer.out.weight.data /= (2 * config.num_layers) ** 0.5

    def initial_state(self, batch_size: int) -> FeedbackState:
        """Return a state without memories."""
        memory = self.zeros(batch_size, self.config.memory_len, self.config.dim)
        return FeedbackState(memory, self.zeros(batch_size, dtype=torch.long))

    def unroll(self, inputs: Tensor, state: FeedbackState, is_first: Tensor) -> tuple[Tensor, FeedbackState]:
        """Compute step by step, in blocks that share one tensor of earlier keys and values."""
        window = self.config.memory_len
        tracing = torch.compiler.is_compiling()
        resets = [True] * is_first.shape[1] if tracing else is_first.any(0).tolist()
        # Visible steps before each step: a mask of all steps at once would have the size of their square.
        reach = steps_since_first(is_first, state.count).clamp(max=window)[:, :, None, None, None].unbind(1)
        embedded = self.project(inputs)
        first_queries = self.layers[0].queries(self.projections[0].norm(embedded))
        steps = [*zip(embedded.split(1, 1), *(part.split(1, 2) for part in first_queries), strict=True)]
        # Cleared before it is projected: a NaN in a forgotten memory must not reach a weight's gradient either.
        memory = state.memory.masked_fill(is_first[:, :1, None], 0.0)
        empty = self.config.official_empty
        pasts = [Past(projections, memory, official_empty=empty) for projections in self.projections]
        back = torch.arange(window + pasts[0].block, 0, -1, device=inputs.device)  # of the keys, the newest last
        layers = [LoopLayer(layer) for layer in self.layers]
        used = [past.project for past in pasts] + [layer.query for layer in layers[1:]]
        used += [part for layer in layers for part in (layer.out, layer.expand, layer.contract)]
        cuts = [step for step in range(len(steps)) if step % pasts[0].block == 0 or resets[step]]
        outputs, memories, shown = [], [], []
        with accumulate_weight_grads(dict.fromkeys(used, inputs.shape[0]), len(steps)) as leave:
            for begin, end in pairwise((*cuts, len(steps))):
                if begin and resets[begin]:
                    for past in pasts:
                        past.clear(is_first[:, begin])
                part = self._walk(layers, pasts, steps[begin:end], reach[begin:end], back)
                outputs.append(part[0])
                memories.append(part[1])
                shown.append([F.pad(rows, (pasts[0].start, len(steps) - end + 1)) for rows in part[2:]])
                for past in pasts:
                    past.join()
            maps = [torch.cat(rows, 2) for rows in zip(*shown, strict=True)]
            output, new, *maps = leave(torch.cat(outputs, 1), torch.cat(memories, 1), *maps)
        for layer, weights in zip(self.layers, maps, strict=False):  # there are none where no tap listens
            layer.tap(weights)
        count = next_count(is_first, state.count, window)
        return self.norm(output), FeedbackState(slide(state.memory, new.to(state.memory.dtype), count), count)

    def _walk(
        self,
        layers: Sequence[LoopLayer],
        pasts: Sequence[Past],
        steps: Sequence[Sequence[Tensor]],
        reach: Sequence[Tensor],
        back: Tensor,
    ) -> tuple[Tensor, ...]:
        """Take steps between which the keys and values before their block do not change.

        Returns:
            Outputs and memories ``[b, n, d]``, and where a tap listens the weights of each layer.
        """
        window, outputs, memories = self.config.memory_len, [], []
        is_recorded = any(layer.tap.has_listeners for layer in self.layers)
        maps: list[list[Tensor]] = [[] for _ in layers] if is_recorded else []
        held = [part for past in pasts for part in past.hold()]
        turns = len(steps) * len(layers) // len(pasts)
        width = len(pasts[0].new) + len(steps) - 1  # keys of the block that the last step sees
        with accumulate_weight_grads(dict.fromkeys(held, 1), turns) as leave:
            for (x, *prepared), seen in zip(steps, reach, strict=True):
                late = len(pasts[0].new)
                mask = back[-window - late :] <= seen  # b 1 1 s
                stacked = [past.recent() for past in pasts]
                stream = [x]
                for index, layer in enumerate(layers):
                    group = self.group_of[index]
                    q, offsets = prepared if index == 0 else layer.queries(self.projections[group].norm(x))
                    heads, weights = pasts[group].read(q, offsets, mask, stacked[group], layer.layer)
                    x = layer.finish(x, heads)
                    stream.append(x)
                    if is_recorded:
                        maps[index].append(F.pad(weights, (0, width - late)))
                memory = self.blend(stream)
                for past in pasts:
                    past.push(memory)
                outputs.append(x)
                memories.append(memory)
            new = [part for past in pasts for pair in past.new for part in pair]
            kept = torch.cat(outputs, 1), torch.cat(memories, 1), *(torch.cat(rows, 2) for rows in maps), *new
            kept = leave(*kept)
        rest = iter(kept[len(kept) - len(new) :])
        for past in pasts:
            past.new = [(next(rest), next(rest)) for _ in past.new]
        return kept[: len(kept) - len(new)]

    def blend(self, stream: list[Tensor]) -> Tensor:
        """Compute the memory of a step from its representations at every depth: ``L + 1`` tensors of one shape."""
        weights = self.mix.softmax(0)
        return sum((w * x for w, x in zip(weights.unbind(), stream, strict=True)), torch.zeros_like(stream[0]))

    def attended_steps(self, clock: Tensor) -> Places:
        """Return the steps before a call and those in it; no step attends to itself."""
        window = self.config.memory_len
        steps = clock[:, :1, None] + torch.arange(-window, clock.shape[1], device=clock.device)
        reached = (steps < clock[..., None]) & (steps >= clock[..., None] - window)
        first = torch.where(reached, steps, -1)
        return {f"layers.{i}.tap": (first, first + 1) for i in range(len(self.layers))}

    def largest_counters(self) -> dict[str, int]:
        """Return the largest step count."""
        return {"count": self.config.memory_len}

    def flops_per_step(self) -> int:
        """Sum of all linear maps, and per layer of scores, positions and answers 6 w d."""
        return linear_flops(self) + len(self.layers) * 6 * self.config.memory_len * self.config.dim
