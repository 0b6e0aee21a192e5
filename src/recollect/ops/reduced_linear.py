"""Matrix products with weights in fewer bits, for streams of float32 cores on a CPU.

    bfloat16    y = bf(bf(x) bf(W)^T) + b                bf rounds to bfloat16; sums in float32
    int8        y = a s (u . q) / 127 + b                q = round(w / s),  s = max |w| / 127  of each output channel
                                                         u = round(127 x / a),  a = max |x|  of each row of inputs

A step of one row takes as long as reading its weights takes, so a half or a quarter of the bytes is a faster step. In
int8 the sums u . q are exact integers: rows cannot mix, and a row gives the same bits in a batch of any size. FBGEMM
quantizes, multiplies and scales in one call, where it is exact on the processor. Otherwise, forms of a product that
give the same numbers, such as two layouts of a matrix, are timed when the first matrix of a shape is packed
(:func:`fastest`).

What is reduced in a stream is decided while it is constructed: inside of :func:`reducing`, the products that
:class:`~recollect.ops.packed_linear.PackedLinear` packs for streams and the caches read there take the chosen formats.
"""

import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cache, partial
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from recollect.config import require
from recollect.ops.torch_internals import find_operator

WeightFormat = Literal["float32", "bfloat16", "int8"]
"""Formats of weights in a stream."""
CacheFormat = Literal["float32", "bfloat16"]
"""Formats of what a stream keeps of steps: projected keys and values, and inputs."""
Product = Callable[[Tensor], Tensor]

TRIALS = 5
"""Timings of each form of a product, of which the fastest counts."""
LEVELS = 127
"""Largest integer of a quantized number."""
STEP = 1 / LEVELS
"""Distance of two quantized numbers of a row whose largest is 1."""


@dataclass(frozen=True)
class Precision:
    """Formats of a stream's weights and caches."""

    weights: WeightFormat = "float32"
    cache: CacheFormat = "float32"

    def __post_init__(self) -> None:
        choices = {"weights": ("float32", "bfloat16", "int8"), "cache": ("float32", "bfloat16")}
        for name, known in choices.items():
            require(getattr(self, name) in known, name, getattr(self, name), f"choose {', '.join(known)}")


FULL = Precision()
"""Everything in the dtype of the core."""


class Reduction:
    """What was reduced while a stream was constructed."""

    def __init__(self, precision: Precision) -> None:
        self.precision = precision
        self.products: list[ReducedLinear] = []
        self.caches = 0

    def pack(self, weight: Tensor, bias: Tensor | None, rows: int) -> "ReducedLinear":
        """Return a product with a reduced copy of a matrix."""
        product = ReducedLinear(weight, bias, rows=rows, weights=self.precision.weights)
        self.products.append(product)
        return product

    @property
    def nbytes(self) -> int:
        """Bytes of all reduced matrices with their scales."""
        return sum(product.nbytes for product in self.products)


_current: ContextVar[Reduction | None] = ContextVar("reduction", default=None)


@contextmanager
def reducing(reduction: Reduction) -> Iterator[None]:
    """Give the streams that are constructed inside this block reduced weights and caches."""
    token = _current.set(reduction)
    try:
        yield
    finally:
        _current.reset(token)


def reduced_product(weight: Tensor, bias: Tensor | None, rows: int) -> "ReducedLinear | None":
    """Return a product with a reduced copy of a matrix, if the stream that is constructed now has such; else None."""
    reduction = _current.get()
    if reduction is None or reduction.precision.weights == "float32" or weight.dtype != torch.float32:
        return None
    return reduction.pack(weight, bias, rows)


def cache_dtype(dtype: torch.dtype) -> torch.dtype:
    """Return the dtype of a cache of the stream that is constructed now; ``dtype`` unless it is reduced."""
    reduction = _current.get()
    if reduction is None or reduction.precision.cache == "float32" or dtype != torch.float32:
        return dtype
    reduction.caches += 1
    return torch.bfloat16


def quantize(weight: Tensor) -> tuple[Tensor, Tensor]:
    """Return int8 numbers and a scale for each output channel: ``[o, i] -> [o, i], [o]``; q s is close to W."""
    scale = (weight.abs().amax(1) / LEVELS).clamp_min(torch.finfo(weight.dtype).tiny)  # a channel of zeros has one too
    return (weight / scale[:, None]).round().to(torch.int8), scale


