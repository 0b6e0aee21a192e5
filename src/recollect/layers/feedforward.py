"""Feed-forward blocks, the input projection of cores, and initializations of their weights."""

from collections.abc import Callable
from itertools import pairwise

import torch.nn.functional as F
from torch import Tensor, nn

from recollect.layers.config import Activation
from recollect.ops.linear import Linear

ACTIVATIONS: dict[Activation, Callable[[], nn.Module]] = {
    "relu": nn.ReLU,
    "gelu": nn.GELU,
    "gelu_tanh": lambda: nn.GELU(approximate="tanh"),
}


class FeedForward(nn.Module):
    """``W2 act(W1 x + b1) + b2`` along the last axis, with dropout after each product; ``out_dim`` None is ``dim``."""

    def __init__(
        self,
        dim: int,
        hidden_dim: int,
        *,
        activation: Activation = "gelu",
        dropout: float = 0.0,
        out_dim: int | None = None,
    ) -> None:
        super().__init__()
        self.dropout = dropout
        self.expand = Linear(dim, hidden_dim)
        self.activation = ACTIVATIONS[activation]()
        self.contract = Linear(hidden_dim, dim if out_dim is None else out_dim)

    def forward(self, inputs: Tensor) -> Tensor:
        """Return the feed-forward of vectors: ``[..., dim] -> [..., out_dim]``."""
        hidden = F.dropout(self.activation(self.expand(inputs)), self.dropout, self.training)
        return F.dropout(self.contract(hidden), self.dropout, self.training)


def perceptron(*widths: int) -> nn.Sequential:
    """Make linear maps from width to width, with ReLU between them and none after the last."""
    layers: list[nn.Module] = []
    for width, following in pairwise(widths):
        layers += [nn.Linear(width, following), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


def input_projection(input_dim: int, dim: int) -> nn.Module:
    """Make a linear map to the core's width, or the identity where the widths agree."""
    return nn.Identity() if input_dim == dim else Linear(input_dim, dim)


def linear_flops(*modules: nn.Module) -> int:
    """Return multiply-adds x 2 of all linear maps below some modules, each applied to one vector."""
    children = (child for module in modules for child in module.modules())
    return sum(2 * child.weight.numel() for child in children if isinstance(child, nn.Linear))


def init_lecun(module: nn.Module) -> None:
    """Initialize every linear map and convolution below ``module`` by its fan in, and zero its bias.

        W ~ N(0, 1 / fan_in), truncated at two deviations

    The default of Sonnet (Reynolds et al. 2017), the library of IMPALA and Mott et al. 2019. torch's own weights are
    narrower by sqrt(3), and its biases as large as the products: an untrained output then hardly depends on the input.
    """
    for child in module.modules():
        if isinstance(child, (nn.Linear, nn.Conv2d)):
            deviation = child.weight[0].numel() ** -0.5
            nn.init.trunc_normal_(child.weight, std=deviation, a=-2 * deviation, b=2 * deviation)
            if child.bias is not None:
                nn.init.zeros_(child.bias)


def init_xavier(module: nn.Module) -> None:
    """Initialize every linear map below ``module`` from Glorot's uniform distribution, and zero its bias.

        W ~ U(-a, a),  a = sqrt(6 / (fan_in + fan_out))

    The choice of Vision Transformer code; torch's own default is narrower for short fans.
    """
    for child in module.modules():
        if isinstance(child, nn.Linear):
            nn.init.xavier_uniform_(child.weight)
            if child.bias is not None:
                nn.init.zeros_(child.bias)
