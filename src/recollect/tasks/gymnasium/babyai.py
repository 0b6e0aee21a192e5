"""BabyAI: levels of minigrid's instruction-following suite as one environment, scored by success, and its bot's guard.

    GymnasiumConfig(id="recollect/BabyAI-v0", options={"levels": ("GoToLocal",)})      one level
    GymnasiumConfig(id="recollect/BabyAI-v0", options={"levels": PAPER_LEVELS})        eight of them, mixed

Every level is minigrid's own: what is seen, done and asked for does not change. Two things do. An episode is of one of
the levels, drawn at its beginning. And the reward is 1 where the instruction was carried out, and nothing else: the
mean return is the success rate. (minigrid's own reward is 1 - 0.9 t / T; ``gym:BabyAI-GoToLocal-v0`` has it.)

Sources: Chevalier-Boisvert et al. (2019), BabyAI: a platform to study the sample efficiency of grounded language
learning; Didolkar et al. (2022), Temporal Latent Bottleneck, section 7.4. Levels and bot are minigrid's (Apache-2.0).
"""

import contextlib
import io
import re
import signal
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

import gymnasium

from recollect.config import require

PAPER_LEVELS = ("PutNextS7N4", "Unlock", "Synth", "GoToSeq", "SynthLoc", "GoToImpUnlock", "SynthSeq", "BossLevel")
"""The levels of Didolkar et al. 2022, section 7.4. It speaks of eight and lists seven: SynthSeq is described among the
levels and left out of the list. PutNext is minigrid's largest level of that kind."""
DEFAULT_LEVELS = ("GoToLocal",)
"""Levels that :class:`BabyAI` plays where none are named."""
WORDS = {
    **dict.fromkeys(("BossLevel", "MiniBossLevel", "SynthSeq"), 72),
    **dict.fromkeys(("GoToSeq", "SynthLoc", "Synth", "PutNext", "MoveTwoAcross"), 24),
}
"""Words that instructions of levels have room for whose names begin so; of all others 16. None is longer.

In minigrid's grammar (``minigrid.envs.babyai.core.verifier``) a thing has up to 3 words, with its place up to 7 ("the
red ball in front of you"); putting one next to another 17, two of these with "and" 35, two of those with "after you"
72. Levels without places or sequences stay below: MoveTwoAcross 19, GoToSeq 24, SynthLoc 17, PickupLoc 9.
"""
MISSION = gymnasium.spaces.Text(max_length=400, charset="abcdefghijklmnopqrstuvwxyz ,")


class Bot(Protocol):
    """Who knows what to do: minigrid's ``BabyAIBot`` is one, made anew for every episode."""

    def replan(self, action_taken: Any = None) -> Any:
        """The next action, after the one that was taken."""
        ...


def level_id(level: str) -> str:
    """The id of a level in Gymnasium's registry: ``GoToLocal``, ``BabyAI-GoToLocal-v0`` and ``gym:...`` mean one.

    Raises:
        ValueError: it is the id of another environment.
    """
    name = level.removeprefix("gym:")
    if name.startswith("BabyAI-"):
        return name
    other = re.search(r"[/:]|-v\d+$", name)
    require(not other, "level", level, "that is no level of BabyAI, and only those have a bot: name one, as GoToLocal")
    return f"BabyAI-{name}-v0"


def level_name(level: str) -> str:
    """The short name of a level: ``GoToLocal`` for ``BabyAI-GoToLocal-v0``."""
    return re.sub(r"-v\d+$", "", level_id(level)).removeprefix("BabyAI-")


def words_of(levels: Sequence[str]) -> int:
    """Words that instructions of these levels need at most; :data:`WORDS` says how they are counted."""
    return max((WORDS[known] for level in levels for known in WORDS if level_name(level).startswith(known)), default=16)


class BabyAI(gymnasium.Env[Any, Any]):
    """Episodes of some of the levels, drawn evenly; reward 1 for success, else 0.

    Args:
        levels: names of levels, as GoToLocal or BabyAI-GoToLocal-v0.
        render_mode: as minigrid's.

    Raises:
        ValueError: no levels, or one that minigrid does not have.
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
        self.playing = made[0]
        space = made[0].observation_space
        assert isinstance(space, gymnasium.spaces.Dict)
        self.observation_space = gymnasium.spaces.Dict({**space.spaces, "mission": MISSION})
        self.action_space = made[0].action_space
        self.actions = made[0].unwrapped.actions  # type: ignore[attr-defined]  # their names, for films

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begin an episode of a level that is drawn."""
        super().reset(seed=seed)
        self.playing = self.environments[int(self.np_random.integers(len(self.environments)))]
        return self.playing.reset(seed=int(self.np_random.integers(2**31)))

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """One step of the level."""
        observation, reward, terminated, truncated, info = self.playing.step(action)
        return observation, float(float(reward) > 0), terminated, truncated, info

    def render(self) -> Any:
        """The level from above."""
        return self.playing.render()

    def close(self) -> None:
        """Close all levels."""
        for environment in self.environments:
            environment.close()


class HangingError(Exception):
    """Something took longer than it may."""


@contextlib.contextmanager
def at_most(seconds: float) -> Iterator[None]:
    """Raise :class:`HangingError` in the block after some seconds; in the main thread of a process alone."""

    def stop(number: int, frame: Any) -> None:
        raise HangingError(f"not done after {seconds:g} s")

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def babyai_bot(environment: gymnasium.Env[Any, Any]) -> Bot:
    """Minigrid's own bot for the episode that an environment has just begun."""
    from minigrid.utils.baby_ai_bot import BabyAIBot  # an extra

    return BabyAIBot(environment.unwrapped)


def demonstrate(
    environment: gymnasium.Env[Any, Any], seed: int, make_bot: Callable[[Any], Bot] = babyai_bot
) -> tuple[list[Any], list[int], list[float]]:
    """Let a bot play the episode of a seed to its end: observations (one more than actions), actions and rewards.

    The episode was carried out where the last reward is more than 0.
    """
    with contextlib.redirect_stdout(io.StringIO()):  # minigrid tells the terminal about every layout that it rejects
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
