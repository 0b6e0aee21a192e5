"""Attention to places of pictures: of the present one, and of every picture that a window holds.

The axes of a core's Taps define which of them it has:

    b h t y x      places of the present picture; a Tap ``what_where_tap`` has signed numbers instead of weights
    b h t s y x    all places of the last pictures together: joint attention to space and time
    b h t n s      every place to itself in the last pictures: the mean over places is attention to space and time too
"""

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from recollect.cores.contract import MemoryCore
from recollect.interpret.record import Head, SpaceTime

NOW, NOW_AND_PAST, SAME_PLACE = "b h t y x", "b h t s y x", "b h t n s"
WHAT_WHERE = "what_where_tap"  # end of the names of the Taps that separate content from location
LARGEST = math.log(10)  # nats at which what and where are cut, as Mott et al. (2019) cut them
KEPT = 64  # places of past pictures that are kept of every row
Largest = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]  # step, cell, weight ``[T, h, k]`` and tail ``[T, h]``


class TapCall(NamedTuple):
    """Weights that a Tap showed in one call of one row, all steps together."""

    weights: Tensor  # as the Tap's axes say, with ``b`` 1 and ``t`` the steps of the call
    steps: Callable[[str], np.ndarray]
    """Absolute steps ``[t, s]`` of the places s of a window's Tap, -1 where none is, by the Tap's name."""


class SpatialMaps(NamedTuple):
    """The fields of an :class:`~recollect.interpret.record.EpisodeRecord` of these names, and heads of their own."""

    heads: tuple[Head, ...] = ()
    spatial: np.ndarray | None = None
    what_where: np.ndarray | None = None
    spacetime: SpaceTime | None = None


def collect_spatial_maps(core: MemoryCore[Any], taps: dict[str, list[TapCall]], windows: Sequence[Head]) -> SpatialMaps:
    """Arrange recorded weights for the heads of the core's windows, or for heads of its own.

    Args:
        core: the recorded core.
        taps: calls by the name of the Tap, in the order of the core's modules.
        windows: heads that attend to steps; a map of fewer heads is repeated for every layer of them.
    """
    present, signed, past = [], [], []
    heads: list[Head] = []
    for name, calls in taps.items():
        axes = core.get_submodule(name).axes
        if axes == NOW:
            maps = torch.cat([call.weights[0].movedim(1, 0) for call in calls]).float().cpu().numpy()
            if name.endswith(WHAT_WHERE):
                signed.append(maps.clip(-LARGEST, LARGEST))
                continue
            heads += [Head(layer=len(present), head=h, kind="places", tap=name) for h in range(maps.shape[1])]
            present.append(maps)
        elif axes == NOW_AND_PAST:
            now = [call.weights[0, :, :, -1].movedim(1, 0) for call in calls]
            present.append(torch.cat(now).float().cpu().numpy())
            past.append(_largest(name, [(call, call.weights[0].movedim(1, 0).flatten(-2)) for call in calls]))
        elif axes == SAME_PLACE:
            past.append(_largest(name, [(call, _by_step(call.weights[0])) for call in calls]))
    spacetime = None
    if past:
        step, cell, weight, tail = (np.concatenate(parts, 1) for parts in zip(*past, strict=True))
        grid = getattr(core.config, "grid", (1, 1))
        spacetime = SpaceTime(step=step, cell=cell, weight=weight, tail=tail, grid=grid)
    return SpatialMaps(
        tuple(heads) if not windows else (),
        _repeat_for_heads(present, len(windows)),
        _repeat_for_heads(signed, len(windows)),
        spacetime,
    )


def _by_step(weights: Tensor) -> Tensor:
    """Convert weights ``[h, t, n, s]`` of places to themselves to ``[t, h, s, n]``, of the mean place to all."""
    return weights.permute(1, 0, 3, 2) / weights.shape[2]


def _repeat_for_heads(maps: list[np.ndarray], windows: int) -> np.ndarray | None:
    """Join the maps ``[T, h, y, x]`` of all layers, repeated where there are more window heads."""
    if not maps:
        return None
    joined = np.concatenate(maps, 1)
    return np.tile(joined, (1, max(windows // joined.shape[1], 1), 1, 1))


def _largest(name: str, calls: list[tuple[TapCall, Tensor]]) -> Largest:
    """Return the largest of the weights ``[t, h, s, n]``."""
    found = []
    window = name.rpartition(".")[0] + ".tap"
    for call, weights in calls:
        places = weights.shape[-1]
        flat = weights.float().flatten(-2)
        largest = flat.topk(min(KEPT, flat.shape[-1]), -1)
        tail = (flat.sum(-1) - largest.values.sum(-1)).clamp(min=0)
        index, weight = largest.indices.cpu().numpy(), largest.values.cpu().numpy()
        steps = call.steps(window)
        step = steps[np.arange(len(steps))[:, None, None], index // places]
        exists = (step >= 0) & (weight > 0)
        parts = np.where(exists, step, -1), np.where(exists, index % places, 0), np.where(exists, weight, 0)
        found.append((*parts, tail.cpu().numpy()))
    step, cell, weight, tail = (np.concatenate(parts) for parts in zip(*found, strict=True))
    return step.astype(np.int32), cell.astype(np.int32), weight.astype(np.float32), tail.astype(np.float32)
