"""Whether weights have changed since a stream read them.

PyTorch counts every in-place change of a tensor, and a step compares the sum of these counts: a tenth of a
microsecond per weight. Fused optimisers (``torch.optim.Adam(fused=True)``) write without counting. Trainers of
Recollect count for them (:func:`count_change`); for loops of others a few bytes of some weights are compared too,
where that needs no wait for a device. A parameter that was put in the place of another
(``load_state_dict(assign=True)``) is seen too.

Not seen: what is written through ``weight.data``, beyond those bytes, or by a fused optimiser on an accelerator.
"""

from collections.abc import Iterable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

SAMPLES = 4
"""Weights of which bytes are compared."""
BYTES = 32
"""How many bytes of each."""


class WeightChanges:
    """Remembers how weights are now.

    Args:
        weights: of a core.
        modules: that hold them; without these nobody sees that one was put in the place of another.
    """

    def __init__(self, weights: Iterable[Tensor], modules: Iterable[nn.Module] = ()) -> None:
        self._modules = list(modules)
        self._places = [(module._parameters, name) for module in self._modules for name in module._parameters]
        self._held = self._ids()
        # Tensors made in inference mode are not counted, and cannot be trained either.
        self._weights = [weight for weight in weights if not weight.is_inference()]
        self._count, self._kind = self._counted(), self._kind_now()
        size = len(self._weights)
        chosen = [self._weights[i * size // SAMPLES] for i in range(SAMPLES)] if size > SAMPLES else self._weights
        self._samples = [_first_bytes(weight) for weight in chosen if weight.device.type == "cpu" and weight.numel()]
        self._before = [sample.tobytes() for sample in self._samples]

    def any(self) -> bool:
        """Whether a weight has changed since then."""
        if self._counted() != self._count or self._kind_now() != self._kind or self._ids() != self._held:
            return True
        return [sample.tobytes() for sample in self._samples] != self._before

    def __reduce__(self) -> tuple[Any, ...]:
        return WeightChanges, (self._weights, self._modules)  # a copy has weights of its own

    def _kind_now(self) -> list[object]:
        # core.double() and core.to(device) change all weights at once, and nobody counts it.
        return [part for weight in self._weights[:1] for part in (weight.dtype, weight.device)]

    def _ids(self) -> list[int]:
        return [id(parameters.get(name)) for parameters, name in self._places]

    def _counted(self) -> int:
        return sum([weight._version for weight in self._weights])


def count_change(weights: Iterable[Tensor]) -> None:
    """Say that weights were changed in place, by something that does not say so itself."""
    torch.autograd.graph.increment_version(tuple(weights))


def _first_bytes(weight: Tensor) -> np.ndarray:
    """A view, where the weight lies in one piece."""
    flat = weight.detach()
    while flat.ndim > 1:
        flat = flat[0]
    return flat.reshape(-1)[:BYTES].contiguous().view(torch.uint8).numpy()[:BYTES]  # a single number has no axis
