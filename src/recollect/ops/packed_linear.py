"""Matrix products with one matrix and many factors, without gradients of their own.

    y = x W^T + b            y = x W^T + z

For hand-written backward passes and for streams. On CPU, torch multiplies float32 matrices with MKL, which packs W
again in every call and is slow on processors of other makers. oneDNN, which torch includes for its compiler and its
LSTM, can pack W once. The choice follows from processor maker and shape, as measured with two threads, never from a
trial run: the same machine always computes the same numbers.

- AMD (EPYC, Zen 5): oneDNN; 2.3x for 2048 rows, 2.8x for 32 rows. Its call takes 9 us more than ``addmm``, which is
  therefore used in streams of few rows, while rows times entries of W are at most 2^18 (1.1x to 4x, one thread and
  two); such a W is not packed, which costs larger products 1 %.
- Intel (Xeon with AMX): oneDNN with W packed for 8 to 128 rows and large W (1.2x to 2x); else MKL. Where W is used
  often for up to 128 rows, W^T is made contiguous for it (1.1x to 1.7x; oneDNN's call alone takes 17 us).
- Others have not been measured: ``addmm``.
"""

from contextlib import AbstractContextManager, nullcontext
from functools import cache
from typing import Any, Self

import torch
import torch.nn.functional as F
from torch import Tensor

from recollect.machine import processor_maker
from recollect.ops.reduced_linear import reduced_product
from recollect.ops.torch_internals import find_operator

MAKER = processor_maker()
"""Maker of this machine's processor."""

_ops = torch.ops.mkldnn
_PRIVATE = tuple(
    f"mkldnn::{name}" for name in ("_linear_pointwise", "_reorder_linear_weight", "_is_mkldnn_bf16_supported")
)
_PACKED_ROWS = range(8, 129)
_LARGE = 2**19
"""Entries of a matrix from which packing is faster on Intel."""
_FEW_ROWS = 8
_STREAM = 1000
"""Uses of a matrix in a stream."""
_SMALL = 2**18
"""Rows times entries of a matrix up to which MKL is faster on AMD."""


@cache
def is_available() -> bool:
    """Return whether this torch has oneDNN and its private operators that are called here."""
    return torch.backends.mkldnn.is_available() and all(map(find_operator, _PRIVATE))  # type: ignore[attr-defined]


def prefers_onednn(weight: Tensor, rows: int, packed: bool = False) -> bool:
    """Return whether oneDNN is the faster library for so many rows and a matrix of this shape, packed or not."""
    if weight.device.type != "cpu" or not is_available():
        return False
    if weight.dtype == torch.bfloat16:
        return _ops._is_mkldnn_bf16_supported()
    if weight.dtype != torch.float32:
        return False
    large = weight.numel() >= _LARGE
    return MAKER == "amd" or (MAKER == "intel" and packed and large and rows in _PACKED_ROWS)


def working_dtype(weight: Tensor) -> torch.dtype:
    """Return the dtype of products in a stream constructed now: that of autocast, else that of its weights."""
    kind = weight.device.type
    return torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else weight.dtype


def multiply(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Compute ``x W^T + b`` without gradients: ``[r, i], [o, i], [o] -> [r, o]``. Twin: ``F.linear``."""
    if prefers_onednn(weight, x.shape[0]):
        return _ops._linear_pointwise(x, weight, bias, "none", [], "")
    with without_autocast(x):
        return x @ weight.t() if bias is None else torch.addmm(bias, x, weight.t())


class PackedLinear:
    """``x W^T`` for a fixed W; later changes of the weight may or may not have an effect.

    Args:
        weight: W ``[o, i]``, float.
        bias: b ``[o]``, added to every product of :meth:`__call__`.
        rows: expected rows of x (a hint).
        uses: expected number of products (a hint: packing W costs about two of them).
    """

    def __init__(self, weight: Tensor, bias: Tensor | None = None, *, rows: int, uses: int) -> None:
        self.weight = weight.detach()
        self.bias = None if bias is None else bias.detach()
        self.reduced = reduced_product(self.weight, self.bias, rows) if uses >= _STREAM else None
        if self.reduced is not None:
            self.weight = self.weight.new_empty(0)  # not kept beside its reduced copy
            return
        packed = uses > 4
        self.fast = prefers_onednn(weight, rows, packed)
        often = uses >= _STREAM and rows < _FEW_ROWS
        few = self.fast and often and MAKER == "amd" and weight.dtype == torch.float32
        self.plain_rows = _SMALL // max(1, weight.numel()) if few else 0  # up to this many rows addmm is faster
        if self.fast and packed and rows > self.plain_rows:
            self.weight = _ops._reorder_linear_weight(self.weight, rows)
        elif packed and MAKER == "intel" and weight.device.type == "cpu" and rows < _PACKED_ROWS.stop:
            self.weight = self.weight.t().contiguous().t()
        self._factor, self._device = self.weight.t(), weight.device.type

    @classmethod
    def for_stream(
        cls, weight: Tensor, bias: Tensor | None = None, *, rows: int, dtype: torch.dtype | None = None
    ) -> Self:
        """Make a product for very many uses, in ``dtype`` (None: that of the weight)."""
        dtype = dtype or weight.dtype
        return cls(weight.to(dtype), None if bias is None else bias.to(dtype), rows=rows, uses=_STREAM)

    def __call__(self, x: Tensor) -> Tensor:
        """``x W^T + b``: ``[r, i] -> [r, o]``."""
        if self.reduced is not None:
            return self.reduced(x)
        if self.fast and len(x) > self.plain_rows:
            return _ops._linear_pointwise(x, self.weight, self.bias, "none", [], "")
        return self._multiply(x, self.bias)

    def plus(self, x: Tensor, z: Tensor) -> Tensor:
        """Return ``x W^T + z``, without the bias: ``[r, i], [r, o] -> [r, o]``."""
        if self.reduced is not None:
            return self.reduced.plus(x, z)
        if self.fast and len(x) > self.plain_rows:
            return _ops._linear_pointwise.binary(x, z, self.weight, None, "add")
        return self._multiply(x, z)

    def _multiply(self, x: Tensor, z: Tensor | None) -> Tensor:
        if torch.is_autocast_enabled(self._device):
            with without_autocast(x):
                return self._multiply(x, z)
        if z is None or self._device == "cpu":  # there addmm copies z before it multiplies, which takes longer
            product = torch.mm(x, self._factor)
            return product if z is None else product.add_(z)
        return torch.addmm(z, x, self._factor)


class PlainLinear:
    """Plain twin of :class:`PackedLinear`; ignores its hints."""

    def __init__(self, weight: Tensor, bias: Tensor | None = None, *, rows: int, uses: int) -> None:
        self.weight = weight.detach()
        self.bias = None if bias is None else bias.detach()

    def __call__(self, x: Tensor) -> Tensor:
        """``x W^T + b``: ``[r, i] -> [r, o]``."""
        with without_autocast(x):
            return F.linear(x, self.weight, self.bias)

    def plus(self, x: Tensor, z: Tensor) -> Tensor:
        """Return ``x W^T + z``, without the bias: ``[r, i], [r, o] -> [r, o]``."""
        with without_autocast(x):
            return F.linear(x, self.weight) + z


def without_autocast(like: Tensor) -> AbstractContextManager[Any]:
    """Disable autocast on the device of ``like``: the caller has already chosen the dtype of its products."""
    kind = like.device.type
    return torch.autocast(kind, enabled=False) if torch.is_autocast_enabled(kind) else nullcontext()
