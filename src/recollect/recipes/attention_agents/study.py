"""The study of George 2021 (sections 4.1 and 4.2): agents with attention on four games, and one change at a time.

``paper`` has the games and steps of the thesis. Its returns are those of training, means of the last 100 episodes (in
Breakout 500), in which a lost life ends an episode. Our test ``life`` has such episodes, ``game`` complete games.

``lite`` is ours: minutes in frames of 42 x 42, in the worlds ``catch`` (also with an invisible ball), ``track``, and
the polygons of MDP Playground that chapter 6 proposes. The agents are the same, but have norms (not in Pong) of every
channel of the residual network's map, of the heads' input, and of outputs that become queries. Their training differs:
rollouts of 31 steps, each used as a whole in three passes with the clipped surrogate; Adam; pixels scaled to 0..1;
values in units of the returns; a discount of 0.95; bfloat16.
Where something must be remembered each agent has a second row, *imitated*: it imitates the world's oracle for minutes,
and in ``track`` also learns to name the marked ball.

To add the rows of an agent, add an entry in ``agents.py``, the returns that the thesis reports in :data:`RETURNS`, and
its changes of section 4.2 in :func:`_changes`.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cache
from typing import Any

from recollect.config import lookup
from recollect.cores import CORES
from recollect.cores.memoryless import MemorylessConfig
from recollect.cores.spatio_temporal.config import SpatioTemporalAttentionConfig
from recollect.recipes.attention_agents.agents import (
    ATTENTION_AGENTS,
    WIDTH,
    adaptive,
    attention_agent,
    mott,
    timesformer,
    with_layers,
    with_patches,
    with_tokens,
)
from recollect.recipes.base import Recipe, Run, Scale, Test, file_name, require_scale
from recollect.recipes.imitation_recipe import ImitationRecipe, with_teacher
from recollect.tasks import CatchConfig, GymnasiumConfig, TrackConfig
from recollect.tasks.gymnasium.atari import AtariRules
from recollect.tasks.gymnasium.polygons import PolygonsConfig
from recollect.tasks.worlds.contract import WorldConfig
from recollect.training import EvaluationConfig, ImpalaConfig, LossConfig, OptimizerConfig, ReuseConfig, VTraceConfig

MILLIONS = {"Pong": 10, "Enduro": 30, "MsPacman": 60, "Breakout": 60}
"""Agent steps of section 4.1."""
RETURNS: dict[str, dict[str, str]] = {
    "mott": {"Pong": "-20.24", "Enduro": "504", "MsPacman": "584", "Breakout": "66"},
    "adaptive": {"Pong": "20.38", "Enduro": "553", "MsPacman": "1333", "Breakout": "149"},
    "spatio-temporal-sequential": {"Pong": "20", "Enduro": "590", "MsPacman": "1472", "Breakout": "149"},
    "spatio-temporal-one-shot": {"Pong": "19.79", "Enduro": "548", "MsPacman": "1007", "Breakout": "142"},
    "timesformer-divided": {"Pong": "20", "Enduro": "552", "MsPacman": "2100", "Breakout": "141"},
    "timesformer-joint": {"Pong": "20.1", "Enduro": "582", "MsPacman": "855 (42 x 42)", "Breakout": "108 (42 x 42)"},
}
"""Final returns of tables 4.1 to 4.4."""
SMALL = {("timesformer-joint", "MsPacman"), ("timesformer-joint", "Breakout")}
"""Agents and games with frames of 42 x 42 in these tables; all others have 84 x 84."""
LITE: dict[str, WorldConfig] = {
    "catch": CatchConfig(side=42),
    "catch in the dark": CatchConfig(side=42, blackout=9),
    "track": TrackConfig(side=42),
    "polygons": PolygonsConfig(side=42),
}
LITE_STEPS = {"catch": 400, "catch in the dark": 600, "track": 1000, "polygons": 400}
"""Rollouts of 992 steps; a run ends sooner at a score of 0.95, such as the share of caught balls, in 64 episodes."""
IMITATION = {
    "catch in the dark": ImitationRecipe(
        steps=160,
        batch_size=32,
        unroll=19,
        learning_rate=1e-3,
        decision_cost=1.0,
        reuse=ReuseConfig(passes=2, minibatches=4),
    ),
    "track": ImitationRecipe(
        steps=160,
        batch_size=32,
        unroll=50,
        learning_rate=2e-3,
        label_cost=1.0,  # where the marked ball is: or four frames in fifty have to teach how to follow it
        decision_cost=1.0,
        reuse=ReuseConfig(passes=2, minibatches=8),
    ),
}
"""How the rows that imitate are taught: in rollouts of a ball's fall, and of an episode."""
CAREFUL = {("mott", "track"): 1e-3}
"""Learning rates of rows whose gradients explode with that of their imitation."""
LITE_SECONDS = 2400.0
"""Processor time of a run: 20 minutes on two cores."""
LITE_PONG_STEPS = {"adaptive": 2600}
"""Rollouts of 992 steps in Pong: 2.6 million steps of the agent that learns it first, else :data:`LITE_PONG_SHORT`."""
LITE_PONG_SHORT = 303
"""300 thousand steps: the beginning of a curve, named so."""
NORMED_KINDS = {"impala-resnet": "impala-resnet-instance-norm"}
"""Encoders whose maps tell frames apart before anything is learned."""
LITE_PATCHES = (7, 14)
"""Sides of patches that divide frames of 42 (section 4.2.5 has 28 too, in frames of 84)."""
ABLATION = "memoryless"


