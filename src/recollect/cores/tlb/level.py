"""One slow state of a temporal latent bottleneck with its fast layers, and the loop over the chunks.

Equations and source: :mod:`recollect.cores.tlb.core`. Nothing before a level's first cross layer depends on the slots,
so these layers, and the queries of the first cross layer, run for all chunks of all rows at once. Only the rest is a
loop over chunks, in which one product makes all keys, values and queries that come from the slots, and weight gradients
are computed once for all turns (:mod:`recollect.ops.weight_grads`).
"""

from collections.abc import Sequence
from typing import cast

import torch
from torch import Tensor, nn

from recollect.cores.tlb.blocks import FoldedBlock, PreNormBlock, stack
from recollect.cores.tlb.chunks import ChunkMarks, choose
from recollect.ops.weight_grads import Affine, accumulate_weight_grads


class Level(nn.Module):
    """One slow state: its fast layers ``blocks``, and the layer ``write`` that updates the slots."""

    def __init__(self, blocks: list[PreNormBlock], write: PreNormBlock) -> None:
        super().__init__()
        first = next((i for i, block in enumerate(blocks) if block.cross), len(blocks))
        self.before = cast(Sequence[PreNormBlock], nn.ModuleList(blocks[:first]))  # independent of the slots
        self.inner = cast(Sequence[PreNormBlock], nn.ModuleList(blocks[first:]))  # from the first cross layer on
        self.write = write


class FoldedLevel:
    """A :class:`Level` with folded layers.

    Args:
        level: its layers.
        after: self layers above the output that writes the slots (the top of a ``per_layer`` core).
        initial: slots at the start of an episode, ``[N, d]``.
        added: ``[N, d]``, added to the slots whenever a chunk begins; None adds nothing.
        always: whether it stays added even if the chunk is empty.
        causal: whether self-attention sees only the past of its chunk.
        unwritten: number of first entries of a chunk that the write does not read.
    """

    def __init__(
        self,
        level: Level,
        *,
        after: Sequence[PreNormBlock],
        initial: Tensor,
        added: Tensor | None,
        always: bool,
        causal: bool,
        unwritten: int = 0,
    ) -> None:
        self.initial, self.added, self.always, self.causal = initial, added, always, causal
        self.unwritten = unwritten
        self.before = [FoldedBlock(block) for block in level.before]
        self.inner = [FoldedBlock(block) for block in level.inner]
        self.write = FoldedBlock(level.write)
        self.after = [FoldedBlock(block) for block in after]
        self.crosses = [layer for layer in self.inner if layer.block.cross]
        # Keys and values of each cross layer, and the queries of the write.
        self.from_slots = stack(*(layer.from_context for layer in self.crosses), self.write.inward)

    def never_drop(self) -> None:
        """Switch dropout off for ever, for streams."""
        for layer in (*self.before, *self.inner, self.write, *self.after):
            layer.dropout = layer.attention_dropout = 0.0

    def walk(self, chunks: Tensor, slots: Tensor, marks: ChunkMarks) -> tuple[Tensor, Tensor]:
        """Compute equations 1 and 2 for all chunks.

        Args:
            chunks: ``[n, b, K, d]``.
            slots: ``[b, N, d]``, before the first chunk.
            marks: of the chunks.

        Returns:
            The fast stream ``[n, b, K, d]``, and the slots after the last chunk.
        """
        n, b, c, _ = chunks.shape
        seen = readable(marks, chunks, self.causal)
        x = chunks.flatten(0, 1)
        for layer in self.before:
            x = layer.read_itself(x, seen, self.causal)
        if self.crosses:
            hoisted = self.crosses[0].project(x, self.crosses[0].inward)
        else:
            hoisted = self.write.project(x, self.write.from_context)
        # `unbind`, because the backward pass of an index i is as long as the sequence.
        turns = zip(*(part.unflatten(0, (n, b)).unbind(0) for part in (x, *hoisted)), strict=True)
        outputs = []
        with accumulate_weight_grads(self._rows(b * c, b * slots.shape[1]), n) as leave:
            for i, (x, *projected) in enumerate(turns):
                slots = choose(marks.first[i], self.initial.expand_as(slots), slots)
                slots = choose(marks.cut[i], slots.detach(), slots)
                used = slots if self.added is None else slots + self.added
                *context, write_queries = self.write.project(used, self.from_slots)
                for layer in self.inner:
                    if layer.block.cross:
                        (queries,) = projected if layer is self.inner[0] else layer.project(x, layer.inward)
                        x = layer.join(x, queries, context.pop(0), context.pop(0))
                    else:
                        mask = None if seen is None else marks.keys[i]
                        x = layer.read_itself(x, mask, self.causal)
                outputs.append(x)
                slots = choose(marks.empty[i] if self.always else False, used, slots)
                if marks.done[i] is not False:
                    keys, values = self.write.project(x, self.write.from_context) if self.crosses else projected
                    if self.unwritten:
                        keys, values = keys[..., self.unwritten :, :], values[..., self.unwritten :, :]
                    written = self.write.join(used, write_queries, keys, values, marks.keys[i])
                    slots = choose(marks.done[i], written, slots)
            x, slots = leave(torch.stack(outputs), slots)
        x = x.flatten(0, 1)
        for layer in self.after:
            x = layer.read_itself(x, seen, self.causal)
        return x.unflatten(0, (n, b)), slots

    def _rows(self, fast: int, slow: int) -> dict[Affine, int]:
        """Return the maps of the loop in :meth:`walk`, with the rows of each in one turn."""
        maps = [affine for layer in self.inner for affine in layer.rest]
        maps += [layer.inward for layer in self.inner[1:]]
        maps += [self.write.from_context] if self.crosses else []
        return dict.fromkeys(maps, fast) | dict.fromkeys([*self.write.rest, self.from_slots], slow)


def readable(marks: ChunkMarks, chunks: Tensor, causal: bool) -> Tensor | None:
    """Return the steps that are visible to self-attention, ``[n*b, K]``; None where no mask is needed."""
    if all(keys is None for keys in marks.keys) or (causal and marks.trailing):
        return None
    whole = chunks.new_ones(chunks.shape[1:3], dtype=torch.bool)
    return torch.cat([whole if keys is None else keys.expand_as(whole) for keys in marks.keys])
