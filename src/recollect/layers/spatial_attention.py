"""Maps inside input vectors, and attention to their places by queries that come from elsewhere.

A step's input is a vector ``[y * x * c + e]``: the map, ordered row, column, channel, then e other features of the
agent (reward, last action).

    K, V = [O[..., :c_K] | S], [O[..., c_K:] | S]       keys and values: a map's channels, and the basis of its places
    A^n  = softmax over places of q^n K                 for the queries q^1..q^H
    a^n  = sum over places of A^n V                     answers

S is the same at every step, so its share of every product is computed apart: q S^T and the mean of S under A are
products of small matrices.

Source: Mott et al. (2019), as in George (2021), section 3.1, equations 3.2 to 3.6.
"""

import math

import torch
from torch import Tensor

from recollect.layers.config import Grid
from recollect.layers.tap import Tap


def infer_map_channels(grid: Grid, channels: int | None, input_dim: int) -> tuple[int, int]:
    """Return the channels of the map, and the number of other features, in a step's input.

    Args:
        grid: rows and columns of the map.
        channels: of the map; None when all inputs belong to the map.
        input_dim: width of a step's input.

    Raises:
        ValueError: there are too few inputs, or no whole number of channels.
    """
    places = math.prod(grid)
    if channels is None:
        if input_dim < places or input_dim % places:
            raise ValueError(
                f"input_dim={input_dim} is no multiple of the {places} places of grid={grid}: give the rows and "
                "columns of the map that the core reads, and channels where other features follow the map"
            )
        return input_dim // places, 0
    if input_dim < places * channels:
        raise ValueError(
            f"input_dim={input_dim} is too small: a map of grid={grid} and channels={channels} has {places * channels} "
            "numbers; give the map's own rows, columns and channels, and let the core read the encoder's vector as it "
            "is (width=None)"
        )
    return channels, input_dim - places * channels


def split_map(inputs: Tensor, places: int, channels: int) -> tuple[Tensor, Tensor]:
    """Split ``[..., places * c + e]`` into the map's places ``[..., places, c]`` and other features ``[..., e]``."""
    size = places * channels
    return inputs[..., :size].unflatten(-1, (places, channels)), inputs[..., size:]


def spatial_basis(rows: int, columns: int, frequencies: int) -> Tensor:
    """Compute S of equation 3.2: all products of a cosine or sine of the row and one of the column.

    The waves of a place i of l are ``cos(pi u i / l)`` and ``sin(pi u i / l)``, u = 1 ... ``frequencies``.

    Returns:
        float ``[rows * columns, (2 * frequencies)^2]``.
    """

    def waves(length: int) -> Tensor:
        shares = torch.arange(length, dtype=torch.float64)[:, None] / length
        angles = shares * torch.arange(1, frequencies + 1) * math.pi
        return torch.cat((angles.cos(), angles.sin()), 1)  # places, 2 frequencies

    return torch.einsum("yu,xv->yxuv", waves(rows), waves(columns)).flatten(2).flatten(0, 1).float()


def attend_to_places(
    vision: Tensor, queries: Tensor, basis: Tensor, grid: Grid, *, tap: Tap, what_where_tap: Tap
) -> Tensor:
    """Answer queries from the places of maps, and pass the weights ``[b, H, t, y, x]`` to ``tap``.

    Args:
        vision: O ``[b, t, m, n]``, channels before places; ``[b, m, n]`` is one step.
        queries: ``[b, t, H, c_K + c_S]``, or ``[b, H, c_K + c_S]``.
        basis: S ``[n, c_S]``.
        grid: rows and columns of the map.
        tap: receives the weights.
        what_where_tap: receives :func:`what_minus_where`.

    Returns:
        Answers ``[b, t, H * (m - c_K + c_S)]``, or ``[b, H * (m - c_K + c_S)]``.
    """
    basis = basis.to(queries.dtype)
    key_dim = queries.shape[-1] - basis.shape[1]
    keys, values = vision.split((key_dim, vision.shape[-2] - key_dim), -2)
    for_keys, for_basis = queries.split((key_dim, basis.shape[1]), -1)
    logits = for_keys @ keys + for_basis @ basis.t()  # ... h n
    weights = logits.softmax(-1, dtype=torch.promote_types(logits.dtype, torch.float32)).to(logits.dtype)
    if tap.has_listeners:
        tap(_as_maps(weights, grid))
    if what_where_tap.has_listeners:
        what_where_tap(_as_maps(what_minus_where(vision, queries, basis), grid))
    return torch.cat((weights @ values.transpose(-1, -2), weights @ basis), -1).flatten(-2)


def _as_maps(weights: Tensor, grid: Grid) -> Tensor:
    """Arrange weights of places ``[b, t, h, n]`` or ``[b, h, n]`` as maps ``[b, h, t, y, x]``."""
    by_head = weights.transpose(1, 2) if weights.ndim == 4 else weights[:, :, None]
    return by_head.unflatten(-1, grid)


def what_minus_where(vision: Tensor, queries: Tensor, basis: Tensor) -> Tensor:
    """Compute by how much content adds more to a place's score than location does, ``[..., H, n]``.

    Both are parts of the same score, each counted from its mean over places, which the softmax ignores. Arguments are
    those of :func:`attend_to_places`. Source: the what-where maps of Mott et al. (2019).
    """
    key_dim = queries.shape[-1] - basis.shape[1]
    for_keys, for_basis = queries.split((key_dim, basis.shape[1]), -1)
    content, location = for_keys @ vision[..., :key_dim, :], for_basis @ basis.t()  # ... h n
    return (content - content.mean(-1, keepdim=True)) - (location - location.mean(-1, keepdim=True))
