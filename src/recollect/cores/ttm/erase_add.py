"""Erase and add: the write of the Neural Turing Machine, in place of equation 5.

    w = softmax over slots of MLP(LN(M))^T                         s heads, each one weight per slot
    e = sigmoid(channel_mlp(token_mlp(LN(O))))                     erased by each head  [s, d]
    a =         channel_mlp(token_mlp(LN(O)))                      added by each head   [s, d], by nets of its own
    M' = M * prod_s (1 - w_s e_s^T) + sum_s w_s a_s^T

Source: Ryoo et al. 2023, table 5 "Erase and Add (NTM-style write)"; Graves et al. 2014 (Neural Turing Machines),
equations 3 and 4. The nets follow the released code: 8 heads, hidden width 64, the output tokens O as control.

``variant="released"`` is that code exactly: no sigmoid, and ``mean_s (1 - w_s a_s^T)`` in place of the sum, which
adds about one to every entry at every step.
"""

from typing import Literal

import torch
from torch import Tensor, nn

from recollect.config import require
from recollect.cores.ttm.processors import TokenMixing
from recollect.layers.feedforward import FeedForward, init_xavier
from recollect.layers.tap import Tap

Variant = Literal["paper", "released"]


class _Control(nn.Module):
    """r output tokens to one vector per write head: ``[..., r, d] -> [..., s, d]``."""

    def __init__(self, dim: int, num_outputs: int, num_heads: int, hidden_dim: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(dim, eps=1e-6)
        self.token_mixing = TokenMixing(num_outputs, num_heads, hidden_dim)
        self.channel_mixing = FeedForward(dim, hidden_dim, activation="gelu_tanh")

    def forward(self, outputs: Tensor) -> Tensor:
        return self.channel_mixing(self.token_mixing(self.norm(outputs)))


class EraseAdd(nn.Module):
    """Erase and add in place of equation 5, controlled by ``num_outputs`` = r output tokens.

    There are ``num_heads`` = s heads, a power of two, and five nets of hidden width ``hidden_dim``.

    Raises:
        ValueError: ``num_heads`` is no power of two.
    """

    def __init__(
        self, dim: int, num_outputs: int, *, variant: Variant = "paper", num_heads: int = 8, hidden_dim: int = 64
    ) -> None:
        super().__init__()
        require(num_heads.bit_count() == 1, "num_heads", num_heads, "give a power of two")
        self.dim, self.num_outputs, self.num_heads, self.hidden_dim = dim, num_outputs, num_heads, hidden_dim
        self.variant = variant
        self.norm = nn.LayerNorm(dim, eps=1e-6)
        self.address = FeedForward(dim, hidden_dim, activation="gelu_tanh", out_dim=num_heads)
        self.erase = _Control(dim, num_outputs, num_heads, hidden_dim)
        self.add = _Control(dim, num_outputs, num_heads, hidden_dim)
        self.tap = Tap("b s m")
        init_xavier(self)

    def forward(self, memory: Tensor, outputs: Tensor) -> Tensor:
        """Erase and add: write the output tokens ``[..., r, d]`` to the memory ``[..., m, d]``, and return it."""
        scores = self.address(self.norm(memory)).mT  # ... s m
        weights = scores.to(torch.promote_types(scores.dtype, torch.float32)).softmax(-1)
        if self.tap.has_listeners:
            self.tap(weights)
        erase, add = self.erase(outputs), self.add(outputs)  # ... s d
        if self.variant == "paper":
            erase = erase.sigmoid()
        kept = 1.0 - weights.unsqueeze(-1) * erase.unsqueeze(-2)  # ... s m d
        while kept.shape[-3] > 1:  # a tree of products: its gradient needs no division by a factor
            first, second = kept.chunk(2, -3)
            kept = first * second
        added = weights.mT.to(add.dtype) @ add  # ... m d
        if self.variant == "released":
            added = 1.0 - added / self.num_heads
        return (memory * kept.squeeze(-3) + added).to(memory.dtype)

    def flops(self, num_slots: int) -> int:
        """Return 2 per multiply-add of one row: five nets and ``sum_s w_s a_s^T``."""
        d, h, s, r = self.dim, self.hidden_dim, self.num_heads, self.num_outputs
        address = num_slots * h * (d + s)
        controls = 2 * (d * h * (r + s) + 2 * s * d * h)
        return 2 * (address + controls + num_slots * s * d)
