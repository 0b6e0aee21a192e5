"""Feed-forward blocks and input projections, their forms for single steps, and initializations of weights."""

from collections.abc import Callable
from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from recollect.layers.config import Activation
from recollect.ops.linear import Linear
from recollect.ops.packed_linear import PackedLinear

ACTIVATIONS: dict[Activation, Callable[[], nn.Module]] = {
    "relu": nn.ReLU,
    "gelu": nn.GELU,
    "gelu_tanh": lambda: nn.GELU(approximate="tanh"),
}


class FeedForward(nn.Module):
    """``W2 act(W1 x + b1) + b2`` along the last axis, with dropout after ``act`` and at the end.

    ``out_dim`` None is ``dim``.
    """

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


class StreamFeedForward:
    """A :class:`FeedForward` for single steps ``[r, dim] -> [r, out_dim]``, over weights that are prepared once.

        y = W2 act(W1 (g * x + s) + b1) + b2

    g and s, scale and shift of the norm before it, are folded into W1 and b1. The GELU of v is
    ``(u + u erf(u)) / sqrt(2)`` with ``u = v / sqrt(2)``; both factors are folded into weights too. torch's own starts
    oneDNN on a CPU, which takes three to seven times as long as that for the numbers of one step. The result is a new
    tensor in the dtype of the products. No dropout.

    Args:
        feed_forward: the block.
        rows: expected rows of an input.
        dtype: of the products.
        scale: g ``[dim]``, or None.
        shift: s ``[dim]``, or None.
    """

    def __init__(
        self,
        feed_forward: FeedForward,
        *,
        rows: int,
        dtype: torch.dtype,
        scale: Tensor | None = None,
        shift: Tensor | None = None,
    ) -> None:
        first, second = feed_forward.expand, feed_forward.contract
        kind = first.weight.dtype
        wide = torch.promote_types(kind, torch.float32)
        inward, bias, outward = (tensor.detach().to(wide) for tensor in (first.weight, first.bias, second.weight))
        if shift is not None:
            bias = bias + (inward * shift.detach().to(wide)).sum(-1)
        if scale is not None:
            inward = inward * scale.detach().to(wide)
        self._activate: Callable[[Tensor], Tensor] = feed_forward.activation
        if isinstance(self._activate, nn.ReLU):
            self._activate = torch.relu_
        elif isinstance(self._activate, nn.GELU) and self._activate.approximate == "none" and dtype == wide:
            half = 2**-0.5
            inward, bias, outward, self._activate = half * inward, half * bias, half * outward, _scaled_gelu
        self._expand = PackedLinear.for_stream(inward.to(kind), bias.to(kind), rows=rows, dtype=dtype)
        self._contract = PackedLinear.for_stream(outward.to(kind), second.bias, rows=rows, dtype=dtype)
        self._dtype = dtype

    def __call__(self, x: Tensor) -> Tensor:
        """Return the feed-forward of each row."""
        return self._contract(self._activate(self._expand(x.to(self._dtype))))


def _scaled_gelu(u: Tensor) -> Tensor:
    return torch.addcmul(u, u, torch.erf(u))


def stream_projection(project: nn.Module, rows: int) -> Callable[[Tensor], Tensor]:
    """Return an input projection for steps ``[r, i]`` or ``[b, t, i]``, in the dtype of its weights."""
    if not isinstance(project, nn.Linear):
        return project
    product = PackedLinear.for_stream(project.weight, project.bias, rows=rows)
    return lambda x: product(x) if x.ndim == 2 else product(x.flatten(0, 1)).unflatten(0, x.shape[:2])


def linear_flops(*modules: nn.Module) -> int:
    """Return multiply-adds x 2 of all linear maps below some modules, each applied to one vector."""
    children = (child for module in modules for child in module.modules())
    return sum(2 * child.weight.numel() for child in children if isinstance(child, nn.Linear))


def init_lecun(module: nn.Module) -> None:
    """Initialize every linear map and convolution below ``module`` by its fan in, and zero its bias.

        W ~ N(0, 1 / fan_in), truncated at two deviations

    The default of Sonnet (Reynolds et al. 2017), the library of IMPALA and Mott et al. 2019. torch's own weights are
    narrower by sqrt(3), and its biases are not zero: with small inputs an untrained output then hardly depends on them.
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

    The choice of Vision Transformer code; torch's own default is narrower where fan_out < 5 fan_in.
    """
    for child in module.modules():
        if isinstance(child, nn.Linear):
            nn.init.xavier_uniform_(child.weight)
            if child.bias is not None:
                nn.init.zeros_(child.bias)
