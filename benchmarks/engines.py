"""A core inside another engine beside that engine's own LSTM of equal size: training, acting, bytes.

    python benchmarks/engines.py torchrl | sb3 | rllib [--quick]

Both forms of a line run in turns in one process with one thread; the ratio is ours / the engine's own. Needs the
environment of ``make test-engines``.
"""

import argparse
import json
import logging
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import torch

import source_tree  # noqa: F401
from recollect import GRUConfig, HierarchicalChunkMemoryConfig, LSTMConfig
from recollect.benchmark.machine import describe

WIDTH = 256
ROWS, STEPS, INPUTS = 64, 128, 32


def in_turns(first: Callable[[], Any], second: Callable[[], Any], repeats: int) -> list[float]:
    """Return the median processor seconds of two calls that take turns, which other programs hardly change."""
    times: list[list[float]] = [[], []]
    for call in (first, second):
        call()
    for _ in range(repeats):
        for call, seconds in zip((first, second), times, strict=True):
            began = time.process_time()
            call()
            seconds.append(time.process_time() - began)
    return [median(part) for part in times]


def torchrl(quick: bool) -> list[dict[str, Any]]:
    """Training on rows with 3 % resets, a step of 64 rows, and the bytes of a batch of 32 x 32 with default hcam."""
    import gymnasium
    from tensordict import TensorDict
    from tensordict.nn import TensorDictModule, TensorDictSequential
    from torchrl.envs import Compose, InitTracker, SerialEnv, TransformedEnv
    from torchrl.envs.libs.gym import GymWrapper
    from torchrl.modules import GRUModule, LSTMModule, OneHotCategorical, ProbabilisticActor, set_recurrent_mode

    from recollect.adapters.torchrl import LONGEST, CoreModule

    first = torch.rand(ROWS, STEPS, 1) < 0.03
    first[:, 0] = True
    data = TensorDict({"observation": torch.randn(ROWS, STEPS, INPUTS), "is_init": first}, [ROWS, STEPS])
    lines = []
    core = HierarchicalChunkMemoryConfig().build(4)
    for state in ("carry", "step"):
        memory = CoreModule(core, state, unroll=32)
        policy = TensorDictModule(torch.nn.Linear(core.output_shape[0], 2), in_keys=["embed"], out_keys=["logits"])
        body = TensorDictSequential(memory, policy)
        actor = ProbabilisticActor(body, in_keys=["logits"], distribution_class=OneHotCategorical)
        transforms = Compose(InitTracker(), memory.make_tensordict_primer())
        env = TransformedEnv(SerialEnv(32, lambda: GymWrapper(gymnasium.make("CartPole-v1"))), transforms)
        with torch.no_grad():
            batch = env.rollout(32, actor, break_when_any_done=False)
        size = sum(leaf.numel() * leaf.element_size() for leaf in batch.values(True, True))
        lines.append({"name": f"torchrl batch 32 x 32, default hcam, {state}", "ours": size / 1e6, "unit": "MB"})
        print(lines[-1], flush=True)

    def train(module: Any, batch: Any) -> Callable[[], None]:
        def call() -> None:
            with set_recurrent_mode(True):
                module(batch.copy())["embed"].square().mean().backward()

        return call

    def act(module: Any, batch: Any) -> Callable[[], None]:
        clock = [LONGEST]

        @torch.no_grad()
        def call() -> None:
            for t in range(20):
                step = batch[:, t].copy()
                step["memory", "clock"] = torch.full((ROWS,), clock[0])
                module(step)
                clock[0] += 1

        return call

    for config, kind, keys in ((LSTMConfig, LSTMModule, ["h", "c"]), (GRUConfig, GRUModule, ["h"])):
        ours = CoreModule(config(dim=WIDTH, num_layers=1).build(INPUTS), unroll=STEPS)
        whole = data.copy()
        for key in keys:
            whole[key] = torch.zeros(ROWS, STEPS, 1, WIDTH)
        names = {"in_keys": ["observation", *keys], "out_keys": ["embed", *(("next", key) for key in keys)]}
        own = kind(input_size=INPUTS, hidden_size=WIDTH, **names)
        for what, form in (("train", train), ("act", act)):
            seconds = in_turns(form(ours, data), form(own, whole), 1 if quick else 2 if what == "train" else 5)
            unit = 20 if what == "act" else 1
            lines.append(line(f"torchrl {kind.__name__} {what}", *(1e3 * part / unit for part in seconds), "ms"))
    return lines


