"""Decision Transformer around any core: predicts the action that led to a given return.

    tokens of step t:    R_t = tanh(W_R rtg_t + b),   s_t = tanh(W_s encoder(o_t) + b),   a_t = tanh(W_a action_t)
    sequence:            R_1, s_1, a_1, R_2, s_2, a_2, ..., each + P[place in the context] + T[timestep]
    policy_t           = W y(s_t)                                      y: the core's output at the token s_t

A context has at most C steps: 3 C tokens, read from the core's initial state. The return-to-go rtg_t is the sum of the
rewards that follow in recorded episodes; in play it is the target return less the rewards so far.

Around the core ``causal-transformer`` with ``positions="none"`` this is Decision Transformer; around ``tlb`` it is
DT + TLB.

Papers: Chen et al., "Decision Transformer: Reinforcement Learning via Sequence Modeling" (2021), section 3 and the
authors' code for Atari; Didolkar et al., "Temporal Latent Bottleneck" (2022), sections 3.2 and 7.5.

Differs: T is of the context's *first* step, in training and in play; the authors' code trains so, and acts with the
present step's, which training never showed (``timestep="each"`` gives every token its own step's). In play a full
context drops its oldest ``stride`` steps at a time. With ``stride=1`` it always has the newest C steps, as published,
and all of it is read again at each step; with C / 2 that happens every C / 2 steps, and a step in between costs three
tokens. Initial weights are those of our layers.
"""

from collections.abc import Mapping
from os import PathLike
from typing import Any, NamedTuple

import gymnasium
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from recollect.agents.actor_critic import ActorCriticOutput, inputs_to_tensors
from recollect.agents.config import DecisionTransformerConfig
from recollect.agents.contract import ActorInputs
from recollect.agents.encoders import ObservationEncoder
from recollect.agents.policies import ACTION_MASK, Distribution, has_action_mask, mask_logits, policy_for
from recollect.agents.registry import REGISTRY
from recollect.agents.saved_model import SavedModel
from recollect.agents.spaces import is_same_space, space_from_json, space_to_json
from recollect.agents.streams import ModelStream
from recollect.config import from_json, require, to_json
from recollect.cores.arrays import First, to_array, to_first
from recollect.cores.config import CoreConfig
from recollect.cores.input_checks import require_is_first
from recollect.cores.stream_memory import COUNTED, RowNames, outside_inference_mode
from recollect.layers.rings import Rows
from recollect.ops.reduced_linear import FULL, CacheFormat, Precision, WeightFormat

TOKENS = 3  # tokens per step: return-to-go, observation, action


