"""Maps inside vectors, and attention to their places by queries that come from elsewhere.

A step's input is a vector ``[y * x * c + e]``: the map, ordered row, column, channel, and behind it what else the agent
is told (reward, last action).

    K, V = [O[..., :c_K] | S], [O[..., c_K:] | S]       keys and values: a map's channels, and the basis of its places
    A^n  = softmax over places of q^n K                 for the queries q^1..q^H
    a^n  = sum over places of A^n V                     answers

S has the same numbers at every step, so that its share of every product is not taken step by step: q S^T and the mean
of S under A are two products of small matrices.

Source: Mott et al. (2019), as in George (2021), section 3.1, equations 3.2 to 3.6.
"""

import math

import torch
from torch import Tensor

from recollect.layers.config import Grid


def split_inputs(grid: Grid, channels: int | None, input_dim: int) -> tuple[int, int]:
    """Channels of the map, and how many of ``input_dim`` inputs are told beside it.

    Args:
        grid: rows and columns of the map.
        channels: of the map; None when all inputs are the map's.
        input_dim: width of a step's input.

    Raises:
        ValueError: there are too few inputs, or no whole number of channels.
    """
    places = math.prod(grid)
    if channels is None:
        if input_dim < places or input_dim % places:
            raise ValueError(
                f"input_dim={input_dim} is no multiple of the {places} places of grid={grid}: give the rows and "
                "columns of the map that the core is to read, and channels where more is told behind the map"
            )
        return input_dim // places, 0
    if input_dim < places * channels:
        raise ValueError(
            f"input_dim={input_dim} is too small: a map of grid={grid} and channels={channels} has {places * channels} "
            "numbers; give the map's own rows, columns and channels, and let the core read the encoder's vector as it "
            "is (width=None)"
        )
    return channels, input_dim - places * channels


def take_map(inputs: Tensor, places: int, channels: int) -> tuple[Tensor, Tensor]:
    """``[..., places * c + e]`` to the map's places ``[..., places, c]`` and what is told ``[..., e]``."""
    size = places * channels
    return inputs[..., :size].unflatten(-1, (places, channels)), inputs[..., size:]


def spatial_basis(rows: int, columns: int, frequencies: int) -> Tensor:
    """S of equation 3.2: all products of a cosine or sine of the row and one of the column.

    The waves of a place i of l are ``cos(pi u i / l)`` and ``sin(pi u i / l)``, u = 1 ... ``frequencies``.

    Returns:
        float ``[rows * columns, (2 * frequencies)^2]``.
    """

    def waves(length: int) -> Tensor:
        angles = (
            torch.arange(length, dtype=torch.float64)[:, None] / length * torch.arange(1, frequencies + 1) * math.pi
        )
        return torch.cat((angles.cos(), angles.sin()), 1)  # places, 2 frequencies

    down, across = waves(rows), waves(columns)
    return torch.einsum("yu,xv->yxuv", down, across).flatten(2).flatten(0, 1).float()


def what_and_where(vision: Tensor, queries: Tensor, basis: Tensor, key_dim: int) -> Tensor:
    """By how much content says more for a place than location does, ``[..., H, n]``; arguments as of :func:`look`.

    Both are parts of the same score, each counted from its mean over places, which the softmax does not see.
    Source: the what-where maps of Mott et al. (2019).
    """
    for_keys, for_basis = queries.split((key_dim, basis.shape[1]), -1)
    content, location = for_keys @ vision[..., :key_dim, :], for_basis @ basis.t()  # ... h n
    return (content - content.mean(-1, keepdim=True)) - (location - location.mean(-1, keepdim=True))


def look(vision: Tensor, queries: Tensor, basis: Tensor, key_dim: int) -> tuple[Tensor, Tensor]:
    """Answers to queries.

    Args:
        vision: O ``[..., m, n]``, channels before places.
        queries: ``[..., H, c_K + c_S]``.
        basis: S ``[n, c_S]``.
        key_dim: c_K.

    Returns:
        Answers ``[..., H, m - c_K + c_S]`` and weights ``[..., H, n]``.
    """
    keys, values = vision.split((key_dim, vision.shape[-2] - key_dim), -2)
    for_keys, for_basis = queries.split((key_dim, basis.shape[1]), -1)
    logits = for_keys @ keys + for_basis @ basis.t()  # ... h n
    weights = logits.softmax(-1, dtype=torch.promote_types(logits.dtype, torch.float32)).to(logits.dtype)
    return torch.cat((weights @ values.transpose(-1, -2), weights @ basis), -1), weights
