"""Robot policies by behavioural cloning (Ryoo et al. 2023, section 3.3), in three worlds of a table seen from above.

Image and sentence go through convolutions with FiLM; the positions of the map are the tokens of the memory, and the
action is a vector. The oracle labels the learner's own states as well as its demonstrations (training/imitation).

``lite`` has a small network and pictures of 32 x 32 pixels, and takes one to eight minutes of one processor core a
run. ``paper`` has the sizes of section 3.3.2: EfficientNet, m = 96, r = 16, n = 27, eight layers; its robot and its
89 000 demonstrations are not public, so the worlds are the same at that scale. Width, heads, optimiser and batch, which
it does not state, are ours.

A few steps decide an episode: the lite rows of all cores weigh these more, and train a linear head on the memory to
predict the hidden variable (training/impala/supervision.py); tables name both.

In the lite rows agents see picture and words alone. With their previous action as an input (as in the paper, and at
that scale here) a policy without memory could pass on the hidden variable from step to step, and its ceiling would not
be exact.
"""

from dataclasses import replace
from typing import Any

from recollect.agents.config import ActorCriticConfig
from recollect.agents.encoder_config import EncoderConfig
from recollect.cores.find import sized_core
from recollect.cores.ttm import TokenTuringMachineConfig
from recollect.recipes.agent_sizes import lite_core
from recollect.recipes.base import Recipe, Run, Scale, file_name, require_scale
from recollect.tasks.worlds.contract import WorldConfig
from recollect.tasks.worlds.tabletop.covered import CoveredObjectsConfig
from recollect.tasks.worlds.tabletop.goal import GoalShownOnceConfig
from recollect.tasks.worlds.tabletop.order import OrderShownOnceConfig
from recollect.training import (
    CloningConfig,
    CloningLossConfig,
    FitConfig,
    OptimizerConfig,
    SupervisionConfig,
    TeacherConfig,
)

WORLDS: dict[str, WorldConfig] = {
    "goal shown once": GoalShownOnceConfig(delay=4, num_blocks=1),
    "order shown once": OrderShownOnceConfig(delay=4),
    "covered objects, 2 cups": CoveredObjectsConfig(delay=4, num_cups=2),
    "covered objects, 3 cups": CoveredObjectsConfig(delay=4),
}
"""Delay at the scale lite: half of a demonstration is waiting."""
ROLLOUTS: dict[type[WorldConfig], int] = {OrderShownOnceConfig: 160}
"""Rollouts of a lite row, where not 80: three movements across the table instead of one or two."""
LITE_TOKENS = 5
"""Four of the map of 4 x 4 places, and one of the sentence and the points."""
SIZES: dict[str, dict[str, Any]] = {
    "ttm": {"num_tokens": LITE_TOKENS, "num_slots": 8, "num_reads": 4, "learned_initial_state": True},
    "recurrent-transformer": {
        "num_tokens": LITE_TOKENS,
        "num_slots": 8,
        "num_reads": 4,
        "learned_initial_state": True,
    },
    "tlb": {"num_layers": 1, "self_per_cross": 1, "chunk_len": 8, "num_slots": 8},
}
"""Settings of each core besides width 64 and the sizes of ``lite_core``."""
PUBLISHED = {"ttm": "0.893", "ttm, no memory": "0.793", "BC EfficientNet": "0.801", "BC ResNet": "0.798"}
"""Table 6: success of a real robot on other tasks; only the order can be compared."""


def robots(core: str = "ttm", scale: Scale = "lite", world: WorldConfig | None = None) -> CloningConfig:
    """Return the run of a policy around one core.

    Args:
        core: key of any core.
        scale: ``lite`` or ``paper``.
        world: in which it acts; the goal is shown once when None.
    """
    require_scale(scale, "lite", "paper")
    return _paper(core, world) if scale == "paper" else _lite(core, world)


def goal_shown_once(core: str = "ttm", scale: Scale = "lite") -> CloningConfig:
    """Return the run: put a block where a light was at the start."""
    return robots(core, scale, WORLDS["goal shown once"])


def order_shown_once(core: str = "ttm", scale: Scale = "lite") -> CloningConfig:
    """Return the run: press buttons in the order in which they were lit at the start."""
    return robots(core, scale, WORLDS["order shown once"])


def covered_objects(core: str = "ttm", scale: Scale = "lite") -> CloningConfig:
    """Return the run: lift the cup that covers a ball of the named colour."""
    return robots(core, scale, WORLDS["covered objects, 3 cups"])


