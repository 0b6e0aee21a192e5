"""Recurrences of a matrix memory over all steps of a call, in chunks, with resets at any step.

    linear attention    S_t = D_t S_{t-1} + k_t v_t^T
    delta rule          w_t = v_t + b_t^T D_t S_{t-1}
                        S_t = D_t S_{t-1} + k_t w_t^T + c_t u_t^T

    o_t = q_t^T S_t                    S_{t-1} = 0 where an episode begins

D_t = exp(log_decay), one number for a head or, in the delta rule, one for each of its rows. With b = -beta k and
v = beta v' the second form is the gated delta rule; (c, u) is a second write, which reads nothing.

Inside a chunk the steps see each other through products of all pairs, masked where an episode begins between them. In
the delta rule every w depends on those before it: a unit triangular system, masked alike. The memory before a chunk
enters linearly, so the loop over chunks is one product each. Sums of log decays are in float64: their differences,
which are what decays steps, then keep the precision of float32 after strong decays.

Nothing passes a reset: masked pairs are products with 0, so where outputs after a reset are not finite, the loop over
steps takes their place. On an accelerator, whose numbers are not read, inputs must be finite, as those of cores are;
the memory need not be where an episode begins.

Sources: Yang et al. (2024), Gated Delta Networks, section 3.3 and appendix A; Dao and Gu (2024), Transformers are SSMs,
section 6. The masks are ours.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from recollect.ops.torch_internals import is_traced, is_transformed, learns_on_cpu

CHUNK = 32
"""Most steps of a chunk with one decay for a head."""
ROW_CHUNK = 16
"""Most steps of a chunk with a decay for each row, whose inverse is at most exp(16 x the largest |log decay|)."""


Recurrence = Callable[..., tuple[Tensor, Tensor]]
"""Returns the outputs of a recurrence, and its new memory."""


class Write(NamedTuple):
    """A second outer product ``c u^T`` for every step."""

    keys: Tensor  # b t h e
    values: Tensor  # b t h v


def linear_attention(
    queries: Tensor, keys: Tensor, values: Tensor, log_decay: Tensor, memory: Tensor, first: Tensor
) -> tuple[Tensor, Tensor]:
    """Run the first recurrence. Twin: :func:`plain_linear_attention`.

    Args:
        queries: ``[b, t, g, e]``; each of the g groups serves h / g consecutive heads.
        keys: ``[b, t, g, e]``.
        values: ``[b, t, h, v]``.
        log_decay: ``[b, t, h]``, at most 0.
        memory: S ``[b, h, e, v]``.
        first: bool ``[b, t]``.

    Returns:
        Outputs ``[b, t, h, v]`` and the new memory, in the dtype of the memory.
    """
    given = queries, keys, values, log_decay, memory, first
    return _run(_chunked_linear_attention, plain_linear_attention, first, given)


def _chunked_linear_attention(
    queries: Tensor, keys: Tensor, values: Tensor, log_decay: Tensor, memory: Tensor, first: Tensor
) -> tuple[Tensor, Tensor]:
    with torch.autocast(values.device.type, enabled=False):
        wide = torch.promote_types(memory.dtype, torch.float32)
        steps, groups = keys.shape[1:3]
        chunked = _Chunks(first, CHUNK)
        q, k = (chunked.split(tensor.to(wide)) for tensor in (queries, keys))  # b g n c e
        v = chunked.cut(values.unflatten(2, (groups, -1)).to(wide)).transpose(3, 4).contiguous()  # b g n r c v
        decay = chunked.sums(log_decay).unflatten(1, (groups, -1)).transpose(2, 3)  # b g n r c
        mask, start, end, kept = (m[:, None, :, None] for m in chunked.masks())  # b 1 n 1 ...
        pairs = _exp(decay[..., :, None] - decay[..., None, :], mask, wide)
        scores = (q @ k.mT)[:, :, :, None] * pairs  # b g n r c c
        from_start, to_end = _exp(decay, start, wide), _exp(decay[..., -1:] - decay, end, wide)
        written = k.mT[:, :, :, None] @ (v * to_end[..., None])  # b g n r e v
        shrink = _exp(decay[..., -1], kept, wide)[..., None, None]
        before, last = _carry_decayed(shrink, written, kept[..., None, None], memory.to(wide))
        read = (q[:, :, :, None] * from_start[..., None]) @ before
        if not (learns_on_cpu(values) and not first.any()):  # a broken memory must not pass a reset
            read = torch.where(start[..., None], read, 0.0)
        outputs = (scores @ v + read).transpose(3, 4).flatten(2, 3)  # b g (n c) r v
        return outputs[:, :, :steps].transpose(1, 2).flatten(2, 3).to(memory.dtype), last.to(memory.dtype)


def delta_rule(
    queries: Tensor,
    keys: Tensor,
    values: Tensor,
    reads: Tensor,
    log_decay: Tensor,
    memory: Tensor,
    first: Tensor,
    write: Write | None = None,
) -> tuple[Tensor, Tensor]:
    """Run the second recurrence. Twin: :func:`plain_delta_rule`.

    Args:
        queries: ``[b, t, h, e]``.
        keys: k, ``[b, t, h, e]``.
        values: v, ``[b, t, h, v]``.
        reads: b, ``[b, t, h, e]``.
        log_decay: at most 0: ``[b, t, h]``, or ``[b, t, h, e]``, each then at least -1.
        memory: S ``[b, h, e, v]``.
        first: bool ``[b, t]``.
        write: c and u, or None.

    Returns:
        Outputs ``[b, t, h, v]`` and the new memory, in the dtype of the memory.
    """
    given = queries, keys, values, reads, log_decay, memory, first, write
    return _run(_chunked_delta_rule, plain_delta_rule, first, given)


def _chunked_delta_rule(
    queries: Tensor,
    keys: Tensor,
    values: Tensor,
    reads: Tensor,
    log_decay: Tensor,
    memory: Tensor,
    first: Tensor,
    write: Write | None,
) -> tuple[Tensor, Tensor]:
    with torch.autocast(values.device.type, enabled=False):
        wide = torch.promote_types(memory.dtype, torch.float32)
        steps, rows = values.shape[1], log_decay.ndim == 4
        chunked = _Chunks(first, ROW_CHUNK if rows else CHUNK)
        q, k, v, b = (chunked.split(tensor.to(wide)) for tensor in (queries, keys, values, reads))  # b h n c ...
        decay = chunked.sums(log_decay)
        mask, start, end, kept = (m[:, None] for m in chunked.masks())
        weigh = (_row_weights if rows else _head_weights)(decay, mask, start, end, wide)
        others, shown = weigh.pairs(-b, k), weigh.pairs(q, k)
        b_start, q_start, k_end = weigh.start(b), weigh.start(q), weigh.end(k)
        extra = None if write is None else Write(*(chunked.split(tensor.to(wide)) for tensor in write))
        rest = v if extra is None else v + weigh.pairs(b, extra.keys).tril(-1) @ extra.values
        solved = solve_unit_lower(others, torch.cat((rest, b_start), -1))
        own, of_memory = solved.split((v.shape[-1], b.shape[-1]), -1)  # w = own + of_memory S
        written, outputs = k_end.mT @ own, shown @ own
        if extra is not None:
            written = written + weigh.end(extra.keys).mT @ extra.values
            outputs = outputs + weigh.pairs(q, extra.keys) @ extra.values
        shrink = _exp(decay[..., -1:, :] if rows else decay[..., -1:, None], kept[..., None, None], wide)
        step = k_end.mT @ of_memory + torch.diag_embed(shrink[..., 0, :].expand(*k.shape[:3], k.shape[-1]))
        before, last = _carry(step, written, kept[..., None, None], memory.to(wide))
        read = (q_start + shown @ of_memory) @ before
        outputs = (outputs + torch.where(start[..., None], read, 0.0)).flatten(2, 3)
        return outputs[:, :, :steps].transpose(1, 2).to(memory.dtype), last.to(memory.dtype)


def _run(chunked: Recurrence, plain: Recurrence, first: Tensor, given: tuple[Any, ...]) -> tuple[Tensor, Tensor]:
    """Run the chunked form of a recurrence, and its loop over steps where that form cannot be used."""
    if is_transformed() or first.shape[1] == 1:
        return plain(*given)
    outputs, last = chunked(*given)
    return plain(*given) if is_broken_after_reset(outputs, first) else (outputs, last)


def is_broken_after_reset(outputs: Tensor, first: Tensor) -> bool:
    """Return whether outputs ``[b, t, ...]`` are not finite at a step after a reset; on a CPU, elsewhere False.

    A mask is a product with 0, which is NaN for what is not finite; a loop over the steps selects instead.
    """
    if first.device.type != "cpu" or is_traced() or not first.any() or math.isfinite(outputs.detach().sum().item()):
        return False
    return not outputs[first.long().cumsum(1) > 0].isfinite().all()


def plain_linear_attention(
    queries: Tensor, keys: Tensor, values: Tensor, log_decay: Tensor, memory: Tensor, first: Tensor
) -> tuple[Tensor, Tensor]:
    """Plain twin of :func:`linear_attention`: a loop over the steps."""
    heads = memory.shape[1] // keys.shape[2]
    if keys.shape[2] > 1:  # one group serves all heads as it is
        queries, keys = (tensor.repeat_interleave(heads, 2) for tensor in (queries, keys))
    return _loop(queries, keys, values, None, log_decay, memory, first, None)


def plain_delta_rule(
    queries: Tensor,
    keys: Tensor,
    values: Tensor,
    reads: Tensor,
    log_decay: Tensor,
    memory: Tensor,
    first: Tensor,
    write: Write | None = None,
) -> tuple[Tensor, Tensor]:
    """Plain twin of :func:`delta_rule`: a loop over the steps."""
    return _loop(queries, keys, values, reads, log_decay, memory, first, write)


def _loop(
    queries: Tensor,
    keys: Tensor,
    values: Tensor,
    reads: Tensor | None,
    log_decay: Tensor,
    memory: Tensor,
    first: Tensor,
    write: Write | None,
) -> tuple[Tensor, Tensor]:
    kind, outputs = memory.dtype, []
    wide = torch.promote_types(kind, torch.float32)
    with torch.autocast(values.device.type, enabled=False):
        decay = log_decay.to(wide).exp().reshape(*log_decay.shape[:3], -1, 1)  # b t h (1 or e) 1
        state = memory.to(wide)
        for t in range(values.shape[1]):
            state = decay[:, t] * torch.where(first[:, t, None, None, None], 0.0, state)
            v = values[:, t, :, None].to(wide)  # b h 1 v
            if reads is not None:
                v = v + reads[:, t, :, None].to(wide) @ state
            state = torch.addcmul(state, keys[:, t, ..., None].to(wide), v)
            if write is not None:
                state = state + write.keys[:, t, ..., None].to(wide) * write.values[:, t, :, None].to(wide)
            outputs.append((queries[:, t, :, None].to(wide) @ state)[:, :, 0])
        return torch.stack(outputs, 1).to(kind), state.to(kind)


def solve_unit_lower(lower: Tensor, right: Tensor) -> Tensor:
    """Return x of ``(I + L) x = right``. Twin: :func:`plain_solve_unit_lower`.

    Args:
        lower: L ``[..., c, c]``; entries on and above the diagonal are ignored.
        right: ``[..., c, r]``.

    Returns:
        x ``[..., c, r]``.
    """
    if is_transformed():
        return plain_solve_unit_lower(lower, right)
    return torch.linalg.solve_triangular(lower, right, upper=False, unitriangular=True)


def plain_solve_unit_lower(lower: Tensor, right: Tensor) -> Tensor:
    """Plain twin of :func:`solve_unit_lower`: forward substitution, row by row."""
    rows: list[Tensor] = []
    for i in range(lower.shape[-1]):
        row = right[..., i : i + 1, :]
        if rows:
            row = row - lower[..., i : i + 1, :i] @ torch.cat(rows, -2)
        rows.append(row)
    return torch.cat(rows, -2)


class _Chunks:
    """The steps of a call in n chunks of c steps, the last one filled up with steps that change nothing."""

    def __init__(self, first: Tensor, size: int) -> None:
        steps = first.shape[1]
        self.chunks = -(-steps // size)
        self.size = -(-steps // self.chunks)  # equal parts, so that few steps are added
        self.lack = self.chunks * self.size - steps
        first = F.pad(first, (0, self.lack)).unflatten(1, (self.chunks, self.size))
        self.episode = first.long().cumsum(2)  # b n c, counted from the start of the chunk
        self.same = (self.episode[..., :, None] == self.episode[..., None, :]).tril()  # b n c c: of an earlier step

    def split(self, tensor: Tensor) -> Tensor:
        """Cut steps into n chunks of c: ``[b, t, h, ...] -> [b, h, n, c, ...]``, contiguous."""
        return self.cut(tensor).contiguous()

    def cut(self, tensor: Tensor) -> Tensor:
        """Cut steps into n chunks of c: ``[b, t, h, ...] -> [b, h, n, c, ...]``, a view where no steps are added."""
        if self.lack:  # a pad by nothing would copy
            tensor = F.pad(tensor, (0, 0) * (tensor.ndim - 2) + (0, self.lack))
        return tensor.unflatten(1, (self.chunks, self.size)).movedim(3, 1)

    def sums(self, log_decay: Tensor) -> Tensor:
        """Return sums of log decays ``[b, h, n, c, ...]`` in float64, the own step's included.

        They begin at the start of the chunk or of the step's episode, so that no gradient passes a reset: terms that
        cancel would leave a rest.
        """
        padded = F.pad(log_decay.double(), (0, 0) * (log_decay.ndim - 2) + (0, self.lack))
        parts = padded.unflatten(1, (self.chunks, self.size))  # b n c h ...
        return (self.same.double() @ parts.flatten(3)).unflatten(3, parts.shape[3:]).movedim(3, 1).contiguous()

    def masks(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Return where an earlier step counts.

        For pairs of steps ``[b, n, c, c]``; for the memory before the chunk at every step ``[b, n, c]``; for every step
        in the memory after the chunk; and for the memory before the chunk in the memory after it ``[b, n]``.
        """
        episode = self.episode
        last = episode[..., -1:]
        return self.same, episode == 0, episode == last, last[..., 0] == 0