@cache
def game(name: str, *, life_loss: bool = True, side: int = 84, stack: int = 4) -> GymnasiumConfig:
    """Return a game by the thesis's rules, cached because creating its spec starts the game."""
    rules = AtariRules(side=side, stack=stack, life_loss=life_loss)
    return GymnasiumConfig(id=f"ALE/{name}-v5", options=rules.options)


def attention_agents(core: str = "transformer-xl", scale: Scale = "lite") -> ImpalaConfig:
    """Return the run of the agent with this core, in ``catch`` or in Pong; other cores replace that of ``adaptive``.

    Args:
        core: key of any core.
        scale: lite or paper.
    """
    require_scale(scale, "lite", "paper")
    world = LITE["catch"] if scale == "lite" else game("Pong")
    memory = lookup(CORES, core, "core")
    made = next((run for run in (make(world) for make in ATTENTION_AGENTS.values()) if type(run.core) is memory), None)
    if made is None:
        made = memoryless(world) if memory is MemorylessConfig else replace(adaptive(world), core=memory())
    return lite(with_norms(made), LITE_STEPS["catch"]) if scale == "lite" else long(made, MILLIONS["Pong"])


def memoryless(world: WorldConfig) -> ImpalaConfig:
    """Return the ablation of ``adaptive`` without its memory, which observes the image only."""
    base = adaptive(world)
    encoders = replace(base.agent.encoders, image_dim=WIDTH)
    body = replace(base.agent, encoders=encoders, previous_action="none", previous_reward=False)
    return replace(base, core=MemorylessConfig(dim=WIDTH, num_layers=1), agent=body)


def lite(config: ImpalaConfig, steps: int) -> ImpalaConfig:
    """Return the run of the same agent with settings for learning in minutes."""
    encoders = replace(config.agent.encoders, scale_images=True)
    return replace(
        config,
        agent=replace(config.agent, encoders=encoders, norm_values=True),
        optimizer=OptimizerConfig(
            algorithm="adam", learning_rate=2e-3, schedule="linear", warmup_steps=10, clip_norm=0.5
        ),
        loss=LossConfig(
            discount=0.95,
            reduction="mean",
            norm_advantages=True,
            reward_clip=1.0,
            vtrace=VTraceConfig(lambda_=0.95),
            reuse=ReuseConfig(passes=3, minibatches=4, reference="actor", kl_stop=0.03),
        ),
        evaluation=EvaluationConfig(episodes=64),
        batch_size=32,
        unroll=31,
        bfloat16=True,
        fit=replace(config.fit, steps=steps, evaluate_every=20, stop_score=0.95, processor_seconds=LITE_SECONDS),
    )


def with_norms(config: ImpalaConfig) -> ImpalaConfig:
    """Return the same run with the norms of the lite rows in our worlds."""
    encoders = config.agent.encoders
    kinds = tuple((part, NORMED_KINDS.get(kind, kind)) for part, kind in encoders.kinds)
    core = config.core
    if isinstance(core, SpatioTemporalAttentionConfig):
        core = replace(core, final_norm=True)  # or outputs and queries drive each other up
    return replace(config, core=core, agent=replace(config.agent, encoders=replace(encoders, kinds=kinds), norm=True))


