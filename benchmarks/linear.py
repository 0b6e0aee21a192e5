"""Speed of the linear recurrences, in processor time of one thread, which other processes disturb little.

    python benchmarks/linear.py [--quick] [--cores mamba2 ...] [--measures peers ...]

    chunked     training (forward and backward) at 2048 steps: time of the loop over steps by time of the chunked form
    length      time of a step in a forward call of 100 000 steps, by that in a call of 1 000
    peers       training of one layer at 2048 steps: time of the torch code of transformers by ours, same shapes; needs
                transformers 5
    stream      time of a stream's step, by that of a gru whose state has as many bytes

Writes benchmarks/results/linear.json.
"""

import argparse
import itertools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from torch import nn

import source_tree  # noqa: F401
from recollect.benchmark.machine import describe
from recollect.benchmark.timing import processor_seconds
from recollect.cores import CORES
from recollect.ops import diagonal_scan, matrix_scan
from recollect.state import nbytes

KEYS = ("min-gru", "rg-lru", "mamba2", "mlstm", "gated-deltanet", "rwkv7")
TARGET = Path(__file__).parent / "results/linear.json"
DIM, HEADS, STEPS = 128, 4, 2048


def training(core: Any, rows: int, steps: int) -> Callable[[], object]:
    """Return a call of forward and backward, with a reset every hundred steps or so."""
    torch.manual_seed(0)
    inputs = torch.randn(rows, steps, *core.input_shape)
    first, state = torch.rand(rows, steps) < 0.01, core.initial_state(rows)

    def call() -> None:
        outputs, _ = core(inputs, state, first)
        outputs.square().mean().backward()

    return call


def chunked(key: str, steps: int) -> dict[str, float]:
    """Time training in the chunked form and as the loop over steps, with the layers' other work the same."""
    core = CORES[key](dim=DIM).build(DIM)
    call = training(core, 1, steps)
    ours = processor_seconds(call, 3)
    traced = [mock.patch.object(module, "is_traced", lambda: True) for module in (diagonal_scan, matrix_scan)]
    with traced[0], traced[1]:
        loop = processor_seconds(call, 1)
    return {"milliseconds": 1e3 * ours, "loop_milliseconds": 1e3 * loop, "ratio": loop / ours}


def length(key: str, longest: int) -> dict[str, float]:
    """Time a step in short and long forward calls."""
    core = CORES[key](dim=64, num_layers=1).build(64)
    found = {}
    for steps in (1_000, longest):
        inputs, first = torch.randn(1, steps, 64), torch.zeros(1, steps, dtype=torch.bool)
        with torch.no_grad():
            call = processor_seconds(
                lambda x=inputs, f=first: core(x, core.initial_state(1), f), 3 if steps > 1000 else 15
            )
        found[f"{steps} steps, microseconds a step"] = 1e6 * call / steps
    short, long = found.values()
    return {**found, "ratio": long / short}


def peers(key: str, steps: int) -> dict[str, float]:
    """Time training of one layer of ours and of transformers."""
    from linear_recordings import peer_layer

    core = CORES[key](dim=DIM, num_layers=1, num_heads=HEADS, hidden_dim=0).build(DIM)
    theirs, inputs = peer_layer(key, core.config), torch.randn(4, steps, DIM)
    first, state = torch.zeros(4, steps, dtype=torch.bool), core.initial_state(4)
    ours = processor_seconds(lambda: core(inputs, state, first)[0].square().mean().backward(), 5)
    other = processor_seconds(lambda: theirs(inputs).square().mean().backward(), 5)
    return {"milliseconds": 1e3 * ours, "peer_milliseconds": 1e3 * other, "ratio": other / ours}


def stream(key: str, steps: int) -> dict[str, float]:
    """Time a stream's step beside that of a gru of as many bytes; the wider gru stops at a width of 1024."""
    core = CORES[key](dim=DIM).build(DIM)
    bytes_of_state = nbytes(core.initial_state(1))
    gru = CORES["gru"](dim=min(1024, round(bytes_of_state / 8))).build(DIM)  # two layers of four bytes a unit
    step = torch.randn(1, DIM)

    def walk(module: nn.Module) -> Callable[[], object]:
        own = module.stream(1)
        return lambda: [own.step(step) for _ in range(steps)]

    ours, other = (1e6 * processor_seconds(walk(module), 5) / steps for module in (core, gru))
    return {"microseconds": ours, "gru_microseconds": other, "gru_dim": gru.config.dim, "bytes": bytes_of_state,
            "ratio": ours / other}  # fmt: skip


MEASURES = {"chunked": chunked, "length": length, "stream": stream, "peers": peers}
SIZES = {"chunked": (STEPS, 256), "length": (100_000, 2_000), "stream": (500, 20), "peers": (STEPS, 256)}
"""Steps of every measure, and those of ``--quick``."""
PEERS = ("mamba2", "gated-deltanet")


def main() -> None:
    """Measure, print and write; measures that are left out keep their last numbers."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="small sizes, to see that everything runs; writes nothing")
    parser.add_argument("--cores", nargs="*", choices=KEYS, default=KEYS)
    parser.add_argument("--measures", nargs="*", choices=MEASURES, default=[*MEASURES])
    args = parser.parse_args()
    torch.set_num_threads(1)
    found: dict[str, Any] = json.loads(TARGET.read_text())["cores"] if TARGET.exists() else {}
    environment = describe()
    for key, name in itertools.product(args.cores, args.measures):
        if name == "peers" and key not in PEERS:
            continue
        one = MEASURES[name](key, SIZES[name][args.quick])
        print(key, name, {field: round(value, 2) for field, value in one.items()}, flush=True)
        if not args.quick:
            found.setdefault(key, {})[name] = {**one, "commit": environment["commit"]}
            result = {"command": "python benchmarks/linear.py", "environment": environment, "cores": found}
            TARGET.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
