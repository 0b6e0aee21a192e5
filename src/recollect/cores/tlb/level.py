"""One slow state of a temporal latent bottleneck with its fast layers, and the walk over the chunks.

Equations and source: :mod:`recollect.cores.tlb.core`.
"""

from typing import cast

import torch
from torch import Tensor, nn

from recollect.cores.tlb.blocks import FoldedBlock, PreNormBlock, stack
from recollect.cores.tlb.chunks import ChunkMarks, choose
from recollect.ops.weight_grads import Affine, accumulate_weight_grads


class Level(nn.Module):
    """One slow state, and the fast layers up to the output that writes it.

    Args:
        blocks: fast layers in order.
        write: the layer that updates the slots.
    """

    def __init__(self, blocks: list[PreNormBlock], write: PreNormBlock) -> None:
        super().__init__()
        first = next((i for i, block in enumerate(blocks) if block.cross), len(blocks))
        self.before = nn.ModuleList(blocks[:first])  # independent of the slots
        self.inner = nn.ModuleList(blocks[first:])  # from the first cross layer on
        self.write = write


class FoldedLevel:
    """A :class:`Level` with prepared layers.

    Args:
        level: its layers.
        causal: whether self-attention sees only the past of its chunk.
        added: ``[N, d]``, added to the slots whenever a chunk begins; None adds nothing.
        always: whether it stays added even if the chunk is empty.
    """

    def __init__(self, level: Level, causal: bool, added: Tensor | None = None, always: bool = False) -> None:
        self.causal, self.added, self.always = causal, added, always
        self.before = [self_layer(block) for block in level.before]
        self.inner = [self_layer(block) for block in level.inner]
        self.write = FoldedBlock(cast(PreNormBlock, level.write))
        self.crosses = [layer for layer, _ in self.inner if layer.block.cross]
        self.from_slots = stack(*(layer.key_value for layer in self.crosses), self.write.query)

    def begin(self, slots: Tensor) -> tuple[Tensor, tuple[Tensor, ...]]:
        """Slots ``[b, N, d]`` as a chunk sees them, and all that is projected from them, in one product: keys and
        values of each cross layer, then the queries that write.
        """
        slots = slots if self.added is None else slots + self.added
        return slots, self.write.project(slots, self.from_slots)

    def hoist(self, chunks: Tensor, seen: Tensor | None) -> tuple[Tensor, ...]:
        """What does not depend on the slots, for all chunks ``[n, b, K, d]`` at once: the layers before the first
        cross layer, and its queries. Without cross layers, the keys and values that are written.
        """
        for layer in self.before:
            chunks = attend_in_chunks(layer, chunks, seen, self.causal)
        layer = self.crosses[0] if self.crosses else self.write
        return chunks, *layer.project(chunks, layer.query if self.crosses else layer.key_value)

    def perceive(self, x: Tensor, queries: Tensor, context: tuple[Tensor, ...], seen: Tensor | None) -> Tensor:
        """Equation 1 for one chunk ``[b, K, d]``, from the first cross layer on."""
        keys_values = iter(context)
        for i, (layer, product) in enumerate(self.inner):
            if layer.block.cross:
                queries = layer.project(x, layer.query)[0] if i else queries
                x = layer.join(x, queries, next(keys_values), next(keys_values))
            else:
                x = layer.self_attend(x, product, seen, self.causal)
        return x

    def walk(self, chunks: Tensor, slots: Tensor, fresh: Tensor, marks: ChunkMarks) -> tuple[Tensor, Tensor]:
        """Equations 1 and 2 over all chunks.

        Args:
            chunks: ``[n, b, K, d]``.
            slots: ``[b, N, d]``, before the first chunk.
            fresh: ``[N, d]``, with which episodes begin.
            marks: what happens at each chunk.

        Returns:
            The fast stream ``[n, b, K, d]``, and the slots after the last chunk.
        """
        seen = readable(marks, chunks, self.causal)
        hoisted = self.hoist(chunks, seen)
        turns, b, c, _ = chunks.shape
        rows = {affine: b * c for layer, _ in self.inner for affine in layer.rest}
        rows |= {layer.query if layer.block.cross else product: b * c for layer, product in self.inner[1:]}
        rows |= {self.write.key_value: b * c} if self.crosses else {}
        rows |= dict.fromkeys([*self.write.rest, self.from_slots], b * slots.shape[1])

        def run(slots: Tensor, fresh: Tensor, *hoisted: Tensor) -> tuple[Tensor, ...]:
            return self._turns(slots, fresh, hoisted, marks, None if seen is None else marks.keys)

        stream, last = accumulate_weight_grads(run, rows, turns, (slots, fresh, *hoisted))
        return stream, last

    def _turns(
        self,
        slots: Tensor,
        fresh: Tensor,
        hoisted: tuple[Tensor, ...],
        marks: ChunkMarks,
        readable: list[Tensor | None] | None,
    ) -> tuple[Tensor, Tensor]:
        """The loop over chunks; ``hoisted`` is from :meth:`hoist`, ``readable`` restricts later self layers."""
        outputs = []
        # `unbind`: the backward pass of taking chunk i by index is as long as the sequence.
        for i, (x, *projected) in enumerate(zip(*(part.unbind(0) for part in hoisted), strict=True)):
            slots = choose(marks.fresh[i], fresh.expand_as(slots), slots)
            slots = choose(marks.cut[i], slots.detach(), slots)
            used, context = self.begin(slots)
            if self.crosses:
                x = self.perceive(x, projected[0], context, None if readable is None else readable[i])
            outputs.append(x)
            slots = choose(marks.empty[i] if self.always else False, used, slots)
            if marks.done[i] is not False:
                keys, values = self.write.project(x, self.write.key_value) if self.crosses else projected
                written = self.write.join(used, context[-1], keys, values, marks.keys[i])
                slots = choose(marks.done[i], written, slots)
        return torch.stack(outputs), slots


def self_layer(block: nn.Module) -> tuple[FoldedBlock, Affine]:
    """A layer and its product for self-attention (a cross layer gets one too, and never uses it)."""
    layer = FoldedBlock(cast(PreNormBlock, block))
    return layer, stack(layer.query, layer.key_value)


def attend_in_chunks(layer: tuple[FoldedBlock, Affine], chunks: Tensor, seen: Tensor | None, causal: bool) -> Tensor:
    """A self-attention layer over all chunks ``[n, b, K, d]``."""
    flat = layer[0].self_attend(chunks.flatten(0, 1), layer[1], seen, causal)
    return flat.unflatten(0, chunks.shape[:2])


def readable(marks: ChunkMarks, chunks: Tensor, causal: bool) -> Tensor | None:
    """Which steps self-attention may read: ``[n*b, K]``; None where causality alone decides, or nothing need be."""
    if all(keys is None for keys in marks.keys) or (causal and marks.trailing):
        return None
    whole = chunks.new_ones(chunks.shape[1:3], dtype=torch.bool)
    return torch.cat([whole if keys is None else keys.expand_as(whole) for keys in marks.keys])
