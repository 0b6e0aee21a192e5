"""Actor-critic around any memory core: observation, previous action and reward in, policy and value out.

    e_t = [encoders(observation_t), encoding(action_{t-1}), reward_t]          the last two are 0 at is_first
    u_t = LN(W_in e_t + b_in)                                                  [b, t, *core.input_shape]
    y_t, state = core(u_t, state, is_first)                                    [b, t, d_out] or [b, t, r, d_out]
    f_t = LN(mean_r y_t)                                                       features, [b, t, d]
    policy_t = parameters of the action distribution;   value_t = V(f_t)       [b, t, p];   [b, t]

With ``previous_action="logits"`` e_t has policy_{t-1} in place of the action; for cores that read their own outputs
(``output_feedback_dim``) it ends with the first numbers of f_{t-1}. All that e_t has of the past may go through a
matrix first (``past_dim``), and the reward may be clipped (``clip_reward``). With ``skip`` the heads read [f_t, mean
u_t]. With ``norm_values`` V is a running mean plus a running deviation times the head's output (normalization.py).
Where an image has a FiLM encoder and the core reads tokens, W_in makes one token of each place of the map
(film_encoders.py).

The agent follows the contract of the cores: state in, state out, ``is_first`` the only reset signal, and a stream
(:meth:`ActorCritic.stream`) with the same numbers. The encoders process all b * t steps at once.

Source: Lampinen et al. 2021, Towards mental time travel, section 2 and appendix A (agent and auxiliary losses);
George 2021, Neural architecture impact on identifying temporally extended reinforcement learning tasks, section 2.3.
"""

from collections.abc import Mapping
from contextlib import nullcontext
from typing import Any, NamedTuple, cast

import gymnasium
import torch
from torch import Tensor, nn

from recollect.agents.config import ActorCriticConfig
from recollect.agents.contract import ActorInputs
from recollect.agents.decoders import Decoders
from recollect.agents.encoders import Layers, ObservationEncoder
from recollect.agents.film_encoders import TokenJoin
from recollect.agents.normalization import ReturnNorm
from recollect.agents.policies import ACTION_MASK, Distribution, has_action_mask, mask_logits, policy_for
from recollect.agents.registry import REGISTRY
from recollect.agents.saved_model import SavedModel
from recollect.agents.spaces import is_same_space, space_from_json, space_to_json
from recollect.agents.streams import ModelStream
from recollect.config import from_json, to_json
from recollect.cores.arrays import First, all_tensors, to_array, to_first, to_tensors
from recollect.cores.config import CoreConfig
from recollect.cores.input_checks import require_is_first
from recollect.cores.stream_memory import RowNames
from recollect.layers.rings import Rows
from recollect.objectives.policy_gradient import Reduction
from recollect.ops.linear import Linear
from recollect.ops.reduced_linear import CacheFormat, Precision, WeightFormat

_TARGET_HEADS = "label_head."
"""Prefix of the weights that only training targets use."""


class ActorCriticOutput(NamedTuple):
    """Output of an agent at every step."""

    policy: Tensor
    """``[b, t, p]``: parameters for :meth:`ActorCritic.distribution`."""
    value: Tensor
    """``[b, t]``: expected discounted future reward."""
    features: Tensor
    """``[b, t, d]``: normalised output of the core, input of heads and decoders."""


