"""RecurrentPPO of sb3-contrib by its defaults in the worlds of the recipe ``gymnasium``, for as long as our run took.

    PYTHON benchmarks/beside_sb3.py [--worlds cartpole-lstm ...] [--seconds 60]     needs stable-baselines3, sb3-contrib

For every ``results/gymnasium/<world>-lstm-seed0.json`` it trains one environment on one thread for the seconds that our
run took (evaluations included), then scores 128 fresh episodes with the likeliest actions and with drawn ones. What is
measured goes to ``benchmarks/results/beside-sb3.json``; worlds that are there already are not run again.

Policies are sb3-contrib's for the space: MlpLstmPolicy, CnnLstmPolicy for large images, MultiInputLstmPolicy for a
Dict. It has no encoder for texts and none for grids of symbols, so MiniGrid shows it direction and grid as one flat
vector, without the mission.
"""

import argparse
import json
import os
import time
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import gymnasium
import numpy as np
import torch
from gymnasium import spaces
from gymnasium.wrappers import FilterObservation, FlattenObservation, TransformObservation
from sb3_contrib import RecurrentPPO
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.vec_env import VecEnv

import source_tree  # noqa: F401
from recollect.config import load_object
from recollect.recipes.gymnasium import GYMNASIUM
from recollect.tasks import GymnasiumConfig
from rl import where

ROOT = Path(__file__).parents[1]
OURS = ROOT / "results" / "gymnasium"
OUTPUT = ROOT / "benchmarks" / "results" / "beside-sb3.json"
EPISODES = 128


def environment(config: GymnasiumConfig) -> gymnasium.Env[Any, Any]:
    """One environment, as sb3 can see it."""
    module, _, name = config.id.rpartition(":")
    if module and "-v" not in name:
        return gymnasium.wrappers.TimeLimit(load_object(config.id, "id")(), 10**6)
    if name.startswith("popgym-"):
        __import__("popgym")
    if name.startswith("MiniGrid-"):
        __import__("minigrid")
    env = gymnasium.make(config.id)
    if config.masked:
        space = env.observation_space
        assert isinstance(space, spaces.Box)
        seen = [entry for entry in range(space.shape[0]) if entry not in config.masked]
        return TransformObservation(env, lambda o: o[seen], spaces.Box(space.low[seen], space.high[seen]))
    if name.startswith("MiniGrid-"):
        return FlattenObservation(FilterObservation(env, ["direction", "image"]))
    if isinstance(env.observation_space, spaces.MultiDiscrete):  # sb3 makes sizes of it that torch refuses
        return FlattenObservation(env)
    return env


def policy_name(space: spaces.Space[Any]) -> str:
    """Of sb3-contrib, for an observation space."""
    if isinstance(space, spaces.Dict):
        return "MultiInputLstmPolicy"
    image = isinstance(space, spaces.Box) and len(space.shape) == 3 and space.dtype == np.uint8
    return "CnnLstmPolicy" if image else "MlpLstmPolicy"


class Clock(BaseCallback):
    """Ends training after some seconds."""

    def __init__(self, seconds: float) -> None:
        super().__init__()
        self.end = time.perf_counter() + seconds

    def _on_step(self) -> bool:
        return time.perf_counter() < self.end


def score(model: RecurrentPPO, world: VecEnv, *, deterministic: bool) -> float:
    """Mean return of fresh episodes; every row plays the same number."""
    rows, quota = world.num_envs, EPISODES // world.num_envs
    observation, state, first = world.reset(), None, np.ones(rows, dtype=bool)
    returns, finished, total = np.zeros(rows), np.zeros(rows, dtype=int), 0.0
    while finished.min() < quota:
        action, state = model.predict(observation, state, first, deterministic)
        observation, reward, first, _ = world.step(action)
        returns += reward
        total += float(returns[first & (finished < quota)].sum())
        finished += first
        returns[first] = 0
    return total / (rows * quota)


def beside(config: GymnasiumConfig, seconds: float, seed: int = 0) -> dict[str, Any]:
    """Train for some seconds and score."""
    torch.set_num_threads(1)
    world = make_vec_env(lambda: environment(config), n_envs=1, seed=seed)
    model = RecurrentPPO(policy_name(world.observation_space), world, device="cpu", seed=seed)
    began = time.perf_counter()
    model.learn(10**9, callback=Clock(seconds))
    took = time.perf_counter() - began
    fresh = make_vec_env(lambda: environment(config), n_envs=16, seed=seed + 10**6)
    found = {name: score(model, fresh, deterministic=name == "greedy") for name in ("greedy", "drawn")}
    return {"seed": seed, "seconds": round(took, 1), "environment_steps": model.num_timesteps, **found}


def main() -> None:
    """Measure what is missing."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--worlds", nargs="+", help="labels of rows of the recipe; all that have our result")
    parser.add_argument("--seconds", type=float, help="instead of what our run took")
    parser.add_argument("--output", type=Path, default=OUTPUT)
    options = parser.parse_args()
    found = json.loads(options.output.read_text()) if options.output.is_file() else {"worlds": {}}
    for run in GYMNASIUM.rows("lite"):
        path = OURS / f"{run.label}-seed0.json"
        wanted = run.label in options.worlds if options.worlds else run.core == "lstm"
        if not wanted or run.label in found["worlds"] or not path.is_file():
            continue
        ours = json.loads(path.read_text())
        if ours["status"] != "ok":
            continue
        assert isinstance(run.config.trained_on, GymnasiumConfig)
        measured = beside(run.config.trained_on, options.seconds or ours["seconds"])
        print(run.label, measured, flush=True)
        found["worlds"][run.label] = measured
        found["environment"] = where()
        options.output.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
