"""Learn one memory task by PPO in every engine: a core of this library beside the engine's own LSTM of equal size.

    python benchmarks/engines_learning.py ours | one-file | sb3 | torchrl | rllib [--world t-maze] [--seeds 0 1 2]

A run ends when the mean score of the last 100 episodes reaches the goal, or at the budget of environment steps. Engines
share the settings below; what an engine adds of its own is in its function. ``ours`` is IMPALA with the default
settings of ``recollect train``. Needs the environments of ``make test-engines``. Results are in
``results/engines-learning.json``, where a run replaces one of the same engine, world, memory and seed.
"""

import argparse
import json
import logging
import sys
import time
import warnings
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import gymnasium
import numpy as np
import torch

import source_tree  # noqa: F401
from recollect import LSTMConfig, gymnasium_ids
from recollect.benchmark.machine import describe
from recollect.recipes.gymnasium import gymnasium_run
from recollect.tasks import GymnasiumConfig
from recollect.training import fit

RESULTS = Path(__file__).parent / "results/engines-learning.json"
WIDTH, ROWS, STEPS, EPOCHS = 64, 16, 64, 4
RATE, DISCOUNT, TRACE, ENTROPY, CLIP = 1e-3, 0.99, 0.95, 0.01, 0.5
EPISODES = 100
"""Episodes whose mean score is compared with the goal."""


class World(NamedTuple):
    """An environment, the score that is asked for, and the environment steps that a run may take."""

    make: Callable[[], gymnasium.Env]
    goal: float
    budget: int
    scale: float
    """Rewards are divided by it."""


class Hidden(gymnasium.ObservationWrapper):
    """CartPole without its two speeds."""

    def __init__(self) -> None:
        super().__init__(gymnasium.make("CartPole-v1"))
        space = self.env.observation_space
        self.observation_space = gymnasium.spaces.Box(space.low[::2], space.high[::2], dtype=np.float32)

    def observation(self, observation: Any) -> Any:
        """Return position and angle."""
        return observation[::2]


def make_maze() -> gymnasium.Env:
    """Make the T-maze of length 20."""
    gymnasium_ids.register()
    return gymnasium.make("recollect/TMaze-v0", length=20)


WORLDS = {"t-maze": World(make_maze, 0.95, 400_000, 1.0), "masked-cartpole": World(Hidden, 400.0, 600_000, 100.0)}


class Reached(Exception):  # noqa: N818 (no error, like StopIteration)
    """The goal is reached, or the budget is spent."""


class Scores:
    """Scores of all episodes of a run, in the order in which they end."""

    def __init__(self, world: World) -> None:
        self.world, self.steps, self.last = world, 0, deque[float](maxlen=EPISODES)
        self.began = time.process_time()

    def add(self, score: float) -> None:
        """Note the score of an episode."""
        self.last.append(score)

    @property
    def mean(self) -> float:
        """Mean score of the last episodes."""
        return float(np.mean(self.last)) if self.last else float("nan")

    @property
    def is_reached(self) -> bool:
        """Whether enough episodes have ended and their mean is at the goal."""
        return len(self.last) == EPISODES and self.mean >= self.world.goal

    def check(self) -> None:
        """Raise ``Reached`` at the end of the run."""
        if self.is_reached or self.steps >= self.world.budget:
            raise Reached

    def result(self) -> dict[str, Any]:
        """Return what a run reached, and what it took."""
        return {
            "reached": self.is_reached,
            "score": round(self.mean, 3),
            "steps": self.steps,
            "processor_seconds": round(time.process_time() - self.began, 1),
        }


class Scored(gymnasium.Wrapper):
    """Counts steps and scores of episodes, and scales rewards; a turn to the right side in the T-maze has score 1."""

    def __init__(self, env: gymnasium.Env, scores: Scores) -> None:
        super().__init__(env)
        self.scores, self.total = scores, 0.0

    def reset(self, **kwargs: Any) -> Any:
        """Begin an episode."""
        self.total = 0.0
        return self.env.reset(**kwargs)

    def step(self, action: Any) -> Any:
        """Take a step."""
        observation, reward, terminated, truncated, info = self.env.step(action)
        self.total += float(reward)
        self.scores.steps += 1
        if terminated or truncated:
            self.scores.add(float(self.total > 0.2) if self.scores.world.goal < 1 else self.total)
        return observation, float(reward) / self.scores.world.scale, terminated, truncated, info


class Stopping(Scored):
    """An environment that ends the run itself, for a loop without a place to look at scores."""

    def step(self, action: Any) -> Any:
        """Take a step, unless the run is at its end."""
        self.scores.check()
        return super().step(action)


