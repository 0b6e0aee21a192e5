"""Detection of weight changes since a stream read the weights.

PyTorch counts every in-place change of a tensor, and a step compares the sum of these counts: a tenth of a microsecond
per weight. Fused optimisers (``torch.optim.Adam(fused=True)``) write without counting: trainers of Recollect count for
them (:func:`count_change`), and for other loops a few bytes of some weights on the CPU are compared too. Replaced
parameters (``load_state_dict(assign=True)``) are detected by their identity.

Not detected: writes through ``weight.data`` beyond those bytes, or by a fused optimiser on an accelerator.
"""

from collections.abc import Iterable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

SAMPLES = 4
"""Number of weights whose bytes are compared."""
BYTES = 32
"""Bytes of each that are compared."""


class WeightChanges:
    """A record of weights as they are now.

    Args:
        weights: of a core.
        modules: that hold them, to detect replaced parameters.
    """

    def __init__(self, weights: Iterable[Tensor], modules: Iterable[nn.Module] = ()) -> None:
        self._modules = list(modules)
        self._places = [(module._parameters, name) for module in self._modules for name in module._parameters]
        # Tensors made in inference mode are not counted, and cannot be trained either.
        self._weights = [weight for weight in weights if not weight.is_inference()]
        size = len(self._weights)
        chosen = [self._weights[i * size // SAMPLES] for i in range(SAMPLES)] if size > SAMPLES else self._weights
        self._samples = [_first_bytes(weight) for weight in chosen if weight.device.type == "cpu" and weight.numel()]
        self._before = self._summary()

    def any(self) -> bool:
        """Whether a weight has changed since then."""
        return self._summary() != self._before

    def __reduce__(self) -> tuple[Any, ...]:
        return WeightChanges, (self._weights, self._modules)  # a copy has weights of its own

    def _summary(self) -> list[object]:
        # core.double() and core.to(device) change all weights at once without being counted.
        first = [part for weight in self._weights[:1] for part in (weight.dtype, weight.device)]
        identities = [id(parameters.get(name)) for parameters, name in self._places]
        versions = sum([weight._version for weight in self._weights])
        return [versions, first, identities, [sample.tobytes() for sample in self._samples]]


def count_change(weights: Iterable[Tensor]) -> None:
    """Count an in-place change of weights by an operation that does not count its own."""
    torch.autograd.graph.increment_version(tuple(weights))


def _first_bytes(weight: Tensor) -> np.ndarray:
    """Return the first bytes, as a view where the weight is contiguous."""
    flat = weight.detach()
    while flat.ndim > 1:
        flat = flat[0]
    return flat.reshape(-1)[:BYTES].contiguous().view(torch.uint8).numpy()[:BYTES]  # a single number has no axis
