"""Agents on masked CartPole, end to end: environment steps per second, and the time to a return of 400.

    python benchmarks/rl.py ours [--seeds 0 1 2] [--seconds 120]
    python benchmarks/rl.py ours-defaults [--seeds 0 1 2]                      by the defaults of recollect train
    python benchmarks/rl.py defaults-speed                                     steps/s of the two, in turns
    python benchmarks/rl.py ours-pong [--seconds 60]                           only its speed: steps of 4 frames
    PYTHON benchmarks/rl.py sb3 | sb3-16 | sample-factory [--seconds 120]      in an environment that has the package
    python benchmarks/rl.py table                                              everything that was measured

The environment is CartPole-v1 without its two velocities; memory is an LSTM of 64. Training stops when the mean return
of the last 100 training episodes is 400, or after ``--seconds``; the clock starts with the first training data. Peers
run at the settings named here, through their public interfaces; their pins exclude each other.
"""

import argparse
import json
import math
import os
import statistics
import tempfile
import time
from collections import deque
from pathlib import Path
from typing import TYPE_CHECKING, Any

import source_tree  # noqa: F401

if TYPE_CHECKING:  # the peers' environments have no copy of this library
    from recollect.training import ImpalaConfig

RESULTS = Path(__file__).parent / "results"
GOAL = 400.0


