"""A walker who does again what once led from here to the goal: what a memory without a map is worth.

It looks for the shortest stretch of this episode that began on the present edge and came to the goal with no new task
in between, and makes the move that it made there. Where it knows none, it makes the first of forward, left, right that
it has never made on this edge; where it has made all three, it has nothing to say.

That asks of a memory no more than to find one step: it walks no way that it has not walked whole, and joins no two.
"""

from __future__ import annotations

from recollect.lazy import torch


def stretch(
    walked: torch.Tensor, task: torch.Tensor, visits: torch.Tensor, clock: torch.Tensor, goal: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """The shortest stretch from here to the goal; of equal ones the earliest.

    Args:
        walked: ``[b, t]``, the edges the walker was on, step by step.
        task: ``[b, t]``, the number of the task at each step, which never falls.
        visits: bool ``[b, t]``, the earlier steps on the present edge.
        clock: long ``[b]``, the present step; only earlier ones are looked at.
        goal: long ``[b]``.

    Returns:
        The step on which it begins, long ``[b]`` (0 where there is none), and whether there is one.
    """
    step = torch.arange(walked.shape[1], device=walked.device)
    never = len(step)
    on_goal = torch.where((walked == goal[:, None]) & (step < clock[:, None]), step, never)
    arrival = on_goal.flip(1).cummin(1).values.flip(1)  # first step on the goal from each step on
    same = task.gather(1, arrival.clamp(max=never - 1)) == task
    way = torch.where(visits & same & (arrival < never), arrival - step, never)
    shortest, begins = way.min(1)
    return begins, shortest < never


def walk_again(
    begins: torch.Tensor, known: torch.Tensor, walked: torch.Tensor, move: torch.Tensor, tried: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """The next move.

    Args:
        begins, known: of :func:`stretch`.
        walked: ``[b, t]``.
        move: long ``[b, 3]``, where the moves from here lead; only the one that was made is looked at.
        tried: bool ``[b, 3]``, whether the moves from here were made.

    Returns:
        Moves, long ``[b]``, and whether the walker has one; 0 where it has not.
    """
    then = walked.gather(1, (begins[:, None] + 1).clamp(max=walked.shape[1] - 1)).long()
    again = (move == then).long().argmax(1)
    return torch.where(known, again, tried.long().argmin(1)), known | ~tried.all(1)
