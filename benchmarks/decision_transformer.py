"""Play of a Decision Transformer with kept tokens, beside reading the whole context again at every step.

python benchmarks/decision_transformer.py [--steps 150] [--turns 5] [--output FILE]

Sizes are the paper's (6 layers, width 128, contexts of 30 steps in Breakout and 50 in Pong, frames of 84 x 84, four at
a time), one row, new weights. ``kept`` and ``again`` see the same contexts, of which a full one drops its oldest half;
their actions are compared at every step. ``window`` reads the newest steps at every step, as published: a context that
is always full. The three take turns, and the quickest turn of each counts: whoever else uses the machine only adds.
"""

import argparse
import json
from dataclasses import replace
from pathlib import Path
from time import process_time
from typing import Any

import gymnasium
import numpy as np
import torch
from torch import Tensor

import source_tree  # noqa: F401
from recollect.agents.contract import ActorInputs
from recollect.agents.decision_transformer import DecisionTransformer
from recollect.benchmark.machine import describe
from recollect.recipes.decision_transformer import decision_transformer

SEEN = gymnasium.spaces.Box(0, 255, (4, 84, 84), np.uint8)
ACTIONS = gymnasium.spaces.Discrete(6)
CORES = {"DT": "causal-transformer", "DT + TLB": "tlb"}
WINDOWS = 20


@torch.no_grad()
def kept(agent: DecisionTransformer, frames: Tensor, rewards: Tensor) -> tuple[list[int], float]:
    """Likeliest actions, and seconds of processor time."""
    stream, action, actions = agent.stream(1), torch.zeros(1, dtype=torch.long), []
    began = process_time()
    for t, frame in enumerate(frames):
        output = stream.step(ActorInputs(frame[None], action, rewards[t : t + 1]), torch.tensor([t == 0]))
        action = output.policy.argmax(-1)
        actions.append(int(action))
    return actions, process_time() - began


@torch.no_grad()
def again(agent: DecisionTransformer, frames: Tensor, rewards: Tensor) -> tuple[list[int], float]:
    """The same, from the frames of the context at every step."""
    config, wished, actions, low = agent.config, [], [], 0
    began = process_time()
    for t in range(len(frames)):
        wished.append(config.target_return if t == 0 else wished[-1] - float(rewards[t]))
        if t - low == config.context:
            low += config.stride
        done = torch.tensor([[*actions[low:], 0]])
        told = torch.tensor([wished[low:]])
        policy = agent(frames[None, low : t + 1], done, told, torch.tensor([low]))
        actions.append(int(policy[0, -1].argmax()))
    return actions, process_time() - began


@torch.no_grad()
def window(agent: DecisionTransformer, frames: Tensor) -> float:
    """Seconds of processor time of a step with a full context."""
    c = agent.config.context
    seen, done, told = frames[None, :c], torch.zeros(1, c, dtype=torch.long), torch.zeros(1, c)
    began = process_time()
    for _ in range(WINDOWS):
        agent(seen, done, told, torch.zeros(1, dtype=torch.long))
    return (process_time() - began) / WINDOWS


def measure(core: str, game: str, steps: int, turns: int) -> dict[str, Any]:
    """Milliseconds of a step in all forms."""
    config = decision_transformer(core, "paper", game)
    torch.manual_seed(0)
    told = replace(config.agent, stride=config.agent.context // 2)
    agent = told.build(config.core, SEEN, ACTIONS).eval()
    generator = torch.Generator().manual_seed(0)
    frames = torch.randint(256, (steps, *SEEN.shape), dtype=torch.uint8, generator=generator)
    rewards = torch.randint(2, (steps,), generator=generator).float()
    kept(agent, frames[:20], rewards), again(agent, frames[:20], rewards)  # warm
    fast, slow, full, same = [], [], [], True
    for _ in range(turns):
        (one, few), (two, many) = kept(agent, frames, rewards), again(agent, frames, rewards)
        same = same and one == two
        fast.append(few / steps)
        slow.append(many / steps)
        full.append(window(agent, frames))
    return {
        "kept_ms": round(1e3 * min(fast), 3),
        "again_ms": round(1e3 * min(slow), 3),
        "window_ms": round(1e3 * min(full), 3),
        "again_over_kept": round(min(slow) / min(fast), 2),
        "window_over_kept": round(min(full) / min(fast), 2),
        "same_actions": same,
    }


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=150)
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--output", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(1)
    found = {
        f"{name}, {game}": measure(core, game, options.steps, options.turns)
        for game in ("Breakout", "Pong")
        for name, core in CORES.items()
    }
    report = {"machine": describe(), "steps": options.steps, "turns": options.turns, "rows": found}
    print(json.dumps(found, indent=1))
    if options.output is not None:
        options.output.write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
