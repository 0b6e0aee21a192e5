"""Object permanence (section 3.2, figure 4)."""

from dataclasses import replace

from recollect.recipes.agent_sizes import lite_core, lite_spoken, paper, paper_core
from recollect.recipes.base import Run, Scale, Test, require_scale
from recollect.recipes.hierarchical_transformer_memory.rows import longest_episode, read_all_chunks, row, study
from recollect.recipes.imitation_recipe import ImitationRecipe
from recollect.tasks.worlds.object_permanence import LEVELS, ObjectPermanenceConfig
from recollect.training import ImpalaConfig

LITE = ObjectPermanenceConfig(
    num_boxes=2, num_shapes=2, jumps=1, delays=(32,), free_steps=28, side=7, random_places=False
)
IMITATION = ImitationRecipe(steps=100, attention_cost=1.0, decision_cost=1.0, gradients=True)
PAPER = replace(LEVELS["varying"], observation="pixels")
DELAY_LEVELS = {  # table 3, figures 4b and 4c: trained on varying delays, tested with none and with the longest
    "no delay": {"hcam": "0.967", "transformer-xl": "0.822", "lstm": "0.332"},
    "longest delay": {"hcam": "0.917", "transformer-xl": "0.461", "lstm": "0.348"},
}
LONGEST_ALONE = {"hcam": "0.829", "transformer-xl": "0.311"}


def permanence(core: str = "hcam", scale: Scale = "lite") -> ImpalaConfig:
    """Return the run of a core: remember the content of closed boxes; a 2-D analogue.

    Args:
        core: key of any core.
        scale: ``lite`` (``long`` is the same, for longer) or ``paper``.
    """
    require_scale(scale, "lite", "long", "paper")
    longest = longest_episode(permanence_tests(core, scale))
    if scale == "paper":
        memory = paper_core(core, chunk=16, top_k=8, steps=longest, unroll=128, extra=512)
        return paper(PAPER, memory, unroll=128, entropy=1e-4, steps=100_000)
    memory = read_all_chunks(lite_core(core, steps=longest, window=7, chunk=8, layers=1))
    return lite_spoken(LITE, memory, steps=200, unroll=LITE.spec.max_steps + 1, discount=0.97)


def permanence_tests(core: str, scale: Scale) -> dict[str, Test]:
    """Return the levels of figure 4; at the scale lite the delay of training and twice that."""
    if scale != "paper":
        return {f"delay {d}": Test(where=replace(LITE, delays=(d,)), beyond_window=True) for d in (32, 64)}
    return {
        name: Test(where=replace(PAPER, delays=(delay,)), paper=DELAY_LEVELS[name].get(core, "-"))
        for name, delay in (("no delay", min(PAPER.delays)), ("longest delay", max(PAPER.delays)))
    }


def _longest_alone() -> list[Run]:
    """Return the run of figure 4d, trained on the longest delay alone."""
    world = replace(PAPER, delays=(max(PAPER.delays),))
    runs = []
    for core, published in LONGEST_ALONE.items():
        name = f"{core}, trained on the longest delay alone"
        config = replace(permanence(core, "paper"), world=world)
        runs.append(row(name, core, config, "paper", {"": Test(where=world, paper=published)}))
        runs[-1] = replace(runs[-1], label=f"{core}-longest-alone-paper", paper=published)
    return runs


_STUDY = study(
    "htm-permanence",
    "Object permanence",
    "section 3.2, figure 4; a 2-D analogue",
    "Share of episodes in which the right box is chosen. Ten steps stand for a second of delay. Lite: two boxes at "
    "fixed places, two shapes of any colour, one jump each; trained with a delay of 32 steps; windows of 7 steps.",
    permanence,
    {"lite": 4, "paper": 4},
    permanence_tests,
    IMITATION,
)
PERMANENCE = replace(_STUDY, runs={**_STUDY.runs, "paper": lambda: [*_STUDY.runs["paper"](), *_longest_alone()]})
