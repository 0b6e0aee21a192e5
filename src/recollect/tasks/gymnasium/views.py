"""Worlds as Gymnasium environments, single and vector.

    env = RecollectEnv(TMazeConfig(length=20))
    envs = RecollectVectorEnv(TMazeConfig(length=20), num_envs=64)

They differ in the start of a new episode: a single environment waits for ``reset``, as Gymnasium requires; a vector
environment begins one itself, by the rule of worlds (``AutoresetMode.NEXT_STEP``). At the last step of an episode
``info["score"]`` is its score (see ``WorldSpec``).
"""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode
from gymnasium.vector.utils import batch_space

from recollect.config import require
from recollect.lazy import torch
from recollect.tasks.worlds.contract import Step, World, WorldConfig
from recollect.tasks.worlds.pictures import picture

METADATA = {"render_modes": ["rgb_array"], "render_fps": 10}


class RecollectEnv(gymnasium.Env[Any, Any]):
    """One row of a world.

    All randomness comes from ``np_random``: a reset with a seed begins the same sequence of episodes every time.

    Args:
        config: settings of the world.
        render_mode: None, or ``rgb_array`` for :meth:`render`.
        device: device of the world.
    """

    metadata: dict[str, Any] = METADATA

    def __init__(
        self, config: WorldConfig, *, render_mode: str | None = None, device: torch.device | str = "cpu"
    ) -> None:
        self.world = _build(config, 1, render_mode, device)
        self.observation_space = config.spec.observation_space
        self.action_space = config.spec.action_space
        self.render_mode = render_mode
        self._shown: Step | None = None

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begin an episode. There are no options."""
        super().reset(seed=seed)
        self._shown = self.world.reset(seed=_draw_seed(self.np_random))
        return self._observation(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Take one action.

        Raises:
            gymnasium.error.ResetNeeded: no episode has begun.
            ValueError: the action is not in the space.
        """
        if self._shown is None or bool(self._shown.is_last):
            raise gymnasium.error.ResetNeeded("no episode has begun: call reset() before step()")
        if isinstance(self.action_space, gymnasium.spaces.Box):  # policies give float64, which a Box of float32 refuses
            action = np.asarray(action, dtype=np.float32)
        if not self.action_space.contains(action):
            raise ValueError(f"action {action!r} is not in {self.action_space}")
        self._shown = now = self.world.step(_tensor(np.asarray(action)[None], self.action_space, self.world))
        info = {"score": float(now.score)} if bool(now.is_last) else {}
        return self._observation(), float(now.reward), bool(now.terminated), bool(now.truncated), info

    def render(self) -> Any:
        """Return the present step as a picture, uint8 ``[y, x, 3]``; None without a render mode."""
        if self.render_mode is None or self._shown is None:
            return None
        return picture(self.world, self._shown.observation, 0)

    def close(self) -> None:
        """Close the world."""
        self.world.close()

    def _observation(self) -> Any:
        assert self._shown is not None
        return _array(self._shown.observation, self.observation_space, 0)


