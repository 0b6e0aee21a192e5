"""What the settings of runs have in common whose agent acts in a world."""

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from recollect.evaluation.agent_videos import Video, record_video
from recollect.evaluation.recordings import Recording, record_episodes
from recollect.tasks.worlds.contract import WorldConfig
from recollect.training.frame import TrainerConfig


@dataclass(frozen=True, kw_only=True)
class ActingConfig(TrainerConfig):
    """Every setting of a run in a world: its episodes can be filmed and recorded."""

    task_field: ClassVar[str] = "world"
    final_samples: ClassVar[int] = 128
    has_films: ClassVar[bool] = True

    world: WorldConfig
    """Where it acts when it is scored; agents that learn by playing learn there too."""

    @property
    @abstractmethod
    def is_greedy(self) -> bool:
        """Whether the run's own evaluations take the likeliest action."""

    def film(self, model: Any, target: Path, *, episodes: int, seed: int, greedy: bool | None = None) -> Video:
        """Record a video of episodes in the world of the run."""
        how = self.is_greedy if greedy is None else greedy
        return record_video(model, self.world, target, episodes=episodes, seed=seed, greedy=how)

    def record(
        self, model: Any, *, episodes: int, seed: int, greedy: bool | None = None, noise: Sequence[float] = ()
    ) -> Recording:
        """Episodes in the world of the run."""
        how = self.is_greedy if greedy is None else greedy
        return record_episodes(model, self.world, episodes, seed=seed, greedy=how, noise=noise)
