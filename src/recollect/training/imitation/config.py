"""Settings of imitation: the teacher, and how long it is imitated before and during reinforcement."""

from __future__ import annotations

from dataclasses import dataclass, field

from recollect.config import require, require_types

BOT = "babyai-bot:"
"""Prefix of teachers that are demonstrations by minigrid's bot; their number follows."""


@dataclass(frozen=True, kw_only=True)
class TeacherConfig:
    """The teacher that is imitated."""

    name: str = "oracle"
    """oracle, or another policy that the world offers; the directory of a run (RUN/best for its best weights); with
    the trainer cloning also recorded episodes, FILE.npz, minari:DATASET or lerobot:FOLDER, and in BabyAI babyai-bot:N,
    which are N demonstrations of a level by minigrid's bot, recorded once and kept."""
    acts: int = 50
    """Steps over which the share of rows that the teacher plays falls from 1 to 0; 0: the learner plays all. Not used
    for recorded episodes."""
    keeps: float = 0.0
    """Least share of the rows that the teacher plays while the learner only imitates. A learner that strays far from
    the teacher's way would otherwise see mostly the way back."""
    whole: bool = False
    """Read recorded episodes whole, one per row, cut after ``unroll`` steps. Otherwise rows are endless and cut into
    unrolls: the memory is carried from one to the next, and the gradient is not."""

    def __post_init__(self) -> None:
        require_types(self)
        require(0 <= self.keeps <= 1, "keeps", self.keeps, "give a share of the rows, from 0 to 1")
        require(bool(self.name), "name", self.name, "give oracle, the directory of a run, or recorded episodes")
        number = self.name.removeprefix(BOT)
        counted = number == self.name or (number.isdecimal() and int(number) > 0)
        require(counted, "name", self.name, f"give the number of demonstrations of a level, for example {BOT}10000")
        require(not self.whole or self.recorded, "whole", self.whole, "only recorded episodes can be read whole")
        require(self.acts >= 0, "acts", self.acts, "give 0 or more steps")

    @property
    def recorded(self) -> bool:
        """Whether it names recorded episodes."""
        return self.name.endswith(".npz") or self.name.startswith(("minari:", "lerobot:", BOT))

    def rows(self, step: int, batch_size: int) -> int:
        """Return the number of rows in which the teacher acts at a step (from 0)."""
        share = 1 - step / self.acts if step < self.acts else 0.0
        return round(batch_size * max(share, self.keeps))


@dataclass(frozen=True, kw_only=True)
class ImitationConfig:
    """Settings of imitation before reinforcement learning."""

    steps: int | None = None
    """First optimiser steps, which only imitate; 0: imitation and reinforcement from the beginning.
    None: there is no teacher."""
    cost: float = 1.0
    """Weight of the divergence from the teacher when reinforcement begins; it falls to 0 as a line."""
    until: float = 0.5
    """Share of the reinforcement after which that weight is 0."""
    teacher: TeacherConfig = field(default_factory=TeacherConfig)
    """The teacher."""

    def __post_init__(self) -> None:
        require_types(self)
        require(self.steps is None or self.steps >= 0, "steps", self.steps, "give 0 or more steps, or None")
        require(self.cost >= 0, "cost", self.cost, "give 0 or more")
        require(0 <= self.until <= 1, "until", self.until, "give a share of the reinforcement, from 0 to 1")
        if self.steps is None:
            remedy = "cost, until and teacher need steps: give the number that only imitate, 0 or more (--imitate 300)"
            require((self.cost, self.until, self.teacher) == (1.0, 0.5, TeacherConfig()), "steps", None, remedy)

    def label(self, steps: int) -> str | None:
        """Return the teacher of a run of so many steps as tables name it; None without one."""
        if self.steps is None:
            return None
        if not self.steps:
            return f"imitated {self.teacher.name} beside reinforcement"
        return f"imitated {self.teacher.name}" + (f" for {self.steps} steps" if self.steps < steps else "")

    def alone(self, step: int) -> bool:
        """Return whether a step (from 0) only imitates."""
        return self.steps is not None and step < self.steps

    def rows(self, step: int, batch_size: int) -> int:
        """Return the number of rows in which the teacher acts at a step; 0 while the learner is reinforced."""
        return self.teacher.rows(step, batch_size) if self.alone(step) else 0

    def weight(self, step: int, steps: int) -> float:
        """Return the weight of the divergence at a step (from 0) of ``steps`` that reinforces."""
        if self.steps is None:
            return 0.0
        span = self.until * (steps - self.steps)
        return self.cost * max(0.0, 1 - (step - self.steps) / span) if span > 0 else 0.0
