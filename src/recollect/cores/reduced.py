"""Cores with reduced weights, for streams: copies that share all parameters with the user's core.

Every linear map that a step calls is replaced by one whose product reads a reduced copy of the matrix, packed when it
is first used. The maps that a stream packs itself are reduced there (:mod:`recollect.ops.packed_linear`).
"""

import copy
from typing import Any

import torch
from torch import Tensor, nn

from recollect.ops.reduced_linear import FULL, Precision, ReducedLinear, Reduction


class ReducedLayer(nn.Linear):
    """A linear map with the parameters of another one, which multiplies by a reduced copy of its weight."""

    def __init__(self, linear: nn.Linear, reduction: Reduction) -> None:
        nn.Module.__init__(self)
        self.in_features, self.out_features = linear.in_features, linear.out_features
        self._parameters = linear._parameters  # shared, so that a replaced parameter is noticed
        self.training = False
        self._reduction = reduction
        self._product: ReducedLinear | None = None

    def forward(self, input: Tensor) -> Tensor:
        """Return ``x W^T + b``: ``[..., i] -> [..., o]``."""
        rows = input.reshape(-1, self.in_features)
        if self._product is None:
            self._product = self._reduction.pack(self.weight, self.bias, len(rows))
        return self._product(rows).unflatten(0, input.shape[:-1])


def with_reduced_layers(core: Any, reduction: Reduction) -> Any:
    """Return a copy of a core whose linear maps are reduced; it shares parameters, buffers and all other modules."""
    copies: dict[int, nn.Module] = {}

    def reduced(module: nn.Module) -> nn.Module:
        if id(module) in copies:
            return copies[id(module)]
        twin = module
        if isinstance(module, nn.Linear):
            twin = ReducedLayer(module, reduction)
        else:
            parts = module._modules.items()
            children = {name: None if child is None else reduced(child) for name, child in parts}
            if any(child is not module._modules[name] for name, child in children.items()):
                twin = copy.copy(module)  # shares the dict of parameters
                twin._modules, twin.training = children, False
        copies[id(module)] = twin
        return twin

    return reduced(core)


def require_reducible(core: nn.Module, precision: Precision) -> None:
    """Raise ``ValueError`` unless the streams of a core can be reduced here and now."""
    if precision == FULL:
        return
    asked = f"weights={precision.weights!r}, cache={precision.cache!r}"
    found = {(weight.dtype, weight.device.type) for weight in core.parameters() if weight.is_floating_point()}
    for dtype, device in found:
        if (dtype, device) != (torch.float32, "cpu"):
            raise ValueError(f"{asked}: {type(core).__name__} is {dtype} on {device}: use core.float().to('cpu')")
    if torch.is_autocast_enabled("cpu"):
        raise ValueError(
            f"{asked}: autocast chooses the dtype of products too: make and step this stream outside of it"
        )


def require_reduced(core: nn.Module, reduction: Reduction) -> None:
    """Raise ``ValueError`` where nothing was reduced although it was asked for."""
    name, precision = type(core).__name__, reduction.precision
    has_maps = reduction.products or any(isinstance(module, nn.Linear) for module in core.modules())
    reason = getattr(core, "keeps_weights", "") or ("" if has_maps else "it has no linear maps")
    if precision.weights != "float32" and reason:
        raise ValueError(f"weights={precision.weights!r}: {name} cannot reduce them ({reason}): use weights='float32'")
    if precision.cache != "float32" and not reduction.caches:
        reason = "its streams keep no keys, values or inputs of steps in a window or chunks that can be rounded"
        raise ValueError(f"cache={precision.cache!r}: {name} cannot reduce it ({reason}): use cache='float32'")
