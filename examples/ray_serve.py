"""Serve live streams on several machines: the application of ``recollect serve`` under Ray Serve.

    pip install "recollect-torch[serve]" "ray[serve]"
    python examples/ray_serve.py runs/t-maze-hcam-seed0 --shards 2 --token SECRET --folder /mnt/shared/streams

A shard is one replica with a store of its own, under the route ``/0``, ``/1``, ...; Ray places shards on the machines
of its cluster and starts a shard anew that has died. A stream belongs to the shard that its id names (``find_shard``),
so its memory never moves. With a folder that all machines see, streams that were on disk go on after a new start.
"""

import argparse
import time
import zlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from ray import serve

import recollect
from recollect.serving import Client, ServingConfig, StreamStore


def find_shard(id: str, shards: int) -> int:
    """Return the shard of a stream: the same for every client, always.

    What follows two dashes does not count, so that ``robot-7--what-if`` can be a copy of ``robot-7``.
    """
    return zlib.crc32(id.partition("--")[0].encode()) % shards


def connect(address: str, token: str, shards: int) -> list[Client]:
    """Return a client for each shard; ``clients[find_shard(id, shards)].create(id)`` begins a stream."""
    return [Client(f"{address}/{shard}", token) for shard in range(shards)]


def deploy(source: str, shards: int, token: str, config: ServingConfig, processors: float = 1.0) -> None:
    """Start a shard under each of the routes ``/0``, ``/1``, ... and wait until all of them run."""
    for shard in range(shards):
        folder = None if config.folder is None else config.folder / f"shard-{shard}"
        deployment = serve.deployment(
            serve.ingress(in_replica(source, replace(config, folder=folder), token))(),
            num_replicas=1,
            max_ongoing_requests=config.most_waiting,
            ray_actor_options={"num_cpus": processors},
        )
        serve.run(deployment.bind(), name=f"shard-{shard}", route_prefix=f"/{shard}")


def in_replica(source: str, config: ServingConfig, token: str) -> Callable[[], Any]:
    """Return a function that makes the application in the process of a replica, with the store that it owns."""

    def make() -> Any:
        from recollect.serving.app import make_app

        return make_app(StreamStore(recollect.load(source), config), token=token, reload=lambda: recollect.load(source))

    return make


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", help="run directory, model folder, or model:NAME")
    parser.add_argument("--shards", type=int, default=2)
    parser.add_argument("--token", required=True)
    parser.add_argument(
        "--host", default="127.0.0.1", help="address to listen on; the default is seen by this machine alone"
    )
    parser.add_argument("--port", type=int, default=8000)
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--capacity", type=int, default=256, help="streams in the memory of a shard")
    options = parser.parse_args()
    limits = ServingConfig(capacity=options.capacity, folder=options.folder)
    serve.start(http_options={"host": options.host, "port": options.port})
    deploy(options.source, options.shards, options.token, limits)
    while True:
        time.sleep(60)