class DecisionTransformer(SavedModel):
    """Returns-to-go, observations and actions -> core -> policy. Made by :meth:`DecisionTransformerConfig.build`."""

    feature_dim = 0

    def __init__(
        self,
        config: DecisionTransformerConfig,
        core: CoreConfig,
        observation_space: gymnasium.Space[Any],
        action_space: gymnasium.Space[Any],
    ) -> None:
        super().__init__()
        self.config = config
        self.core_config = core
        self.observation_space, self.action_space = observation_space, action_space
        width = config.width
        self.encoder = ObservationEncoder(observation_space, config.encoders)
        self.policy = policy_for(action_space)
        self.masks_actions = has_action_mask(observation_space, action_space)
        self.embed_return = nn.Linear(1, width)
        self.embed_observation = nn.Linear(self.encoder.dim, width)
        self.embed_action = nn.Linear(self.policy.encoding_dim, width, bias=False)
        self.positions = nn.Embedding(TOKENS * config.context, width)
        nn.init.zeros_(self.positions.weight)
        self.timesteps = nn.Embedding(config.max_timestep + 1, width)
        nn.init.zeros_(self.timesteps.weight)
        self.core = core.build(width)
        plain = self.core.input_shape == (width,) and len(self.core.output_shape) == 1
        require(
            plain and not core.output_feedback_dim,
            "core",
            type(core).__name__,
            "choose a core that reads plain vectors",
        )
        self.head = nn.Linear(self.core.output_shape[0], self.policy.num_outputs, bias=False)

    def require_actions(self, space: gymnasium.Space[Any], world: str) -> None:
        """Raise ``ValueError`` unless a world has this agent's action space."""
        if not is_same_space(space, self.action_space):
            raise ValueError(f"action_space={space} of {world}: this agent was made for {self.action_space}")

    def forward(self, observation: Any, action: Tensor, return_to_go: Tensor, timestep: Tensor) -> Tensor:
        """Return the policy parameters at every step of b contexts, ``[b, t, p]``.

        Args:
            observation: a tree of ``[b, t, ...]``.
            action: ``[b, t, *action_shape]``, of each step; the last one is not read.
            return_to_go: float ``[b, t]``.
            timestep: long ``[b]``, steps from the episode's start to the context's first.

        Raises:
            ValueError: more steps than a context has, or parts of wrong shapes.
        """
        b, t = return_to_go.shape
        require(t <= self.config.context, "context", t, f"give at most {self.config.context} steps")
        tokens = torch.stack(
            (self.return_token(return_to_go), self.observation_token(observation, 2), self.action_token(action)), 2
        )  # b t 3 d
        placed = self.place_context(tokens, timestep)
        outputs, _ = self.core(placed, self.core.initial_state(b), first_tokens(placed))
        return self.decide(outputs[:, 1::TOKENS], observation)

    def decide(self, outputs: Tensor, observation: Any) -> Tensor:
        """Return policy parameters ``[..., p]`` for the core's outputs at observation tokens, ``[..., d]``."""
        policy = self.policy.complete(self.head(outputs))
        return mask_logits(policy, observation[ACTION_MASK]) if self.masks_actions else policy

    def place_context(self, tokens: Tensor, timestep: Tensor) -> Tensor:
        """Return the core's input for tokens ``[b, t, 3, d]`` of contexts that begin at a timestep ``[b]``."""
        b, t = tokens.shape[:2]
        flat = tokens.flatten(1, 2)
        places = torch.arange(TOKENS * t, device=tokens.device).expand(b, -1)
        return F.dropout(self.place(flat, places, timestep[:, None]), self.config.dropout, self.training)

    def place(self, tokens: Tensor, places: Tensor, timestep: Tensor) -> Tensor:
        """Add to tokens ``[..., d]`` the embeddings of their places in contexts and of the contexts' first timestep."""
        placed = tokens + self.positions(places)
        if self.config.timestep == "none":
            return placed
        step = timestep if self.config.timestep == "first" else timestep + places // TOKENS
        return placed + self.timesteps(step.clamp(max=self.config.max_timestep))

    def return_token(self, return_to_go: Tensor) -> Tensor:
        """Embed returns-to-go ``[...]`` as tokens ``[..., d]``."""
        scaled = return_to_go[..., None].to(self.embed_return.weight.dtype) / self.config.return_scale
        return self.embed_return(scaled).tanh()

    def observation_token(self, observation: Any, lead: int) -> Tensor:
        """Embed observations, with ``lead`` axes before those of the space, as tokens ``[..., d]``."""
        return self.embed_observation(self.encoder(observation, lead)).tanh()

    def action_token(self, action: Tensor) -> Tensor:
        """Embed actions ``[..., *action_shape]`` as tokens ``[..., d]``."""
        return self.embed_action(self.policy.encode(action).to(self.embed_action.weight.dtype)).tanh()

    def distribution(self, policy: Tensor) -> Distribution:
        """Return the action distribution of policy parameters ``[..., p]``."""
        return self.policy.distribution(policy)

    def stream(
        self, batch_size: int, *, weights: WeightFormat = "float32", cache: CacheFormat = "float32"
    ) -> "DecisionStream":
        """Return a stream for play, with the present weights."""
        return DecisionStream(self, batch_size, Precision(weights=weights, cache=cache))

    def describe(self) -> dict[str, Any]:
        """Return everything but the weights, as JSON data."""
        return {
            "agent": to_json(self.config, REGISTRY),
            "core": to_json(self.core_config, REGISTRY),
            "observation_space": space_to_json(self.observation_space),
            "action_space": space_to_json(self.action_space),
        }

    @classmethod
    def from_description(cls, description: Mapping[str, Any], *, trust: bool = False) -> "DecisionTransformer":
        """Make a model, without weights, from the description in its folder."""
        return cls(
            from_json(description["agent"], DecisionTransformerConfig, REGISTRY, trust=trust),
            from_json(description["core"], CoreConfig, REGISTRY, trust=trust),
            space_from_json(description["observation_space"]),
            space_from_json(description["action_space"]),
        )


