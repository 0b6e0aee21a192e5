"""Checks of the steps of a user-defined world against its spec.

Shapes and dtypes are checked in every step; values only on request, because this waits for the device.
"""

from __future__ import annotations

from typing import Any

from recollect.lazy import gymnasium, spaces, torch
from recollect.tasks.worlds.contract import Step, observation_leaves

Form = tuple[tuple[int, ...], bool]
"""Shape of one row, and whether the numbers are floats."""


class Answers:
    """Checker of the steps of a world.

    Args:
        space: observation space of one row.
        batch_size: number of rows.
    """

    def __init__(self, space: gymnasium.Space[Any], batch_size: int) -> None:
        self.batch_size = batch_size
        self.spaces = dict(observation_leaves(space))
        self.form: tuple[Any, ...] | None = None  # of the last step that was right

    def check(self, step: Step) -> None:
        """Raise ``ValueError`` unless a step has the right parts, shapes and kinds of numbers."""
        form = _form(step)
        if form is not None and form == self.form:
            return
        self._check(step)
        self.form = form

    def _check(self, step: Step) -> None:
        if not isinstance(step, Step):
            raise ValueError(f"it returns a {type(step).__name__}, not a Step")
        for name, part in zip(Step._fields[1:], step[1:], strict=True):
            kind = "float" if name in ("reward", "score") else "bool"
            if not isinstance(part, torch.Tensor):
                raise ValueError(f"{name} is {part!r}, not a {kind} tensor [{self.batch_size}]")
            right = part.is_floating_point() if kind == "float" else part.dtype == torch.bool
            if part.shape != (self.batch_size,) or not right:
                raise ValueError(f"{name} is {part.dtype} {list(part.shape)}, not {kind} [{self.batch_size}]")
        seen = dict(observation_leaves(step.observation))
        if seen.keys() != self.spaces.keys():
            raise ValueError(f"the observation has entries {sorted(seen)}, its space {sorted(self.spaces)}")
        for name, leaf in seen.items():
            want = [self.batch_size, *(self.spaces[name].shape or ())]
            if not isinstance(leaf, torch.Tensor) or list(leaf.shape) != want:
                got = list(leaf.shape) if isinstance(leaf, torch.Tensor) else type(leaf).__name__
                raise ValueError(f"the observation{name} has shape {got}, its space has {want}")
            if leaf.is_floating_point() and _has_integers(self.spaces[name]):
                raise ValueError(f"the observation{name} is {leaf.dtype}, its space {self.spaces[name]} holds integers")

    def check_numbers(self, step: Step) -> None:
        """Raise ``ValueError`` where an observation of whole numbers is outside its space; waits for the device."""
        for name, leaf in observation_leaves(step.observation):
            space = self.spaces[name]
            if not _has_integers(space) or leaf.dtype == torch.bool:
                continue
            most = space.n if isinstance(space, gymnasium.spaces.Discrete) else 2
            if isinstance(space, gymnasium.spaces.MultiDiscrete):
                most = torch.as_tensor(space.nvec, device=leaf.device)
            first = getattr(space, "start", 0)
            low = torch.as_tensor(first, device=leaf.device)
            wrong = (leaf < low) | (leaf >= low + most)
            if bool(wrong.any()):
                row = int(wrong.flatten(1).any(1).nonzero()[0, 0]) if leaf.ndim > 1 else int(wrong.nonzero()[0, 0])
                value = leaf[wrong][0].item()
                raise ValueError(f"the observation{name} is {value} in row {row}, outside its space {space}")


def _form(step: Any) -> tuple[Any, ...] | None:
    """Return shapes and dtypes of a step whose observation is a tensor or a Dict of tensors; None for any other."""
    try:
        seen = step.observation
        parts = tuple(seen.items()) if isinstance(seen, dict) else (("", seen),)
        observation = tuple((name, type(part), part.shape, part.dtype) for name, part in parts)
        return type(step), observation, tuple((type(part), part.shape, part.dtype) for part in step[1:])
    except (AttributeError, TypeError):
        return None


def _has_integers(space: gymnasium.Space[Any]) -> bool:
    return isinstance(space, (spaces.Discrete, spaces.MultiDiscrete, spaces.MultiBinary))
