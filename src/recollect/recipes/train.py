"""The runs that ``recollect train TASK --core KEY`` starts from."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from recollect.config import lookup
from recollect.cores import CORES
from recollect.recipes import hierarchical_transformer_memory as htm
from recollect.recipes.base import MakeConfig
from recollect.recipes.gymnasium import gymnasium_run
from recollect.recipes.recall import RECALL
from recollect.recipes.temporal_latent_bottleneck import COPYING
from recollect.tasks import TASKS, GymnasiumConfig
from recollect.training.frame import TrainerConfig
from recollect.training.trainers import trainer_for

TRAINING: dict[str, MakeConfig] = {
    "copying": COPYING.config,
    "recall": RECALL.config,
    "t-maze": htm.t_maze,
    "visual-match": htm.visual_match,
    "ballet": htm.ballet,
    "word-learning": htm.words,
    "object-permanence": htm.permanence,
    "street-learn": htm.streets,
    "associative-inference": htm.inference,
}
"""Tasks whose recipe has chosen the settings; other tasks start from their defaults."""


def training(task: str, core: str) -> TrainerConfig:
    """A complete run of a core on a task.

    Args:
        task: key of a task, or ``gym:ID`` for a Gymnasium environment.
        core: key of a core.

    Raises:
        ValueError: there is no such task or core.
    """
    memory = lookup(CORES, core, "core")()
    if task.startswith("gym:"):
        return gymnasium_run(GymnasiumConfig(id=task.removeprefix("gym:")), memory)
    kind = lookup(TASKS, task, "task")
    if task in TRAINING:
        return TRAINING[task](core)
    if kind is GymnasiumConfig:
        return gymnasium_run(GymnasiumConfig(), memory)
    trainer = trainer_for(kind)
    return trainer(**{trainer.task_field: kind(), "core": memory})


@dataclass(frozen=True)
class TrainOptions:
    """Where a run is kept."""

    directory: Path | None = None
    """Run directory; runs/<task>-<core>-seed<seed> when None."""
    resume: bool = False
    """Continue the run in that directory, bit for bit."""
    tensorboard: bool = False
    """Also write for TensorBoard."""


class Choice(NamedTuple):
    """What was typed behind ``recollect train``."""

    task: str
    """Key of a task, or ``gym:ID``."""
    core: str
    """Key of a core."""
    rest: list[str]
    """The other words: flags, which depend on task and core."""

    def directory(self, seed: int) -> Path:
        """Where the run is kept if nobody says where."""
        name = self.task.replace(":", "-").replace("/", "-")
        return Path("runs") / f"{name}-{self.core}-seed{seed}"


def choose(words: Sequence[str], core: str = "hcam") -> Choice:
    """Read task and core, which decide which flags there are.

    Args:
        words: ``TASK [--core KEY] [flags]``.
        core: where none is named.

    Raises:
        ValueError: no task, or ``--core`` without a key.
    """
    rest = list(words)
    if not rest or rest[0].startswith("-"):
        raise ValueError(f"name a task: recollect train TASK --core KEY; tasks: {', '.join(TASKS)}, gym:ID")
    task, flags = rest.pop(0), []
    while rest:
        word = rest.pop(0)
        if word == "--core" and not rest:
            raise ValueError("--core needs the key of a core")
        if word == "--core":
            core = rest.pop(0)
        elif word.startswith("--core="):
            core = word.removeprefix("--core=")
        else:
            flags.append(word)
    return Choice(task, core, flags)
