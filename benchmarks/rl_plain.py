"""The plain loop of MonoBeast (Küttler et al. 2019): a process per actor, shared buffers, a learner.

python benchmarks/rl_plain.py cartpole|pong [--actors 2] [--seconds 120] [--seeds 0]

Nothing here is clever, on purpose. An actor process steps one environment with a model that lives in shared memory and
writes unrolls of T + 1 rows into shared buffers; two queues pass numbers of buffers. The learner stacks a batch,
resets the LSTM step by step, computes V-trace in a loop, and takes one step of RMSprop. Losses are sums, gradients are
clipped at 40. Rewards of CartPole are scaled by 0.1. ``PLAIN_ENCODER=ours`` gives Pong the library's image encoder, to
see what of the ratio is the loop.
"""

import argparse
import json
import math
import os
from collections import deque
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch
import torch.multiprocessing as mp
import torch.nn.functional as F
from torch import Tensor, nn

import source_tree  # noqa: F401
from recollect.benchmark.machine import describe
from rl import RESULTS, Curve, masked_cartpole

SETTINGS = {
    "cartpole": {"unroll": 20, "hidden": 64, "rate": 2e-3, "scale": 0.1, "goal": True},
    "pong": {"unroll": 80, "hidden": 256, "rate": 4.8e-4, "scale": 1.0, "goal": False},
}
OURS = os.environ.get("PLAIN_ENCODER") == "ours"  # inherited by the actors' processes
BATCH, DISCOUNT, ENTROPY, BASELINE = 8, 0.99, 6e-4, 0.5


def make(name: str) -> Any:
    """One environment."""
    if name == "cartpole":
        return masked_cartpole()
    import ale_py
    import gymnasium

    gymnasium.register_envs(ale_py)
    env = gymnasium.make("ALE/Pong-v5", frameskip=1, repeat_action_probability=0.0)
    env = gymnasium.wrappers.AtariPreprocessing(env, frame_skip=4, screen_size=84)
    return gymnasium.wrappers.FrameStackObservation(env, 4)


class ResNet(nn.Module):
    """The network of IMPALA for images of 84 x 84, as it is usually written."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.first, self.one, self.two = nn.ModuleList(), nn.ModuleList(), nn.ModuleList()
        for before, width in ((channels, 16), (16, 32), (32, 32)):
            self.first.append(nn.Sequential(nn.Conv2d(before, width, 3, padding=1), nn.MaxPool2d(3, 2, 1)))
            for blocks in (self.one, self.two):
                inner = (nn.Conv2d(width, width, 3, padding=1) for _ in range(2))
                blocks.append(nn.Sequential(*(layer for conv in inner for layer in (nn.ReLU(), conv))))

    def forward(self, x: Tensor) -> Tensor:
        """Bytes ``[n, c, 84, 84]`` to ``[n, 3872]``."""
        x = x.float() / 255
        for first, one, two in zip(self.first, self.one, self.two, strict=True):
            x = first(x)
            x = x + one(x)
            x = x + two(x)
        return x.relu().flatten(1)


class Ours(nn.Module):
    """The library's encoder for the same images: channels last, in blocks."""

    def __init__(self, shape: tuple[int, int, int]) -> None:
        super().__init__()
        import gymnasium
        import numpy as np

        from recollect.agents.image_encoders import ImpalaResNet

        c, y, x = shape
        self.network = ImpalaResNet(gymnasium.spaces.Box(0, 255, (y, x, c), np.uint8))

    def forward(self, x: Tensor) -> Tensor:
        """Bytes ``[n, c, 84, 84]`` to ``[n, 3872]``."""
        return self.network(x.permute(0, 2, 3, 1).contiguous())


