"""A walker who remembers everything and was told nothing: what a perfect memory is worth without the map.

It knows where every move led that it has made in this episode, and that left undoes right. Where the moves it knows
lead to the goal, it goes the shortest known way there; else it makes for the nearest move that it has never made. Of
equal ways it takes the earliest of forward, left, right.
"""

from __future__ import annotations

from recollect.lazy import torch
from recollect.tasks.worlds.street_learn.city_graphs import LEFT, RIGHT

FAR = 1_000.0
"""More moves than any way has."""


def note(tried: torch.Tensor, here: torch.Tensor, action: torch.Tensor, there: torch.Tensor) -> torch.Tensor:
    """What is known after a move.

    Args:
        tried: bool ``[b, e, 3]``, moves that were made, or undo one that was.
        here: long ``[b]``, the edge before the move.
        action: long ``[b]``, the move; one beyond the third is none.
        there: long ``[b]``, the edge after it.

    Returns:
        ``tried`` with this move, and with the turn that undoes it.
    """
    rows = torch.arange(len(tried), device=tried.device)
    move = action.clamp(max=RIGHT)
    known = tried.clone()
    known[rows, here, move] |= action <= RIGHT
    turned = (action == LEFT) | (action == RIGHT)
    back = torch.where(action == LEFT, RIGHT, LEFT)
    known[rows, there, back] |= turned
    return known


def explore(tried: torch.Tensor, move: torch.Tensor, here: torch.Tensor, goal: torch.Tensor) -> torch.Tensor:
    """The next move.

    Args:
        tried: see :func:`note`.
        move: long ``[b, e, 3]``, where every move leads; only what ``tried`` names is looked at.
        here: long ``[b]``, the present edge.
        goal: long ``[b]``.

    Returns:
        Moves, long ``[b]``.
    """
    to_goal = known_way(tried, move, goal)
    unknown_way = _fewest_moves(torch.full(tried.shape[:2], FAR, device=tried.device), tried, move, 1.0)
    rows = torch.arange(len(tried), device=tried.device)
    by_known = _after(to_goal, tried, move, FAR)[rows, here]
    by_unknown = _after(unknown_way, tried, move, 1.0)[rows, here]
    order = torch.arange(3, device=tried.device) / 8  # torch's argmin may name any of equal moves
    best = torch.where(to_goal[rows, here, None] < FAR, by_known, by_unknown)
    return (best + order).argmin(1)


def known_way(tried: torch.Tensor, move: torch.Tensor, goal: torch.Tensor) -> torch.Tensor:
    """Moves of the shortest way to the goal that the walker knows, ``[b, e]``; :data:`FAR` where it knows none.

    Args:
        tried: see :func:`note`.
        move: see :func:`explore`.
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
        shorter = torch.minimum(way, _after(way, tried, move, untried).amin(2))
        if torch.equal(shorter, way):
            return way
        way = shorter


def _after(way: torch.Tensor, tried: torch.Tensor, move: torch.Tensor, untried: float) -> torch.Tensor:
    """Moves on the way that begins with each move, ``[b, e, 3]``; one that was never made costs ``untried``."""
    there = way.gather(1, move.flatten(1)).view(move.shape)
    return torch.where(tried, 1 + there, untried).clamp(max=FAR)