class ActorCritic(SavedModel):
    """Observation, previous action and reward -> core -> policy and value. Made by :meth:`ActorCriticConfig.build`."""

    def __init__(
        self,
        config: ActorCriticConfig,
        core: CoreConfig,
        observation_space: gymnasium.Space[Any],
        action_space: gymnasium.Space[Any],
        *,
        num_labels: int = 0,
        labels_per_step: int = 1,
    ) -> None:
        super().__init__()
        self.config = config
        self.core_config = core
        self.observation_space = observation_space
        self.action_space = action_space
        self.encoder = ObservationEncoder(observation_space, config.encoders)
        self.policy = policy_for(action_space)
        self.masks_actions = has_action_mask(observation_space, action_space)
        self.feature_dim = core.output_feedback_dim
        if config.previous_action == "logits" and self.masks_actions:
            raise ValueError(
                "previous_action='logits': observations have an action mask, and masked logits are no usable inputs: "
                "use previous_action='action'"
            )
        widths = {"none": 0, "action": self.policy.encoding_dim, "logits": self.policy.num_parameters}
        past_width = widths[config.previous_action] + config.previous_reward + self.feature_dim
        self.past: nn.Module = nn.Identity()
        if config.past_dim is not None:
            if not past_width:
                raise ValueError(
                    f"past_dim={config.past_dim}: this agent reads neither its previous action nor a reward: use None, "
                    "or previous_action='action'"
                )
            self.past, past_width = Linear(past_width, config.past_dim, bias=False), config.past_dim
            nn.init.normal_(self.past.weight)
        joined = self.encoder.dim + past_width
        if config.width is None and self.encoder.image_map is not None:
            core.require_map_of(self.encoder.image_map)
        self.core = core.build(joined if config.width is None else config.width)
        self.join: nn.Module = nn.Identity()
        if config.width is not None or len(self.core.input_shape) > 1:
            self.join = self._make_join(joined)
        has_norm = config.norm_inputs and not isinstance(self.join, nn.Identity)
        token_width, dim = torch.Size(self.core.input_shape)[-1], self.core.output_shape[-1]
        self.norm_inputs = nn.LayerNorm(token_width) if has_norm else nn.Identity()
        self.norm = nn.LayerNorm(dim) if config.norm else nn.Identity()
        hidden = () if config.head_dim is None else (config.head_dim,)
        read = dim + token_width if config.skip else dim
        self.policy_head = _head(read, hidden, self.policy.num_outputs, gain=config.policy_gain)
        self.value_head = _head(read, hidden, 1, gain=1.0)
        self.norm_values = ReturnNorm() if config.norm_values else None
        self.decoders = Decoders(self.encoder, dim) if config.reconstruct else None
        self.num_labels, self.labels_per_step = num_labels, labels_per_step
        self.label_head = Linear(dim, labels_per_step * num_labels) if num_labels else None

    def _make_join(self, width: int) -> nn.Module:
        """Return the map from the vector of a step to the core's input."""
        if self.encoder.film_map is not None and len(self.core.input_shape) > 1:
            return TokenJoin(width, *self.encoder.film_map, self.core.input_shape)
        return Linear(width, torch.Size(self.core.input_shape).numel())

    def require_actions(self, space: gymnasium.Space[Any], world: str) -> None:
        """Raise ``ValueError`` unless a world has this agent's action space."""
        if not is_same_space(space, self.action_space):
            raise ValueError(
                f"action_space={space} of {world}: this agent was made for {self.action_space}; give the world the "
                "same action set (in Atari the option full_action_space), or train another agent"
            )

    def initial_state(self, batch_size: int) -> Any:
        """Return the initial state of ``batch_size`` rows."""
        return self.core.initial_state(batch_size)

    def forward(self, inputs: ActorInputs, state: Any, is_first: Tensor) -> tuple[ActorCriticOutput, Any]:
        """Return policy and value at every step, and the new state.

        Args:
            inputs: of b rows and t steps.
            state: from :meth:`initial_state` or an earlier call.
            is_first: bool ``[b, t]``; True resets the row's memory before that step.

        Raises:
            ValueError: a part of the inputs has the wrong shape or dtype.
        """
        encoded = self.encode(inputs, is_first)
        outputs, state = self.core(encoded, state, is_first)
        return self.decide(outputs, encoded, inputs), state

    def encode(self, inputs: ActorInputs, is_first: Tensor) -> Tensor:
        """Return the core's input, ``[b, ...] -> [b, ..., *core.input_shape]``, with or without a time axis."""
        config = self.config
        self._check(inputs, is_first)
        seen = self.encoder(inputs.observation, is_first.ndim)
        if seen.shape[:-1] != is_first.shape:
            raise ValueError(f"observations are of {list(seen.shape[:-1])} steps; is_first has {list(is_first.shape)}")
        past = []
        if config.previous_action == "action":
            past.append(self.policy.encode(inputs.action))
        elif config.previous_action == "logits":
            past.append(inputs.policy)
        if config.previous_reward:
            clip = config.clip_reward
            past.append((inputs.reward if clip is None else inputs.reward.clamp(-clip, clip))[..., None])
        if self.feature_dim:
            past.append(inputs.features)
        if past:
            # Filled, not multiplied: at is_first they may be anything, NaN too.
            before = torch.cat(past, -1).masked_fill_(is_first[..., None], 0)
            seen = torch.cat((seen, self.past(before.to(seen.dtype)).to(seen.dtype)), -1)
        joined = self.join(seen)
        if len(self.core.input_shape) > 1:
            joined = joined.unflatten(-1, self.core.input_shape)
        return self.norm_inputs(joined)

    def decide(self, outputs: Tensor, encoded: Tensor, inputs: ActorInputs) -> ActorCriticOutput:
        """Return policy and value for the core's outputs ``[b, ..., *core.output_shape]``.

        Args:
            outputs: of the core.
            encoded: the core's input, from :meth:`encode`.
            inputs: of the agent; their action mask, where there is one, restricts the policy (see policies.py).
        """
        if len(self.core.output_shape) > 1:
            outputs = outputs.mean(-2)
        if len(self.core.input_shape) > 1:
            encoded = encoded.mean(-2)
        features = self.norm(outputs)
        # Ratios of probabilities and differences of values need more digits than bfloat16 has.
        device = outputs.device.type
        mixed = torch.is_autocast_enabled(device)
        with torch.autocast(device, enabled=False) if mixed else nullcontext():
            if mixed:
                dtype = cast(nn.Linear, self.value_head[-1]).weight.dtype
                features, encoded = features.to(dtype), encoded.to(dtype)
            read = torch.cat((features, encoded), -1) if self.config.skip else features
            policy = self.policy.complete(self.policy_head(read))
            value = self.value_head(read).squeeze(-1)
            if self.norm_values is not None:
                value = self.norm_values(value)
        if self.masks_actions:
            policy = mask_logits(policy, inputs.observation[ACTION_MASK])
        return ActorCriticOutput(policy, value, features)

    @property
    def value_scale(self) -> Tensor | float:
        """Unit of value errors: the standard deviation of returns, or 1."""
        return 1.0 if self.norm_values is None else self.norm_values.std

    @property
    def keeps_statistics(self) -> bool:
        """Whether there are running statistics for the learner to update."""
        return self.norm_values is not None or self.encoder.keeps_statistics

    def update_statistics(self, observation: Any) -> None:
        """Update the encoders' running statistics with observations ``[b, t, ...]``."""
        self.encoder.update_statistics(observation)

    def update_return_statistics(self, targets: Tensor) -> None:
        """Update the scale of values with the returns ``[n]`` of a rollout; values themselves do not change."""
        if self.norm_values is not None:
            self.norm_values.update(targets, cast(nn.Linear, self.value_head[-1]))

    def distribution(self, policy: Tensor) -> Distribution:
        """Return the action distribution of policy parameters ``[..., p]``."""
        return self.policy.distribution(policy)

    def reconstruction_losses(
        self, features: Tensor, observation: Any, *, valid: Tensor | None = None, reduction: Reduction = "sum"
    ) -> dict[str, Tensor]:
        """Return the losses of the reconstructions, by part of the observation.

        Args:
            features: ``[b, t, d]``.
            observation: of these steps.
            valid: bool ``[b, t]``; steps that count. None: all.
            reduction: ``sum`` or ``mean`` over the valid steps.
        """
        if self.decoders is None:
            return {}
        return self.decoders.losses(features, observation, valid=valid, reduction=reduction)

    def predict_labels(self, features: Tensor) -> Tensor:
        """Return logits of the labels that must be remembered, a training target that no action depends on.

        ``[..., d] -> [..., num_labels]``; ``[..., labels_per_step, num_labels]`` where a step has several.

        Raises:
            ValueError: the agent was built without such a head.
        """
        if self.label_head is None:
            raise ValueError("num_labels=0: this agent has no head that predicts labels; build it with num_labels")
        logits = self.label_head(features.to(self.label_head.weight.dtype))
        several = self.labels_per_step > 1
        return logits.unflatten(-1, (self.labels_per_step, self.num_labels)) if several else logits

    def stream(
        self, batch_size: int, *, weights: WeightFormat = "float32", cache: CacheFormat = "float32"
    ) -> "ActorStream":
        """Return a stream: one step at a time, without gradients, at constant cost.

        It uses the core's weights as they are now; after a change of weights make a new one.
        """
        return ActorStream(self, batch_size, Precision(weights=weights, cache=cache))

    def _check(self, inputs: ActorInputs, is_first: Tensor) -> None:
        require_is_first(is_first)
        lead = is_first.shape
        shape = self.action_space.shape or ()
        if self.config.previous_action == "action" and inputs.action.shape != (*lead, *shape):
            want = [*lead, *shape]
            raise ValueError(f"action has shape {list(inputs.action.shape)}; this agent takes {want}")
        if self.config.previous_reward and inputs.reward.shape != lead:
            raise ValueError(f"reward has shape {list(inputs.reward.shape)}; is_first has {list(lead)}")
        policy_width = self.policy.num_parameters if self.config.previous_action == "logits" else 0
        for name, width in (("policy", policy_width), ("features", self.feature_dim)):
            part: Tensor | None = getattr(inputs, name)
            if width and (part is None or part.shape != (*lead, width)):
                found = "missing" if part is None else f"of shape {list(part.shape)}"
                raise ValueError(
                    f"{name}: {found}; this agent takes {[*lead, width]}: give the {name} of its output at the "
                    "previous step (zeros before the first)"
                )

    def describe(self) -> dict[str, Any]:
        """Return everything but the weights, as JSON data."""
        return {
            "agent": to_json(self.config, REGISTRY),
            "core": to_json(self.core_config, REGISTRY),
            "observation_space": space_to_json(self.observation_space),
            "action_space": space_to_json(self.action_space),
            "num_labels": self.num_labels,
            "labels_per_step": self.labels_per_step,
        }

    @classmethod
    def from_description(cls, description: Mapping[str, Any], *, trust: bool = False) -> "ActorCritic":
        """Make a model, without weights, from the description in its folder."""
        return cls(
            from_json(description["agent"], ActorCriticConfig, REGISTRY, trust=trust),
            from_json(description["core"], CoreConfig, REGISTRY, trust=trust),
            space_from_json(description["observation_space"]),
            space_from_json(description["action_space"]),
            num_labels=description.get("num_labels", 0),
            labels_per_step=description.get("labels_per_step", 1),
        )


