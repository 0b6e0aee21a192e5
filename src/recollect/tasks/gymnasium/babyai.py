"""BabyAI: levels of minigrid's instruction-following suite as one environment, scored by success, and its bot.

    GymnasiumConfig(id="recollect/BabyAI-v0", options={"levels": ("GoToLocal",)})      one level
    GymnasiumConfig(id="recollect/BabyAI-v0", options={"levels": PAPER_LEVELS})        a mixture of eight

Levels are minigrid's, with the same observations, actions and instructions. Two things differ: the level is drawn at
the beginning of an episode, and the reward is 1 for a completed instruction, else 0, so that the mean return is the
success rate. (minigrid's own reward is 1 - 0.9 t / T; ``gym:BabyAI-GoToLocal-v0`` has it.)

Sources: Chevalier-Boisvert et al. (2019), BabyAI: a platform to study the sample efficiency of grounded language
         learning; Didolkar et al. (2022), Temporal Latent Bottleneck, section 7.4. Levels and bot are minigrid's
         (Apache-2.0).
"""

import contextlib
import io
import signal
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

import gymnasium

from recollect.config import require
from recollect.machine import LIMIT_PARTS
from recollect.tasks.gymnasium.babyai_levels import DEFAULT_LEVELS, level_id

MISSION = gymnasium.spaces.Text(max_length=400, charset="abcdefghijklmnopqrstuvwxyz ,")


class Bot(Protocol):
    """A policy such as minigrid's ``BabyAIBot``, created anew for every episode."""

    def replan(self, action_taken: Any = None) -> Any:
        """Return the next action, given the one that was taken."""
        ...


class BabyAI(gymnasium.Env[Any, Any]):
    """Episodes of levels drawn uniformly; reward 1 for success, else 0.

    Args:
        levels: names of levels, such as GoToLocal or BabyAI-GoToLocal-v0.
        render_mode: passed to minigrid.

    Raises:
        ValueError: no levels, or an unknown one.
    """

    metadata: dict[str, Any] = {"render_modes": ["rgb_array"], "render_fps": 10}  # noqa: RUF012  (as Gymnasium has it)

    def __init__(self, levels: Sequence[str] = DEFAULT_LEVELS, render_mode: str | None = None) -> None:
        listed = not isinstance(levels, str) and bool(levels)
        require(listed, "levels", levels, 'give a list of levels, such as ["GoToLocal"]')
        import minigrid  # noqa: F401  (an extra; registers the levels)

        self.render_mode = render_mode
        try:
            made = [gymnasium.make(level_id(level), render_mode=render_mode) for level in levels]
        except gymnasium.error.Error as error:
            raise ValueError(f"levels={list(levels)}: {error}") from None
        self.environments = made
        self.current = made[0]
        space = made[0].observation_space
        assert isinstance(space, gymnasium.spaces.Dict)
        self.observation_space = gymnasium.spaces.Dict({**space.spaces, "mission": MISSION})
        self.action_space = made[0].action_space
        self.actions = made[0].unwrapped.actions  # type: ignore[attr-defined]  # their names, for films

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begin an episode of a randomly drawn level."""
        super().reset(seed=seed)
        self.current = self.environments[int(self.np_random.integers(len(self.environments)))]
        return self.current.reset(seed=int(self.np_random.integers(2**31)))

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Take one step of the level."""
        observation, reward, terminated, truncated, info = self.current.step(action)
        return observation, float(float(reward) > 0), terminated, truncated, info

    def render(self) -> Any:
        """Draw the level from above."""
        return self.current.render()

    def close(self) -> None:
        """Close the environments of all levels."""
        for environment in self.environments:
            environment.close()


class HangingError(Exception):
    """A computation took longer than allowed."""


@contextlib.contextmanager
def time_limited(seconds: float) -> Iterator[None]:
    """Raise :class:`HangingError` in the block after some seconds; works in the main thread only.

    Of the time in which this process is stopped (Ctrl-Z, SIGSTOP) one part counts: alarms that were missed ring once.
    """
    rings = 0

    def ring(number: int, frame: Any) -> None:
        nonlocal rings
        rings += 1
        if rings >= LIMIT_PARTS:
            raise HangingError(f"not done after {seconds:g} s")

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds / LIMIT_PARTS, seconds / LIMIT_PARTS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def babyai_bot(environment: gymnasium.Env[Any, Any]) -> Bot:
    """Return minigrid's bot for an episode that has just begun."""
    from minigrid.utils.baby_ai_bot import BabyAIBot  # an extra

    return BabyAIBot(environment.unwrapped)


def demonstrate(
    environment: gymnasium.Env[Any, Any], seed: int, make_bot: Callable[[Any], Bot] = babyai_bot
) -> tuple[list[Any], list[int], list[float]]:
    """Let a bot play the episode of a seed: observations (one more than actions), actions and rewards.

    The instruction was completed if the last reward is positive.
    """
    with contextlib.redirect_stdout(io.StringIO()):  # minigrid prints a line about every layout that it rejects
        seen, _ = environment.reset(seed=seed)
    bot, observations, actions, rewards = make_bot(environment), [seen], [], []
    over, action = False, None
    while not over:
        action = bot.replan(action)
        seen, reward, terminated, truncated, _ = environment.step(action)
        observations.append(seen)
        actions.append(int(action))
        rewards.append(float(reward))
        over = terminated or truncated
    return observations, actions, rewards