def _lite(core: str, world: WorldConfig | None) -> CloningConfig:
    world = world or WORLDS["goal shown once"]
    longest = world.spec.max_steps
    return CloningConfig(
        world=world,
        core=replace(lite_core(core, steps=longest, window=longest, chunk=8, layers=1), **SIZES.get(core, {})),
        agent=ActorCriticConfig(
            encoders=EncoderConfig(kinds=(("image", "film-cnn"),), hidden=(), sentence_dim=32, word_dim=16),
            width=64,
            skip=True,
            head_dim=64,
            previous_action="none",
            previous_reward=False,
        ),
        teacher=TeacherConfig(acts=10, keeps=0.75),
        optimizer=OptimizerConfig(
            algorithm="adam", learning_rate=3e-3, schedule="cosine", warmup_steps=5, clip_norm=1.0
        ),
        loss=CloningLossConfig(
            baseline_cost=0.0,
            passes=3,
            minibatches=2,
            supervision=SupervisionConfig(label_cost=1.0, decision_cost=1.0, until=1.0),
        ),
        batch_size=64,
        unroll=32,
        fit=FitConfig(steps=ROLLOUTS.get(type(world), 80), report_every=10, evaluate_every=20, checkpoint_every=40),
    )


def _paper(core: str, world: WorldConfig | None) -> CloningConfig:
    sizes: dict[str, Any] = {"dim": 512, "num_layers": 8, "num_heads": 8, "hidden_dim": 512}
    if core == "ttm":
        sizes |= {"num_tokens": 27, "num_slots": 96, "num_reads": 16}
    world = world or GoalShownOnceConfig(side=192, speed=0.1, slack=80, delay=30)
    return CloningConfig(
        world=world,
        core=sized_core(core, **sizes),
        agent=ActorCriticConfig(
            encoders=EncoderConfig(kinds=(("image", "film-efficientnet-b0"),), sentence_dim=512, word_dim=64),
            width=512,
            previous_reward=False,
        ),
        teacher=TeacherConfig(acts=1000, keeps=0.5),
        optimizer=OptimizerConfig(algorithm="adam", learning_rate=1e-4, schedule="cosine", clip_norm=1.0),
        loss=CloningLossConfig(baseline_cost=0.0),
        batch_size=32,
        unroll=64,
        bfloat16=True,
        device="auto",
        fit=FitConfig(steps=50_000, report_every=100, evaluate_every=2000, checkpoint_every=2000),
    )


def _without_memory(config: CloningConfig) -> CloningConfig:
    """Return the same TTM with its memory zeroed after every step: the paper's "no memory"."""
    core = config.core
    assert isinstance(core, TokenTuringMachineConfig)
    return replace(config, core=replace(core, memory="none"))


def _with_eyes(config: CloningConfig, kind: str) -> CloningConfig:
    encoders = replace(config.agent.encoders, kinds=(("image", kind),))
    return replace(config, agent=replace(config.agent, encoders=encoders))


def _lite_rows() -> list[Run]:
    rows = []
    for place, world in WORLDS.items():
        cores = ["ttm", "lstm", "memoryless"]
        if place == "goal shown once":
            cores[2:2] = ["gru", "transformer-xl", "hcam", "tlb", "recurrent-transformer"]
        for core in cores:
            rows.append(_row(core, core, robots(core, world=world), place))
        ttm = robots("ttm", world=world)
        rows.append(_row("ttm, no memory", "ttm", _without_memory(ttm), place))
    resnet = _with_eyes(robots("memoryless"), "film-resnet")
    return [*rows, _row("memoryless, film-resnet", "memoryless", resnet, "goal shown once")]


def _row(name: str, core: str, config: CloningConfig, place: str) -> Run:
    return Run(label=f"{file_name(f'{name}-{place}')}-lite", row=f"{name}: {place}", core=core, config=config)


def _paper_rows() -> list[Run]:
    ttm, alone = robots("ttm", "paper"), robots("memoryless", "paper")
    rows = {
        "ttm": ("ttm", ttm),
        "ttm, no memory": ("ttm", _without_memory(ttm)),
        "BC EfficientNet": ("memoryless", alone),
        "BC ResNet": ("memoryless", _with_eyes(alone, "film-resnet")),
    }
    return [
        Run(
            label=f"{file_name(name)}-paper".lower(),
            row=name,
            core=core,
            config=config,
            paper=PUBLISHED[name],
        )
        for name, (core, config) in rows.items()
    ]


ROBOTS = Recipe(
    name="ttm-robots",
    title="Robot policies: what was shown and is not to be seen any more",
    source="Token Turing Machines (Ryoo et al. 2023), section 3.3; worlds of our own",
    about="Share of episodes that succeed. Goal shown once: put the named block on the pad that was lit at the start "
    "(without memory at best 0.25). Order shown once: press three buttons as they were lit (at best 0.167). Covered "
    "objects: lift the cup over the named ball (at best 0.5 and 0.333). Cloned from the oracles, from pictures of "
    "32 x 32 pixels and a sentence. The paper's numbers are of a real robot on other tasks.",
    config=robots,
    runs={"lite": _lite_rows, "paper": _paper_rows},
    seeds={"lite": 3, "paper": 3},
)
