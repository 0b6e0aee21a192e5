"""A policy that remembers every move of the episode and has no map: the value of a perfect memory.

It knows the result of every move it has made, and that left undoes right. Where known moves lead to the goal, it takes
a shortest known path; otherwise it goes to the nearest move that it has not tried. Ties go to the earliest of forward,
left, right.
"""

from __future__ import annotations

from recollect.lazy import torch
from recollect.tasks.worlds.street_learn.city_graphs import LEFT, RIGHT

FAR = 1_000.0
"""A cost above any distance."""


def record_move(tried: torch.Tensor, here: torch.Tensor, action: torch.Tensor, there: torch.Tensor) -> torch.Tensor:
    """Mark a move, and the turn that undoes it, as tried.

    Args:
        tried: bool ``[b, e, 3]``, known moves.
        here: long ``[b]``, the edge before the move.
        action: long ``[b]``, the move; larger numbers are no moves.
        there: long ``[b]``, the edge after it.
    """
    rows = torch.arange(len(tried), device=tried.device)
    move = action.clamp(max=RIGHT)
    known = tried.clone()
    known[rows, here, move] |= action <= RIGHT
    turned = (action == LEFT) | (action == RIGHT)
    back = torch.where(action == LEFT, RIGHT, LEFT)
    known[rows, there, back] |= turned
    return known


def choose_exploring_move(
    tried: torch.Tensor, move: torch.Tensor, here: torch.Tensor, goal: torch.Tensor
) -> torch.Tensor:
    """Choose the explorer's next move, long ``[b]``.

    Args:
        tried: see :func:`record_move`.
        move: long ``[b, e, 3]``, the edge after every move; only entries in ``tried`` are used.
        here: long ``[b]``, the present edge.
        goal: long ``[b]``.
    """
    to_goal = known_distance(tried, move, goal)
    unknown_way = _fewest_moves(torch.full(tried.shape[:2], FAR, device=tried.device), tried, move, 1.0)
    rows = torch.arange(len(tried), device=tried.device)
    by_known = _distance_after_moves(to_goal, tried, move, FAR)[rows, here]
    by_unknown = _distance_after_moves(unknown_way, tried, move, 1.0)[rows, here]
    order = torch.arange(3, device=tried.device) / 8  # torch's argmin may return any of equal moves
    best = torch.where(to_goal[rows, here, None] < FAR, by_known, by_unknown)
    return (best + order).argmin(1)


def known_distance(tried: torch.Tensor, move: torch.Tensor, goal: torch.Tensor) -> torch.Tensor:
    """Return the number of moves of the shortest known path to the goal, ``[b, e]``; :data:`FAR` where none is known.

    Args:
        tried: see :func:`record_move`.
        move: see :func:`choose_exploring_move`.
        goal: long ``[b]``.
    """
    at_goal = torch.zeros(tried.shape[:2], dtype=torch.bool, device=tried.device).scatter_(1, goal[:, None], True)
    return _fewest_moves(torch.where(at_goal, 0.0, FAR), tried, move, FAR)


def _fewest_moves(start: torch.Tensor, tried: torch.Tensor, move: torch.Tensor, untried: float) -> torch.Tensor:
    """Return the fewest moves from every edge to the nearest edge with cost 0, ``[b, edges]``.

    Iterates Bellman's equation from the costs ``start`` until nothing changes.
    """
    way = start
    while True:
        shorter = torch.minimum(way, _distance_after_moves(way, tried, move, untried).amin(2))
        if torch.equal(shorter, way):
            return way
        way = shorter


def _distance_after_moves(way: torch.Tensor, tried: torch.Tensor, move: torch.Tensor, untried: float) -> torch.Tensor:
    """Return the moves of a path that begins with each move, ``[b, e, 3]``; an untried move costs ``untried``."""
    there = way.gather(1, move.flatten(1)).view(move.shape)
    return torch.where(tried, 1 + there, untried).clamp(max=FAR)