def is_target_head(name: str) -> bool:
    """Whether only training targets use the weights of this name."""
    return name.startswith(_TARGET_HEADS)


def without_target_heads(weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the weights that acting needs."""
    return {name: tensor for name, tensor in weights.items() if not is_target_head(name)}


class ActorStream(ModelStream):
    """Stream of an agent: it owns its memory and takes one step of every row, or of some rows, at a time.

    Args:
        agent: the agent; its weights are used.
        batch_size: number of rows.
    """

    model: ActorCritic

    def step(self, inputs: ActorInputs, is_first: First = False) -> ActorCriticOutput:
        """Return policy and value of one step: tensors if all inputs are tensors, else NumPy arrays.

        Args:
            inputs: without the time axis; tensors, or NumPy arrays and lists.
            is_first: bool ``[b]``, or one bool for all rows; True resets that row before the step.

        Raises:
            ValueError: a part of the inputs has the wrong shape or dtype; a previous action is outside of its space.
        """
        return self._step(inputs, is_first, None)

    def step_rows(self, inputs: ActorInputs, rows: RowNames, is_first: First = False) -> ActorCriticOutput:
        """Return policy and value of one step of some rows; the others do not move.

        Args:
            inputs: of these rows, in the order of ``rows``, as :meth:`step` takes them.
            rows: r integers, each once, or a boolean mask of all rows.
            is_first: bool ``[r]``, or one bool for all of them.

        Raises:
            ValueError: no such row, or one that is named twice.
        """
        return self._step(inputs, is_first, self.named_rows(rows))

    @torch.no_grad()
    def _step(self, inputs: ActorInputs, is_first: First, rows: Rows | None) -> ActorCriticOutput:
        agent = self.model
        is_first = to_first(is_first, self.batch_size if rows is None else len(rows), self.like.device)
        given = inputs_to_tensors(inputs, self.like)
        if given is not None:
            return ActorCriticOutput._make(map(to_array, self._step(given, is_first, rows)))
        encoded = agent.encode(inputs, is_first)
        if agent.config.previous_action == "action":
            agent.policy.require_valid(inputs.action, is_first, agent.action_space)
        return agent.decide(self.step_core(encoded, rows, is_first), encoded, inputs)


def inputs_to_tensors(inputs: ActorInputs, like: Tensor) -> ActorInputs | None:
    """Return inputs with arrays and lists as tensors; None if all are tensors."""
    if not isinstance(inputs, ActorInputs):
        raise ValueError(f"inputs={type(inputs).__name__}: give ActorInputs(observation, action, reward)")
    parts = {name: part for name, part in inputs._asdict().items() if part is not None}
    if all_tensors(tuple(parts.values())):
        return None
    return ActorInputs(**{name: to_tensors(part, like, name) for name, part in parts.items()})


def _head(dim: int, hidden: tuple[int, ...], width: int, *, gain: float) -> nn.Sequential:
    last = nn.Linear(hidden[-1] if hidden else dim, width)
    with torch.no_grad():
        nn.init.orthogonal_(last.weight, gain)
        last.bias.zero_()
    return nn.Sequential(*Layers(dim, hidden, "relu"), last)
