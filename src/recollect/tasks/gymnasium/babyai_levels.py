"""BabyAI's levels: their names, those of the papers, and the lengths of their instructions."""

import re
from collections.abc import Sequence

from recollect.config import require

PAPER_LEVELS = ("PutNextS7N4", "Unlock", "Synth", "GoToSeq", "SynthLoc", "GoToImpUnlock", "SynthSeq", "BossLevel")
"""The levels of Didolkar et al. 2022, section 7.4. The paper mentions eight and lists seven: SynthSeq is described but
missing in the list. PutNext is minigrid's largest level of that kind."""
DEFAULT_LEVELS = ("GoToLocal",)
"""Levels of ``recollect/BabyAI-v0`` when none are given."""
WORDS = {
    **dict.fromkeys(("BossLevel", "MiniBossLevel", "SynthSeq"), 72),
    **dict.fromkeys(("GoToSeq", "SynthLoc", "Synth", "PutNext", "MoveTwoAcross"), 24),
}
"""Largest number of words in an instruction, by the beginning of the level's name; 16 for all others.

In minigrid's grammar (``minigrid.envs.babyai.core.verifier``) an object has up to 3 words, with its location up to 7
("the red ball in front of you"); putting one next to another 17, two of these with "and" 35, two of those with "after
you" 72. Levels without locations or sequences stay below: MoveTwoAcross 19, GoToSeq 24, SynthLoc 17, PickupLoc 9.
"""


def level_id(level: str) -> str:
    """Return a level's id in Gymnasium's registry, from ``GoToLocal``, ``BabyAI-GoToLocal-v0`` or ``gym:...``.

    Raises:
        ValueError: it is the id of another environment.
    """
    name = level.removeprefix("gym:")
    if name.startswith("BabyAI-"):
        return name
    other = re.search(r"[/:]|-v\d+$", name)
    require(not other, "level", level, "only levels of BabyAI have a bot: name one, such as GoToLocal")
    return f"BabyAI-{name}-v0"


def level_name(level: str) -> str:
    """Return the short name of a level: ``GoToLocal`` for ``BabyAI-GoToLocal-v0``."""
    return re.sub(r"-v\d+$", "", level_id(level)).removeprefix("BabyAI-")


def max_instruction_words(levels: Sequence[str]) -> int:
    """Return the largest number of words in instructions of these levels; see :data:`WORDS`."""
    return max((WORDS[known] for level in levels for known in WORDS if level_name(level).startswith(known)), default=16)