class DecisionState(NamedTuple):
    """Memory of an agent in play."""

    core: Any  # the core's state after the newest observation token
    tokens: Tensor
    """``[b, C, 3, d]``: the context's tokens without embeddings of their places; the newest action is still missing."""
    count: Tensor  # type: ignore[assignment]  # hides tuple.count, which is not used
    """Long ``[b]``: number of steps in the context."""
    start: Tensor  # long `[b]`: steps from the episode's start to the context's first
    return_to_go: Tensor  # float `[b]`, of the newest step


class DecisionStream(ModelStream):
    """Stream in play: three tokens per step, and sometimes the whole context again.

    A step gives the core the previous action, the return-to-go and the observation as one block; where all rows read
    their context again, that block is its end. A step of some rows is made in a second stream, which they are copied
    to and from.

    Args:
        agent: the agent; its present weights are used.
        batch_size: rows.
    """

    model: DecisionTransformer

    @outside_inference_mode
    def __init__(self, agent: DecisionTransformer, batch_size: int, precision: Precision = FULL) -> None:
        super().__init__(agent, batch_size, precision)
        config, like = agent.config, self.like
        self.tokens = like.new_zeros(batch_size, config.context, TOKENS, config.width)
        self.return_to_go = torch.full((batch_size,), float(config.target_return), device=like.device)
        self.rows = torch.arange(batch_size, device=like.device)
        self.count, self.start = [0] * batch_size, [0] * batch_size  # as in the state, on the host
        self._some: DecisionStream | None = None

    def read_rows(self, rows: Rows | None) -> DecisionState:
        """Return a copy of the memory of some rows; None: of all."""
        index = self.rows if rows is None else rows.index
        count, start = self._long(self.count)[index], self._long(self.start)[index]
        return DecisionState(self.core.read_rows(rows), self.tokens[index], count, start, self.return_to_go[index])

    def write_rows(self, state: DecisionState, rows: Rows | None) -> None:
        """Continue some rows from a checked state ``[r, ...]``; None: all."""
        self.core.write_rows(state.core, rows)
        index = self.rows if rows is None else rows.index
        self.tokens[index], self.return_to_go[index] = state.tokens, state.return_to_go.to(self.return_to_go.dtype)
        numbers = range(self.batch_size) if rows is None else rows.numbers
        for row, count, start in zip(numbers, state.count.tolist(), state.start.tolist(), strict=True):
            self.count[row], self.start[row] = count, start

    def fresh_state(self, batch_size: int) -> DecisionState:
        """Return the initial state of so many rows."""
        zeros = self.rows.new_zeros(batch_size)
        tokens = self.tokens.new_zeros(batch_size, *self.tokens.shape[1:])
        target = self.return_to_go.new_full((batch_size,), float(self.model.config.target_return))
        return DecisionState(self.core.fresh_state(batch_size), tokens, zeros, zeros.clone(), target)

    def check_state(self, state: DecisionState, batch_size: int | None = None) -> None:
        """Raise ``ValueError`` unless so many rows (None: all) can continue from a state."""
        number = self.batch_size if batch_size is None else batch_size
        if not isinstance(state, DecisionState):
            raise ValueError(f"state is a {type(state).__name__}; a DecisionStream continues from a DecisionState")
        self.core.check_state(state.core, number)
        want = [number, *self.tokens.shape[1:]]
        if list(state.tokens.shape) != want or any(len(leaf) != number for leaf in state[2:]):
            raise ValueError(
                f"state.tokens have shape {list(state.tokens.shape)}, this stream of {number} rows has {want}"
            )

    def largest_counters(self) -> dict[str, int]:
        """Return the integer leaves of the state that are counters, with their largest value."""
        counters = {f"core.{name}": most for name, most in super().largest_counters().items()}
        return counters | {"count": self.model.config.context, "start": COUNTED}

    def try_state(self, state: DecisionState, path: str | PathLike[str]) -> None:
        """Raise ``ValueError`` where a counter of a file makes a step of the core fail."""
        super().try_state(state.core, path)

    @property
    def nbytes(self) -> int:
        """Bytes held between steps; constant."""
        return self.core.nbytes + self.tokens.nbytes + self.return_to_go.nbytes

    @outside_inference_mode
    def step(self, inputs: ActorInputs, is_first: First = False) -> ActorCriticOutput:
        """Take one step of every row; the value is the return-to-go. NumPy arrays in give NumPy arrays out.

        Args:
            inputs: observation, previous action and reward, without a time axis.
            is_first: bool ``[b]``, or one bool for all rows; True begins an episode and a context.

        Raises:
            ValueError: a part of the inputs has the wrong shape or dtype, a previous action is outside of its space, or
                a reward is not finite; the stream has not moved.
        """
        first = to_first(is_first, self.batch_size, self.like.device)
        given = inputs_to_tensors(inputs, self.like)
        if given is not None:
            return ActorCriticOutput._make(map(to_array, self._step(given, first)))
        return self._step(inputs, first)

    @outside_inference_mode
    def step_rows(self, inputs: ActorInputs, rows: RowNames, is_first: First = False) -> ActorCriticOutput:
        """Take one step of some rows; the others do not move.

        Args:
            inputs: of these rows, in the order of ``rows``, as :meth:`step` takes them.
            rows: at least one integer, each once, or a boolean mask of all rows.
            is_first: bool ``[r]``, or one bool for all of them.

        Raises:
            ValueError: no row, no such row, or one that is named twice; the weights have changed.
        """
        named = self.named_rows(rows)
        if not len(named):
            raise ValueError("rows=[]: name at least one row")
        self.core.check_weights()
        if self._some is None or self._some.batch_size != len(named):
            self._some = DecisionStream(self.model, len(named), self.precision)
        self._some.write_rows(self.read_rows(named), None)
        output = self._some.step(inputs, is_first)
        self.write_rows(self._some.read_rows(None), named)
        return output

    def _step(self, inputs: ActorInputs, is_first: Tensor) -> ActorCriticOutput:
        agent, config = self.model, self.model.config
        require_is_first(is_first, (self.batch_size,))
        first = is_first.tolist()
        begins = [new or not count for new, count in zip(first, self.count, strict=True)]
        self._check(inputs, first, begins)
        return_to_go = self.return_to_go - inputs.reward.to(self.return_to_go.dtype)
        if any(first):
            return_to_go = torch.where(is_first, config.target_return, return_to_go)
        seen = agent.observation_token(inputs.observation, 1)
        require(len(seen) == self.batch_size, "observation", len(seen), f"give {self.batch_size} rows")
        tokens = torch.stack((agent.return_token(return_to_go), seen), 1)
        # The memory changes from here on, where all inputs have been read: a step that is refused leaves it as it was.
        self.return_to_go = return_to_go
        if not all(begins):  # rows that begin have no previous action; their reset clears it
            action = agent.action_token(inputs.action)[:, None]
            self._write([max(count - 1, 0) for count in self.count], slice(2, 3), action)
            tokens = torch.cat((action, tokens), 1)
        self.count = [0 if new else count for new, count in zip(begins, self.count, strict=True)]
        self.start = [0 if new else start for new, start in zip(begins, self.start, strict=True)]
        full = [row for row, count in enumerate(self.count) if count == config.context]
        if full:
            self._drop_oldest(full)
        self._write(self.count, slice(0, 2), tokens[:, -2:])
        if all(begins) or len(full) == len(self.count):
            outputs = self._read_all()
        else:
            if full:
                self._reread(full)
            outputs = self._continue(tokens, begins)
        self.count = [count + 1 for count in self.count]
        return ActorCriticOutput(agent.decide(outputs, inputs.observation), self.return_to_go, outputs)

    def _check(self, inputs: ActorInputs, first: list[bool], begins: list[bool]) -> None:
        """Raise ``ValueError`` unless reward and previous action fit this stream."""
        if inputs.reward.shape != (self.batch_size,):
            raise ValueError(f"reward has shape {list(inputs.reward.shape)}; this stream takes [{self.batch_size}]")
        finite = inputs.reward.to(self.return_to_go.dtype).isfinite().tolist()
        for row, (fine, new) in enumerate(zip(finite, first, strict=True)):
            if not fine and not new:  # the return-to-go would be no number until the episode's end
                raise ValueError(
                    f"reward={float(inputs.reward[row])} in row {row}: give the finite reward that followed the "
                    "previous action, or is_first=True where an episode begins"
                )
        if all(begins):
            return  # no action came before
        space = self.model.action_space
        want = (self.batch_size, *(space.shape or ()))
        if inputs.action.shape != want:
            raise ValueError(f"action has shape {list(inputs.action.shape)}; this stream takes {list(want)}")
        self.model.policy.require_valid(inputs.action, torch.tensor(begins), space)

    def _long(self, numbers: list[Any]) -> Tensor:
        return torch.tensor(numbers, dtype=torch.long, device=self.rows.device)

    def _write(self, steps: list[int], kinds: slice, tokens: Tensor) -> None:
        """Write tokens ``[b, k, d]`` of these kinds into a step of each row's context."""
        if steps.count(steps[0]) == len(steps):
            self.tokens[:, steps[0], kinds] = tokens
        else:
            self.tokens[self.rows, self._long(steps), kinds] = tokens

    def _drop_oldest(self, rows: list[int]) -> None:
        """Drop the oldest steps of full contexts."""
        stride, index = self.model.config.stride, self._long(rows)
        self.tokens[index, :-stride] = self.tokens[index, stride:]
        for row in rows:
            self.count[row] -= stride
            self.start[row] += stride

    def _context(self, rows: list[int], length: int) -> Tensor:
        """Return the core's input for the first tokens of contexts, ``[r, length, d]``."""
        index = self._long(rows)
        places = torch.arange(length, device=index.device).expand(len(rows), -1)
        start = self._long([self.start[row] for row in rows])
        return self.model.place(self.tokens[index].flatten(1, 2)[:, :length], places, start[:, None])

    def _read_all(self) -> Tensor:
        """Read contexts of equal length from the beginning up to the newest observation."""
        placed = self._context(list(range(len(self.count))), TOKENS * self.count[0] + 2)
        return self.core.unroll(placed, first_tokens(placed))[:, -1]

    def _reread(self, rows: list[int]) -> None:
        """Read the contexts of some rows from the beginning up to the last but one action."""
        placed, core = self._context(rows, TOKENS * self.count[rows[0]] - 1), self.model.core
        _, state = core(placed, core.initial_state(len(rows)), first_tokens(placed))
        self.core.write_rows(state, self.core.named_rows(rows))

    def _continue(self, tokens: Tensor, begins: list[bool]) -> Tensor:
        """Read the previous action and the step's tokens, ``[b, 3, d]``; a context may begin with the latter."""
        places = [[max(TOKENS * count + ahead, 0) for ahead in (-1, 0, 1)] for count in self.count]
        placed = self.model.place(tokens, self._long(places), self._long(self.start)[:, None])
        first = None
        if any(begins):
            first = torch.tensor([[False, new, False] for new in begins], device=placed.device)
        return self.core.unroll(placed, first)[:, -1]


def first_tokens(tokens: Tensor) -> Tensor:
    """Return ``is_first`` of sequences ``[b, s, d]`` that begin at their first token."""
    first = torch.zeros(tokens.shape[:2], dtype=torch.bool, device=tokens.device)
    first[:, 0] = True
    return first
