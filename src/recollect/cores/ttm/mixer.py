"""Mixing along tokens and along channels.

    x = x + (W2 gelu(W1 LN(x)^T))^T       along the tokens
    x = x + W4 gelu(W3 LN(x))             along the channels

Source: Tolstikhin et al., MLP-Mixer (2021), equation 1.
"""

from torch import Tensor, nn

from recollect.layers.feedforward import FeedForward


class TokenMixing(nn.Module):
    """A feed-forward net along the token axis, the same one for every channel.

    Args:
        num_in: tokens read.
        num_out: tokens made.
        hidden_dim: width of the hidden layer.
    """

    def __init__(self, num_in: int, num_out: int, hidden_dim: int) -> None:
        super().__init__()
        self.mix = FeedForward(num_in, hidden_dim, activation="gelu_tanh", out_dim=num_out)

    def forward(self, tokens: Tensor) -> Tensor:
        """``[..., num_in, d] -> [..., num_out, d]``."""
        return self.mix(tokens.mT).mT


class MixerBlock(nn.Module):
    """Token mixing, then channel mixing, each after a norm and with a residual.

    Args:
        dim: width d of a token.
        num_tokens: how many there are.
        hidden_dim: hidden width along the channels.
        token_hidden_dim: hidden width along the tokens.
    """

    def __init__(self, dim: int, num_tokens: int, hidden_dim: int, token_hidden_dim: int) -> None:
        super().__init__()
        self.token_norm = nn.LayerNorm(dim, eps=1e-6)
        self.token_mixing = TokenMixing(num_tokens, num_tokens, token_hidden_dim)
        self.channel_norm = nn.LayerNorm(dim, eps=1e-6)
        self.channel_mixing = FeedForward(dim, hidden_dim, activation="gelu_tanh")

    def forward(self, tokens: Tensor) -> Tensor:
        """``[..., num_tokens, d] -> [..., num_tokens, d]``."""
        tokens = tokens + self.token_mixing(self.token_norm(tokens))
        return tokens + self.channel_mixing(self.channel_norm(tokens))
