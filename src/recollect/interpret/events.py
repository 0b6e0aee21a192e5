"""What only the world knows about an episode, as events, memory dependency pairs and objects of a record.

The format of the pairs is that of memory dependency pairs (p, q): at step p the decision needs what was seen at q.
Source: AttentionTuner (arXiv 2411.07954), where people write them; here the world does.
"""

from collections.abc import Sequence

import numpy as np
import torch

from recollect.interpret.record import Event, Objects, Pair
from recollect.tasks.worlds.contract import Scene, Truth, WorldSpec


def find_events(truths: Sequence[Truth | None], rewards: np.ndarray, spec: WorldSpec, over: bool) -> tuple[Event, ...]:
    """Runs of steps with the same ``Truth.event``, steps with a reward, and the end, in order of time.

    Args:
        truths: of the steps, of a world with one row; None where the world does not say.
        rewards: ``[T]``.
        spec: of the world.
        over: whether the episode ended.
    """
    found: list[tuple[int, int, str, str]] = []
    numbers = [-1 if truth is None else int(truth.event[0]) for truth in truths]
    start = 0
    for t in range(1, len(numbers) + 1):
        if t < len(numbers) and numbers[t] == numbers[start]:
            continue
        if numbers[start] >= 0:
            kind = spec.events[numbers[start]]
            found.append((start, t, kind, kind))
        start = t
    found += [(t, t + 1, "reward", f"reward {rewards[t]:+.3g}") for t in np.flatnonzero(rewards).tolist()]
    if over:
        found.append((len(rewards) - 1, len(rewards), "end", "end"))
    found.sort(key=lambda event: event[:2])
    return tuple(
        Event(t=t, t1=t1, kind=kind, label=label, id=f"e{number}") for number, (t, t1, kind, label) in enumerate(found)
    )


def find_pairs(truths: Sequence[Truth | None], steps: int) -> tuple[Pair, ...]:
    """Which decisions depend on which steps: runs of steps with the same ``Truth.start`` and ``stop``.

    Args:
        truths: of the steps, of a world with one row.
        steps: of the record; what depends on later ones is left out.
    """
    keys = [(-1, -1) if truth is None else (int(truth.start[0]), int(truth.stop[0])) for truth in truths]
    pairs: list[Pair] = []
    start = 0
    for t in range(1, steps + 1):
        if t < steps and keys[t] == keys[start]:
            continue
        first, behind = keys[start]
        if 0 <= first < behind <= start:  # what is still to be seen is no memory
            pairs.append(Pair(query=(start, t), key=(first, behind)))
        start = t
    return tuple(pairs)


def find_objects(scenes: Sequence[Scene | None], names: Sequence[str]) -> Objects | None:
    """The things in every frame; None where the world does not say.

    Args:
        scenes: of the steps, of a world with one row.
        names: of the things.
    """
    known = [scene for scene in scenes if scene is not None]
    if not known or len(known) < len(scenes):
        return None
    boxes, visible, matters = (torch.cat(part).cpu().numpy() for part in zip(*known, strict=True))
    return Objects(names=tuple(names), boxes=boxes.astype(np.int32), visible=visible, matters=matters)