def quantize_rows(x: Tensor) -> tuple[Tensor, Tensor]:
    """Return int8 numbers and the largest size of each row: ``[r, i] -> [r, i], [r, 1]``; u a / 127 is close to x.

    A row with NaN or infinity has such a size, so that its products are not finite.
    """
    most = largest_of_rows(x)
    return torch.div(x, most).mul_(LEVELS).round_().to(torch.int8), most


def largest_of_rows(x: Tensor) -> Tensor:
    """Return the largest size in each row ``[r, 1]``; several times faster than the norm of order infinity."""
    return x.abs().amax(-1, keepdim=True).clamp_min_(torch.finfo(x.dtype).tiny)


@cache
def multiplies_integers() -> bool:
    """Return whether this torch multiplies int8 matrices without error on this processor.

    Some processors without instructions for it add pairs of products in 16 bits, which the largest numbers exceed.
    """
    if find_operator("aten::_int_mm") is None:
        return False
    for low, high in ((-LEVELS, LEVELS), (LEVELS, LEVELS), (-LEVELS, -LEVELS)):
        rows, columns = torch.full((3, 64), low, dtype=torch.int8), torch.full((64, 32), high, dtype=torch.int8)
        try:
            if not (torch.ops.aten._int_mm(rows, columns) == 64 * low * high).all():
                return False
        except RuntimeError:
            return False
    return True


@cache
def has_fbgemm() -> bool:
    """Return whether FBGEMM is there and multiplies integers without error on this processor.

    It takes inputs as whole numbers from 0 to 255, whose pairs of products exceed 16 bits sooner than those of int8.
    """
    names = ("linear_prepack", "linear_with_input_q_dq_qweight_dq_output_fp32")
    if "fbgemm" not in torch.backends.quantized.supported_engines:
        return False
    if not all(find_operator(f"quantized::{name}") for name in names):
        return False
    if not hasattr(torch, "_make_per_channel_quantized_tensor"):
        return False
    ones = torch.ones(3, 64)
    packed = _pack_for_fbgemm(torch.full((3, 64), LEVELS, dtype=torch.int8), torch.ones(3))
    return all(torch.allclose(_multiply_by_fbgemm(x, packed), 64 * LEVELS * x[:, :3]) for x in (ones, -ones))


def _pack_for_fbgemm(numbers: Tensor, scale: Tensor) -> Any:
    """Return int8 numbers ``[o, i]`` with a scale per channel in the layout of FBGEMM."""
    engine, zeros = torch.backends.quantized.engine, torch.zeros(len(scale), dtype=torch.long)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch will remove quantized tensors; then has_fbgemm() is False
        try:
            torch.backends.quantized.engine = "fbgemm"
            weight = torch._make_per_channel_quantized_tensor(numbers, scale.double(), zeros, 0)  # type: ignore
            return torch.ops.quantized.linear_prepack(weight, None)
        finally:
            torch.backends.quantized.engine = engine


def _multiply_by_fbgemm(x: Tensor, packed: Any) -> Tensor:
    """Return ``x W^T``: one call quantizes x, multiplies, and scales the sums."""
    most = largest_of_rows(x)
    product = torch.ops.quantized.linear_with_input_q_dq_qweight_dq_output_fp32
    return product(torch.div(x, most), STEP, 128, packed).mul_(most)


@cache
def has_packed_bfloat16() -> bool:
    """Return whether oneDNN is there and multiplies bfloat16 on this processor."""
    names = ("_linear_pointwise", "_reorder_linear_weight", "_is_mkldnn_bf16_supported")
    if not torch.backends.mkldnn.is_available() or not all(find_operator(f"mkldnn::{name}") for name in names):  # type: ignore[attr-defined]
        return False
    return torch.ops.mkldnn._is_mkldnn_bf16_supported()


_known: dict[tuple[str, int, int, int], int] = {}


def fastest(name: str, shape: tuple[int, int, int], forms: Sequence[Product], example: Tensor) -> Product:
    """Return the fastest of several forms of a product; the first matrix of a shape decides for all of this process."""
    key = (name, *shape)
    if key not in _known:
        times = []
        for form in forms:
            form(example)  # the first call prepares
            spent = []
            for _ in range(TRIALS):
                begin = time.perf_counter()
                form(example)
                spent.append(time.perf_counter() - begin)
            times.append(min(spent))
        _known[key] = times.index(min(times))
    return forms[_known[key]]


