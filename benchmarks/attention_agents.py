"""What the attention agents of George 2021 cost: parameters, FLOPs, bytes, acting and training, in Pong.

    python benchmarks/attention_agents.py [--sides 84 42 21] [--agents mott adaptive ...] [--rounds 2]

Times are processor time on one thread, so that other programs on the machine matter less, and are taken in turns:
every agent once, then every agent again; the fastest round counts. An agent acts with a full memory, by its live form,
emulator left out. A training step is an agent step that was played and learned from once, emulator included: rollouts
and chunks are the thesis's (``attention_agent``), with two rows for every agent. Memory is what a process that makes
the agent and learns one rollout has in RAM at most, beyond what it had before.
"""

import argparse
import copy
import json
import multiprocessing
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from time import process_time
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

import source_tree  # noqa: F401
from recollect.agents.actor_critic import ActorCritic, ActorStream
from recollect.agents.contract import ActorInputs
from recollect.agents.policies import policy_for
from recollect.benchmark.flops import count
from recollect.benchmark.machine import describe
from recollect.machine import peak_bytes, reset_peak_bytes, resident_bytes
from recollect.ops.allocation import keep_freed_memory
from recollect.recipes.attention_agents import ATTENTION_AGENTS, attention_agent
from recollect.recipes.attention_agents.agents import MEMORY
from recollect.recipes.attention_agents.study import game
from recollect.state import map_state, nbytes
from recollect.tasks.worlds.contract import WorldSpec
from recollect.training import ImpalaConfig

BATCHES = (1, 32)
"""Rows that act together."""
ROWS = 2
"""Rows of a rollout that is learned from."""
SECONDS = 0.3
"""Processor time of a round of acting."""


def inputs(agent: ActorCritic, spec: WorldSpec, batch_size: int) -> ActorInputs:
    """Noise in the form of one step."""
    space, policy = spec.observation_space, policy_for(spec.action_space)
    frames = torch.randint(0, 256, (batch_size, *space.shape), dtype=torch.uint8)  # type: ignore[misc]
    nothing = torch.zeros(batch_size)
    told = torch.randn(batch_size, policy.num_parameters)
    return ActorInputs(frames, nothing.long(), nothing, told, torch.randn(batch_size, agent.feature_dim))


def full_streams(agent: ActorCritic, spec: WorldSpec) -> dict[int, ActorStream]:
    """Live forms with a full memory, by number of rows; those of many rows remember what the single one does."""
    streams = {batch_size: agent.stream(batch_size) for batch_size in BATCHES}
    for _ in range(MEMORY + 1):
        streams[1].step(inputs(agent, spec, 1))
    for batch_size, stream in streams.items():
        stream.load_state(map_state(lambda leaf, rows=batch_size: leaf.expand(rows, *leaf.shape[1:]), streams[1].state))
    return streams


def run(name: str, side: int) -> ImpalaConfig:
    """The thesis's run with two rows."""
    return replace(attention_agent(name, game("Pong", side=side)), batch_size=ROWS)


def first_step(name: str, side: int) -> dict[str, Any]:
    """What the first step of learning takes: FLOPs for a step of the agent, and memory (of a process of its own)."""
    reset_peak_bytes()
    before, config = resident_bytes(), run(name, side)
    flops = count(config.build().step) / (config.batch_size * config.unroll)
    peak = peak_bytes()
    return {"training_flops": flops, "training_bytes": None if peak is None else peak - before}


def first_steps(agents: list[str], sides: list[int]) -> dict[tuple[str, int], dict[str, Any]]:
    """:func:`first_step` of all, each in a process that has nothing but the imports of this one."""
    context = multiprocessing.get_context("fork")
    with context.Pool(1, maxtasksperchild=1) as pool:
        return {(name, side): pool.apply(first_step, (name, side)) for side in sides for name in agents}


