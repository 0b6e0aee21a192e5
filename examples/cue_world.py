"""A world of one's own with a Dict observation: a cue that is shown once, and a vector of noise that never helps.

    recollect train examples.cue_world:CueWorld --core lstm

At the first step ``cue`` is one-hot, later it is zeros. The action of the last step is worth 1 where it names the cue;
all other actions do nothing. Without memory nothing better than ``1 / choices`` is possible.
"""

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

Observation = dict[str, np.ndarray]


class CueWorld(gymnasium.Env[Observation, np.int64]):
    """Name at the end what was seen at the beginning.

    Args:
        choices: different cues.
        length: steps of an episode.
        noise: numbers in ``vector``.
    """

    def __init__(self, choices: int = 4, length: int = 8, noise: int = 8) -> None:
        self.choices, self.length, self.noise = choices, length, noise
        self.observation_space = spaces.Dict(
            {
                "cue": spaces.Box(0.0, 1.0, (choices,), np.float32),
                "vector": spaces.Box(-1.0, 1.0, (noise,), np.float32),
            }
        )
        self.action_space = spaces.Discrete(choices)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        """Draw a cue and show it."""
        super().reset(seed=seed)
        self.steps, self.cue = 0, int(self.np_random.integers(self.choices))
        return self._look(), {}

    def step(self, action: np.int64) -> tuple[Observation, float, bool, bool, dict[str, Any]]:
        """Only the last action counts."""
        self.steps += 1
        over = self.steps == self.length
        return self._look(), float(over and action == self.cue), over, False, {}

    def _look(self) -> Observation:
        cue = np.zeros(self.choices, np.float32)
        if self.steps == 0:
            cue[self.cue] = 1.0
        return {"cue": cue, "vector": self.np_random.uniform(-1, 1, self.noise).astype(np.float32)}
