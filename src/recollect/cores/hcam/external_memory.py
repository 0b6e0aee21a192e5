"""Layers of the hierarchical chunk memory that read an external memory, the same in every layer.

For a question q of t steps and chunks C_i with summaries S_i, their means:

    x  = project(q)                                             [t, d]
    in every layer:
        y  = x + LocalAttention(n(x))                           to the steps of this question before it, and itself
        z  = y + sum_{i in top k} R_i MHA(n(y), project(C_i) + P)
        x  = z + W_2 relu(W_1 n(z) + b_1) + b_2

Nothing is written: questions do not see each other, and no step of them becomes a chunk. No gradient enters a chunk,
unless ``chunk_gradients="call"``.

Paper: Lampinen et al. 2021, appendix B.4: "used the same set of embedded task memories at every layer".

Differs: local attention is causal, as in the core; the paper does not specify it.
"""

from functools import partial

import torch
from torch import Tensor

from recollect.cores.hcam.core import HierarchicalChunkLayer, HierarchicalChunkMemory
from recollect.cores.hcam.reference import Chunk, Memory, layer_output
from recollect.layers.window_attention import visible_steps


def read_external_memory(core: HierarchicalChunkMemory, chunks: Tensor, questions: Tensor) -> Tensor:
    """Read n chunks with each of k questions.

    Args:
        core: its ``num_chunks`` is ignored.
        chunks: ``[b, n, c, i]``, the oldest step of a chunk first.
        questions: ``[b, k, t, i]``, at most ``memory_len + 1`` steps each.

    Returns:
        ``[b, k, t, dim]``.

    Raises:
        ValueError: a question has more steps.
    """
    (b, k, t), window = questions.shape[:3], core.config.memory_len
    if t > window + 1:
        raise ValueError(f"memory_len={window}: a question has {t} steps: give at least {t - 1}")
    features = core.features()
    # The residual stream keeps its dtype under autocast.
    contents, x = core.project(chunks).to(features.dtype), core.project(questions).to(features.dtype)
    contents = core.config.reading.stored(contents)
    keys = contents.mean(2)
    visible = visible_steps(torch.arange(t, device=x.device).expand(b * k, t), window)

    def read(layer: HierarchicalChunkLayer, queries: Tensor) -> Tensor:
        """Read with the steps of all questions as queries of one row, so that the chunks are not copied."""
        return layer.memory(queries.reshape(b, k * t, -1), keys, contents).reshape(queries.shape)

    x = x.flatten(0, 1)
    for layer in core.layers:
        x = layer.attend(x, None, visible, features, partial(read, layer))
    return x.unflatten(0, (b, k))


def reference_read_external_memory(core: HierarchicalChunkMemory, chunks: Tensor, questions: Tensor) -> Tensor:
    """Compute :func:`read_external_memory` as a plain loop over questions, steps and layers, without dropout."""
    answers = []
    for row, asked in zip(chunks, questions, strict=True):
        given = [Chunk(steps, steps.mean(0)) for steps in core.config.reading.stored(core.project(row))]
        for question in asked:
            windows: list[list[Tensor]] = [[] for _ in core.layers]
            for step in question:
                x = core.project(step)
                for layer, window in zip(core.layers, windows, strict=True):
                    before, x = x, layer_output(layer, x, Memory(window, given))
                    window.append(before)
                answers.append(x)
    return torch.stack(answers).unflatten(0, questions.shape[:3])
