"""Proof that a change of the code changed no number: record before it, compare after it, on the same machine.

    python benchmarks/fingerprints.py record before.json [--configs 200]
    python benchmarks/fingerprints.py compare before.json

Recorded are hashes of the exact bits of: outputs, final state and gradients of every core over random configs
(those of tests/cores/samples) in float32 and float64; outputs and gradients of both agents around every core; the
weights and metrics of both trainers after 50 steps. ``compare`` names every case that differs.
"""

import argparse
import csv
import hashlib
import importlib.util
import json
import random
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

import source_tree  # noqa: F401
from recollect import SequenceModelConfig
from recollect import state as trees
from recollect.cores import CORES
from recollect.recipes import training
from recollect.training import fit

ROOT = Path(__file__).parents[1]
TRAINED = [("recall", key) for key in ("lstm", "hcam", "tlb", "ttm")] + [
    ("t-maze", key) for key in ("lstm", "hcam", "transformer-xl")
]


def digest(*tensors: torch.Tensor | None) -> str:
    """Hash of the bits, shapes and dtypes of tensors."""
    total = hashlib.sha256()
    for tensor in tensors:
        if tensor is None:
            total.update(b"none")
            continue
        tensor = tensor.detach().contiguous()
        total.update(f"{tensor.dtype} {tuple(tensor.shape)}".encode())
        total.update(tensor.reshape(-1).view(torch.uint8).numpy().tobytes())
    return total.hexdigest()[:16]


def samples(key: str) -> Any:
    """The module of a core's sample configs."""
    path = ROOT / "tests/cores/samples" / f"{key.replace('-', '_')}.py"
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def run_core(core: Any, seed: int, dtype: torch.dtype, batch: int = 3, steps: int = 17) -> dict[str, str]:
    """Two calls with resets, with gradients into weights, inputs and the first state, then ten steps of a stream."""
    torch.manual_seed(seed)
    core = core.to(dtype)
    inputs = torch.randn(batch, steps, *core.input_shape, dtype=dtype).requires_grad_()
    is_first = torch.rand(batch, steps) < 0.1
    state = core.initial_state(batch)
    first, state = core(inputs[:, :9], state, is_first[:, :9])
    second, state = core(inputs[:, 9:], state, is_first[:, 9:])
    outputs = torch.cat((first, second), 1)
    floats = [leaf for leaf in trees.leaves(state) if leaf.is_floating_point() and leaf.requires_grad]
    loss = (outputs * torch.randn_like(outputs)).sum() + sum((leaf * torch.randn_like(leaf)).sum() for leaf in floats)
    weights = list(core.parameters())
    grads = torch.autograd.grad(loss, [inputs, *weights], allow_unused=True)
    core.eval()
    stream = core.stream(batch)
    streamed = [stream.step(inputs[:, t].detach(), is_first[:, t]) for t in range(10)]
    return {
        "weights": digest(*weights),
        "outputs": digest(outputs),
        "state": digest(*trees.leaves(state)),
        "gradients": digest(*grads),
        "stream": digest(*streamed, *trees.leaves(stream.state)),
    }


def core_cases(configs: int) -> Iterator[tuple[str, dict[str, str]]]:
    """Every core at random configs and by default sizes."""
    for key in CORES:
        module = samples(key)
        drawn = [module.sample(random.Random(f"fingerprint {key} {i}")) for i in range(configs)]
        for i, config in enumerate([*module.CONFIGS, *drawn]):
            for dtype in (torch.float32, torch.float64):
                torch.manual_seed(i)
                core = config.build(input_dim=config.dim if i % 2 else config.dim + 3)
                yield f"core {key} {i} {str(dtype)[6:]}", run_core(core, i, dtype)
        torch.manual_seed(0)
        # Wide enough for the forms that are chosen by shape.
        wide = {"dim": 128, "num_layers": 2}
        sizes = {name: size for name, size in wide.items() if name in CORES[key].__dataclass_fields__}
        core = CORES[key](**sizes).build(input_dim=40)
        yield f"core {key} wide", run_core(core, 0, torch.float32, batch=24, steps=40)


def agent_cases() -> Iterator[tuple[str, dict[str, str]]]:
    """The sequence model around every core, and the untrained agents of two recipes."""
    for key in CORES:
        torch.manual_seed(1)
        core = CORES[key](dim=32)
        model = SequenceModelConfig().build(core, num_classes=5, vocabulary=7)
        tokens = torch.randint(7, (3, 21))
        logits, _ = model(tokens, model.initial_state(3), torch.rand(3, 21) < 0.1)
        grads = torch.autograd.grad(logits.square().sum(), list(model.parameters()), allow_unused=True)
        yield f"sequence-model {key}", {"outputs": digest(logits), "gradients": digest(*grads)}


def trainer_cases() -> Iterator[tuple[str, dict[str, str]]]:
    """Weights and metrics of 50 steps of both trainers."""
    for task, key in TRAINED:
        config = training(task, key)
        config = replace(config, fit=replace(config.fit, seed=3, **SHORT))
        with tempfile.TemporaryDirectory() as folder:
            outcome = fit(config, Path(folder) / "run")
            with open(outcome.directory.metrics_file) as file:
                rows = [{k: v for k, v in row.items() if k not in TIMES} for row in csv.DictReader(file)]
            text = json.dumps(rows)
            yield (
                f"trainer {task} {key}",
                {
                    "weights": digest(*outcome.agent.state_dict().values()),
                    "metrics": hashlib.sha256(text.encode()).hexdigest()[:16],
                },
            )


SHORT = {"steps": 50, "evaluate_every": 25, "report_every": 10, "report_seconds": None}
"""Length of a run; no row that the clock asks for."""
TIMES = {"seconds", "frames_per_second"}
"""Columns of metrics.csv that no two runs share."""


def record(configs: int) -> dict[str, dict[str, str]]:
    """All fingerprints."""
    torch.set_num_threads(1)
    found: dict[str, dict[str, str]] = {}
    for cases in (core_cases(configs), agent_cases(), trainer_cases()):
        for name, case in cases:
            found[name] = case
            if len(found) % 500 == 0:
                print(f"{len(found)} cases, last {name}", file=sys.stderr, flush=True)
    return found


def main() -> int:
    """Record or compare."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("action", choices=["record", "compare"])
    parser.add_argument("file", type=Path)
    parser.add_argument("--configs", type=int, default=200, help="random configs per core")
    arguments = parser.parse_args()
    if arguments.action == "record":
        found = {"configs": arguments.configs, "torch": torch.__version__, "cases": record(arguments.configs)}
        arguments.file.write_text(json.dumps(found, indent=1) + "\n")
        return 0
    before = json.loads(arguments.file.read_text())
    cases = record(before["configs"])
    wrong = [
        f"{name}: {part} differs"
        for name, case in before["cases"].items()
        for part, value in case.items()
        if cases.get(name, {}).get(part) != value
    ]
    print("\n".join(wrong) or f"all {len(cases)} cases are the same, bit for bit")
    return 1 if wrong else 0


if __name__ == "__main__":
    raise SystemExit(main())
