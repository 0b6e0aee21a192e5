"""Atari games as an experiment wants them: what :class:`AtariRules` says becomes options of ale-py's vector form.

    GymnasiumConfig(id="ALE/Pong-v5", options=AtariRules(side=42).options)

    rule            TorchBeast, and George 2021              here
    frames          every 4th, maximum of the last two       the same
    size            grey 84 x 84 (42, 21 in section 4.2.6)   ``side``
    stack           4 frames (1 in section 4.2.2)            ``stack``; channels first, uint8
    pixels          0..255 (0..1 in section 4.2.4)           the agent's: ``EncoderConfig.scale_images``
    actions         those that the game uses                 ``full_actions`` for all 18
    sticky actions  none                                     ``sticky``: probability that the last action is repeated
    start           1 to 30 no-ops                           ``noops``: up to so many
    fire            pressed where a game waits for it        ``fire``: at the start and after a lost life
    lost lives      end an episode; the game goes on         ``life_loss``
    rewards         clipped where they are learned from      the loss's and agent's (``reward_clip``, ``clip_reward``)

A lost life is not ale-py's ``episodic_life``, which begins a new game at every lost life, but its ``life_loss_info``:
an episode ends, and the next begins where the game stands, with FIRE where the game has it and the rule is on, else
with a no-op. Returns are then those of a life; ``life_loss=False`` gives those of a game.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from recollect.config import did_you_mean, require
from recollect.lazy import gymnasium

ATARI: dict[str, Any] = {
    "stack_num": 4,
    "noop_max": 30,
    "use_fire_reset": True,
    "episodic_life": False,
    "reward_clipping": False,
    "autoreset_mode": gymnasium.vector.AutoresetMode.NEXT_STEP,
}
"""Said aloud, because ale-py's own defaults differ (it clips rewards) or may change."""


@dataclass(frozen=True, kw_only=True)
class AtariRules:
    """How a game is shown and cut; the defaults are TorchBeast's and George 2021's."""

    side: int = 84
    """Pixels along one side of a frame; George 2021 has 84, 42 and 21."""
    stack: int = 4
    """Frames that are shown at a time."""
    full_actions: bool = False
    """All 18 actions instead of those that the game uses."""
    sticky: float = 0.0
    """Probability that the last action is repeated in the place of the new one (0.25 in Machado et al. 2018)."""
    noops: int = 30
    """Most no-ops at the start of a game."""
    fire: bool = True
    """Press FIRE where a game waits for it."""
    life_loss: bool = True
    """Let a lost life end the episode, and the game go on."""

    def __post_init__(self) -> None:
        require(self.side >= 21, "side", self.side, "give 84, 42 or 21 pixels: in smaller frames nothing can be seen")
        require(self.stack >= 1, "stack", self.stack, "give at least the newest frame, 1")
        require(0 <= self.sticky < 1, "sticky", self.sticky, "give a probability below 1")
        require(self.noops >= 0, "noops", self.noops, "give 0 or more")

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


def after_a_life(options: Mapping[str, Any], actions: Sequence[str]) -> int | None:
    """The action that begins an episode in the middle of a game; None where episodes are whole games."""
    if not options.get("life_loss_info", False):
        return None
    fires = options.get("use_fire_reset", ATARI["use_fire_reset"]) and "fire" in actions
    return list(actions).index("fire") if fires else 0


LEAST = {
    "img_height": 1,
    "img_width": 1,
    "stack_num": 1,
    "frameskip": 1,
    "noop_max": 0,
    "max_num_frames_per_episode": 1,
}
"""Options of ale-py's vector form that are whole numbers, and the least of each."""
SWITCHES = (
    "full_action_space",
    "life_loss_info",
    "episodic_life",
    "use_fire_reset",
    "reward_clipping",
    "grayscale",
    "maxpool",
    "continuous",
)
"""Those that are on or off."""
RULES = {
    "side": "img_height and img_width",
    "stack": "stack_num",
    "full_actions": "full_action_space",
    "sticky": "repeat_action_probability",
    "noops": "noop_max",
    "fire": "use_fire_reset",
    "life_loss": "life_loss_info",
}
"""What ale-py calls the fields of :class:`AtariRules`."""


def require_options(options: Mapping[str, Any]) -> None:
    """Raise ``ValueError`` unless ale-py's vector form knows these options and can play by them."""
    from ale_py.vector_env import AtariVectorEnv  # an extra

    known = [name for name in inspect.signature(AtariVectorEnv).parameters if name not in ("game", "num_envs")]
    for name, value in options.items():
        field = f"options: {name}"
        if name in RULES:
            raise ValueError(f"{field}={value!r}: ale-py calls it {RULES[name]}")
        near = did_you_mean(name, known)
        require(name in known, field, value, f"a game has no such option: {near}known: {', '.join(known)}")
        if name in LEAST:
            good = isinstance(value, int) and not isinstance(value, bool) and value >= LEAST[name]
            require(good, field, value, f"give a whole number, at least {LEAST[name]}")
        elif name in SWITCHES:
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
            f"id={name!r}: there is no ROM of {game} ({error}): install ale-py's wheel again, which brings all of them "
            "(pip install --force-reinstall ale-py), or let ALE_ROMS_DIR name the folder where they are"
        ) from None