class Curve:
    """Mean return of the last 100 episodes over seconds and environment steps."""

    def __init__(self, seconds: float) -> None:
        self.limit = seconds
        self.began: float | None = None
        self.first = 0
        self.points: list[tuple[float, int, float]] = []
        self.goal: dict[str, float] | None = None

    def start(self, steps: int = 0) -> None:
        """Training data begins to be made."""
        if self.began is None:
            self.began, self.first = time.perf_counter(), steps

    def point(self, steps: int, mean_return: float, episodes: int) -> bool:
        """Note a point; whether training should go on."""
        self.start(steps)
        assert self.began is not None
        now = time.perf_counter() - self.began
        self.points.append((round(now, 2), steps - self.first, mean_return))
        if self.goal is None and episodes >= 20 and mean_return >= GOAL:
            self.goal = {"seconds": round(now, 2), "environment_steps": steps - self.first}
        return self.goal is None and now < self.limit

    def result(self) -> dict[str, Any]:
        """Everything, the curve thinned to about 40 points."""
        seconds, steps, last = self.points[-1]
        returns = [value for _, _, value in self.points if not math.isnan(value)]
        return {
            "steps_per_s": round(steps / max(seconds, 1e-9), 1),
            "seconds": seconds,
            "environment_steps": steps,
            "final_return": None if math.isnan(last) else round(last, 1),
            "best_return": round(max(returns), 1) if returns else None,
            "reached_400": self.goal,
            "curve": [
                [at, n, None if math.isnan(value) else round(value, 1)]
                for at, n, value in self.points[:: max(1, len(self.points) // 40)]
            ],
        }


def cartpole(seed: int) -> "ImpalaConfig":
    """Our IMPALA with several passes on masked CartPole."""
    from recollect.agents.config import ActorCriticConfig
    from recollect.agents.encoder_config import EncoderConfig
    from recollect.cores.recurrent import LSTMConfig
    from recollect.tasks import GymnasiumConfig
    from recollect.training import FitConfig, ImpalaConfig, LossConfig, OptimizerConfig, ReuseConfig, VTraceConfig

    return ImpalaConfig(
        world=GymnasiumConfig(id="CartPole-v1", masked=(1, 3)),
        core=LSTMConfig(dim=64, num_layers=1),
        # Two small numbers are all there is to see: a hidden layer in front of the memory only drowns them.
        agent=ActorCriticConfig(encoders=EncoderConfig(hidden=()), width=64, previous_reward=False),
        optimizer=OptimizerConfig(algorithm="adam", learning_rate=4e-3, clip_norm=1.0),
        # Returns are tens to hundreds here: at a baseline cost of 0.5 its gradient leaves none to the policy.
        loss=LossConfig(
            discount=0.98,
            entropy_cost=0.003,
            baseline_cost=0.01,
            reduction="mean",
            vtrace=VTraceConfig(lambda_=0.9),
            reuse=ReuseConfig(passes=3, minibatches=3, surrogate_clip=0.1),
        ),
        batch_size=32,
        unroll=32,
        fit=FitConfig(seed=seed, steps=10**6),
    )


def defaults(seed: int) -> "ImpalaConfig":
    """Masked CartPole by the settings that ``recollect train gym:ID`` starts from, with the same memory."""
    from dataclasses import replace

    from recollect.cores.recurrent import LSTMConfig
    from recollect.recipes.gymnasium import gymnasium_run
    from recollect.tasks import GymnasiumConfig

    config = gymnasium_run(GymnasiumConfig(id="CartPole-v1", masked=(1, 3)), LSTMConfig(dim=64, num_layers=1))
    return replace(config, fit=replace(config.fit, seed=seed))


def pong(seed: int) -> "ImpalaConfig":
    """IMPALA on Pong: the network, costs and optimiser of ``rl_plain.py``, acting and learning in bfloat16."""
    from recollect.agents.config import ActorCriticConfig
    from recollect.cores.recurrent import LSTMConfig
    from recollect.tasks import GymnasiumConfig
    from recollect.training import FitConfig, ImpalaConfig, LossConfig, OptimizerConfig

    return ImpalaConfig(
        world=GymnasiumConfig(id="ALE/Pong-v5", options={"repeat_action_probability": 0.0}),
        core=LSTMConfig(dim=256, num_layers=1),
        agent=ActorCriticConfig(width=256),
        optimizer=OptimizerConfig(algorithm="rmsprop", learning_rate=4.8e-4, clip_norm=40.0),
        loss=LossConfig(discount=0.99, entropy_cost=6e-4, baseline_cost=0.5),
        batch_size=16,
        unroll=40,
        bfloat16=True,
        fit=FitConfig(seed=seed, steps=10**6),
    )


def ours(config: "ImpalaConfig", seconds: float, threads: int = 1) -> dict[str, Any]:
    """Train in one process as ``fit`` does, without evaluations or checkpoints."""
    import torch

    from recollect.ops.allocation import keep_freed_memory
    from recollect.runs.random_states import seed_everything

    torch.set_num_threads(threads)
    seed_everything(config.fit.seed)
    keep_freed_memory()
    trainer, curve = config.build(), Curve(seconds)
    curve.start()
    recent: deque[tuple[float, float]] = deque()  # (episodes, sum of returns) of rollouts, the last 100 episodes
    go = True
    while go:
        metrics = trainer.step()
        recent.append((metrics["episodes"], metrics["episodes"] * metrics.get("episode_return", 0.0)))
        while sum(n for n, _ in recent) - recent[0][0] >= 100:
            recent.popleft()
        number = sum(n for n, _ in recent)
        mean = sum(total for _, total in recent) / number if number else math.nan
        go = curve.point(int(metrics["environment_steps"]), mean, int(number))
    trainer.close()
    return curve.result()


def defaults_speed(rounds: int = 8) -> dict[str, Any]:
    """Steps per second of processor time of the benchmark's settings and of the defaults, in turns in one process."""
    import torch

    from recollect.ops.allocation import keep_freed_memory

    torch.set_num_threads(1)
    keep_freed_memory()
    trainers = {"benchmark": cartpole(0).build(), "defaults": defaults(0).build()}
    rates: dict[str, list[float]] = {name: [] for name in trainers}
    for turn in range(rounds + 1):
        for name, trainer in trainers.items():
            began, steps = time.process_time(), trainer.environment_steps
            while trainer.environment_steps < steps + 6000:
                trainer.step()
            if turn:  # the first turn warms up
                rates[name].append((trainer.environment_steps - steps) / (time.process_time() - began))
    ratios = sorted(new / old for new, old in zip(rates["defaults"], rates["benchmark"], strict=True))
    medians = {name: round(statistics.median(found), 1) for name, found in rates.items()}
    return {
        "steps_per_s": medians,
        "ratio": round(statistics.median(ratios), 3),
        "lowest": ratios[0],
        "highest": ratios[-1],
    }


def masked_cartpole() -> Any:
    """One environment, for the peers."""
    import gymnasium
    import numpy as np

    class Masked(gymnasium.ObservationWrapper):  # type: ignore[type-arg]
        def __init__(self, env: Any) -> None:
            super().__init__(env)
            space = env.observation_space
            self.observation_space = gymnasium.spaces.Box(space.low[[0, 2]], space.high[[0, 2]], dtype=np.float32)

        def observation(self, observation: Any) -> Any:
            return np.asarray(observation, np.float32)[[0, 2]]

    return Masked(gymnasium.make("CartPole-v1"))


def stable_baselines(seed: int, seconds: float, environments: int) -> dict[str, Any]:
    """RecurrentPPO of sb3-contrib: its defaults, or vectorised with an LSTM of 64."""
    from sb3_contrib import RecurrentPPO
    from stable_baselines3.common.callbacks import BaseCallback
    from stable_baselines3.common.env_util import make_vec_env

    curve = Curve(seconds)

    class Watch(BaseCallback):
        def _on_rollout_start(self) -> None:
            curve.start(self.num_timesteps)

        def _on_step(self) -> bool:
            known = [episode["r"] for episode in self.model.ep_info_buffer]
            return curve.point(self.num_timesteps, sum(known) / len(known) if known else math.nan, len(known))

    more: dict[str, Any] = {}
    if environments > 1:
        more = {"n_steps": 128, "policy_kwargs": {"lstm_hidden_size": 64, "net_arch": [64]}}
    world = make_vec_env(masked_cartpole, n_envs=environments, seed=seed)
    RecurrentPPO("MlpLstmPolicy", world, device="cpu", seed=seed, **more).learn(10**9, callback=Watch())
    return curve.result()


def make_sample_factory_world(name: str, cfg: Any = None, env_config: Any = None, render_mode: Any = None) -> Any:
    """What Sample Factory's workers call; at the top of the module, so that they can find it."""
    return masked_cartpole()


def sample_factory(seed: int, seconds: float) -> dict[str, Any]:
    """APPO of Sample Factory with two workers of eight environments and an LSTM of 64."""
    import numpy as np
    from sample_factory.algo.runners.runner import AlgoObserver
    from sample_factory.cfg.arguments import parse_full_cfg, parse_sf_args
    from sample_factory.envs.env_utils import register_env
    from sample_factory.train import make_runner

    register_env("masked_cartpole", make_sample_factory_world)
    curve = Curve(seconds)
    with tempfile.TemporaryDirectory() as folder:
        settings = {
            "algo": "APPO", "env": "masked_cartpole", "experiment": "run", "train_dir": folder, "device": "cpu",
            "num_workers": 2, "num_envs_per_worker": 8, "worker_num_splits": 2, "use_rnn": True, "rnn_type": "lstm",
            "rnn_size": 64, "rollout": 32, "recurrence": 32, "batch_size": 512, "num_epochs": 2,
            "learning_rate": 1e-3, "reward_scale": 0.1, "gamma": 0.99, "max_policy_lag": 100, "normalize_input": True,
            "seed": seed, "train_for_env_steps": 10**9, "save_every_sec": 10**5, "env_frameskip": 1,
        }  # fmt: skip
        words = [f"--{name}={value}" for name, value in settings.items()] + ["--encoder_mlp_layers", "64"]
        parser, _ = parse_sf_args(words)
        _, runner = make_runner(parse_full_cfg(parser, words))

        class Watch(AlgoObserver):
            def on_training_step(self, runner: Any, _: int) -> None:
                steps = runner.total_env_steps_since_resume
                known = runner.policy_avg_stats.get("reward", [[]])[0]
                if steps and not curve.point(steps, float(np.mean(known)) if len(known) else math.nan, len(known)):
                    runner.cfg.train_for_env_steps = 0  # its own clock of seconds does not advance

        runner.register_observer(Watch())
        runner.init()
        runner.run()
    return curve.result()


LIBRARIES = {
    "ours": lambda seed, seconds: ours(cartpole(seed), seconds),
    "ours-defaults": lambda seed, seconds: ours(defaults(seed), seconds),
    "ours-pong": lambda seed, seconds: ours(pong(seed), seconds, threads=2),
    "sb3": lambda seed, seconds: stable_baselines(seed, seconds, 1),
    "sb3-16": lambda seed, seconds: stable_baselines(seed, seconds, 16),
    "sample-factory": sample_factory,
}


def main() -> None:
    """Measure one library, or print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=[*LIBRARIES, "defaults-speed", "table"])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--seconds", type=float, default=120.0)
    parser.add_argument("--output", default=str(RESULTS), help="folder; '' saves nothing")
    options = parser.parse_args()
    if options.what == "table":
        table(Path(options.output))
        return
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    if options.what == "defaults-speed":
        measured = defaults_speed()
        print(measured)
        if options.output:
            found = {"environment": where(), **measured}
            (Path(options.output) / "defaults-speed.json").write_text(json.dumps(found, indent=1) + "\n")
        return
    runs = [{"seed": seed, **LIBRARIES[options.what](seed, options.seconds)} for seed in options.seeds]
    found = {"library": options.what, "environment": where(), "runs": runs}
    for run in runs:
        print({key: value for key, value in run.items() if key != "curve"})
    if options.output:
        (Path(options.output) / f"rl-{options.what}.json").write_text(json.dumps(found, indent=1) + "\n")


def where() -> dict[str, Any]:
    """Hardware and versions; the peers' environments have no copy of this library."""
    from importlib.metadata import PackageNotFoundError, version

    versions = {}
    for package in ("recollect", "torch", "gymnasium", "stable-baselines3", "sb3-contrib", "sample-factory"):
        try:
            versions[package] = version(package)
        except PackageNotFoundError:
            continue
    if "recollect" in versions:
        from recollect.benchmark.machine import describe

        return describe() | {"versions": versions}
    return {"versions": versions, "cores": os.cpu_count()}


def table(folder: Path) -> None:
    """All measured libraries side by side; Pong takes hours to learn, so only its speed says something."""
    from rich.console import Console
    from rich.table import Table

    shown = Table(title="Masked CartPole, LSTM")
    for column in ("library", "seed", "steps/s", "400 after", "at step", "best return", "steps"):
        shown.add_column(column, justify="left" if column == "library" else "right")
    for path in sorted(folder.glob("rl-*.json")):
        found = json.loads(path.read_text())
        for run in found["runs"]:
            goal = run["reached_400"]
            reached = (f"{goal['seconds']:.1f} s", f"{goal['environment_steps']:,}") if goal else ("-", "-")
            rest = (f"{run['best_return']}", f"{run['environment_steps']:,}")
            shown.add_row(found["library"], str(run["seed"]), f"{run['steps_per_s']:,.0f}", *reached, *rest)
    Console().print(shown)


if __name__ == "__main__":
    main()
