"""Rules of Atari experiments: :class:`AtariRules` gives the options of ale-py's vector environment.

    GymnasiumConfig(id="ALE/Pong-v5", options=AtariRules(side=42).options)

    rule            TorchBeast, and George 2021              here
    frames          every 4th, maximum of the last two       the same
    size            grey 84 x 84 (42, 21 in section 4.2.6)   side
    stack           4 frames (1 in section 4.2.2)            stack; channels first, uint8
    pixels          0..255 (0..1 in section 4.2.4)           the agent's: EncoderConfig.scale_images
    actions         those that the game uses                 full_actions for all 18
    sticky actions  none                                     sticky: probability of repeating the last action
    start           1 to 30 no-ops                           noops: at most so many
    fire            pressed where a game waits for it        fire: at the start and after a lost life
    lost lives      end an episode; the game continues       life_loss
    rewards         clipped for learning                     the loss's and agent's (reward_clip, clip_reward)

Lost lives use ale-py's ``life_loss_info``, not its ``episodic_life``, which starts a new game at every lost life: an
episode ends, and the next one begins at the present state of the game, with FIRE where the game has it and the rule is
on, else with a no-op. Returns are then those of a life; ``life_loss=False`` gives those of a game.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from recollect.config import did_you_mean, require, require_at_least

ATARI: dict[str, Any] = {
    "stack_num": 4,
    "noop_max": 30,
    "use_fire_reset": True,
    "episodic_life": False,
    "reward_clipping": False,
    "autoreset_mode": "NextStep",
}
"""Options that are always passed, because ale-py's defaults differ (it clips rewards) or may change."""


@dataclass(frozen=True, kw_only=True)
class AtariRules:
    """Rules of a game; the defaults are those of TorchBeast and George 2021."""

    side: int = 84
    """Side of a frame in pixels; George 2021 uses 84, 42 and 21."""
    stack: int = 4
    """Frames per observation."""
    full_actions: bool = False
    """Offer all 18 actions instead of those that the game uses."""
    sticky: float = 0.0
    """Probability of repeating the last action instead of the new one (0.25 in Machado et al. 2018)."""
    noops: int = 30
    """Largest number of no-ops at the start of a game."""
    fire: bool = True
    """Press FIRE where a game waits for it."""
    life_loss: bool = True
    """End the episode at a lost life, and continue the game in the next one."""

    def __post_init__(self) -> None:
        require(self.side >= 21, "side", self.side, "give at least 21 pixels, or objects are invisible")
        require(0 <= self.sticky < 1, "sticky", self.sticky, "give a probability below 1")
        require_at_least(self, stack=1, noops=0)

    @property
    def options(self) -> dict[str, Any]:
        """Keywords for ``GymnasiumConfig.options``."""
        return {
            "img_height": self.side,
            "img_width": self.side,
            "stack_num": self.stack,
            "full_action_space": self.full_actions,
            "repeat_action_probability": self.sticky,
            "noop_max": self.noops,
            "use_fire_reset": self.fire,
            "life_loss_info": self.life_loss,
        }


def action_after_life_loss(options: Mapping[str, Any], actions: Sequence[str]) -> int | None:
    """Return the action that begins an episode within a game; None where episodes are complete games."""
    if not options.get("life_loss_info", False):
        return None
    fires = options.get("use_fire_reset", ATARI["use_fire_reset"]) and "fire" in actions
    return list(actions).index("fire") if fires else 0


INTEGER_MINIMUMS = {
    "img_height": 1,
    "img_width": 1,
    "stack_num": 1,
    "frameskip": 1,
    "noop_max": 0,
    "max_num_frames_per_episode": 1,
}
"""Minimums of the integer options of ale-py's vector environment."""
BOOLEAN_OPTIONS = (
    "full_action_space",
    "life_loss_info",
    "episodic_life",
    "use_fire_reset",
    "reward_clipping",
    "grayscale",
    "maxpool",
    "continuous",
)
"""Boolean options of ale-py's vector environment."""
OPTION_NAMES = {
    "side": "img_height and img_width",
    "stack": "stack_num",
    "full_actions": "full_action_space",
    "sticky": "repeat_action_probability",
    "noops": "noop_max",
    "fire": "use_fire_reset",
    "life_loss": "life_loss_info",
}
"""ale-py's names of the fields of :class:`AtariRules`."""


def require_options(options: Mapping[str, Any]) -> None:
    """Raise ``ValueError`` unless ale-py's vector environment accepts these options."""
    from ale_py.vector_env import AtariVectorEnv  # an extra

    known = [name for name in inspect.signature(AtariVectorEnv).parameters if name not in ("game", "num_envs")]
    for name, value in options.items():
        field = f"options: {name}"
        if name in OPTION_NAMES:
            raise ValueError(f"{field}={value!r}: use ale-py's name {OPTION_NAMES[name]}")
        near = did_you_mean(name, known)
        require(name in known, field, value, f"a game has no such option: {near}known: {', '.join(known)}")
        if name in INTEGER_MINIMUMS:
            good = isinstance(value, int) and not isinstance(value, bool) and value >= INTEGER_MINIMUMS[name]
            require(good, field, value, f"give a whole number, at least {INTEGER_MINIMUMS[name]}")
        elif name in BOOLEAN_OPTIONS:
            require(isinstance(value, bool), field, value, "give true or false")
        elif name == "repeat_action_probability":
            good = isinstance(value, int | float) and 0 <= value <= 1
            require(good, field, value, "give a probability: 0 for none, 0.25 is usual")


def require_rom(game: str, name: str) -> None:
    """Raise ``ValueError`` where ale-py does not have the ROM of a game."""
    from ale_py import roms  # an extra

    try:
        roms.get_rom_path(game)
    except OSError as error:
        raise ValueError(
            f"id={name!r}: there is no ROM of {game} ({error}): reinstall ale-py's wheel, which contains all of them "
            "(pip install --force-reinstall ale-py), or set ALE_ROMS_DIR to their folder"
        ) from None