class RecollectVectorEnv(gymnasium.vector.VectorEnv[Any, Any, np.ndarray]):
    """All rows of a world.

    ===============  =================================================================================================
    autoreset mode   after the step that ends an episode
    ===============  =================================================================================================
    ``NEXT_STEP``    the next step ignores the row's action and returns the first observation of a new episode
    ``SAME_STEP``    that step returns the first observation of a new episode, and has the final one in
                     ``info["final_obs"]``
    ``DISABLED``     the row waits for ``reset(options={"reset_mask": rows})``
    ===============  =================================================================================================

    Args:
        config: settings of the world.
        num_envs: number of rows.
        render_mode: None, or ``rgb_array`` for :meth:`render`.
        device: device of the world.
        autoreset_mode: a member of Gymnasium's ``AutoresetMode`` or its value (``NextStep``, ``SameStep``,
            ``Disabled``); in ``metadata``, too.

    Raises:
        ValueError: a world that only has NEXT_STEP, as other people's environments have it here.
    """

    metadata: dict[str, Any] = {  # noqa: RUF012 - the base class declares it so
        **METADATA,
        "autoreset_mode": AutoresetMode.NEXT_STEP,
    }

    def __init__(
        self,
        config: WorldConfig,
        num_envs: int = 1,
        *,
        render_mode: str | None = None,
        device: torch.device | str = "cpu",
        autoreset_mode: AutoresetMode | str = AutoresetMode.NEXT_STEP,
    ) -> None:
        modes = [mode.value for mode in AutoresetMode]
        known = isinstance(autoreset_mode, AutoresetMode) or autoreset_mode in modes
        require(known, "autoreset_mode", autoreset_mode, f"use one of {', '.join(modes)}")
        self.autoreset_mode = AutoresetMode(autoreset_mode)
        self.metadata = {**METADATA, "autoreset_mode": self.autoreset_mode}
        self.world = _build(config, num_envs, render_mode, device)
        can_wait = type(self.world).begin_rows is not World.begin_rows
        remedy = f"{type(self.world).__name__} has NextStep only; or use gymnasium.make_vec of the environment itself"
        require(can_wait or self.autoreset_mode is AutoresetMode.NEXT_STEP, "autoreset_mode", autoreset_mode, remedy)
        self.num_envs = num_envs
        self.single_observation_space = config.spec.observation_space
        self.single_action_space = config.spec.action_space
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self.render_mode = render_mode
        self._shown: Step | None = None
        self._waiting = np.zeros(num_envs, dtype=bool)  # rows of a DISABLED environment whose episode is over

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begin an episode in every row, or in the rows of ``options["reset_mask"]``; one seed is for all rows."""
        if seed is not None and not isinstance(seed, int):
            raise ValueError(f"seed={seed!r}: give one integer for all rows")
        mask = (options or {}).get("reset_mask")
        if mask is None:
            super().reset(seed=seed)
            self._waiting = np.zeros(self.num_envs, dtype=bool)
            self._shown = self.world.reset(seed=_draw_seed(self.np_random))
        else:
            field = "options['reset_mask']"
            disabled = self.autoreset_mode is AutoresetMode.DISABLED
            require(
                disabled, field, mask, f"rows begin episodes automatically, by the {self.autoreset_mode.value} rule"
            )
            mask = np.asarray(mask)
            require(mask.dtype == bool and mask.shape == (self.num_envs,), field, mask, "give one bool for every row")
            require(seed is None, "seed", seed, "it is for all rows together: give no reset_mask")
            if self._shown is None:
                raise gymnasium.error.ResetNeeded("no episode has begun: reset all rows first")
            self._waiting = self._waiting & ~mask
            self._shown = self.world.begin_rows(torch.as_tensor(mask, device=self.world.device))
        return _array(self._shown.observation, self.observation_space), {}

    def step(self, actions: Any) -> tuple[Any, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        """Take one action per row; with NEXT_STEP it is ignored in rows whose episode just ended.

        Raises:
            gymnasium.error.ResetNeeded: before the first reset, or with DISABLED in a row whose episode is over.
        """
        if self._shown is None or self._waiting.any():
            raise gymnasium.error.ResetNeeded(
                f"no episode goes on in rows {np.flatnonzero(self._waiting).tolist() or 'at all'}: reset them first"
            )
        now = self._shown = self.world.step(_tensor(np.asarray(actions), self.single_action_space, self.world))
        last = now.is_last.cpu().numpy()
        info: dict[str, Any] = {}
        if last.any():
            info = {"score": np.where(last, now.score.cpu().numpy(), 0.0), "_score": last}
        if last.any() and self.autoreset_mode is AutoresetMode.SAME_STEP:
            info = {"final_info": info, "_final_info": last, "final_obs": np.full(self.num_envs, None, dtype=object)}
            for row in np.flatnonzero(last):
                info["final_obs"][row] = _array(now.observation, self.single_observation_space, int(row))
            info["_final_obs"] = last
            self._shown = self.world.begin_rows(now.is_last)
        if self.autoreset_mode is AutoresetMode.DISABLED:
            self._waiting = last
        reward, terminated, truncated = (
            part.cpu().numpy().copy() for part in (now.reward, now.terminated, now.truncated)
        )
        return _array(self._shown.observation, self.observation_space), reward, terminated, truncated, info

    def render(self) -> Any:
        """Return the present step of every row; None without a render mode."""
        if self.render_mode is None or self._shown is None:
            return None
        shown = self._shown.observation
        return tuple(picture(self.world, shown, row) for row in range(self.num_envs))

    def close_extras(self, **kwargs: Any) -> None:
        """Close the world."""
        self.world.close()


def _build(config: WorldConfig, batch_size: int, render_mode: str | None, device: torch.device | str) -> World:
    if render_mode not in (None, *METADATA["render_modes"]):
        raise ValueError(f"render_mode={render_mode!r}: use None or 'rgb_array'")
    return config.build(batch_size, device=device)


def _draw_seed(generator: np.random.Generator) -> int:
    return int(generator.integers(2**62))


def _tensor(actions: np.ndarray, space: gymnasium.Space[Any], world: World) -> torch.Tensor:
    continuous = isinstance(space, gymnasium.spaces.Box)
    if not continuous and actions.dtype.kind not in "iub":  # a cast would truncate
        raise ValueError(f"actions are {actions.dtype} ({actions.ravel()[:3].tolist()}, ...): give integers of {space}")
    return torch.as_tensor(actions.astype(np.float32 if continuous else np.int64), device=world.device)


def _array(observation: Any, space: Any, row: int | slice = slice(None)) -> Any:
    """Convert an observation to arrays of the space's type that share no memory with the world."""
    if isinstance(observation, dict):
        return {name: _array(part, space[name], row) for name, part in observation.items()}
    return np.array(observation[row].cpu().numpy(), dtype=space.dtype)[()]
