"""State trees: the state of a core as (nested) NamedTuples of batch-first tensors.

Row ``i`` of every leaf belongs to stream ``i``, so one set of functions resets, detaches, moves and measures the state
of every core.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from recollect.lazy import torch

S = TypeVar("S")


def named_leaves(state: Any, prefix: str = "") -> Iterator[tuple[str, torch.Tensor]]:
    """Yield ``(dotted name, tensor)`` for every leaf, in field order."""
    if isinstance(state, torch.Tensor):
        yield prefix, state
        return
    if not isinstance(state, tuple):
        raise ValueError(
            f"state{f' field {prefix!r}' if prefix else ''} is a {type(state).__name__}; a state is a "
            "NamedTuple of tensors: start from core.initial_state(batch_size)"
        )
    names = getattr(state, "_fields", None) or [str(i) for i in range(len(state))]
    for name, child in zip(names, state, strict=True):
        yield from named_leaves(child, f"{prefix}.{name}" if prefix else name)


def leaves(state: Any) -> list[torch.Tensor]:
    """Return all tensors of a state, in field order."""
    return [leaf for _, leaf in named_leaves(state)]


def map_state(fn: Callable[..., torch.Tensor], state: S, *others: S) -> S:
    """Apply ``fn`` leaf by leaf to one or more states of the same structure."""
    if isinstance(state, torch.Tensor):
        return fn(state, *others)
    children = [map_state(fn, *group) for group in zip(state, *others, strict=True)]  # type: ignore[call-overload]
    build: Any = getattr(type(state), "_make", type(state))
    return build(children)


def spread_rows(mask: torch.Tensor, leaf: torch.Tensor) -> torch.Tensor:
    """Return a mask ``[b]`` or ``[b, t]`` with as many axes as ``leaf``, to select rows or steps of it."""
    return mask.reshape(*mask.shape, *[1] * (leaf.ndim - mask.ndim))


def where_first(is_first: torch.Tensor, fresh: S, state: S) -> S:
    """Return rows with ``is_first`` ``[b]`` from ``fresh``, the others from ``state``.

    A selection, not a product, so that NaN in a discarded row is discarded too.
    """
    return map_state(lambda new, old: torch.where(spread_rows(is_first, old), new, old), fresh, state)


def take_rows(state: S, index: torch.Tensor | slice) -> S:
    """Return the rows ``index`` (integers, a boolean mask or a slice), in that order."""
    return map_state(lambda leaf: leaf[index], state)


def put_rows(state: S, index: torch.Tensor | slice, rows: S) -> S:
    """Return a copy of ``state`` with rows ``index`` replaced by ``rows``."""

    def put(leaf: torch.Tensor, new: torch.Tensor) -> torch.Tensor:
        leaf = leaf.clone()
        leaf[index] = new.to(leaf.dtype)
        return leaf

    return map_state(put, state, rows)


def concatenate(states: list[S]) -> S:
    """Join states along the batch axis."""
    return map_state(lambda *parts: torch.cat(parts), *states)


def detach(state: S) -> S:
    """Detach a state from the graph that made it, between two unrolls."""
    return map_state(torch.Tensor.detach, state)


def clone(state: S) -> S:
    """Return a copy that shares no storage with ``state``."""
    return map_state(torch.Tensor.clone, state)


def to(state: S, *args: Any, **kwargs: Any) -> S:
    """Move a state, with the arguments of ``Tensor.to``; a dtype applies to floating-point leaves only."""

    def move(leaf: torch.Tensor) -> torch.Tensor:
        if leaf.is_floating_point():
            return leaf.to(*args, **kwargs)
        return leaf.to(torch.empty(0, device=leaf.device).to(*args, **kwargs).device)

    return map_state(move, state)


def nbytes(state: Any) -> int:
    """Return the bytes of all leaves. A broadcast view counts as a full tensor."""
    return sum(leaf.numel() * leaf.element_size() for leaf in leaves(state))


def batch_size(state: Any) -> int:
    """Return the number of rows, the leading axis of every leaf."""
    return leaves(state)[0].shape[0]


def to_bytes(state: Any) -> torch.Tensor:
    """Return the bytes of every row, uint8 ``[b, n]``, exact for any dtype: for programs that store one array per row.

    See :func:`from_bytes`.
    """
    return torch.cat(leaf_bytes(state), 1)


def leaf_bytes(state: Any) -> list[torch.Tensor]:
    """Return the bytes of the rows of every leaf, uint8 ``[b, n]`` each, in field order."""
    rows = (leaf.detach() if leaf.ndim > 1 else leaf.detach()[:, None] for leaf in leaves(state))
    return [leaf.flatten(1).contiguous().view(torch.uint8) for leaf in rows]


def from_bytes(content: torch.Tensor, like: S) -> S:
    """Return the state whose bytes :func:`to_bytes` gave; bytes behind them are ignored.

    Args:
        content: uint8 ``[b, n]``.
        like: a state of the same core, of any batch size.
    """
    begin = 0

    def read(leaf: torch.Tensor) -> torch.Tensor:
        nonlocal begin
        end = begin + leaf[:1].numel() * leaf.element_size()
        part, begin = content[:, begin:end].flatten().clone(), end
        return part.view(leaf.dtype).reshape(len(content), *leaf.shape[1:])

    return map_state(read, like)
