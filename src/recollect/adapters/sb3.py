"""A core as the memory of RecurrentPPO of sb3-contrib, for Stable-Baselines3.

    model = RecurrentPPO(CorePolicy, env, policy_kwargs={"core": LSTMConfig(dim=64, num_layers=1)})

RecurrentPPO keeps what an LSTM has, float arrays ``h`` and ``c`` for every step. Here they hold the bytes of the
core's state, which are copied and never computed with, so that counters and flags survive exactly.
"""

from typing import Any

import torch
from torch import Tensor, nn

from recollect.adapters import missing_engine
from recollect.config import require
from recollect.cores.config import CoreConfig
from recollect.cores.contract import MemoryCore
from recollect.state import detach, from_bytes, to_bytes

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
        remedy = "give the settings of a core: policy_kwargs={'core': LSTMConfig(dim=64)}"
        require(isinstance(core, CoreConfig), "core", core, remedy)
        reads_dict = isinstance(observation_space, spaces.Dict)
        is_image = not reads_dict and is_image_space(observation_space)
        extractor = CombinedExtractor if reads_dict else NatureCNN if is_image else FlattenExtractor
        super().__init__(
            observation_space,
            action_space,
            lr_schedule,
            lstm_hidden_size=_width(core.build(2)),
            shared_lstm=not critic_core,
            enable_critic_lstm=critic_core,
            **{"features_extractor_class": extractor} | kwargs,
        )
        self.core_config, self.critic_core = core, critic_core
        self.lstm_actor = _PackedCore(core.build(self.features_dim))  # type: ignore[assignment]
        if critic_core:
            self.lstm_critic = _PackedCore(core.build(self.features_dim))  # type: ignore[assignment]
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


class _PackedCore(nn.Module):
    """A core with the sizes of an LSTM, whose ``h`` and ``c`` hold a flag and the bytes of its state."""

    num_layers = 1

    def __init__(self, core: MemoryCore[Any]) -> None:
        super().__init__()
        self.core = core
        self.like = detach(core.initial_state(1))
        self.input_size = core.input_shape[-1]
        self.hidden_size = (to_bytes(self.like).shape[1] + 7) // 8 + 1

    def forward(
        self, features: Tensor, packed: tuple[Tensor, Tensor], episode_starts: Tensor
    ) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        rows = packed[0].shape[1]
        flags = packed[0][0, :, 0]
        content = torch.cat([part[0, :, 1:] for part in packed], 1).contiguous().view(torch.uint8)
        is_first = episode_starts.reshape(rows, -1) > 0.5
        # Zeros are what RecurrentPPO and predict() begin with.
        is_first = torch.cat([is_first[:, :1] | (flags == 0)[:, None], is_first[:, 1:]], 1)
        inputs = features.reshape(rows, -1, self.input_size)
        outputs, state = self.core(inputs, from_bytes(content, self.like), is_first)
        content = to_bytes(state)
        content = nn.functional.pad(content, (0, 8 * (self.hidden_size - 1) - content.shape[1])).view(torch.float32)
        packed = tuple(nn.functional.pad(part, (1, 0), value=1.0)[None] for part in content.chunk(2, 1))
        return outputs.flatten(0, 1), packed  # type: ignore[return-value]


def _width(core: MemoryCore[Any]) -> int:
    one = len(core.input_shape) == len(core.output_shape) == 1
    require(one, "core", type(core).__name__, "RecurrentPPO needs a core that reads and gives one vector a step")
    return core.output_shape[0]
