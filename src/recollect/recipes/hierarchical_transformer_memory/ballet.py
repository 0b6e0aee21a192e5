"""The ballet (section 3.1, table 3, appendix D.1)."""

from dataclasses import replace

from recollect.recipes.agent_sizes import lite_core, lite_spoken, paper, paper_core
from recollect.recipes.base import Scale, Test, require_scale
from recollect.recipes.hierarchical_transformer_memory.rows import read_all_chunks, study
from recollect.recipes.imitation_recipe import ImitationRecipe
from recollect.tasks.worlds.ballet.dances import ALIKE
from recollect.tasks.worlds.ballet.world import BalletConfig
from recollect.training import CurriculumConfig, ImpalaConfig, ReuseConfig

WINDOW, CHUNK = 7, 8
"""Steps of a chunk: less than half a dance; periods of 31 or 63 steps are no multiples of it."""
WALK = 8
"""Steps after the instruction; three lead to a dancer."""
IMITATION = ImitationRecipe(
    steps=500,
    batch_size=32,
    unroll=135,  # two episodes of two dancers; those of eight are longer, but come later in the curriculum
    reuse=ReuseConfig(minibatches=2),
    attention_cost=1.0,
    decision_cost=1.0,
    gradients=True,
    curriculum=CurriculumConfig(field="dancers", values=(2,), success=0.8, episodes=60),
)
PAPER = {  # dancers, delay: what the paper reports for each core (table 3)
    (2, 16): {"hcam": "0.998", "transformer-xl": "0.969", "lstm": "0.974"},
    (8, 16): {"hcam": "0.981", "transformer-xl": "0.657", "lstm": "0.252"},
    (8, 48): {"hcam": "0.972", "transformer-xl": "0.492", "lstm": "0.297"},
}


def lite_level(*dancers: int, delay: int = 16) -> BalletConfig:
    """Return a ballet in tiles: eight dances that no single step distinguishes, the paper's delay, eight steps to
    walk.
    """
    return BalletConfig(
        dancers=dancers,
        delays=(delay,),
        dances=ALIKE,
        observation="tiles",
        max_steps=8 * 63 + WALK,
        walk_steps=WALK,
        approach_reward=0.2,
    )


def ballet(core: str = "hcam", scale: Scale = "lite") -> ImpalaConfig:
    """Return the run of a core: watch dances, then go to the dancer of the named one.

    Args:
        core: key of any core.
        scale: ``lite`` and ``long`` (:func:`lite_level` with 2, 4 or 8 dancers) or ``paper`` (pixels, all six levels).
    """
    require_scale(scale, "lite", "long", "paper")
    if scale == "paper":
        world = BalletConfig(dancers=(2, 4, 8), delays=(16, 48))
        memory = paper_core(core, chunk=32, top_k=8, steps=1024, unroll=64, extra=256)
        return paper(world, memory, unroll=64, entropy=1e-3, steps=100_000)
    return _lite(lite_level(2, 4, 8), core)


def generalisation(core: str = "hcam", scale: Scale = "lite") -> ImpalaConfig:
    """Return the run that trains on 2, 4 and 6 dances and is tested with 8."""
    require_scale(scale, "lite", "long", "paper")
    if scale == "paper":
        return replace(ballet(core, scale), world=BalletConfig(dancers=(2, 4, 6), delays=(16, 48)))
    return _lite(lite_level(2, 4, 6), core)


def _lite(world: BalletConfig, core: str) -> ImpalaConfig:
    longest = lite_level(8, delay=48).spec.max_steps
    memory = read_all_chunks(lite_core(core, steps=longest, window=WINDOW, chunk=CHUNK, layers=1))
    return lite_spoken(world, memory, steps=100, unroll=world.spec.max_steps + 1, discount=0.97)


def _test(core: str, scale: Scale, dancers: int, delay: int) -> Test:
    if scale == "paper":
        reported = PAPER.get((dancers, delay), {}).get(core, "-")
        return Test(where=BalletConfig(dancers=(dancers,), delays=(delay,)), paper=reported)
    # With two dances and a delay of 16 the second one ended 16 steps ago: out of the window, not by a factor of four.
    return Test(where=lite_level(dancers, delay=delay), beyond_window=(dancers, delay) != (2, 16))


def ballet_tests(core: str, scale: Scale) -> dict[str, Test]:
    """Return the levels of figure 3 and those between them."""
    levels = [(n, delay) for n in (2, 4, 8) for delay in (16, 48)]
    return {f"{n} dances, delay {delay}": _test(core, scale, n, delay) for n, delay in levels}


def _generalisation_tests(core: str, scale: Scale) -> dict[str, Test]:
    return {f"8 dances, delay {delay}": _test(core, scale, 8, delay) for delay in (16, 48)}


BALLET = study(
    "htm-ballet",
    "Ballet",
    "section 3.1, table 3",
    "Share of episodes in which the agent goes to the right dancer. Lite: symbols instead of pixels, eight of the "
    "thirteen dances, trained with a delay of 16 alone, a reward for coming nearer to any dancer; windows of 7 steps.",
    ballet,
    {"lite": 4, "paper": 4},
    ballet_tests,
    IMITATION,
)
GENERALISATION = study(
    "htm-generalisation",
    "Ballet with more dances than in training",
    "appendix D.1",
    "Trained on 2, 4 and 6 dances, played with 8. Lite: as in htm-ballet.",
    generalisation,
    {"lite": 4, "paper": 4},
    _generalisation_tests,
    IMITATION,
)
