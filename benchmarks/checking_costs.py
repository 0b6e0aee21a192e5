"""Cost of checking every step of masked CartPole: processor time of training with and without the checks, in turns.

    python benchmarks/checking_costs.py [--pairs 30] [--updates 4]

One trainer takes updates with and without the checks, alternately, at the settings of ``benchmarks/rl.py ours``; a
pair is the updates of both, in random order. The checks are all in the rollouts, so the difference of the processor
times of the rollouts of a pair is divided by the median time of an update without checks (rollout and learning): the
noise of learning, which is the same work, stays out. Without the checks the same conversions are made: of observations
to arrays, of rewards and flags to numbers. ``native`` is CartPole's own vector form, ``single`` 32 single environments.
"""

import argparse
import contextlib
import json
import random
import statistics
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import torch

import source_tree  # noqa: F401
from recollect.benchmark.machine import describe
from recollect.tasks.gymnasium import checked_values, rows, worlds
from recollect.tasks.process_settings import kept_process_settings
from recollect.tasks.worlds.answers import Answers
from recollect.training.impala.rollouts import Collector
from recollect.training.impala.trainer import ImpalaTrainer
from rl import cartpole

RESULTS = Path(__file__).parent / "results" / "checking-costs.json"


def read(reader: checked_values.PartReader, values: Any) -> np.ndarray:
    """Convert the observations of all rows, unchecked."""
    return np.array(values, dtype=np.float32)


def step_environment(environment: Any, action: Any) -> tuple[Any, float, bool, bool, None]:
    """Take a step, unchecked."""
    observation, reward, terminated, truncated, _ = environment.step(action)
    return observation, float(reward), bool(terminated), bool(truncated), None


@contextlib.contextmanager
def without_checks() -> Iterator[None]:
    """Take all checks out of a block."""
    with contextlib.ExitStack() as stack:
        for owner, name, other in (
            (checked_values.PartReader, "read", read),
            (rows, "_step_environment", step_environment),
            (worlds.GymnasiumWorld, "_check", lambda self, actions: actions.numpy()),
            (Answers, "check", lambda self, step: None),
            (Answers, "check_numbers", lambda self, step: None),
            (kept_process_settings, "__enter__", lambda self: None),
            (kept_process_settings, "__exit__", lambda self, *error: None),
        ):
            stack.enter_context(mock.patch.object(owner, name, other))
        yield


def seconds(trainer: ImpalaTrainer, updates: int, *, checked: bool) -> tuple[float, float]:
    """Return the processor time of the rollouts of some updates, and of all of the updates."""
    collect, spent = Collector.collect, 0.0

    def timed(self: Collector, buffer: Any) -> Any:
        nonlocal spent
        began = time.process_time()
        try:
            return collect(self, buffer)
        finally:
            spent += time.process_time() - began

    with contextlib.nullcontext() if checked else without_checks(), mock.patch.object(Collector, "collect", timed):
        began = time.process_time()
        for _ in range(updates):
            trainer.step()
        return spent, time.process_time() - began


def measure(form: str, pairs: int, updates: int) -> dict[str, Any]:
    """Return the times of all pairs, and the cost in percent with its interval."""
    config = cartpole(0)
    if form == "single":
        config = replace(config, world=replace(config.world, native=False))
    trainer, order = ImpalaTrainer(config), random.Random(0)
    for checked in (True, False):
        seconds(trainer, updates, checked=checked)
    times: list[dict[bool, tuple[float, float]]] = []
    for _ in range(pairs):
        turns = order.sample([True, False], 2)
        times.append({checked: seconds(trainer, updates, checked=checked) for checked in turns})
    trainer.close()
    whole = statistics.median(pair[False][1] for pair in times)
    costs = [100 * (pair[True][0] - pair[False][0]) / whole for pair in times]
    draws = np.random.default_rng(0).choice(costs, (10_000, pairs))
    low, high = np.quantile(np.median(draws, 1), (0.025, 0.975))
    return {
        "form": form,
        "median_percent": round(statistics.median(costs), 2),
        "interval_percent": [round(float(low), 2), round(float(high), 2)],
        "seconds_of_updates": round(whole, 4),
        "seconds_of_rollouts_with": [round(pair[True][0], 4) for pair in times],
        "seconds_of_rollouts_without": [round(pair[False][0], 4) for pair in times],
    }


def main() -> None:
    """Measure both forms, print and write them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=30)
    parser.add_argument("--updates", type=int, default=4, help="of each half of a pair")
    parser.add_argument("--forms", nargs="+", default=["native", "single"])
    args = parser.parse_args()
    torch.set_num_threads(1)
    found = []
    for form in args.forms:
        found.append(measure(form, args.pairs, args.updates))
        print({name: value for name, value in found[-1].items() if not name.startswith("seconds")}, flush=True)
    command = f"python benchmarks/checking_costs.py --pairs {args.pairs} --updates {args.updates}"
    RESULTS.write_text(json.dumps({"command": command, **describe(), "rows": found}, indent=1) + "\n")


if __name__ == "__main__":
    main()
