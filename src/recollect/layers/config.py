"""Settings that the configs of several papers share; importable without torch."""

from typing import Any, Literal

from recollect.config import require

Activation = Literal["relu", "gelu", "gelu_tanh"]
"""Activation of a feed-forward: ReLU, the exact GELU, or the GELU approximation that JAX uses by default."""
Gate = Literal["residual", "gru"]
"""How the output of a sub-layer is added to its stream: as a sum, or by the gate of GTrXL."""
Grid = tuple[int, int]
"""Rows and columns of a map of image features."""


def feedforward_width(dim: int, hidden_dim: int | None) -> int:
    """Return the width of a feed-forward's hidden layer: ``hidden_dim``, or ``4 * dim`` when None.

    Raises:
        ValueError: a width below 1.
    """
    require(hidden_dim is None or hidden_dim >= 1, "hidden_dim", hidden_dim, "give at least 1, or None for 4 * dim")
    return 4 * dim if hidden_dim is None else hidden_dim


def require_sizes(config: Any, *fields: str) -> None:
    """Raise ``ValueError`` unless these fields of a config are at least 1."""
    for field in fields:
        require(getattr(config, field) >= 1, field, getattr(config, field), "give at least 1")


def require_transformer(config: Any, *sizes: str) -> None:
    """Raise ``ValueError`` unless a config describes Transformer layers.

    Args:
        config: with the fields ``dim``, ``num_layers``, ``num_heads``, ``hidden_dim`` and ``dropout``.
        sizes: further fields, which are at least 1.
    """
    require_sizes(config, "dim", "num_layers", "num_heads", *sizes)
    require(config.dim % config.num_heads == 0, "num_heads", config.num_heads, f"must divide dim={config.dim}")
    feedforward_width(config.dim, config.hidden_dim)
    require(0 <= config.dropout < 1, "dropout", config.dropout, "give a probability below 1")


def require_map(grid: Grid, channels: int | None) -> None:
    """Raise ``ValueError`` unless a config's ``grid`` and ``channels`` describe a map."""
    require(min(grid) >= 1, "grid", grid, "give rows and columns, for example 11 11")
    require(channels is None or channels >= 1, "channels", channels, "give at least 1, or None")


def require_map_of(grid: Grid, channels: int | None, shape: tuple[int, int, int]) -> None:
    """Raise ``ValueError`` if a config with ``channels`` describes a map of another shape (rows, columns, channels)."""
    if channels is not None and (*grid, channels) != shape:
        rows, columns, depth = shape
        raise ValueError(
            f"grid={grid}, channels={channels}: the image encoder's map has {rows} x {columns} places of {depth} "
            f"channels: give grid={(rows, columns)} and channels={depth} (--core.grid {rows} {columns} --core.channels "
            f"{depth})"
        )
