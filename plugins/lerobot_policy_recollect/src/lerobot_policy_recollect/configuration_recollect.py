"""Settings of the policy, registered under the name ``recollect``."""

from dataclasses import dataclass, field

from lerobot.configs import NormalizationMode, PreTrainedConfig
from lerobot.optim import AdamWConfig


@PreTrainedConfig.register_subclass("recollect")
@dataclass
class RecollectConfig(PreTrainedConfig):
    """A policy with a memory.

    Args:
        run: directory of a run of Recollect; its weights are taken. Empty: ``description`` says what is built.
        best: take the checkpoint of the run's best evaluation.
        description: the agent as JSON; filled in from the run, so that a saved policy does not need it.
        keys: LeRobot's key of a part of the observation, where it is another than this package would guess.
        sample: draw actions from the policy instead of taking the likeliest.
    """

    run: str = ""
    best: bool = False
    description: str = ""
    keys: dict[str, str] = field(default_factory=dict)
    sample: bool = False
    normalization_mapping: dict[str, NormalizationMode] = field(
        default_factory=lambda: dict.fromkeys(("VISUAL", "STATE", "ACTION"), NormalizationMode.IDENTITY)
    )

    def validate_features(self) -> None:
        """Raise ``ValueError`` where nothing says which agent is meant."""
        if not self.run and not self.description:
            raise ValueError("run='': name the directory of a run of Recollect (--policy.run=runs/...)")

    def get_optimizer_preset(self) -> AdamWConfig:
        """What LeRobot asks of every policy; it does not train this one."""
        return AdamWConfig(lr=1e-4)

    def get_scheduler_preset(self) -> None:
        """None."""
        return None

    @property
    def observation_delta_indices(self) -> None:
        """One observation a step: the memory has the rest."""
        return None

    @property
    def action_delta_indices(self) -> list[int]:
        """One action a step."""
        return [0]

    @property
    def reward_delta_indices(self) -> None:
        """None."""
        return None
