"""Settings of a server of live streams. Importing them does not import torch."""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from recollect.config import require, require_at_least


@dataclass(frozen=True, kw_only=True)
class ServingConfig:
    """Limits of a store of live streams, and how their steps are gathered."""

    capacity: int = 256
    """Streams in memory at once; their memory is allocated at the start."""
    most_streams: int = 100_000
    """Streams in memory and on disk together."""
    rollback: int = 0
    """Steps that a stream can be rolled back; each costs the memory of one more state for every stream of capacity."""
    folder: Path | None = None
    """Folder for the streams that are not in memory; it outlives the server. None: a temporary folder, removed at the
    end."""
    evict_seconds: float = math.inf
    """A stream without a request for so long goes to disk; one is also sent there when a place in memory is needed."""
    expire_seconds: float = 86_400.0
    """A stream without a request for so long is deleted."""
    weights: Literal["float32", "bfloat16", "int8"] = "float32"
    """Format of the core's weights in steps; float32 is the core's own."""
    cache: Literal["float32", "bfloat16"] = "float32"
    """Format of what is kept of steps; bfloat16 takes half the memory, in cores with windows or chunks."""
    window_ms: float = 1.0
    """Longest time that a step waits for steps of other streams, which are then computed together."""
    most_rows: int = 256
    """Most streams that are stepped together."""
    most_waiting: int = 4096
    """Most requests that wait; a server answers further ones with 503."""
    most_bytes: int = 1 << 22
    """Largest body of a request, and largest message of a WebSocket."""

    def __post_init__(self) -> None:
        require_at_least(self, capacity=1, rollback=0, most_rows=1, most_waiting=1, most_bytes=1, window_ms=0)
        remedy = f"give at least capacity={self.capacity}"
        require(self.window_ms <= 60_000, "window_ms", self.window_ms, "give at most 60000, a minute")
        require(self.most_streams >= self.capacity, "most_streams", self.most_streams, remedy)
        for name in ("evict_seconds", "expire_seconds"):
            require(getattr(self, name) > 0, name, getattr(self, name), "give some seconds, or inf for never")
