"""Ground truth of the world about an episode, as events, memory dependency pairs and objects of a record.

The format of the pairs is that of memory dependency pairs (p, q): at step p the decision needs what was seen at q.
Source: AttentionTuner (arXiv 2411.07954), where people write them; here the world does.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch

from recollect.interpret.record import Event, Objects, Pair
from recollect.tasks.worlds.contract import Scene, Truth


def find_events(names: Sequence[str | None], rewards: np.ndarray, over: bool) -> tuple[Event, ...]:
    """Find runs of steps with the same event, steps with a reward, and the end, in order of time.

    Args:
        names: of the event at each step; None where there is none.
        rewards: ``[T]``.
        over: whether the episode ended.
    """
    found = [(start, stop, kind, kind) for start, stop, kind in _runs(names) if kind is not None]
    found += [(t, t + 1, "reward", f"reward {rewards[t]:+.3g}") for t in np.flatnonzero(rewards).tolist()]
    if over:
        found.append((len(rewards) - 1, len(rewards), "end", "end"))
    found.sort(key=lambda event: event[:2])
    return tuple(
        Event(t=t, t1=t1, kind=kind, label=label, id=f"e{number}") for number, (t, t1, kind, label) in enumerate(found)
    )


def find_pairs(truths: Sequence[Truth | None]) -> tuple[Pair, ...]:
    """Find which decisions depend on which steps: runs of steps with the same ``Truth.start`` and ``stop``.

    Steps of a run before the end of its key are left out: what is still to be seen is no memory.

    Args:
        truths: of the steps, of a world with one row.
    """
    keys = [(-1, -1) if truth is None else (int(truth.start[0]), int(truth.stop[0])) for truth in truths]
    return tuple(
        Pair(query=(max(start, key[1]), stop), key=key)
        for start, stop, key in _runs(keys)
        if 0 <= key[0] < key[1] < stop
    )


def _runs(values: Sequence[Any]) -> Iterator[tuple[int, int, Any]]:
    """Yield start, stop and value of every run of equal values."""
    start = 0
    for t in range(1, len(values) + 1):
        if t == len(values) or values[t] != values[start]:
            yield start, t, values[start]
            start = t


def find_objects(scenes: Sequence[Scene | None], names: Sequence[str]) -> Objects | None:
    """Return the things in every frame; None where the world does not name them.

    Args:
        scenes: of the steps, of a world with one row.
        names: of the things.
    """
    known = [scene for scene in scenes if scene is not None]
    if not known or len(known) < len(scenes):
        return None
    boxes, visible, matters = (torch.cat(part).cpu().numpy() for part in zip(*known, strict=True))
    return Objects(names=tuple(names), boxes=boxes.astype(np.int32), visible=visible, matters=matters)
