"""Streams that are spread over replicas of Ray Serve, beside a store in this process."""

import gc
import os
import signal
import socket
import sys
import time
import warnings
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("starlette")
ray = pytest.importorskip("ray")
serve = pytest.importorskip("ray.serve")
sys.path.insert(0, str(Path(__file__).parents[2]))
from examples.ray_serve import connect, deploy, find_shard  # noqa: E402

import recollect  # noqa: E402
from recollect.serving import ServingConfig, Step, StreamStore  # noqa: E402
from recollect.serving.client import ServerError  # noqa: E402
from recollect.serving.store import ID  # noqa: E402

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(sys.platform != "linux", reason="looks for the process of a replica in /proc"),
    pytest.mark.filterwarnings("default"),
]
SHARDS, MODEL, TOKEN = 2, "model:t-maze-hcam", "secret"


@pytest.fixture
def cluster(tmp_path):
    ray.init(num_cpus=2, include_dashboard=False, object_store_memory=100_000_000)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    serve.start(http_options={"host": "127.0.0.1", "port": port})
    deploy(MODEL, SHARDS, TOKEN, ServingConfig(capacity=4, folder=tmp_path), processors=0.5)
    yield f"http://127.0.0.1:{port}"
    serve.shutdown()
    ray.shutdown()
    with warnings.catch_warnings():  # Ray leaves handles of its processes to the collector
        warnings.simplefilter("ignore")
        gc.collect()


def test_a_copy_is_in_the_shard_of_its_original():
    assert {find_shard(f"robot-{row}", 3) for row in range(20)} == {0, 1, 2}
    assert all(find_shard(f"robot-{row}--copy", 3) == find_shard(f"robot-{row}", 3) for row in range(20))
    assert ID.fullmatch("robot-7--copy")


def test_every_stream_is_that_of_one_store_also_after_its_replica_was_killed(cluster):
    clients, names = connect(cluster, TOKEN, SHARDS), [f"robot-{row}" for row in range(6)]
    assert {find_shard(name, SHARDS) for name in names} == {0, 1}
    remote = {name: clients[find_shard(name, SHARDS)].create(name) for name in names}
    local = StreamStore(recollect.load(MODEL), ServingConfig(capacity=8))
    for name in names:
        local.create(name)
    generator = np.random.default_rng(0)

    def compare(name, at):
        seen = {"observation": generator.integers(0, 2, 4).tolist(), "reward": 0.0}
        own = local.step([Step(name, local.interface.parse(seen))])[0].outputs["policy"]
        found = remote[name].step(seen, at=at)
        np.testing.assert_allclose(found["outputs"]["policy"], own.tolist(), atol=1e-5)

    for at in range(12):
        for name in names:
            compare(name, at)
    for name in names:
        remote[name].evict()
    (replica,) = [
        int(process.name)
        for process in Path("/proc").glob("[0-9]*")
        if (process / "cmdline").read_bytes().startswith(b"ray::ServeReplica:shard-0")
    ]
    os.kill(replica, signal.SIGKILL)
    await_health(clients[0])
    for at in range(12, 16):
        for name in names:
            compare(name, at)


def await_health(client):
    deadline = time.monotonic() + 600
    while time.monotonic() < deadline:
        try:
            if client.ask("GET", "/health")["status"] == "ok":
                return
        except (OSError, ServerError, ValueError):
            time.sleep(0.5)
    pytest.fail("the shard did not come back")