class Agent(nn.Module):
    """Encoder, LSTM, policy and baseline; the LSTM is stepped in a loop."""

    def __init__(self, space: Any, actions: int, hidden: int) -> None:
        super().__init__()
        self.pixels = len(space.shape) == 3
        if self.pixels:
            network = Ours(space.shape) if OURS else ResNet(space.shape[0])
            self.encoder: nn.Module = nn.Sequential(network, nn.Linear(3872, 256), nn.ReLU())
        else:
            self.encoder = nn.Sequential(nn.Linear(space.shape[0], 64), nn.ReLU())
        width = (256 if self.pixels else 64) + actions + 1
        self.actions, self.hidden = actions, hidden
        self.core, self.policy, self.baseline = nn.LSTM(width, hidden), nn.Linear(hidden, actions), nn.Linear(hidden, 1)

    def forward(self, rows: dict[str, Tensor], state: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Rows ``[t, b, ...]`` and the state ``[2, b, d]`` to logits, values and the new state."""
        t, b = rows["reward"].shape
        seen = rows["seen"].flatten(0, 1)
        seen = self.encoder(seen)
        before = F.one_hot(rows["before"].flatten(), self.actions)
        x = torch.cat((seen, before, rows["reward"].reshape(-1, 1)), 1).view(t, b, -1)
        outputs = []
        for step, done in zip(x.unbind(), rows["done"].unbind(), strict=True):
            state = state * (~done).float()[:, None]
            y, (h, c) = self.core(step[None], (state[:1], state[1:]))
            state = torch.cat((h, c))
            outputs.append(y)
        y = torch.cat(outputs)
        return self.policy(y), self.baseline(y)[..., 0], state


def act(number: int, name: str, seed: int, agent: Agent, buffers: dict[str, Tensor], queues: Any) -> None:
    """What an actor process does for ever."""
    torch.set_num_threads(1)
    torch.manual_seed(1000 * seed + number)
    env, scale = make(name), float(SETTINGS[name]["scale"])
    observation, _ = env.reset(seed=1000 * seed + number)
    row = {"reward": 0.0, "done": True, "before": 0, "returned": 0.0}
    state, total = torch.zeros(2, 1, agent.hidden), 0.0
    free, full = queues

    def write(slot: int, t: int) -> None:
        buffers["seen"][slot, t] = torch.as_tensor(observation)
        for key, value in row.items():
            buffers[key][slot, t] = value

    with torch.no_grad():
        while True:
            slot = free.get()
            if slot is None:
                return
            buffers["state"][slot] = state[:, 0]
            for t in range(int(SETTINGS[name]["unroll"])):
                write(slot, t)
                rows = {key: buffers[key][slot, t][None, None] for key in ("seen", "reward", "done", "before")}
                logits, _, state = agent(rows, state)
                action = int(torch.distributions.Categorical(logits=logits[0, 0]).sample())
                buffers["logits"][slot, t], buffers["action"][slot, t] = logits[0, 0], action
                observation, reward, terminated, truncated, _ = env.step(action)
                total += float(reward)
                done = terminated or truncated
                row = {"reward": float(reward) * scale, "done": done, "before": action, "returned": total}
                if done:
                    (observation, _), total = env.reset(), 0.0
            write(slot, int(SETTINGS[name]["unroll"]))
            full.put(slot)


def learn(agent: Agent, optimizer: torch.optim.Optimizer, batch: dict[str, Tensor]) -> None:
    """One step on a batch ``[T + 1, b, ...]``."""
    logits, values, _ = agent(batch, batch["state"].transpose(0, 1).contiguous())
    actions, old = batch["action"][:-1], batch["logits"][:-1]
    new = F.log_softmax(logits[:-1], -1)
    log_prob = new.gather(-1, actions[..., None])[..., 0]
    discount = DISCOUNT * (~batch["done"][1:]).float()
    with torch.no_grad():
        before = F.log_softmax(old, -1).gather(-1, actions[..., None])[..., 0]
        rho = (log_prob - before).exp().clamp(max=1.0)
        delta = rho * (batch["reward"][1:] + discount * values[1:] - values[:-1])
        targets, correction = [], torch.zeros_like(values[0])
        for t in reversed(range(len(delta))):
            correction = delta[t] + discount[t] * rho[t] * correction
            targets.append(values[t] + correction)
        target = torch.stack([*targets[::-1], values[-1]])
        advantage = rho * (batch["reward"][1:] + discount * target[1:] - values[:-1])
    loss = -(advantage * log_prob).sum() + BASELINE * 0.5 * (target[:-1] - values[:-1]).square().sum()
    loss = loss + ENTROPY * (new.exp() * new).sum()
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(agent.parameters(), 40.0)
    optimizer.step()


def train(name: str, actors: int, seed: int, seconds: float) -> dict[str, Any]:
    """Train until the goal or the time is reached."""
    torch.manual_seed(seed)
    torch.set_num_threads(1)
    settings, env = SETTINGS[name], make(name)
    space, number = env.observation_space, int(env.action_space.n)
    env.close()
    agent, shared = (Agent(space, number, int(settings["hidden"])) for _ in range(2))
    shared.load_state_dict(agent.state_dict())
    shared.share_memory()
    slots, rows = max(2 * actors, BATCH), int(settings["unroll"]) + 1
    kinds = {
        "seen": (space.shape, torch.uint8 if len(space.shape) == 3 else torch.float32),
        "reward": ((), torch.float32), "done": ((), torch.bool), "before": ((), torch.int64),
        "returned": ((), torch.float32), "logits": ((number,), torch.float32), "action": ((), torch.int64),
    }  # fmt: skip
    buffers = {key: torch.zeros((slots, rows, *shape), dtype=kind) for key, (shape, kind) in kinds.items()}
    buffers["state"] = torch.zeros(slots, 2, int(settings["hidden"]))
    for buffer in buffers.values():
        buffer.share_memory_()
    context = mp.get_context("spawn")
    queues = (context.SimpleQueue(), context.SimpleQueue())
    workers = [
        context.Process(target=act, args=(i, name, seed, shared, buffers, queues), daemon=True) for i in range(actors)
    ]
    for worker in workers:
        worker.start()
    for slot in range(slots):
        queues[0].put(slot)
    optimizer = torch.optim.RMSprop(agent.parameters(), lr=float(settings["rate"]), alpha=0.99, eps=0.01)
    curve, returns, steps, go = Curve(seconds), deque(maxlen=100), 0, True
    while go:
        taken = [queues[1].get() for _ in range(BATCH)]
        curve.start()
        batch = {
            key: torch.stack([buffer[slot] for slot in taken], 1) for key, buffer in buffers.items() if key != "state"
        }
        batch["state"] = torch.stack([buffers["state"][slot] for slot in taken])
        for slot in taken:
            queues[0].put(slot)
        learn(agent, optimizer, batch)
        shared.load_state_dict(agent.state_dict())
        returns.extend(batch["returned"][1:][batch["done"][1:]].tolist())
        steps += BATCH * (rows - 1)
        mean = sum(returns) / len(returns) if returns else math.nan
        go = curve.point(steps, mean, len(returns) if settings["goal"] else 0)
    for worker in workers:
        worker.kill()
    return curve.result()


def main() -> None:
    """Measure, print, save."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", choices=list(SETTINGS))
    parser.add_argument("--actors", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=120.0)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--output", default=str(RESULTS), help="folder; '' saves nothing")
    options = parser.parse_args()
    runs = [{"seed": s, **train(options.name, options.actors, s, options.seconds)} for s in options.seeds]
    for run in runs:
        print({key: value for key, value in run.items() if key != "curve"})
    if options.output:
        suffix = "-our-encoder" if OURS else ""
        found = {"library": f"plain loop, {options.name}{suffix}", "environment": describe(), "runs": runs}
        (Path(options.output) / f"rl-plain-{options.name}{suffix}.json").write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