class ReducedLinear:
    """``x W^T + b`` with a reduced copy of W; inputs and outputs are float32. Twin: :class:`PlainReducedLinear`.

    Args:
        weight: W ``[o, i]``, float32, on a CPU.
        bias: b ``[o]``, which stays in float32.
        rows: expected rows of x (a hint).
        weights: bfloat16 or int8.
    """

    def __init__(self, weight: Tensor, bias: Tensor | None, *, rows: int, weights: WeightFormat) -> None:
        weight = weight.detach()
        self.bias = None if bias is None else bias.detach().clone()
        outs, ins = weight.shape
        example = torch.ones(max(1, rows), ins)
        shape = (outs, ins, len(example))
        self.nbytes = weight.numel() * (2 if weights == "bfloat16" else 1) + (4 * outs if weights == "int8" else 0)
        """Bytes of the matrix and its scales."""
        if weights == "bfloat16":
            self._product = _pack_bfloat16(weight, shape, example)
        elif has_fbgemm():
            self._product = partial(_multiply_by_fbgemm, packed=_pack_for_fbgemm(*quantize(weight)))
        elif multiplies_integers():
            self._product = _pack_int8(weight, shape, example)
        else:
            self._product = PlainReducedLinear(weight, None, weights=weights)

    def __call__(self, x: Tensor) -> Tensor:
        """Return ``x W^T + b``: ``[r, i] -> [r, o]``."""
        y = self._product(x)
        return y if self.bias is None else y.add_(self.bias)

    def plus(self, x: Tensor, z: Tensor) -> Tensor:
        """Return ``x W^T + z``, without the bias: ``[r, i], [r, o] -> [r, o]``."""
        return self._product(x).add_(z)


def _pack_bfloat16(weight: Tensor, shape: tuple[int, int, int], example: Tensor) -> Product:
    plain = weight.bfloat16()

    def multiply(x: Tensor) -> Tensor:
        return torch.mm(x.bfloat16(), plain.t()).float()

    if not has_packed_bfloat16():
        return multiply
    packed = torch.ops.mkldnn._reorder_linear_weight(plain, shape[2])

    def multiply_packed(x: Tensor) -> Tensor:
        return torch.ops.mkldnn._linear_pointwise(x.bfloat16(), packed, None, "none", [], "").float()

    return fastest("bfloat16", shape, (multiply_packed, multiply), example)


def _pack_int8(weight: Tensor, shape: tuple[int, int, int], example: Tensor) -> Product:
    numbers, scale = quantize(weight)
    scale = scale * STEP

    def product(matrix: Tensor) -> Product:
        def multiply(x: Tensor) -> Tensor:
            rows, most = quantize_rows(x)
            return torch.ops.aten._int_mm(rows, matrix).mul(scale).mul_(most)

        return multiply

    return fastest("int8", shape, [product(numbers.t()), product(numbers.t().contiguous())], example)


class PlainReducedLinear:
    """Plain twin of :class:`ReducedLinear`: products of the numbers that the reduced formats stand for."""

    def __init__(self, weight: Tensor, bias: Tensor | None, *, weights: WeightFormat) -> None:
        self.bias, self.scale = bias, None
        self.matrix = weight.detach().bfloat16()
        if weights == "int8":
            self.matrix, self.scale = quantize(weight.detach())

    def __call__(self, x: Tensor) -> Tensor:
        """Return ``x W^T + b``: ``[r, i] -> [r, o]``."""
        if self.scale is None:
            y = F.linear(x.bfloat16().float(), self.matrix.float()).bfloat16().float()
        else:
            rows, most = quantize_rows(x)
            y = F.linear(rows.double(), self.matrix.double()).float().mul(self.scale * STEP).mul(most)
        return y if self.bias is None else y + self.bias

    def plus(self, x: Tensor, z: Tensor) -> Tensor:
        """Return ``x W^T + z``, without the bias: ``[r, i], [r, o] -> [r, o]``."""
        return self(x) - self.bias + z if self.bias is not None else self(x) + z