def sb3(quick: bool) -> list[dict[str, Any]]:
    """One update from a rollout, and one rollout, of RecurrentPPO on CartPole."""
    from sb3_contrib import RecurrentPPO
    from stable_baselines3.common.env_util import make_vec_env

    from recollect.adapters.sb3 import CorePolicy

    def model(policy: Any, **kwargs: Any) -> Any:
        kwargs = {"policy_kwargs": {"net_arch": [], **kwargs}}
        made = RecurrentPPO(policy, make_vec_env("CartPole-v1", 8, seed=0), n_steps=128, batch_size=256, n_epochs=1,
                            seed=0, **kwargs)  # fmt: skip
        made.learn(1024)
        return made

    ours = model(CorePolicy, core=LSTMConfig(dim=WIDTH, num_layers=1))
    shared = {"lstm_hidden_size": WIDTH, "shared_lstm": True, "enable_critic_lstm": False}
    own = model("MlpLstmPolicy", **shared)

    def collect(which: Any) -> Callable[[], Any]:
        _, callback = which._setup_learn(10**9)
        callback.on_rollout_start()
        return lambda: which.collect_rollouts(which.env, callback, which.rollout_buffer, n_rollout_steps=128)

    repeats = 1 if quick else 5
    train = in_turns(ours.train, own.train, repeats)
    act = in_turns(collect(ours), collect(own), repeats)
    return [
        line("sb3 train, 128 x 8, shared LSTM", *(1e3 * part for part in train), "ms"),
        line("sb3 act, 8 rows, shared LSTM", *(1e3 * part / 128 for part in act), "ms"),
    ]


def rllib(quick: bool) -> list[dict[str, Any]]:
    """Steps per second of PPO on CartPole, collecting and learning."""
    import ray
    from ray.rllib.algorithms.ppo import PPOConfig
    from ray.rllib.core.rl_module.default_model_config import DefaultModelConfig
    from ray.rllib.core.rl_module.rl_module import RLModuleSpec

    from recollect.adapters.rllib import CoreRLModule

    ray.init(num_cpus=1, include_dashboard=False, log_to_driver=False, object_store_memory=200_000_000)

    def algorithm(spec: Any) -> Any:
        config = PPOConfig().environment("CartPole-v1").env_runners(num_env_runners=0, num_envs_per_env_runner=8)
        config = config.rl_module(rl_module_spec=spec).reporting(min_time_s_per_iteration=0)
        return config.training(train_batch_size_per_learner=2048, minibatch_size=512, num_epochs=6).build_algo()

    core = {"core": LSTMConfig(dim=64, num_layers=1), "max_seq_len": 32}
    own = DefaultModelConfig(use_lstm=True, lstm_cell_size=64, max_seq_len=32, vf_share_layers=True, fcnet_hiddens=[64])
    pair = [
        algorithm(RLModuleSpec(module_class=CoreRLModule, model_config=core)),
        algorithm(RLModuleSpec(model_config=own)),
    ]
    seconds = in_turns(pair[0].train, pair[1].train, 1 if quick else 5)
    for one in pair:
        one.stop()
    ray.shutdown()
    return [
        line(
            "rllib PPO, 2048 steps an iteration, LSTM 64: ratio of speeds",
            *(2048 / part for part in seconds),
            "steps/s",
        )
    ]


def line(name: str, ours: float, own: float, unit: str) -> dict[str, Any]:
    """Return one line of the results."""
    found = {"name": name, "ours": round(ours, 3), "own": round(own, 3), "unit": unit, "ratio": round(ours / own, 3)}
    print(found, flush=True)
    return found


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("engine", choices=["torchrl", "sb3", "rllib"])
    parser.add_argument("--quick", action="store_true", help="few repeats, nothing saved")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    torch.set_num_threads(1)
    torch.manual_seed(0)
    rows = globals()[options.engine](options.quick)
    result = {"environment": describe() | {"command": " ".join(sys.argv)}, "rows": rows}
    if not options.quick:
        place = Path(__file__).parent / f"results/engine-{options.engine}.json"
        place.write_text(json.dumps(result, indent=1) + "\n")
