"""Passive visual match (section 3.4, figure 6a)."""

from dataclasses import replace

from recollect.recipes.agent_sizes import lite_core, lite_symbols, paper, paper_core
from recollect.recipes.base import Scale, Test, require_scale
from recollect.recipes.hierarchical_transformer_memory.rows import read_all_chunks, study
from recollect.recipes.imitation_recipe import ImitationRecipe
from recollect.tasks.worlds.visual_match import VisualMatchConfig
from recollect.training import ImpalaConfig

LITE = VisualMatchConfig(
    cue_steps=8,
    distractor_steps=28,
    choice_steps=16,
    apple_rewards=(0.0, 0.0),
    target_reward=1.0,
    shuffle_doors=False,
)
IMITATION = ImitationRecipe(steps=100, attention_cost=1.0, decision_cost=1.0, gradients=True)


def visual_match(core: str = "hcam", scale: Scale = "lite") -> ImpalaConfig:
    """Return the run of a core in visual match, the published grid form of the DMLab level.

    Args:
        core: key of any core.
        scale: ``lite`` (``long`` is the same, for longer) or ``paper``.
    """
    require_scale(scale, "lite", "long", "paper")
    if scale == "paper":
        memory = paper_core(core, chunk=16, top_k=16, steps=128, unroll=128, extra=256)
        config = paper(VisualMatchConfig(), memory, unroll=128, entropy=1e-4, steps=50_000)
        # A view of 5 x 5 pixels can be encoded as a grid of symbols.
        encoders = replace(config.agent.encoders, kinds=(("observation", "impala-resnet"),))
        return replace(config, agent=replace(config.agent, encoders=encoders))
    # One layer with a window of 7: the cue has left it long before the doors appear.
    memory = read_all_chunks(lite_core(core, steps=LITE.spec.max_steps, window=7, chunk=8, layers=1))
    # A rollout is an episode and its last observation, so that rows are at different steps of their episodes.
    return lite_symbols(LITE, memory, steps=400, unroll=LITE.spec.max_steps + 1, discount=0.97)


def _tests(core: str, scale: Scale) -> dict[str, Test]:
    reported = {"hcam": "0.970"}.get(core, "-") if scale == "paper" else "-"  # figure 6a
    return {"": Test(where=visual_match(core, scale).world, paper=reported, beyond_window=scale != "paper")}


VISUAL_MATCH = study(
    "htm-visual-match",
    "Visual match",
    "section 3.4 and figure 6a",
    "Share of episodes with the right door; the published grid form. Lite: phases of 8, 28 and 16 steps, apples "
    "without reward, doors that keep their places; windows of 7 steps, which are enough for an agent that keeps the "
    "colour by where it stands, or by its previous action.",
    visual_match,
    {"lite": 2, "paper": 4},
    _tests,
    IMITATION,
)