class Cost:
    """An agent in frames of one size: what can be counted, and what has been timed so far."""

    def __init__(self, name: str, side: int, first: dict[str, Any]) -> None:
        config = run(name, side)
        world = config.world
        self.trainer = config.build()
        agent = self.trainer.agent
        self.steps = config.batch_size * config.unroll
        self.player = copy.deepcopy(agent)  # a live form is of weights that stay as they are
        self.streams = full_streams(self.player, world.spec)
        self.given = {batch_size: inputs(agent, world.spec, batch_size) for batch_size in BATCHES}
        self.times: dict[str, list[float]] = {}
        self.row: dict[str, Any] = {
            "agent": name,
            "side": side,
            "parameters": sum(parameter.numel() for parameter in agent.parameters()),
            "state_bytes": nbytes(agent.initial_state(1)),
            "stream_bytes": self.streams[1].nbytes,
            "acting_flops": count(lambda: self.act(1)),
            **first,
            "batch_size": config.batch_size,
            "unroll": config.unroll,
            "chunk": config.loss.reuse.chunk,
        }

    def act(self, batch_size: int) -> None:
        """One step of some rows."""
        self.streams[batch_size].step(self.given[batch_size])

    def round(self) -> None:
        """Time everything once more."""
        for batch_size in BATCHES:
            self._note(f"acting_{batch_size}", *timed(lambda rows=batch_size: self.act(rows), SECONDS))
        self._note("training", *timed(self.trainer.step, 0.0))

    def _note(self, what: str, seconds: float, calls: int) -> None:
        self.times.setdefault(what, []).append(seconds / calls)

    def result(self) -> dict[str, Any]:
        """Counts and times."""
        acting = {f"acting_ms_{rows}": round(1e3 * min(self.times[f"acting_{rows}"]), 3) for rows in BATCHES}
        speed = round(self.steps / min(self.times["training"]), 1)
        return {**self.row, **acting, "training_steps_per_s": speed, "seconds": self.times}


def timed(call: Callable[[], object], least: float) -> tuple[float, int]:
    """Processor seconds of some calls, and how many they were; one goes before, where there will be more."""
    if least:
        call()
    began, calls = process_time(), 0
    while calls == 0 or process_time() - began < least:
        call()
        calls += 1
    return process_time() - began, calls


def main() -> None:
    """Measure, print the table, save the numbers."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sides", type=int, nargs="+", default=[84, 42, 21], help="of a frame, in pixels")
    parser.add_argument("--agents", nargs="+", default=list(ATTENTION_AGENTS))
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--output", default="benchmarks/results", help="folder of attention-agents-SIDE.json")
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    keep_freed_memory()
    first = first_steps(options.agents, options.sides)
    for side in options.sides:
        costs = [Cost(name, side, first[name, side]) for name in options.agents]
        for _ in range(options.rounds):
            for cost in costs:
                cost.round()
        rows = [cost.result() for cost in costs]
        show(rows, side)
        found = {"environment": describe(), "rows": rows}
        Path(options.output, f"attention-agents-{side}.json").write_text(json.dumps(found, indent=1) + "\n")


def show(rows: list[dict[str, Any]], side: int) -> None:
    """Print one size of frames."""
    head = ("parameters", "training steps/s", "MiB", "acting ms, 1", "32", "state bytes", "MFLOPs, acting")
    table = Table("agent", *head, title=f"Pong, frames of {side}")
    for row in rows:
        acting = (f"{row[f'acting_ms_{batch_size}']:.2f}" for batch_size in BATCHES)
        speed, flops = f"{row['training_steps_per_s']:,.0f}", f"{row['acting_flops'] / 1e6:,.1f}"
        memory = mebibytes(row["training_bytes"])
        table.add_row(row["agent"], f"{row['parameters']:,}", speed, memory, *acting, f"{row['state_bytes']:,}", flops)
    for column in table.columns[1:]:
        column.justify = "right"
    Console().print(table)


def mebibytes(number: int | None) -> str:
    """A number of bytes for a table; a dash where the system does not tell."""
    return "-" if number is None else f"{number / 2**20:,.0f}"


if __name__ == "__main__":
    main()
