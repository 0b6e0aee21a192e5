"""Pointer readout: the choices are the newest items of the episode, the answer is the one most similar to the output.

    logits_i = W LN(y_t) . e_{t-K+i} / sqrt(d)        i = 1 ... K        e: inputs of the core, y: its outputs

The last K items of an episode are the choices at every step, the newest last; before an episode has K items, the
missing ones are zeros, and so are their logits.

Paper: Lampinen et al. 2021, appendix B.4: "compared this output embedding to the embeddings of the two possible
choices using dot products". Vinyals et al., Pointer networks (2015).

Differs: the scale 1 / sqrt(d), which W can undo.
"""

from typing import Any, NamedTuple

import torch
from torch import Tensor

from recollect.layers.finite import is_finite
from recollect.layers.window_attention import steps_since_first


class PointerState(NamedTuple):
    """State of a model with a pointer readout."""

    core: Any  # state of the core
    recent: Tensor  # `[b, K - 1, d]`: the newest items of the episode, the newest last; zeros where there are none


def point(output: Tensor, choices: Tensor) -> Tensor:
    """Return logits ``[..., K]`` of an output ``[..., d]`` for choices ``[..., K, d]``."""
    return (choices @ output[..., None])[..., 0] * output.shape[-1] ** -0.5


def newest(items: Tensor, recent: Tensor, is_first: Tensor) -> tuple[Tensor, Tensor]:
    """Return the choices at every step, ``[b, t, K, d]``, and the new ``recent`` ``[b, K - 1, d]``.

    An item ``[b, t, d]`` that is not finite is zeros among them, as in the memory of a core.
    """
    number = recent.shape[1] + 1
    items = torch.where(is_finite(items).all(-1, keepdim=True), items, 0.0)
    # Entries of `recent` that are no items of the episode are zero already.
    since = steps_since_first(is_first, torch.full_like(is_first[:, 0], number, dtype=torch.long))
    held = torch.arange(number - 1, -1, -1, device=items.device) <= since[..., None]  # b t K
    timeline = torch.cat((recent.to(items.dtype), items), 1)
    choices = torch.where(held[..., None], timeline.unfold(1, number, 1).transpose(2, 3), 0.0)
    return choices, choices[:, -1, 1:].to(recent.dtype)
