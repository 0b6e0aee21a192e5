"""Wrappers to name on the command line: ``--world.wrappers recollect.tasks.gymnasium.wrappers:mask_from_info``."""

from __future__ import annotations

from typing import Any

import gymnasium
from gymnasium import spaces

from recollect.lazy import np


class ActionMask(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Adds ``info["action_mask"]``, as Taxi has it, to the observation: ``{"observation", "action_mask"}``.

    Args:
        env: an environment with Discrete actions, and the mask in every info.

    Raises:
        ValueError: other actions, or an observation that is a Dict already.
    """

    def __init__(self, env: gymnasium.Env[Any, Any]) -> None:
        super().__init__(env)
        if not isinstance(env.action_space, spaces.Discrete) or isinstance(env.observation_space, spaces.Dict):
            raise ValueError(
                f"mask_from_info needs Discrete actions and an observation that is no Dict, not {env.action_space} and "
                f"{env.observation_space}: write a wrapper that adds action_mask to the Dict"
            )
        mask = spaces.MultiBinary(int(env.action_space.n))
        self.observation_space = spaces.Dict({"observation": env.observation_space, "action_mask": mask})

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begin an episode; the observation gets the mask of allowed actions."""
        observation, info = self.env.reset(seed=seed, options=options)
        return self._shown(observation, info), info

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Take one action; the observation gets the mask of allowed actions."""
        observation, reward, terminated, truncated, info = self.env.step(action)
        return self._shown(observation, info), reward, terminated, truncated, info

    def _shown(self, observation: Any, info: dict[str, Any]) -> dict[str, Any]:
        if "action_mask" not in info:
            raise ValueError(f"{self.env} has no action_mask in its info, only {sorted(info)}")
        return {"observation": observation, "action_mask": np.asarray(info["action_mask"], np.int8)}


def mask_from_info(env: gymnasium.Env[Any, Any]) -> ActionMask:
    """Wrap an environment in :class:`ActionMask`."""
    return ActionMask(env)