def lite_pong(config: ImpalaConfig, steps: int) -> ImpalaConfig:
    """Return a run of Pong for two processor cores: :func:`lite` with settings for long games with rare points."""
    config = lite(config, steps)
    return replace(
        config,
        optimizer=replace(config.optimizer, learning_rate=5e-4),
        loss=replace(config.loss, discount=0.99),
        evaluation=EvaluationConfig(episodes=8),
        fit=replace(config.fit, evaluate_every=100, stop_score=18.0, processor_seconds=None),
    )


def long(config: ImpalaConfig, millions: float) -> ImpalaConfig:
    """Return the same run with the given millions of agent steps, on an accelerator where there is one."""
    steps = math.ceil(millions * 1e6 / (config.batch_size * config.unroll))
    return replace(config, device="auto", fit=replace(config.fit, steps=steps))


def _lite_rows() -> Iterator[Run]:
    for name, world in LITE.items():
        runs = {agent: attention_agent(agent, world) for agent in ATTENTION_AGENTS} | {ABLATION: memoryless(world)}
        for agent, config in runs.items():
            config = lite(with_norms(config), LITE_STEPS[name])
            yield _run(f"{agent}, {name}", config, "lite", _lite_test(world))
            if name in IMITATION:
                imitation = IMITATION[name]
                rate = CAREFUL.get((agent, name), imitation.learning_rate)
                imitated_run = with_teacher(config, replace(imitation, learning_rate=rate))
                yield _run(f"{agent}, {name}, imitated", imitated_run, "lite", _lite_test(world))
    world = LITE["catch"]
    divided = timesformer(world, "divided")
    patches = {f"timesformer-divided, patches of {side}": with_patches(divided, side) for side in LITE_PATCHES}
    for row, config in (_timesformers(divided) | patches).items():
        run = _run(f"{row}, catch", lite(with_norms(config), LITE_STEPS["catch"]), "lite", _lite_test(world))
        yield replace(run, seeds=1)
    pong = game("Pong", side=42, life_loss=False)
    for agent in ATTENTION_AGENTS:
        config = lite_pong(attention_agent(agent, pong), LITE_PONG_STEPS.get(agent, LITE_PONG_SHORT))
        yield replace(_run(f"{agent}, Pong", config, "lite", {"": Test(where=pong, samples=16)}), seeds=1)


def _lite_test(world: WorldConfig) -> dict[str, Test]:
    return {"": Test(where=world, samples=256)}


def _timesformers(divided: ImpalaConfig) -> dict[str, ImpalaConfig]:
    """Return the rows of sections 4.2.8 and 4.2.9; tokens of width 16 and one layer are the agent itself."""
    tokens = {f"timesformer-divided, tokens of {width}": with_tokens(divided, width) for width in (8, 32, 64)}
    return tokens | {f"timesformer-divided, {layers} layers": with_layers(divided, layers) for layers in (2, 3, 4)}


def _paper_rows() -> Iterator[Run]:
    for name, millions in MILLIONS.items():
        for agent in ATTENTION_AGENTS:
            side = 42 if (agent, name) in SMALL else 84
            config = long(attention_agent(agent, game(name, side=side)), millions)
            tests = _tests(name, RETURNS.get(agent, {}).get(name, "-"), side=side)
            yield _run(f"{agent}, {name}", config, "paper", tests)
    for row, (name, config) in _changes().items():
        yield _run(row, config, "paper", _tests(name, side=_side(config), stack=_stack(config)))


