"""Rapid word learning (section 3.3, figure 5)."""

from dataclasses import replace

from recollect.recipes.agent_sizes import lite_core, lite_spoken, paper, paper_core
from recollect.recipes.base import Scale, Test, require_scale
from recollect.recipes.hierarchical_transformer_memory.rows import longest_episode, read_all_chunks, study
from recollect.recipes.imitation_recipe import ImitationRecipe
from recollect.tasks.worlds.word_learning import WordLearningConfig
from recollect.training import ImpalaConfig, ReuseConfig

LITE = WordLearningConfig(
    num_objects=2,
    num_words=4,
    same_room=True,
    distractor_phases=(0, 1),
    side=5,
    view=7,
    discovery_steps=10,
    distractor_steps=6,
    test_steps=8,
    pause_steps=32,
)
PAPER = WordLearningConfig(distractor_phases=(0, 1, 2), observation="pixels", pause_steps=80)
"""With pauses of 80 steps all test levels of the paper exceed its windows of 4 x 128 steps."""
IMITATION = ImitationRecipe(
    steps=250,
    batch_size=32,
    unroll=180,  # names from the first phase are needed 50 to 90 steps later
    reuse=ReuseConfig(minibatches=2),
    attention_cost=1.0,
    decision_cost=1.0,
    gradients=True,
)
LITE_LEVELS = {"0 distractors": (0, 1), "1 distractor": (1, 1), "4 distractors": (4, 1), "2 episodes": (0, 2)}
"""Distractor phases and episodes."""
PAPER_LEVELS = {
    "20 distractors": (20, 1, {"hcam": "0.955", "transformer-xl": "0.321", "lstm": "0.190"}),
    "4 episodes, 1 distractor each": (1, 4, {"hcam": "0.960", "transformer-xl": "0.344", "lstm": "0.061"}),
    "3 episodes, 5 distractors each": (5, 3, {"hcam": "0.917", "transformer-xl": "0.341", "lstm": "0.179"}),
}


def words(core: str = "hcam", scale: Scale = "lite") -> ImpalaConfig:
    """Return the run of a core: names of new objects, distractor phases, a question; a grid analogue.

    Args:
        core: key of any core.
        scale: ``lite`` (``long`` is the same, for longer) or ``paper``.
    """
    require_scale(scale, "lite", "long", "paper")
    longest = longest_episode(word_tests(core, scale))
    if scale == "paper":
        memory = paper_core(core, chunk=16, top_k=16, steps=longest, unroll=128, extra=512)
        return paper(PAPER, memory, unroll=128, entropy=1e-4, steps=100_000)
    memory = read_all_chunks(lite_core(core, steps=longest, window=7, chunk=8, layers=1))
    return lite_spoken(LITE, memory, steps=500, unroll=LITE.spec.max_steps + 1, discount=0.97)


def word_tests(core: str, scale: Scale) -> dict[str, Test]:
    """Return the tests of word learning by name: the levels of figure 5 of the paper."""
    if scale == "paper":
        return {
            name: Test(where=replace(PAPER, distractor_phases=(phases,), lessons=lessons), paper=paper.get(core, "-"))
            for name, (phases, lessons, paper) in PAPER_LEVELS.items()
        }
    return {
        name: Test(where=replace(LITE, distractor_phases=(phases,), lessons=lessons), beyond_window=True)
        for name, (phases, lessons) in LITE_LEVELS.items()
    }


WORDS = study(
    "htm-words",
    "Rapid word learning",
    "section 3.3, table 3 and figure 5; a grid analogue",
    "Share of episodes in which the object that was named is lifted. Lite: two objects, four words, a test in the "
    "room where the names were heard, pauses of 32 steps between phases; trained with no or one distractor; windows "
    "of 7 steps.",
    words,
    {"lite": 2, "paper": 4},
    word_tests,
    IMITATION,
)