def learn_ours(scores: Scores, seed: int, own: bool) -> None:
    """IMPALA by the default settings that ``recollect train gym:ID`` has."""
    del own
    gymnasium.register("Scored-v0", entry_point=lambda: Scored(scores.world.make(), scores))
    config = gymnasium_run(GymnasiumConfig(id="Scored-v0", native=False), LSTMConfig(dim=WIDTH, num_layers=1))
    updates = scores.world.budget // (config.batch_size * config.unroll)
    fit_config = replace(
        config.fit, seed=seed, steps=updates, report_every=1, evaluate_every=updates, checkpoint_every=updates
    )
    with TemporaryDirectory() as folder:
        fit(replace(config, fit=fit_config), f"{folder}/run", loggers=[lambda *_: scores.check()])


def learn_one_file(scores: Scores, seed: int, own: bool) -> None:
    """``examples/ppo.py``."""
    del own
    sys.path.insert(0, str(Path(__file__).parents[1]))
    from examples import ppo

    mode = gymnasium.vector.AutoresetMode.NEXT_STEP
    make = lambda: Stopping(scores.world.make(), scores)  # noqa: E731
    ppo.make = lambda *_: gymnasium.vector.SyncVectorEnv([make] * ROWS, autoreset_mode=mode)
    words = ["--rows", ROWS, "--unroll", STEPS, "--epochs", EPOCHS, "--learning-rate", RATE, "--dim", WIDTH]
    words += ["--steps", 2 * scores.world.budget, "--seed", seed, "--gamma", DISCOUNT, "--entropy", ENTROPY]
    ppo.train(ppo.parse([str(word) for word in words]))


def learn_sb3(scores: Scores, seed: int, own: bool) -> None:
    """RecurrentPPO of sb3-contrib; actor and critic share one LSTM, which learns from the actor's loss alone."""
    from sb3_contrib import RecurrentPPO
    from stable_baselines3.common.callbacks import BaseCallback
    from stable_baselines3.common.vec_env import DummyVecEnv

    from recollect.adapters.sb3 import CorePolicy

    class Check(BaseCallback):
        def _on_step(self) -> bool:
            return True

        def _on_rollout_end(self) -> None:
            scores.check()

    envs = DummyVecEnv([lambda: Scored(scores.world.make(), scores)] * ROWS)
    envs.seed(seed)
    if own:
        kind, policy = (
            "MlpLstmPolicy",
            {
                "lstm_hidden_size": WIDTH,
                "net_arch": [],
                "shared_lstm": True,
                "enable_critic_lstm": False,
            },
        )
    else:
        kind, policy = CorePolicy, {"core": LSTMConfig(dim=WIDTH, num_layers=1), "net_arch": []}
    settings = {
        "learning_rate": RATE,
        "gamma": DISCOUNT,
        "gae_lambda": TRACE,
        "ent_coef": ENTROPY,
        "max_grad_norm": CLIP,
    }
    model = RecurrentPPO(kind, envs, n_steps=STEPS, batch_size=STEPS * ROWS // 4, n_epochs=EPOCHS, seed=seed,
                         policy_kwargs=policy, **settings)  # fmt: skip
    model.learn(10**9, callback=Check())