def _changes() -> dict[str, tuple[str, ImpalaConfig]]:
    """Return the studies of section 4.2: row, game and run."""
    pong, enduro = game("Pong"), game("Enduro")
    base = adaptive(pong)
    raw = base.agent.encoders
    return {
        # 4.2.1; the thesis does not describe its small network, whose parameters say 16 channels.
        "mott, small network, Enduro": ("Enduro", long(_with_channels(mott(enduro, "nature-cnn")), 40)),
        "mott, one frame, Enduro": ("Enduro", long(mott(game("Enduro", stack=1)), 40)),  # 4.2.2
        # Ours: the agents themselves with as many steps as their changes, which the thesis compares with fewer.
        "mott, 40 million steps, Enduro": ("Enduro", long(mott(enduro), 40)),
        **{
            f"timesformer-divided, {millions} million steps, Pong": (
                "Pong",
                long(timesformer(pong, "divided"), millions),
            )
            for millions in (20, 40, 60)
        },
        **{
            f"adaptive, {layers} layers, Pong": (  # 4.2.3
                "Pong",
                long(with_layers(base, layers), 10),
            )
            for layers in (2, 3)
        },
        "adaptive, pixels 0..1, Pong": (  # 4.2.4
            "Pong",
            long(replace(base, agent=replace(base.agent, encoders=replace(raw, scale_images=True))), 10),
        ),
        **{
            f"timesformer-divided, frames of {side}, Pong": (  # 4.2.6
                "Pong",
                long(timesformer(game("Pong", side=side), "divided"), 40),
            )
            for side in (42, 21)
        },
        **{
            f"{row}, Pong": ("Pong", long(config, 40))
            for row, config in _timesformers(timesformer(pong, "divided")).items()
        },
        **{
            # 4.2.5; patches of 7 are also the plain form of 4.2.7, whose hybrid form is the agent itself.
            f"timesformer-divided, patches of {side}, Pong": (
                "Pong",
                long(with_patches(timesformer(pong, "divided"), side), 60),
            )
            for side in (7, 14, 28)
        },
        "timesformer-joint, frames of 42, Pong": (  # 4.2.10
            "Pong",
            long(timesformer(game("Pong", side=42), "joint"), 20),
        ),
        f"{ABLATION}, Pong": ("Pong", long(memoryless(pong), 10)),  # ours
    }


def _with_channels(config: ImpalaConfig, channels: tuple[int, int, int] = (16, 16, 16)) -> ImpalaConfig:
    core: Any = replace(config.core, **{"channels": channels[-1]})
    encoders = replace(config.agent.encoders, channels=channels)
    return replace(config, core=core, agent=replace(config.agent, encoders=encoders))


def _tests(name: str, paper: str = "-", *, side: int = 84, stack: int = 4) -> dict[str, Test]:
    return {
        "game": Test(where=game(name, life_loss=False, side=side, stack=stack), samples=32, paper=paper),
        "life": Test(where=game(name, side=side, stack=stack), samples=32),
    }


def _side(config: ImpalaConfig) -> int:
    return _options(config)["img_height"]


def _stack(config: ImpalaConfig) -> int:
    return _options(config)["stack_num"]


def _options(config: ImpalaConfig) -> Mapping[str, Any]:
    assert isinstance(config.world, GymnasiumConfig)
    return config.world.options


def _run(row: str, config: ImpalaConfig, scale: Scale, tests: Mapping[str, Test]) -> Run:
    core = next(key for key, kind in CORES.items() if kind is type(config.core))
    label = file_name(row.lower().replace("..", "-"))
    return Run(label=f"{label}-{scale}", row=row, core=core, config=config, tests=tests)


STUDY = Recipe(
    name="attention-agents",
    title="Agents with attention",
    source="George 2021, sections 4.1 and 4.2",
    about=(
        "Paper: Atari, returns of whole games (game) and of lives (life). Lite: our worlds in frames of 42 x 42, "
        "share of balls that are caught, in light and after 9 dark steps, of episodes in which the right ball is "
        "picked, and of steps to the rewarded one of MDP Playground's polygons; the agents of the thesis with more "
        "norms (of the residual network's map, frame by frame, of what the heads read, and of outputs that become "
        "queries), and another way to learn (Adam, short rollouts in three passes, scaled pixels, bfloat16), for at "
        "most 20 minutes of two cores. *Imitated* rows learn from the world's oracle, mott in track with half the "
        "learning rate of the others. Pong: returns of whole games, without these norms and without that limit, after "
        "2.6 million steps of adaptive, and of the others after 0.3 million, the beginning of a curve."
    ),
    config=attention_agents,
    runs={"lite": lambda: list(_lite_rows()), "paper": lambda: list(_paper_rows())},
    seeds={"lite": 3, "paper": 1},
)
