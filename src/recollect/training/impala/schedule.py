"""Who plays when, and in which world: settings of an IMPALA run's actors (see actors.py)."""

from dataclasses import dataclass, field
from typing import Literal, get_args

from recollect.config import require, require_types
from recollect.training.curriculum import CurriculumConfig

ScheduleMode = Literal["synchronous", "asynchronous"]


@dataclass(frozen=True, kw_only=True)
class ScheduleConfig:
    """Who plays when, and in which world."""

    mode: ScheduleMode = "synchronous"
    """Play, then learn; or both at once, with actors in threads of their own."""
    actors: int = 1
    """Threads that play, each with a world of ``batch_size`` rows; 1 when synchronous."""
    queue_length: int = 2
    """Rollouts that exist at once when asynchronous: being played, waiting or being learned from. With 1, actor and
    learner take turns, with the numbers of the synchronous schedule; of one actor the lag is at most one less."""
    timeout: float = 120.0
    """Seconds that a rollout may take when asynchronous, and a step of it or the making of a world in any case; what
    takes longer is said to hang."""
    curriculum: CurriculumConfig = field(default_factory=CurriculumConfig)
    """A field of the world that grows with success; synchronous only."""

    def __post_init__(self) -> None:
        require_types(self)
        known = get_args(ScheduleMode)
        require(self.mode in known, "mode", self.mode, f"choose one of {', '.join(known)}")
        require(self.actors >= 1, "actors", self.actors, "somebody has to play")
        if self.mode == "synchronous":
            remedy = "a synchronous schedule has one; use mode='asynchronous', or a larger batch_size"
            require(self.actors == 1, "actors", self.actors, remedy)
        else:
            remedy = "rollouts of two levels would wait in one queue: use mode='synchronous'"
            require(not self.curriculum.field, "curriculum.field", self.curriculum.field, remedy)
            remedy = f"give at least one rollout for each of the {self.actors} actors"
            require(self.queue_length >= self.actors, "queue_length", self.queue_length, remedy)
        require(self.timeout > 0, "timeout", self.timeout, "give some seconds")
