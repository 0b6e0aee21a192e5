"""Processing units, from a few tokens to as many tokens.

    transformer   x = x + table;  L times  x = x + MHA(LN x),  x = x + MLP(LN x);  LN x
    mixer         L times  x = x + MLP((LN x)^T)^T,  x = x + MLP(LN x);  LN x
    mlp           L times  x = MLP(LN x), without residual;  LN x

    MLP(x) = W2 gelu(W1 x + b1) + b2

The mixer's first MLP runs along the tokens, the same one for every channel; its second runs along the channels.

Source: Ryoo et al. 2023, section 2.1.3 and equation 7; Tolstikhin et al. 2021 (MLP-Mixer), equation 1. Details that the
paper does not give follow the released code: the Transformer's own position table, the final norm, the token-mixing
width of 128, the missing residual of the MLP, the tanh form of GELU, epsilon 1e-6.
"""

import torch
from torch import Tensor, nn

from recollect.cores.ttm.config import Processor
from recollect.layers.attention import MultiHeadAttention
from recollect.layers.feedforward import FeedForward, init_xavier

TOKEN_HIDDEN_DIM = 128
"""Hidden width of the mixer along the tokens, fixed in the released code."""


class TransformerBlock(nn.Module):
    """Pre-norm self-attention and feed-forward, with residuals; every token sees every token."""

    def __init__(self, dim: int, num_heads: int, hidden_dim: int) -> None:
        super().__init__()
        self.attention_norm = nn.LayerNorm(dim, eps=1e-6)
        self.attention = MultiHeadAttention(dim, num_heads, bias=True)
        self.feedforward_norm = nn.LayerNorm(dim, eps=1e-6)
        self.feedforward = FeedForward(dim, hidden_dim, activation="gelu_tanh")

    def forward(self, tokens: Tensor) -> Tensor:
        """Attend between the tokens ``[..., p, d]``, then refine each."""
        normed = self.attention_norm(tokens)
        tokens = tokens + self.attention(normed, normed)
        return tokens + self.feedforward(self.feedforward_norm(tokens))


class TokenMixing(nn.Module):
    """A feed-forward net along the token axis, the same one for every channel."""

    def __init__(self, num_in: int, num_out: int, hidden_dim: int) -> None:
        super().__init__()
        self.mix = FeedForward(num_in, hidden_dim, activation="gelu_tanh", out_dim=num_out)

    def forward(self, tokens: Tensor) -> Tensor:
        """Mix the tokens of each channel: ``[..., num_in, d] -> [..., num_out, d]``."""
        return self.mix(tokens.mT).mT


class MixerBlock(nn.Module):
    """Token mixing, then channel mixing, each after a norm and with a residual."""

    def __init__(self, dim: int, num_tokens: int, hidden_dim: int, token_hidden_dim: int) -> None:
        super().__init__()
        self.token_norm = nn.LayerNorm(dim, eps=1e-6)
        self.token_mixing = TokenMixing(num_tokens, num_tokens, token_hidden_dim)
        self.channel_norm = nn.LayerNorm(dim, eps=1e-6)
        self.channel_mixing = FeedForward(dim, hidden_dim, activation="gelu_tanh")

    def forward(self, tokens: Tensor) -> Tensor:
        """Mix the tokens, then the channels of each: ``[..., num_tokens, d]``."""
        tokens = tokens + self.token_mixing(self.token_norm(tokens))
        return tokens + self.channel_mixing(self.channel_norm(tokens))


class MLPBlock(nn.Module):
    """Norm and feed-forward, without residual."""

    def __init__(self, dim: int, hidden_dim: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(dim, eps=1e-6)
        self.feedforward = FeedForward(dim, hidden_dim, activation="gelu_tanh")

    def forward(self, tokens: Tensor) -> Tensor:
        """Return the feed-forward of the normalised tokens ``[..., p, d]``."""
        return self.feedforward(self.norm(tokens))


class TokenProcessor(nn.Module):
    """A stack of L blocks of one kind for p tokens, and a final norm; ``token_hidden_dim`` is for the mixer."""

    table: nn.Parameter | None

    def __init__(
        self,
        kind: Processor,
        dim: int,
        num_tokens: int,
        num_layers: int,
        num_heads: int,
        hidden_dim: int,
        *,
        token_hidden_dim: int = TOKEN_HIDDEN_DIM,
    ) -> None:
        super().__init__()
        self.kind = kind
        self.dim = dim
        self.num_tokens = num_tokens
        self.hidden_dim, self.token_hidden_dim = hidden_dim, token_hidden_dim
        self.register_parameter("table", None)
        if kind == "transformer":
            self.table = nn.Parameter(torch.randn(num_tokens, dim) * 0.02)
            blocks = [TransformerBlock(dim, num_heads, hidden_dim) for _ in range(num_layers)]
        elif kind == "mixer":
            blocks = [MixerBlock(dim, num_tokens, hidden_dim, token_hidden_dim) for _ in range(num_layers)]
        else:
            blocks = [MLPBlock(dim, hidden_dim) for _ in range(num_layers)]
        self.blocks = nn.ModuleList(blocks)
        self.norm = nn.LayerNorm(dim, eps=1e-6)
        init_xavier(self)

    def forward(self, tokens: Tensor) -> Tensor:
        """Process the tokens that were read, ``[..., p, d]``."""
        if self.table is not None:
            tokens = tokens + self.table
        for block in self.blocks:
            tokens = block(tokens)
        return self.norm(tokens)

    def flops(self) -> int:
        """Return 2 per multiply-add of one row.

        Per layer ``4 p d h`` for the feed-forward, and ``8 p d^2 + 4 p^2 d`` (transformer) or
        ``4 * token_hidden_dim p d`` (mixer) between the tokens.
        """
        p, d = self.num_tokens, self.dim
        between = {"transformer": 8 * p * d * d + 4 * p * p * d, "mixer": 4 * p * d * self.token_hidden_dim, "mlp": 0}
        return len(self.blocks) * (4 * p * d * self.hidden_dim + between[self.kind])
