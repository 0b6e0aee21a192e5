"""Comparison of results: at which step and in which row they differ, and by how much."""

from typing import Any

import torch
from torch import Tensor

from recollect.state import named_leaves, spread_rows

SMALLEST_SCALE = 0.1  # differences are relative to the largest compared number, or to this if all of them are smaller

Result = tuple[Tensor, Any]  # outputs and state of a call


class Violation(Exception):  # noqa: N818 (a finding, not an error of this program)
    """A promise of the contract that a core breaks, with what was seen.

    Args:
        detail: step and row that differ, and by how much.
        cause: the usual reason, in one sentence.
        relative: numerical difference relative to the compared numbers; infinite for everything else.
        share: fraction of the compared steps and rows that differ; 1 where that is unknown.
    """

    def __init__(self, detail: str, cause: str = "", relative: float = float("inf"), share: float = 1.0) -> None:
        super().__init__(detail)
        self.detail = detail
        self.cause = cause
        self.relative = relative
        self.share = share

    def during(self, circumstances: str) -> "Violation":
        """Return the same finding with the circumstances in its detail."""
        return Violation(f"{circumstances}: {self.detail}", self.cause, self.relative, self.share)


class NotApplicable(Exception):  # noqa: N818 (not an error: the module lacks the feature)
    """The module lacks the feature that a line is about."""


def is_continuous(tensor: Tensor) -> bool:
    """Whether it holds numbers that carry gradients (floating point, real or complex), not counts or flags."""
    return tensor.is_floating_point() or tensor.is_complex()


def _widest(tensor: Tensor) -> Tensor:
    return tensor.detach().to(torch.complex128 if tensor.is_complex() else torch.float64)


def absolute_difference(got: Tensor, want: Tensor) -> Tensor:
    """Return absolute differences; infinite where one side is not finite or the signs of infinities differ."""
    got, want = _widest(got), _widest(want)
    same = (got == want) | (got.isnan() & want.isnan())
    difference = (got - want).abs()
    difference = torch.where(difference.isfinite(), difference, torch.inf)
    return torch.where(same, 0.0, difference)


def per_step(tensor: Tensor) -> Tensor:
    """Flatten each step of ``[b, t, ...]`` to one axis, also where a step is a single number."""
    return tensor[..., None].flatten(2)


def first_place(steps: Tensor) -> tuple[int, int]:
    """Return the earliest step that is True in bool ``[b, t]``, and the first row in which it is."""
    step = int(steps.any(0).nonzero()[0])
    return step, int(steps[:, step].nonzero()[0])


def scale(want: Tensor) -> float:
    """Return the largest finite magnitude, at least :data:`SMALLEST_SCALE`."""
    finite = _widest(want).abs()
    finite = finite[finite.isfinite()]
    return max(SMALLEST_SCALE, finite.max().item() if finite.numel() else 0.0)


def describe(difference: float) -> str:
    """Return a difference as text."""
    return "one side is not finite" if difference == float("inf") else f"{difference:.2g}"


