"""A policy that repeats what once led from here to the goal: the value of a memory without a map.

It finds the shortest part of this episode that began on the present edge and reached the goal without a new goal in
between, and repeats its first move. Without one, it makes the first of forward, left, right that it has not tried on
this edge; when all three were tried, it has no move.

This only requires finding one past step: it never combines two paths.
"""

from __future__ import annotations

from recollect.lazy import torch


def find_past_path(
    walked: torch.Tensor, task: torch.Tensor, visits: torch.Tensor, clock: torch.Tensor, goal: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Find the shortest past path from here to the goal; ties go to the earliest.

    Args:
        walked: ``[b, t]``, the edge at every step.
        task: ``[b, t]``, the number of the goal at each step, which never decreases.
        visits: bool ``[b, t]``, the earlier steps on the present edge.
        clock: long ``[b]``, the present step; only earlier ones are used.
        goal: long ``[b]``.

    Returns:
        The step at which it begins, long ``[b]`` (0 where there is none), and whether there is one.
    """
    step = torch.arange(walked.shape[1], device=walked.device)
    never = len(step)
    on_goal = torch.where((walked == goal[:, None]) & (step < clock[:, None]), step, never)
    arrival = on_goal.flip(1).cummin(1).values.flip(1)  # first step on the goal from each step on
    same = task.gather(1, arrival.clamp(max=never - 1)) == task
    way = torch.where(visits & same & (arrival < never), arrival - step, never)
    shortest, begins = way.min(1)
    return begins, shortest < never


def choose_repeated_move(
    begins: torch.Tensor, known: torch.Tensor, walked: torch.Tensor, move: torch.Tensor, tried: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Choose the replay policy's next move.

    Args:
        begins: first result of :func:`find_past_path`.
        known: second result of :func:`find_past_path`.
        walked: ``[b, t]``, the edge at every step.
        move: long ``[b, 3]``, where the moves from here lead; only moves that were made are used.
        tried: bool ``[b, 3]``, whether the moves from here were made.

    Returns:
        Moves, long ``[b]``, and whether there is one; 0 where not.
    """
    then = walked.gather(1, (begins[:, None] + 1).clamp(max=walked.shape[1] - 1)).long()
    again = (move == then).long().argmax(1)
    return torch.where(known, again, tried.long().argmin(1)), known | ~tried.all(1)
