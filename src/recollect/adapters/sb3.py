"""A core as the memory of RecurrentPPO of sb3-contrib, for Stable-Baselines3.

    model = RecurrentPPO(CorePolicy, env, policy_kwargs={"core": LSTMConfig(dim=64, num_layers=1)})

RecurrentPPO keeps what an LSTM has, float arrays ``h`` and ``c`` for every step. Here they hold the bytes of the
core's state, which are copied and never computed with, so that counters and flags survive exactly.
"""

from typing import Any

import torch
from torch import Tensor, nn

from recollect.adapters import missing_engine
from recollect.adapters.packed_core import PackedCore, require_core
from recollect.cores.config import CoreConfig
from recollect.cores.contract import MemoryCore

try:
    from gymnasium import spaces
    from sb3_contrib.common.recurrent.policies import RecurrentActorCriticPolicy
    from stable_baselines3.common.preprocessing import is_image_space
    from stable_baselines3.common.torch_layers import CombinedExtractor, FlattenExtractor, NatureCNN
except ImportError as error:
    raise missing_engine("sb3", error) from error


class CorePolicy(RecurrentActorCriticPolicy):
    """An actor and a critic that read the outputs of a core; for vectors, images and Dict observations.

    The critic shares the actor's core, and the gradient of its loss does not reach it: with it the actor learns far
    worse in RecurrentPPO, which adds the losses of both without a common scale. ``critic_core=True`` gives the critic a
    core of its own, which learns from the values.

    Args:
        observation_space: of the environment.
        action_space: of the environment.
        lr_schedule: learning rate of the remaining progress, 1 to 0.
        core: settings of the core.
        critic_core: give the critic a core of its own.
        kwargs: as ``RecurrentActorCriticPolicy`` takes them, except those about its LSTM. Features are extracted by
            ``NatureCNN`` from images, by ``CombinedExtractor`` from a Dict, else not at all.

    Raises:
        ValueError: no core, or one that reads several vectors a step.
    """

    def __init__(
        self,
        observation_space: spaces.Space,
        action_space: spaces.Space,
        lr_schedule: Any,
        *,
        core: CoreConfig,
        critic_core: bool = False,
        **kwargs: Any,
    ) -> None:
        require_core("policy_kwargs: core", core)
        reads_dict = isinstance(observation_space, spaces.Dict)
        is_image = not reads_dict and is_image_space(observation_space)
        extractor = CombinedExtractor if reads_dict else NatureCNN if is_image else FlattenExtractor
        super().__init__(
            observation_space,
            action_space,
            lr_schedule,
            lstm_hidden_size=core.build(2).output_shape[0],
            shared_lstm=not critic_core,
            enable_critic_lstm=critic_core,
            **{"features_extractor_class": extractor} | kwargs,
        )
        self.core_config, self.critic_core = core, critic_core
        self.lstm_actor = _Memory(core.build(self.features_dim))  # type: ignore[assignment]
        if critic_core:
            self.lstm_critic = _Memory(core.build(self.features_dim))  # type: ignore[assignment]
        self.lstm_hidden_state_shape = (1, 1, self.lstm_actor.hidden_size)
        self.optimizer = self.optimizer_class(self.parameters(), lr=lr_schedule(1), **self.optimizer_kwargs)

    def _get_constructor_parameters(self) -> dict[str, Any]:
        return super()._get_constructor_parameters() | {"core": self.core_config, "critic_core": self.critic_core}

    @staticmethod
    def _process_sequence(
        features: Tensor, lstm_states: tuple[Tensor, Tensor], episode_starts: Tensor, lstm: Any
    ) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        """Run over rows of steps: features ``[b * t, d]``, states ``[1, b, n]``, starts ``[b * t]``."""
        return lstm(features, lstm_states, episode_starts)


class _Memory(nn.Module):
    """A core with the sizes of an LSTM, whose ``h`` and ``c`` are halves of the bytes of its state."""

    num_layers = 1

    def __init__(self, core: MemoryCore[Any]) -> None:
        super().__init__()
        self.packed = PackedCore(core)
        self.input_size = core.input_shape[0]
        self.hidden_size = self.packed.width // 8  # of two halves, 4 bytes each

    def forward(
        self, features: Tensor, states: tuple[Tensor, Tensor], episode_starts: Tensor
    ) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        rows = states[0].shape[1]
        content = torch.cat(states, 2)[0].view(torch.uint8)
        inputs, is_first = features.reshape(rows, -1, self.input_size), episode_starts.reshape(rows, -1) > 0.5
        outputs, content = self.packed(inputs, content, is_first)
        first, second = content.view(torch.float32)[None].chunk(2, 2)
        return outputs.flatten(0, 1), (first, second)