class Comparison:
    """Comparison of results at one relative tolerance, with a record of the largest accepted difference.

    Args:
        tolerance: relative to the scale of the compared numbers.
    """

    def __init__(self, tolerance: float) -> None:
        self.tolerance = tolerance
        self.worst = 0.0

    def _exceeds(self, difference: Tensor, want: Tensor) -> tuple[Tensor, float]:
        size = scale(want)
        relative = difference / size
        over = relative > self.tolerance
        if not over.any():
            self.worst = max(self.worst, relative.max().item() if relative.numel() else 0.0)
        return over, size

    def results(self, got: Result, want: Result, what: str, *, mask: Tensor | None = None, cause: str = "") -> None:
        """Compare outputs (where ``mask`` ``[b, t]`` is True, if given) and final states of two calls.

        Raises:
            Violation: they differ; see :meth:`outputs` and :meth:`states`.
        """
        self.outputs(got[0], want[0], what, mask=mask, cause=cause)
        self.states(got[1], want[1], what, step=got[0].shape[1] - 1, cause=cause)

    def outputs(self, got: Tensor, want: Tensor, what: str, *, mask: Tensor | None = None, cause: str = "") -> None:
        """Compare outputs ``[b, t, ...]``; with ``mask`` [b, t] only where it is True.

        Raises:
            Violation: they differ; names the first step and row, and the largest difference.
        """
        if got.shape != want.shape:
            raise Violation(f"{what}: outputs have shape {list(got.shape)} instead of {list(want.shape)}", cause)
        difference = absolute_difference(got, want)
        if mask is not None:
            keep = spread_rows(mask, difference)
            difference = torch.where(keep, difference, 0.0)
            want = torch.where(keep, want, 0.0)
        over, size = self._exceeds(difference, want)
        if not over.any():
            return
        steps = per_step(over).any(-1)  # b t
        first, row = first_place(steps)
        here = difference[row, first].max().item()
        message = f"{what}: outputs differ from step {first}, row {row} on, by {describe(here)}"
        worst_row, worst_step = divmod(int(per_step(difference).amax(-1).argmax()), difference.shape[1])
        worst = difference[worst_row, worst_step].max().item()
        if worst > here:
            message += f" (at most by {describe(worst)}, at step {worst_step}, row {worst_row})"
        share = steps.double().mean().item()
        raise Violation(f"{message}; the outputs are up to {size:.2g}", cause, worst / size, share)

    def states(self, got: Any, want: Any, what: str, *, step: int | None = None, cause: str = "") -> None:
        """Compare two states leaf by leaf.

        Raises:
            Violation: they differ; names the leaf and the row.
        """
        left, right = list(named_leaves(got)), list(named_leaves(want))
        if [name for name, _ in left] != [name for name, _ in right]:
            raise Violation(f"{what}: states have different leaves", cause)
        when = "" if step is None else f" after step {step}"
        for (name, mine), (_, other) in zip(left, right, strict=True):
            if mine.shape != other.shape:
                raise Violation(
                    f"{what}: state.{name} has shape {list(mine.shape)} instead of {list(other.shape)}{when}", cause
                )
            difference = absolute_difference(mine, other)
            over, size = self._exceeds(difference, other)
            if not is_continuous(other):
                over = difference > 0
            if over.any():
                row = int(over[..., None].flatten(1).any(-1).nonzero()[0])
                worst = describe(difference[row].max().item())
                relative = difference.max().item() / size if is_continuous(other) else float("inf")
                detail = f"{what}: state.{name} differs{when} in row {row} by {worst}; it is up to {size:.2g}"
                raise Violation(detail, cause, relative)

    def gradients(self, got: dict[str, Tensor | None], want: dict[str, Tensor | None], what: str, cause: str) -> None:
        """Compare gradients by name; None counts as zero.

        Raises:
            Violation: they differ; names the tensor.
        """
        size = max((scale(gradient) for gradient in want.values() if gradient is not None), default=SMALLEST_SCALE)
        for name, right in want.items():
            left = got[name]
            if left is None and right is None:
                continue
            zero = torch.zeros_like(left if right is None else right)  # type: ignore[arg-type]
            difference = absolute_difference(zero if left is None else left, zero if right is None else right)
            # Sums over steps lose a digit: the tolerance of gradients is ten times as large.
            if (difference > 10 * self.tolerance * size).any():
                raise Violation(
                    f"{what}: the gradient of {name} differs by {describe(difference.max().item())}; "
                    f"gradients are up to {size:.2g}",
                    cause,
                    difference.max().item() / size,
                )
            self.worst = max(self.worst, (difference.max().item() / size) if difference.numel() else 0.0)

    def report(self) -> str:
        """Return the largest accepted difference as text."""
        return "identical" if self.worst == 0 else f"worst relative difference {self.worst:.1g}"


def locate(gradient: Tensor) -> tuple[int, int, float]:
    """Return step, row and size of the first entry of a ``[b, t, ...]`` gradient that is not exactly zero."""
    step, row = first_place(per_step(gradient != 0).any(-1))
    return step, row, gradient[row, step].abs().max().item()
