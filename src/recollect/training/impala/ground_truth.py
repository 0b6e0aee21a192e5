"""Ground truth from the world for each row of an unroll, for training targets (see supervision.py)."""

from collections.abc import Mapping

import torch
from torch import Tensor

from recollect.tasks.worlds.contract import World

PARTS = ("label", "start", "stop")


class GroundTruthRecorder:
    """Records the ground truth of every row of a rollout."""

    def __init__(self) -> None:
        self._rows: list[dict[str, Tensor]] = []

    def record(self, world: World) -> None:
        """Record the ground truth of the present step."""
        truth = world.truth()
        parts = {} if truth is None else truth._asdict()
        self._rows.append({name: part for name, part in parts.items() if name in PARTS and part is not None})

    def rows(self, is_first: Tensor, steps: Tensor) -> dict[str, Tensor]:
        """Return the rows since the last call as tensors ``[b, T + 1]``, and clear them.

        Args:
            is_first: bool ``[b, T + 1]``.
            steps: long ``[b]``, steps of the episode before row 0.

        Returns:
            ``clock``, the steps since the start of the episode, and the parts of the ground truth that the world has.
        """
        recorded, self._rows = self._rows[-is_first.shape[1] :], []
        clock = [torch.where(is_first[:, 0], 0, steps)]
        for first in is_first.unbind(1)[1:]:
            clock.append(torch.where(first, 0, clock[-1] + 1))
        stacked = {name: torch.stack([row[name] for row in recorded], 1) for name in recorded[0]}
        return {"clock": torch.stack(clock, 1), **stacked}


def rebase_to_unroll_start(truth: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the ground truth for a memory that was cleared before row 0: steps count from there.

    Intervals are cut to the remaining steps. Labels do not change.
    """
    clock = truth["clock"]
    continues = clock == clock[:, :1] + torch.arange(clock.shape[1], device=clock.device)  # the episode of row 0
    missed = torch.where(continues, clock[:, :1], 0)
    begun = dict(truth) | {"clock": clock - missed}
    if "start" in truth:
        stop = truth["stop"] - missed
        known = (truth["start"] >= 0) & (stop > 0)
        begun["start"] = torch.where(known, (truth["start"] - missed).clamp(min=0), -1)
        begun["stop"] = torch.where(known, stop, -1)
    return begun


def subsample(truth: Mapping[str, Tensor], share: float, generator: torch.Generator) -> dict[str, Tensor]:
    """Return the ground truth with targets at a random share of the steps."""
    if share >= 1:
        return dict(truth)
    clock = truth["clock"]
    chosen = (torch.rand(clock.shape, generator=generator) < share).to(clock.device)
    return {
        name: part if name == "clock" else torch.where(chosen.view(*chosen.shape, *(1,) * (part.ndim - 2)), part, -1)
        for name, part in truth.items()
    }
