"""Sliding windows over episodes: which past steps a query may see, and what a cache keeps.

A cache holds the last ``w`` steps before a call, oldest first (right-aligned: the newest is in the last
place), of which the newest ``count[b]`` belong to the running episode of row b. During a call of ``t``
steps the keys are the ``w`` cached ones followed by the ``t`` new ones. A query sees itself and at most
``w`` steps before it, never across an ``is_first``. That makes the window the same for every split of a
sequence into calls.
"""

import torch
from torch import Tensor


def episode_index(is_first: Tensor) -> Tensor:
    """``[b, t]`` bool to the number of resets so far in this call: 0 is the episode of the incoming state."""
    return is_first.long().cumsum(1)


def window_mask(is_first: Tensor, count: Tensor, window: int) -> Tensor:
    """Which keys each query may see.

    Args:
        is_first: bool ``[b, t]``.
        count: long ``[b]``, valid steps in the cache, at most ``window``.
        window: w, steps that a query sees before itself.

    Returns:
        bool ``[b, t, w + t]``.
    """
    t, device = is_first.shape[1], is_first.device
    episode = episode_index(is_first)
    steps = torch.arange(t, device=device)
    age = steps[:, None] - torch.arange(-window, t, device=device)  # [t, w + t], 0 = the query itself
    near = (age >= 0) & (age <= window)
    cached = torch.arange(window, 0, -1, device=device) <= count[:, None]  # b w
    cached = cached[:, None, :] & (episode == 0)[:, :, None]
    fresh = episode[:, :, None] == episode[:, None, :]
    return torch.cat((cached, fresh), -1) & near


def steps_since_first(is_first: Tensor, count: Tensor) -> Tensor:
    """Steps of the running episode before each step: ``[b, t]`` long.

    Args:
        is_first: bool ``[b, t]``.
        count: long ``[b]``, steps of the running episode before this call.
    """
    t = is_first.shape[1]
    steps = torch.arange(t, device=is_first.device).expand_as(is_first)
    last_first = torch.where(is_first, steps, -1).cummax(1).values
    return torch.where(last_first >= 0, steps - last_first, steps + count[:, None])


def next_count(is_first: Tensor, count: Tensor, window: int) -> Tensor:
    """Valid steps in the cache after the call: ``[b]`` long, at most ``window``."""
    return (steps_since_first(is_first, count)[:, -1] + 1).clamp(max=window)


def slide(cache: Tensor, new: Tensor, count: Tensor) -> Tensor:
    """The cache after a call: the newest w of (cache, new); what is not of the running episode is zeroed.

    Args:
        cache: ``[b, w, ...]``.
        new: ``[b, t, ...]``.
        count: long ``[b]``, from :func:`next_count`.
    """
    w = cache.shape[1]
    t = new.shape[1]
    valid = torch.arange(w, 0, -1, device=new.device) <= count[:, None]
    valid = valid.reshape(*valid.shape, *[1] * (new.ndim - 2))
    if t >= w:
        return torch.where(valid, new[:, t - w :], 0.0)
    # In place on the fresh tensor: caches are large, and a second one costs more than the copy itself.
    return torch.cat((cache[:, t:], new), 1).masked_fill_(~valid, 0.0)


def slide_layers(cache: Tensor, new: list[Tensor], count: Tensor) -> Tensor:
    """:func:`slide` for all layers of a core at once.

    Args:
        cache: ``[b, layers, w, ...]``.
        new: one ``[b, t, ...]`` per layer.
        count: long ``[b]``, from :func:`next_count`.
    """
    rows = torch.stack(new, 1).to(cache.dtype).flatten(0, 1)
    return slide(cache.flatten(0, 1), rows, count.repeat_interleave(len(new))).unflatten(0, cache.shape[:2])
