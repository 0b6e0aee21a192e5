"""Saying where two results part: which step, which row, by how much."""

from typing import Any

import torch
from torch import Tensor

from recollect.state import named_leaves, spread_rows

SMALLEST_SCALE = 0.1
"""Differences are relative to the largest number of what is compared, or to this if all of it is smaller."""


class Violation(Exception):  # noqa: N818 (a finding, not an error of this program)
    """A promise is broken.

    Args:
        detail: which step and row differ, and by how much.
        cause: what that usually means, in one sentence.
        relative: size of a numerical difference relative to what is compared; infinite for everything else.
        share: of the compared steps and rows, how many differ; 1 where that is not known.
    """

    def __init__(self, detail: str, cause: str = "", relative: float = float("inf"), share: float = 1.0) -> None:
        super().__init__(detail)
        self.detail = detail
        self.cause = cause
        self.relative = relative
        self.share = share

    def during(self, what: str) -> "Violation":
        """The same finding, with the circumstances in which it was made."""
        return Violation(f"{what}: {self.detail}", self.cause, self.relative, self.share)


class NotApplicable(Exception):  # noqa: N818 (not an error: the module simply lacks the thing)
    """The module has nothing that this line could be about."""


def continuous(tensor: Tensor) -> bool:
    """Whether it holds numbers that carry gradients (floating point, real or complex), not counts or flags."""
    return tensor.is_floating_point() or tensor.is_complex()


def _widest(tensor: Tensor) -> Tensor:
    return tensor.detach().to(torch.complex128 if tensor.is_complex() else torch.float64)


def gap(got: Tensor, want: Tensor) -> Tensor:
    """Absolute differences; infinite where exactly one side is not finite or the signs of infinities differ."""
    got, want = _widest(got), _widest(want)
    same = (got == want) | (got.isnan() & want.isnan())
    difference = (got - want).abs()
    difference = torch.where(difference.isfinite(), difference, torch.inf)
    return torch.where(same, 0.0, difference)


def per_step(tensor: Tensor) -> Tensor:
    """``[b, t, ...]`` with everything of a step on one axis, also where a step is a single number."""
    return tensor[..., None].flatten(2)


def first_place(steps: Tensor) -> tuple[int, int]:
    """The earliest step that is True in bool ``[b, t]``, and the first row in which it is."""
    step = int(steps.any(0).nonzero()[0])
    return step, int(steps[:, step].nonzero()[0])


def scale(want: Tensor) -> float:
    """The largest finite magnitude."""
    finite = _widest(want).abs()
    finite = finite[finite.isfinite()]
    return max(SMALLEST_SCALE, finite.max().item() if finite.numel() else 0.0)


def say(difference: float) -> str:
    """A difference in words."""
    return "one side is not finite" if difference == float("inf") else f"{difference:.2g}"


class Comparison:
    """Compares results at one relative tolerance and remembers the worst agreement.

    Args:
        tolerance: relative to the scale of what is compared.
    """

    def __init__(self, tolerance: float) -> None:
        self.tolerance = tolerance
        self.worst = 0.0

    def _over(self, difference: Tensor, want: Tensor) -> tuple[Tensor, float]:
        size = scale(want)
        relative = difference / size
        over = relative > self.tolerance
        if not over.any():
            self.worst = max(self.worst, relative.max().item() if relative.numel() else 0.0)
        return over, size

    def outputs(self, got: Tensor, want: Tensor, what: str, *, mask: Tensor | None = None, cause: str = "") -> None:
        """Two ``[b, t, ...]``; with ``mask`` [b, t] only where it is True.

        Raises:
            Violation: they differ; names the first step and row, and the worst.
        """
        if got.shape != want.shape:
            raise Violation(f"{what}: outputs have shape {list(got.shape)} instead of {list(want.shape)}", cause)
        difference = gap(got, want)
        if mask is not None:
            keep = spread_rows(mask, difference)
            difference = torch.where(keep, difference, 0.0)
            want = torch.where(keep, want, 0.0)
        over, size = self._over(difference, want)
        if not over.any():
            return
        steps = per_step(over).any(-1)  # b t
        first, row = first_place(steps)
        here = difference[row, first].max().item()
        message = f"{what}: outputs part at step {first}, row {row}, by {say(here)}"
        worst_row, worst_step = divmod(int(per_step(difference).amax(-1).argmax()), difference.shape[1])
        worst = difference[worst_row, worst_step].max().item()
        if worst > here:
            message += f" (at worst by {say(worst)}, at step {worst_step}, row {worst_row})"
        share = steps.double().mean().item()
        raise Violation(f"{message}; the outputs are up to {size:.2g}", cause, worst / size, share)

    def states(
        self, got: Any, want: Any, what: str, *, rows: Tensor | None = None, step: int | None = None, cause: str = ""
    ) -> None:
        """Two states; with ``rows`` [b] bool only those streams.

        Raises:
            Violation: they differ; names the leaf and the row.
        """
        pairs = list(zip(named_leaves(got), named_leaves(want), strict=False))
        if [n for n, _ in named_leaves(got)] != [n for n, _ in named_leaves(want)]:
            raise Violation(f"{what}: states have different leaves", cause)
        when = "" if step is None else f" after step {step}"
        for (name, left), (_, right) in pairs:
            if left.shape != right.shape:
                raise Violation(
                    f"{what}: state.{name} has shape {list(left.shape)} instead of {list(right.shape)}{when}", cause
                )
            difference = gap(left, right)
            if rows is not None:
                keep = spread_rows(rows, difference)
                difference = torch.where(keep, difference, 0.0)
                right = torch.where(keep, right, torch.zeros((), dtype=right.dtype))
            over, size = self._over(difference, right)
            if not continuous(right):
                over, size = difference > 0, scale(right)
            if over.any():
                row = int(over.flatten(1).any(-1).nonzero()[0])
                worst = difference[row].max().item()
                relative = difference.max().item() / size if continuous(right) else float("inf")
                detail = f"{what}: state.{name} differs{when} in row {row} by {say(worst)}; it is up to {size:.2g}"
                raise Violation(detail, cause, relative)

    def gradients(self, got: dict[str, Tensor | None], want: dict[str, Tensor | None], what: str, cause: str) -> None:
        """Two sets of gradients by name; None counts as zero.

        Raises:
            Violation: they differ; names the tensor.
        """
        sizes = [scale(g) for g in want.values() if g is not None]
        size = max(sizes, default=SMALLEST_SCALE)
        for name, right in want.items():
            left = got[name]
            if left is None and right is None:
                continue
            like = left if right is None else right
            assert like is not None
            difference = gap(
                torch.zeros_like(like) if left is None else left, torch.zeros_like(like) if right is None else right
            )
            # Sums over steps lose a digit: gradients get ten times the room.
            if (difference > 10 * self.tolerance * size).any():
                raise Violation(
                    f"{what}: the gradient of {name} differs by {say(difference.max().item())}; "
                    f"gradients are up to {size:.2g}",
                    cause,
                    difference.max().item() / size,
                )
            self.worst = max(self.worst, (difference.max().item() / size) if difference.numel() else 0.0)

    def report(self) -> str:
        """The worst agreement that was still good enough."""
        return "identical" if self.worst == 0 else f"worst relative difference {self.worst:.1g}"


def locate(gradient: Tensor) -> tuple[int, int, float]:
    """Step, row and size of the first entry of a ``[b, t, ...]`` gradient that is not exactly zero."""
    step, row = first_place(per_step(gradient != 0).any(-1))
    return step, row, gradient[row, step].abs().max().item()
