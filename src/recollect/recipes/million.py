"""A million steps: agents trained in corridors of 20 steps are tested in corridors of up to 10^6 steps.

The agent learns the T-maze with a corridor of 20 steps by reinforcement and then acts, step by step, in longer and
longer corridors. Only its memory can carry the cue:

- its only input is the observation (``previous_action`` and ``previous_reward`` are off, and there is no clock), so it
  cannot pass on the cue in its actions or rewards;
- all cells of the corridor after the start look the same for both cues, so that equal actions lead to equal
  observations up to the junction (a test checks it step by step);
- the cue is visible in the first cell only, and 60 spare actions are too few to go back.

``memoryless`` is the control: a score above 1/2 would be a leak.

A GRU's update gate is a sigmoid and never closes completely: the cue is lost after 2 000 steps, or after a million
where noise in training has made it robust. With ``gate_stretch`` a gate can be exactly 1, and the state then keeps the
same bits for ever.

Source: ours, on the T-maze of Ni et al. (2023).
"""

from dataclasses import replace

from recollect.cores import GENERAL_CORES
from recollect.cores.recurrent import GRUConfig
from recollect.recipes.base import Recipe, Run, Scale, Test, require_scale
from recollect.recipes.hierarchical_transformer_memory import short_t_maze
from recollect.tasks.worlds.t_maze import TMazeConfig
from recollect.training import ImpalaConfig

LAGS = (20, 200, 2_000, 20_000)
"""Steps between the cue and the turn, for every core."""
MILLION_STEPS = 1_000_000
ASKED_AT_A_MILLION = ("gru", "memoryless")
"""Cores that are tested at the longest lags: the one that does not fail at shorter ones, and the control."""
EPISODES = 64
"""Episodes of the two longest corridors, one per row; of the others 256."""
STEPS = {"lstm": 2000, "gru": 1000, "memoryless": 300, "hcam": 250, "ttm": 150, "recurrent-transformer": 250}
"""Rollouts; at most about three minutes on one processor core."""
DEFAULT_STEPS = 1000
STRETCH = 0.1
"""How far the GRU's update gate reaches beyond 0 and 1 before it is clipped."""
NOISE, NOISE_STEPS = 0.5, 2000
"""Row with plain gates: standard deviation of the noise on the GRU's state in training, and rollouts. Without noise or
stretched gates a GRU keeps the cue for 200 steps and not for 2 000 (docs/log.md)."""


def million(core: str = "gru", scale: Scale = "lite") -> ImpalaConfig:
    """Return the run in a corridor of 20 steps for an agent whose only input is the observation, at the scale lite."""
    require_scale(scale, "lite")
    config = short_t_maze(core)
    if isinstance(config.core, GRUConfig):
        config = replace(config, core=replace(config.core, gate_stretch=STRETCH))
    agent = replace(config.agent, previous_action="none", previous_reward=False)
    fit = replace(config.fit, steps=STEPS.get(core, DEFAULT_STEPS), evaluate_every=100, checkpoint_every=500)
    evaluation = replace(config.evaluation, time_limit=6 * 3600.0)  # a million steps, one by one
    return replace(config, agent=agent, fit=fit, evaluation=evaluation)


def _tests(core: str) -> dict[str, Test]:
    tests = {
        f"lag {lag:,}".replace(",", " "): Test(
            where=TMazeConfig(length=lag),
            samples=EPISODES if lag == LAGS[-1] else 256,
            beyond_window=lag > LAGS[0],
        )
        for lag in LAGS
    }
    if core in ASKED_AT_A_MILLION:
        tests["lag 1 000 000"] = Test(where=TMazeConfig(length=MILLION_STEPS), samples=EPISODES)
    return tests


def _noisy() -> ImpalaConfig:
    """Return the run with plain gates and noise on the state."""
    config = million("gru")
    core = replace(config.core, gate_stretch=0.0, state_noise=NOISE)  # type: ignore[call-arg]
    return replace(config, core=core, fit=replace(config.fit, steps=NOISE_STEPS))


def _rows() -> list[Run]:
    def run(label: str, row: str, core: str, config: ImpalaConfig) -> Run:
        return Run(label=label, row=row, core=core, config=config, tests=_tests(core))

    return [
        run("gru-gates", "gru, gates that can shut", "gru", million("gru")),
        run("memoryless", "memoryless", "memoryless", million("memoryless")),
        run("gru", "gru, noise on its memory in training", "gru", _noisy()),
        *(run(core, core, core, million(core)) for core in GENERAL_CORES if core not in ASKED_AT_A_MILLION),
    ]


MILLION = Recipe(
    name="million",
    title="A million steps",
    source="ours (recipes/million.py), after Ni et al. (2023)",
    about=(
        "Trained by reinforcement in corridors of 20 steps, played in longer ones: share of episodes with the right "
        "turn. The agent sees the observation alone: no previous action, no reward, no clock. Windows of 8 steps in "
        "two layers, chunks for 264 steps. Cores that fall before are not played for a million."
    ),
    config=million,
    runs={"lite": _rows},
    seeds={"lite": 3},
)
