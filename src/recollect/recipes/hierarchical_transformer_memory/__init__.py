"""Hierarchical Transformer Memory (Lampinen et al. 2021): its study of memory for agents, as configs.

    htm-ballet            table 3: watch dances, then go to the dancer of the one that is named
    htm-generalisation    appendix D.1: train on 2, 4 and 6 dances, play 8
    htm-visual-match      section 3.4: a colour, apples, the door of that colour
    htm-words             section 3.3: names of new objects, distractions, a question
    htm-permanence        section 3.2: what is in which closed box (a 2-D analogue)
    htm-streets           section 3.4: one-shot navigation in a new neighbourhood (made-up cities)
    htm-t-maze            ours: the simplest memory task, for each core alone

``paper`` has table 1 of the paper (and our choice where it leaves one open): 4 layers, width 512, 8 heads, unroll
64 or 128, batch 32, Adam 2e-4 (streets 4e-4, inference 1e-4), costs 0.1 policy (streets 1), 1 baseline, 1e-3 or
1e-4 entropy, 1 reconstruction, discount 0.99. ``lite`` is small enough for two processor cores and ten minutes:
symbols instead of pixels, small networks, larger learning rates, easier levels. Unreleased worlds are replaced by
analogues, and named so. ``htm_inference.py`` and ``htm_ablations.py`` have the rest of the study.
"""

from recollect.recipes.hierarchical_transformer_memory.ballet import (
    BALLET,
    GENERALISATION,
    ballet,
    ballet_tests,
    generalisation,
    lite_level,
)
from recollect.recipes.hierarchical_transformer_memory.ballet import IMITATION as BALLET_IMITATION
from recollect.recipes.hierarchical_transformer_memory.permanence import IMITATION as PERMANENCE_IMITATION
from recollect.recipes.hierarchical_transformer_memory.permanence import PERMANENCE, permanence, permanence_tests
from recollect.recipes.hierarchical_transformer_memory.rows import CORE_ROWS, FULL_WINDOW, longest_episode
from recollect.recipes.hierarchical_transformer_memory.streets import IMITATION as STREETS_IMITATION
from recollect.recipes.hierarchical_transformer_memory.streets import STREETS, streets
from recollect.recipes.hierarchical_transformer_memory.t_maze import T_MAZE, short_t_maze, t_maze
from recollect.recipes.hierarchical_transformer_memory.visual_match import IMITATION as VISUAL_MATCH_IMITATION
from recollect.recipes.hierarchical_transformer_memory.visual_match import VISUAL_MATCH, visual_match
from recollect.recipes.hierarchical_transformer_memory.words import IMITATION as WORDS_IMITATION
from recollect.recipes.hierarchical_transformer_memory.words import WORDS, word_tests, words
from recollect.recipes.imitation_recipe import ImitationRecipe

HTM_RECIPES = [
    T_MAZE,
    BALLET,
    GENERALISATION,
    VISUAL_MATCH,
    WORDS,
    PERMANENCE,
    STREETS,
]

IMITATION: dict[str, ImitationRecipe] = {
    "ballet": BALLET_IMITATION,
    "visual-match": VISUAL_MATCH_IMITATION,
    "words": WORDS_IMITATION,
    "permanence": PERMANENCE_IMITATION,
    "streets": STREETS_IMITATION,
}
"""Imitation of the imitated rows, by world."""

__all__ = [
    "CORE_ROWS",
    "FULL_WINDOW",
    "HTM_RECIPES",
    "IMITATION",
    "ballet",
    "ballet_tests",
    "generalisation",
    "lite_level",
    "longest_episode",
    "permanence",
    "permanence_tests",
    "short_t_maze",
    "streets",
    "t_maze",
    "visual_match",
    "word_tests",
    "words",
]
