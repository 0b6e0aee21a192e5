"""Attention to the places of a map, by queries that come from elsewhere.

    K, V = [O[..., :c_K] | S], [O[..., c_K:] | S]       keys and values: a map's channels, and the basis of its places
    A^n  = softmax over places of q^n K                 for the queries q^1..q^H
    a^n  = sum over places of A^n V                     answers

S has the same numbers at every step, so that its share of every product is not taken step by step: q S^T and the mean
of S under A are two products of small matrices.

Source: Mott et al. (2019), as in George (2021), section 3.1, equations 3.2 to 3.6.
"""

import math
from itertools import pairwise

import torch
from torch import Tensor, nn


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


def perceptron(*widths: int) -> nn.Sequential:
    """Linear maps from width to width, with ReLU between them and none behind the last."""
    layers: list[nn.Module] = []
    for width, following in pairwise(widths):
        layers += [nn.Linear(width, following), nn.ReLU()]
    return nn.Sequential(*layers[:-1])