class _Weights(NamedTuple):
    """Decays inside a chunk, applied to vectors ``[..., c, e]``."""

    pairs: Callable[[Tensor, Tensor], Tensor]
    """Products of all pairs ``[..., c, c]``, decayed from the second step to the first, 0 where masked."""
    start: Callable[[Tensor], Tensor]
    """Vectors that meet the memory before the chunk."""
    end: Callable[[Tensor], Tensor]
    """Vectors that enter the memory after the chunk."""


def _head_weights(decay: Tensor, mask: Tensor, start: Tensor, end: Tensor, wide: torch.dtype) -> _Weights:
    pairs = _exp(decay[..., :, None] - decay[..., None, :], mask, wide)
    from_start = _exp(decay, start, wide)[..., None]
    to_end = _exp(decay[..., -1:] - decay, end, wide)[..., None]
    return _Weights(lambda x, y: x @ y.mT * pairs, lambda x: x * from_start, lambda x: x * to_end)


def _row_weights(decay: Tensor, mask: Tensor, start: Tensor, end: Tensor, wide: torch.dtype) -> _Weights:
    # exp(G_t - G_s) in two factors; the second is at most exp(steps of a chunk).
    up, down = decay.exp().to(wide), (-decay).exp().to(wide)
    from_start = _exp(decay, start[..., None], wide)
    to_end = _exp(decay[..., -1:, :] - decay, end[..., None], wide)
    return _Weights(
        lambda x, y: torch.where(mask, (x * up) @ (y * down).mT, 0.0), lambda x: x * from_start, lambda x: x * to_end
    )


