"""Default runs of Gymnasium environments: settings for vectors or for images, chosen by the observation space.

Against collapse: observations and returns are normalised by running statistics, advantages in every minibatch; the
ratio of the clipped surrogate is taken to the policy that acted; passes over a rollout end when the policy has changed
by 0.03 nats; the learning rate decays to 0; the entropy bonus is large enough for exploration. docs/log.md has how the
values were chosen.
"""

from __future__ import annotations

from dataclasses import replace

from recollect.agents.config import ActorCriticConfig
from recollect.agents.encoder_config import EncoderConfig
from recollect.agents.spaces import is_image, parts, sides
from recollect.config import lookup
from recollect.cores import CORES
from recollect.cores.config import CoreConfig
from recollect.lazy import spaces
from recollect.recipes.base import Recipe, Run, Scale, Test, require_scale
from recollect.tasks import GymnasiumConfig
from recollect.training import (
    EvaluationConfig,
    FitConfig,
    ImpalaConfig,
    LossConfig,
    OptimizerConfig,
    ReuseConfig,
    VTraceConfig,
)

LARGE = 56
"""Shortest side, in pixels, of images that nature-cnn reads: its last map then has 3 x 3 places or more."""


def gymnasium_run(world: GymnasiumConfig, core: CoreConfig) -> ImpalaConfig:
    """Return the default config of ``recollect train gym:ID``.

    Args:
        world: the environment; one that cannot be made is assumed to show vectors, and building the run raises.
        core: the memory.
    """
    try:
        seen = dict(parts(world.spec.observation_space))
    except Exception:  # an environment's constructor may raise anything
        seen = {}
    images = {name: part for name, part in seen.items() if isinstance(part, spaces.Box) and is_image(part)}
    kinds = tuple((name, "nature-cnn") for name, part in images.items() if _is_large(part))
    return ImpalaConfig(
        world=world,
        core=core,
        agent=ActorCriticConfig(
            encoders=EncoderConfig(kinds=kinds, norm_numbers=True, norm_choices=True),
            width=256 if images else 128,
            skip=True,
            norm_values=True,
            clip_reward=10.0,
        ),
        optimizer=OptimizerConfig(
            algorithm="adam",
            learning_rate=3e-4 if images else 5e-4,
            schedule="linear",
            warmup_steps=10,
            clip_norm=0.5,
        ),
        loss=LossConfig(
            entropy_cost=0.01 if images else 0.05,
            reduction="mean",
            norm_advantages=True,
            vtrace=VTraceConfig(lambda_=0.95),
            reuse=ReuseConfig(passes=3, minibatches=4, reference="actor", kl_stop=0.03),
        ),
        evaluation=EvaluationConfig(episodes=32),
        batch_size=16 if images else 32,
        unroll=64,
        fit=FitConfig(steps=1000, report_every=10, evaluate_every=50, checkpoint_every=50),
    )


def _is_large(space: spaces.Box) -> bool:
    """Return whether nature-cnn reads images of this space; smaller ones go to impala-resnet, which is slower."""
    return min(sides(space.shape)[:2]) >= LARGE


WORLDS = {  # what: (environment, rollouts)
    "CartPole": (GymnasiumConfig(id="CartPole-v1"), 300),
    "CartPole without velocities": (GymnasiumConfig(id="CartPole-v1", masked=(1, 3)), 300),
    "Pendulum": (GymnasiumConfig(id="Pendulum-v1"), 150),
    "RepeatPreviousEasy": (GymnasiumConfig(id="popgym-RepeatPreviousEasy-v0"), 400),
    "MiniGrid-MemoryS7": (GymnasiumConfig(id="MiniGrid-MemoryS7-v0"), 600),
    "FrozenLake": (GymnasiumConfig(id="FrozenLake-v1"), 150),
    "own world of cue and vector": (GymnasiumConfig(id="examples.cue_world:CueWorld"), 150),
    "CountRecallEasy": (GymnasiumConfig(id="popgym-CountRecallEasy-v0"), 200),
    "MortarMayhem-Grid": (GymnasiumConfig(id="MortarMayhem-Grid-v0"), 50),
}
"""A world whose package is missing is named in the table."""
NEED_MEMORY = ("CartPole without velocities", "RepeatPreviousEasy")
"""Worlds that are also run with :data:`RECURRENCES`."""
RECURRENCES = ("gru", "min-gru", "rg-lru", "mamba2", "mlstm", "gated-deltanet", "rwkv7", "hybrid")
SLOW = "MortarMayhem-Grid"
"""Large images: about 100 steps a second and core."""


def gymnasium_defaults(core: str = "lstm", scale: Scale = "lite") -> ImpalaConfig:
    """Return the default run of CartPole, with any core, at the scale lite."""
    require_scale(scale, "lite")
    return gymnasium_run(GymnasiumConfig(), lookup(CORES, core, "core")())


def _lite() -> list[Run]:
    runs = [_run(what, "lstm", seeds=1 if what == SLOW else None) for what in WORLDS]
    runs += [_run(what, "memoryless", seeds=1) for what in WORLDS if what != SLOW]
    return [*runs, *(_run(what, core, seeds=1) for what in NEED_MEMORY for core in RECURRENCES)]


def _run(what: str, core: str, seeds: int | None = None) -> Run:
    world, rollouts = WORLDS[what]
    config = gymnasium_run(world, CORES[core]())
    if what == SLOW:  # scored before large images were read by nature-cnn
        encoders = replace(config.agent.encoders, kinds=())
        config = replace(config, agent=replace(config.agent, encoders=encoders))
    return Run(
        label=f"{what.lower().replace(' ', '-')}-{core}",
        row=f"{core}, {what}",
        core=core,
        config=replace(config, fit=replace(config.fit, steps=rollouts)),
        tests={name: Test(where=world, best=name == "best", samples=128) for name in ("last", "best")},
        seeds=seeds,
    )


GYMNASIUM = Recipe(
    name="gymnasium",
    title="Other people's environments by default",
    source="ours (recipes/gymnasium.py)",
    about=(
        "What `recollect train gym:ID --core lstm` learns with no other flag but the number of rollouts (2 048 "
        "environment steps each; 1 024 with images). The score is the return of an episode, by the newest checkpoint "
        "(last) and by that of the best evaluation (best), in 128 fresh episodes; chance is unknown."
    ),
    config=gymnasium_defaults,
    runs={"lite": _lite},
    seeds={"lite": 3},
)