def learn_torchrl(scores: Scores, seed: int, own: bool) -> None:
    """TorchRL's collector, estimator and clipped loss, on whole rows."""
    from tensordict.nn import TensorDictModule, TensorDictSequential
    from torch import nn
    from torchrl.collectors import Collector
    from torchrl.envs import Compose, InitTracker, SerialEnv, TransformedEnv
    from torchrl.envs.libs.gym import GymWrapper
    from torchrl.modules import LSTMModule, OneHotCategorical, ProbabilisticActor, set_recurrent_mode
    from torchrl.objectives import ClipPPOLoss
    from torchrl.objectives.value import GAE

    from recollect.adapters.torchrl import CoreModule

    sample = scores.world.make()
    numbers, actions = sample.observation_space.shape[0], int(sample.action_space.n)  # type: ignore[attr-defined, index]
    encoder = TensorDictModule(nn.Sequential(nn.Linear(numbers, WIDTH), nn.Tanh()), ["observation"], ["seen"])
    if own:
        keys = {"in_keys": ["seen", "h", "c"], "out_keys": ["embed", ("next", "h"), ("next", "c")]}
        memory = LSTMModule(input_size=WIDTH, hidden_size=WIDTH, **keys)
    else:
        memory = CoreModule(LSTMConfig(dim=WIDTH, num_layers=1).build(WIDTH), in_key="seen", unroll=STEPS)
    make = lambda: GymWrapper(Scored(scores.world.make(), scores))  # noqa: E731
    env = TransformedEnv(SerialEnv(ROWS, make), Compose(InitTracker(), memory.make_tensordict_primer()))
    env.set_seed(seed)
    policy = TensorDictModule(nn.Linear(WIDTH, actions), in_keys=["embed"], out_keys=["logits"])
    nn.init.orthogonal_(policy.module.weight, 0.01)
    critic = TensorDictModule(nn.Linear(WIDTH, 1), in_keys=["embed"], out_keys=["state_value"])
    body = TensorDictSequential(encoder, memory, policy)
    actor = ProbabilisticActor(
        body, in_keys=["logits"], out_keys=["action"], distribution_class=OneHotCategorical, return_log_prob=True
    )
    value = TensorDictSequential(encoder, memory, critic)
    loss = ClipPPOLoss(actor, value, entropy_coeff=ENTROPY, critic_coeff=0.5, normalize_advantage=True)
    advantage = GAE(gamma=DISCOUNT, lmbda=TRACE, value_network=value, shifted=True)
    optimizer = torch.optim.Adam({*actor.parameters(), *value.parameters()}, lr=RATE)
    for data in Collector(env, actor, frames_per_batch=ROWS * STEPS, total_frames=-1):
        scores.check()
        with torch.no_grad(), set_recurrent_mode(True):
            advantage(data)
        for _ in range(EPOCHS):
            for rows in torch.randperm(ROWS).split(ROWS // 4):
                with set_recurrent_mode(True):
                    losses = loss(data[rows])
                optimizer.zero_grad()
                (losses["loss_objective"] + losses["loss_critic"] + losses["loss_entropy"]).backward()
                nn.utils.clip_grad_norm_(loss.parameters(), CLIP)
                optimizer.step()


def learn_rllib(scores: Scores, seed: int, own: bool) -> None:
    """RLlib's PPO of the new stack, environments in the driver; its KL penalty is off, as in the others."""
    import ray
    from ray.rllib.algorithms.ppo import PPOConfig
    from ray.rllib.core.rl_module.default_model_config import DefaultModelConfig
    from ray.rllib.core.rl_module.rl_module import RLModuleSpec

    from recollect.adapters.rllib import CoreRLModule

    ray.init(num_cpus=1, include_dashboard=False, log_to_driver=False, object_store_memory=200_000_000)
    gymnasium.register("Scored-v0", entry_point=lambda: Scored(scores.world.make(), scores))  # Ray's registry copies
    if own:
        model = DefaultModelConfig(
            use_lstm=True, lstm_cell_size=WIDTH, max_seq_len=STEPS, vf_share_layers=True, fcnet_hiddens=[WIDTH]
        )
        spec = RLModuleSpec(model_config=model)
    else:
        core = LSTMConfig(dim=WIDTH, num_layers=1)
        spec = RLModuleSpec(module_class=CoreRLModule, model_config={"core": core, "max_seq_len": STEPS})
    config = PPOConfig().environment("Scored-v0").env_runners(num_env_runners=0, num_envs_per_env_runner=ROWS)
    config = config.rl_module(rl_module_spec=spec).reporting(min_time_s_per_iteration=0).debugging(seed=seed)
    batches = {"train_batch_size_per_learner": ROWS * STEPS, "minibatch_size": ROWS * STEPS // 4, "num_epochs": EPOCHS}
    settings = {"lr": RATE, "gamma": DISCOUNT, "lambda_": TRACE, "entropy_coeff": ENTROPY, "grad_clip": CLIP}
    algorithm = config.training(
        **batches, **settings, vf_loss_coeff=0.5, clip_param=0.2, use_kl_loss=False
    ).build_algo()
    try:
        while True:
            algorithm.train()
            scores.check()
    finally:
        algorithm.stop()
        ray.shutdown()


ENGINES = {
    "ours": learn_ours,
    "one-file": learn_one_file,
    "sb3": learn_sb3,
    "torchrl": learn_torchrl,
    "rllib": learn_rllib,
}
SINGLE = ("ours", "one-file")
"""Engines without a memory of their own."""


def run(engine: str, name: str, seeds: list[int]) -> Iterator[dict[str, Any]]:
    """Yield the result of each run."""
    for seed in seeds:
        for own in (False,) if engine in SINGLE else (False, True):
            torch.manual_seed(seed)
            scores = Scores(WORLDS[name])
            with suppress(Reached):
                ENGINES[engine](scores, seed, own)
            memory = "own LSTM" if own else "lstm"
            yield {"engine": engine, "world": name, "memory": memory, "seed": seed, **scores.result()}


def save(found: dict[str, Any]) -> None:
    """Put a result into the file, with the environment it was made in."""
    rows = json.loads(RESULTS.read_text())["rows"] if RESULTS.exists() else []
    key = ("engine", "world", "memory", "seed")
    rows = [row for row in rows if any(row[part] != found[part] for part in key)]
    found["environment"] = describe() | {"command": " ".join(sys.argv)}
    rows = sorted([*rows, found], key=lambda row: tuple(str(row[part]) for part in key))
    RESULTS.write_text(json.dumps({"rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("engine", choices=list(ENGINES))
    parser.add_argument("--world", choices=list(WORLDS), default="t-maze")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    torch.set_num_threads(1)
    for result in run(options.engine, options.world, options.seeds):
        print(result, flush=True)
        save(result)