def _exp(log: Tensor, mask: Tensor, wide: torch.dtype) -> Tensor:
    """Return exp where ``mask`` is True, else 0, with finite gradients."""
    return log.to(wide).masked_fill(~mask, -torch.inf).exp()


def _carry(step: Tensor, written: Tensor, kept: Tensor, memory: Tensor) -> tuple[Tensor, Tensor]:
    """Return the memory before every chunk ``[b, h, n, e, v]``, and after the last.

    S' = step S + written, or written where an episode begins in the chunk
    """
    before = []
    # Unbound, not indexed: the gradient of every index would be a tensor of the size of the whole.
    for grow, new, stays in zip(step.unbind(2), written.unbind(2), kept.unbind(2), strict=True):
        before.append(memory)
        memory = torch.where(stays, new + grow @ memory, new)
    return torch.stack(before, 2), memory


def _carry_decayed(shrink: Tensor, written: Tensor, kept: Tensor, memory: Tensor) -> tuple[Tensor, Tensor]:
    """As :func:`_carry` with a number for each head: ``[b, g, n, r, e, v]``."""
    before, memory = [], memory.unflatten(1, written.shape[1:4:2])
    for factor, new, stays in zip(shrink.unbind(2), written.unbind(2), kept.unbind(2), strict=True):
        before.append(memory)
        memory = torch.where(stays, torch.addcmul(new, factor, memory), new)
    return torch.stack(before, 2), memory.flatten(1, 2)
