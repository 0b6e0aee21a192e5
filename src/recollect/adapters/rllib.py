"""A core as an RLModule of RLlib's new API stack, for PPO and IMPALA.

    spec = RLModuleSpec(module_class=CoreRLModule, model_config={"core": LSTMConfig(dim=64), "max_seq_len": 32})
    config = PPOConfig().environment("CartPole-v1").rl_module(rl_module_spec=spec)

RLlib cuts rows at the ends of episodes and has no flag for their beginnings. The state that it stores with every step
therefore is the bytes of the core's state behind a number: zeros are an episode that has not begun.
"""

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from recollect.adapters import missing_engine
from recollect.adapters.packed_core import PackedCore, require_core
from recollect.config import require

try:
    from gymnasium import spaces
    from ray.rllib.core.columns import Columns
    from ray.rllib.core.models.catalog import Catalog
    from ray.rllib.core.rl_module.apis import ValueFunctionAPI
    from ray.rllib.core.rl_module.torch import TorchRLModule
except ImportError as error:
    raise missing_engine("rllib", error) from error


class CoreRLModule(TorchRLModule, ValueFunctionAPI):
    """An encoder, a core, and two linear heads for policy and value.

    ``model_config`` has these entries:

    ==============  ==================================================================================================
    ``core``        settings of a core that reads one vector a step
    ``max_seq_len`` steps of a row to learn from, RLlib's own entry; a state is stored with every step that is played
    ``encoder``     function of the observation space that returns an ``nn.Module`` with an attribute ``output_dim``,
                    which maps observations ``[n, ...]`` to vectors ``[n, output_dim]``; not needed for a Box, which is
                    flattened
    ==============  ==================================================================================================

    Raises:
        ValueError: no core, a core that reads several vectors a step, or no encoder for other spaces than a Box.
    """

    def setup(self) -> None:
        """Build encoder, core and heads; RLlib calls it."""
        config, space = self.model_config, self.observation_space
        settings, encoder = config.get("core"), config.get("encoder")
        require_core("model_config: core", settings)
        remedy = "give an encoder, or flatten the space with RLlib's connector FlattenObservations"
        require(bool(encoder) or isinstance(space, spaces.Box), "model_config: encoder", encoder, f"{remedy}: {space}")
        self.encoder = encoder(space) if encoder else nn.Flatten()
        self.memory = PackedCore(settings.build(self.encoder.output_dim if encoder else int(np.prod(space.shape))))
        self.action_dist_cls = Catalog._get_dist_cls_from_action_space(self.action_space, framework="torch")
        inputs = self.action_dist_cls.required_input_dim(space=self.action_space)
        self.policy, self.value = (nn.Linear(self.memory.core.output_shape[0], size) for size in (inputs, 1))

    def get_initial_state(self) -> dict[str, np.ndarray]:
        """Return the state before an episode: zeros."""
        return {"content": np.zeros(self.memory.width, dtype=np.uint8)}

    def _forward(self, batch: dict[str, Any], **kwargs: Any) -> dict[str, Any]:
        outputs, state = self._remember(batch)
        return {Columns.ACTION_DIST_INPUTS: self.policy(outputs), Columns.STATE_OUT: state}

    def _forward_train(self, batch: dict[str, Any], **kwargs: Any) -> dict[str, Any]:
        outputs, state = self._remember(batch)
        policy = self.policy(outputs)
        return {Columns.ACTION_DIST_INPUTS: policy, Columns.STATE_OUT: state, Columns.EMBEDDINGS: outputs}

    def compute_values(self, batch: dict[str, Any], embeddings: Any = None) -> Tensor:
        """Return the values ``[b, t]`` of a batch, or of the outputs of its training step."""
        return self.value(self._remember(batch)[0] if embeddings is None else embeddings).squeeze(-1)

    def _remember(self, batch: dict[str, Any]) -> tuple[Tensor, dict[str, Tensor]]:
        """Run the core over rows of steps, ``[b, t, ...]``, of which none continues behind the end of an episode."""
        observations, content = batch[Columns.OBS], batch[Columns.STATE_IN]["content"].to(torch.uint8)
        leaf = observations
        while isinstance(leaf, dict):
            leaf = next(iter(leaf.values()))
        rows, steps = leaf.shape[:2]
        encoded = self.encoder(_merge_axes(observations)).reshape(rows, steps, -1)
        never = torch.zeros(rows, steps, dtype=torch.bool, device=content.device)  # but where the bytes are zeros
        outputs, content = self.memory(encoded, content, never)
        return outputs, {"content": content}


def _merge_axes(observation: Any) -> Any:
    """Return observations ``[b * t, ...]``, numbers as floats."""
    if isinstance(observation, dict):
        return {name: _merge_axes(part) for name, part in observation.items()}
    return observation.flatten(0, 1).float()
