"""The command serve: live streams of a model over HTTP."""

import math
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from rich.console import Console
from tyro.conf import Positional

from recollect.cli.hints import EMPTY
from recollect.cli.run_commands import require_model
from recollect.serving import ServingConfig
from recollect.terminal import print_status

TOKEN = "RECOLLECT_TOKEN"
"""Environment variable with the token: other users of the machine cannot read it there, as they can a flag."""


@dataclass(frozen=True)
class Serve:
    """Serve live streams of a model over HTTP and WebSockets: step, fork, roll back, new weights under them."""

    source: Positional[Path]
    """Run directory, model folder, model:NAME or hub:OWNER/NAME."""
    port: int = 8000
    """Port; 0 for a free one."""
    host: str = "127.0.0.1"
    """Address to listen on; 127.0.0.1 is seen by this machine alone. There is no TLS: put a proxy in front."""
    token: str | None = None
    """Token that requests must send; that of the variable RECOLLECT_TOKEN, or else a random one, when None."""
    origins: Annotated[tuple[str, ...], EMPTY] = ()
    """Pages of other servers whose scripts may ask, such as https://robots.example.org."""
    capacity: int = 256
    """Streams in memory at once; more of them go to disk."""
    most_streams: int = 100_000
    """Streams in memory and on disk together."""
    rollback: int = 0
    """Steps that a stream can be rolled back; each takes the memory of one more state for all of --capacity."""
    folder: Path | None = None
    """Folder for streams that are not in memory, which the next server goes on with; None: a temporary one."""
    evict_seconds: float = math.inf
    """Seconds without a request after which a stream goes to disk; it also does when a place is needed."""
    expire_seconds: float = 86_400.0
    """Seconds without a request after which a stream is deleted."""
    weights: Literal["float32", "bfloat16", "int8"] = "float32"
    """Format of the core's weights in steps; int8 and bfloat16 are faster where the weights are large."""
    cache: Literal["float32", "bfloat16"] = "float32"
    """Format of what is kept of steps; bfloat16 takes half the memory, in cores with windows or chunks."""
    window_ms: float = 1.0
    """Longest time that a step waits for those of other streams, to be computed together."""
    threads: int = 1
    """Threads of the model's step; more pay for large models on a machine that does nothing else."""
    device: str = "cpu"
    """Device of the model."""
    best: bool = False
    """Of a run, take the weights of its best evaluation, instead of the newest."""
    trust: bool = False
    """Import the packages that the config names for its core: that runs their code."""

    def run(self, console: Console) -> int:
        """Serve until Ctrl-C or SIGTERM."""
        require_model(self.source)
        limits = ("capacity", "most_streams", "rollback", "folder", "evict_seconds", "expire_seconds", "window_ms")
        config = ServingConfig(**{name: getattr(self, name) for name in (*limits, "weights", "cache")})
        import torch

        from recollect.config import require_at_least
        from recollect.serving import serve

        require_at_least(self, threads=1)
        torch.set_num_threads(self.threads)

        def announce(address: str, token: str) -> None:
            console.print(f"{address} token {token}", soft_wrap=True, markup=False, highlight=False)
            print_status(f"serving {self.source}; clients: {address}/client.py, {address}/client.mjs; Ctrl-C ends it")

        options: dict[str, Any] = {"device": self.device, "best": self.best, "trust": self.trust}
        serve(
            self.source,
            config,
            host=self.host,
            port=self.port,
            token=self.token if self.token is not None else os.environ.get(TOKEN) or None,
            origins=self.origins,
            load_options=options,
            announce=announce,
        )
        return 0
