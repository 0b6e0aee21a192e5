"""One step of a model as a function of named tensors, which is what an exported program computes.

    inputs..., is_first, state.*   ->   outputs..., next.*

Every tensor has the batch in front. A leaf of the state without elements is no argument: no runtime takes it. What a
model computes at one step is defined by its form (:data:`FORMS`), so that a model of another kind needs one more class.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor, nn

from recollect.agents.activity_detector import ActivityDetector
from recollect.agents.actor_critic import ActorCritic
from recollect.agents.contract import ActorInputs
from recollect.agents.decision_transformer import DecisionTransformer
from recollect.agents.sequence_classifier import SequenceClassifier
from recollect.agents.sequence_model import SequenceModel
from recollect.agents.spaces import nest_parts, parts
from recollect.config import require
from recollect.cores.contract import MemoryCore
from recollect.state import leaves, map_state, named_leaves

IS_FIRST = "is_first"
STATE, NEXT = "state.", "next."
"""Prefixes of the leaves of the state among the inputs and among the outputs."""

Named = dict[str, Tensor]


class Port(NamedTuple):
    """An input of the step."""

    name: str
    shape: tuple[int, ...]
    """Of one row."""
    dtype: torch.dtype
    about: str
    low: float | list[float] = -1.0
    """Least and largest value that a self-test draws; of all numbers, or of each in the last axis."""
    high: float | list[float] = 1.0
    source: str | None = None
    """Output of the previous step that is given here; anything at ``is_first``."""

    def draw(self, rows: int, generator: torch.Generator) -> Tensor:
        """Return random values ``[rows, *shape]``."""
        drawn = torch.rand(rows, *self.shape, generator=generator, dtype=torch.float64)
        low, high = (torch.as_tensor(edge, dtype=torch.float64) for edge in (self.low, self.high))
        if not self.dtype.is_floating_point:
            return torch.minimum((low + drawn * (high - low + 1)).floor(), high).to(self.dtype)
        return (low + drawn * (high - low)).to(self.dtype)


class Form:
    """What a kind of model reads and returns at one step; by default ``inputs`` alone, and one output."""

    inputs: tuple[Port, ...]
    outputs: tuple[str, ...]
    """Names, without the state."""

    def __init__(self, model: Any) -> None:
        self.model = model

    def step(self, given: Named, state: Any, is_first: Tensor) -> tuple[tuple[Tensor, ...], Any]:
        """Take one step: inputs ``[b, ...]`` by name, a state and ``is_first`` ``[b]``; outputs and the new state."""
        outputs, state = self.model(given["inputs"][:, None], state, is_first[:, None])
        return (outputs[:, 0],), state


class CoreForm(Form):
    """A step of a memory core without an agent around it, for export."""

    outputs = ("outputs",)

    def __init__(self, model: Any, input_shape: tuple[int, ...] | None = None) -> None:
        super().__init__(model)
        shape = tuple(model.input_shape if input_shape is None else input_shape)
        dtype = next((weight.dtype for weight in model.parameters()), torch.float32)
        self.inputs = (Port("inputs", shape, dtype, "one step of the core's input", -2.0, 2.0),)


class SequenceForm(Form):
    """A sequence model: tokens or raw vectors in, logits or values in the units of the training data out."""

    def __init__(self, model: SequenceModel) -> None:
        super().__init__(model)
        model.stream(1)  # raises where a model reads whole rows only
        self.outputs = ("logits" if model.target_norm is None else "values",)
        width = (int(model.input_dim or 0),)
        if model.vocabulary is not None:
            self.inputs = (Port("inputs", (), torch.int64, "a token", 0, model.vocabulary - 1),)
        elif model.input_norm is None:
            dtype = next(model.parameters()).dtype
            self.inputs = (Port("inputs", width, dtype, "one row of numbers", -2.0, 2.0),)
        else:  # a large mean needs float64
            mean, spread = model.input_norm.mean, 2 * model.input_norm.std
            low, high = (mean - spread).tolist(), (mean + spread).tolist()
            self.inputs = (Port("inputs", width, torch.float64, "one row of raw numbers", low, high),)


class DetectorForm(Form):
    """An activity detector: a frame or its features in, logits of all activities out."""

    outputs = ("logits",)

    def __init__(self, model: ActivityDetector) -> None:
        super().__init__(model)
        several = model.frames_per_step
        remedy = "a step of this backbone reads several frames at once; train one that reads single frames"
        require(several == 1, "backbone", model.config.backbone, remedy)
        if model.frame_shape is not None:
            self.inputs = (Port("inputs", tuple(model.frame_shape), torch.uint8, "a frame, y x 3", 0, 255),)
        else:
            dtype = next(model.parameters()).dtype
            self.inputs = (Port("inputs", (int(model.feature_dim or 0),), dtype, "features of a frame", -2.0, 2.0),)


class ActorForm(Form):
    """An actor-critic: observation and its own previous step in; policy, value and the likeliest action out."""

    def __init__(self, model: ActorCritic) -> None:
        super().__init__(model)
        config, dtype = model.config, next(model.parameters()).dtype
        self.paths = {name: _port_name(name) for name, _ in parts(model.observation_space)}
        inputs = [_space_port(self.paths[name], space) for name, space in parts(model.observation_space)]
        shape = tuple(model.action_space.shape or ())
        if config.previous_action == "action":
            is_box = isinstance(model.action_space, spaces.Box)
            kind = torch.promote_types(dtype, torch.float32) if is_box else torch.int64  # as the action that comes out
            inputs.append(Port("previous_action", shape, kind, "the action that was taken", source="action"))
        elif config.previous_action == "logits":
            width = (model.policy.num_parameters,)
            inputs.append(Port("previous_policy", width, dtype, "policy of the previous step", source="policy"))
        if config.previous_reward:
            inputs.append(Port("reward", (), dtype, "received with this observation; anything at is_first"))
        if model.feature_dim:
            width = (model.feature_dim,)
            inputs.append(Port("previous_features", width, dtype, "features of the previous step", source="features"))
        self.inputs = tuple(inputs)
        self.outputs = ("action", "policy", "value", *(("features",) if model.feature_dim else ()))

    def step(self, given: Named, state: Any, is_first: Tensor) -> tuple[tuple[Tensor, ...], Any]:
        """Compute one step of the actor from flat tensors."""
        output, state = self.model(self.actor_inputs(given, is_first), state, is_first[:, None])
        policy = output.policy[:, 0]
        found = [self.model.distribution(policy).mode(), policy, output.value[:, 0]]
        if self.model.feature_dim:
            found.append(output.features[:, 0, : self.model.feature_dim])
        return tuple(found), state

    def actor_inputs(self, given: Mapping[str, Tensor], is_first: Tensor) -> ActorInputs:
        """Return the agent's inputs with a time axis of one step; what it does not read is zeros."""
        shape = tuple(self.model.action_space.shape or ())
        known = {name: tensor[:, None] for name, tensor in given.items()}
        seen = {name: known[port] for name, port in self.paths.items()}
        observation = seen["observation"] if list(seen) == ["observation"] else nest_parts(seen, "/")
        return ActorInputs(
            observation=observation,
            action=known.get("previous_action", is_first.new_zeros(is_first.shape[0], 1, *shape, dtype=torch.int64)),
            reward=known.get("reward", is_first.new_zeros(is_first.shape[0], 1, dtype=torch.float32)),
            policy=known.get("previous_policy"),
            features=known.get("previous_features"),
        )


FORMS: dict[type, type[Form]] = {
    SequenceModel: SequenceForm,
    ActivityDetector: DetectorForm,
    ActorCritic: ActorForm,
    MemoryCore: CoreForm,
}
"""Forms by the class of the model; subclasses too."""

NO_STEP: dict[type, str] = {
    DecisionTransformer: "in play it reads its context again at steps that depend on the episode",
    SequenceClassifier: "it reads whole rows, both ways, and has no state",
}
"""Why models of these classes have no step to export."""


def form_of(model: nn.Module) -> Form:
    """Return the form of a model.

    Raises:
        ValueError: models of this kind have no step that could be exported; with the reason.
    """
    name = type(model).__name__
    for kind, reason in NO_STEP.items():
        if isinstance(model, kind):
            raise ValueError(f"model={name}: it cannot be exported: {reason}")
    for kind, form in FORMS.items():
        if isinstance(model, kind):
            return form(model)
    if all(hasattr(model, part) for part in ("initial_state", "input_shape")):
        return CoreForm(model)  # a core by its methods alone
    known = ", ".join(kind.__name__ for kind in FORMS)
    raise ValueError(f"model={name}: it has no step that could be exported: give one of {known}")


class ModelStep(nn.Module):
    """One step with all tensors in a row: the inputs of the form, ``is_first``, the leaves of the state.

    Args:
        form: of the model.
    """

    def __init__(self, form: Form) -> None:
        super().__init__()
        self.form, self.model = form, form.model
        self.like = map_state(torch.Tensor.detach, form.model.initial_state(1))
        named = list(named_leaves(self.like))
        self.kept = [bool(leaf.numel()) for _, leaf in named]
        kept = [(name, leaf) for name, leaf in named if leaf.numel()]
        self.leaves = tuple(Port(name, tuple(leaf.shape[1:]), leaf.dtype, "") for name, leaf in kept)
        first = Port(IS_FIRST, (), torch.bool, "an episode starts here: the row's memory is reset before this step", 0)
        states = [leaf._replace(name=f"{STATE}{leaf.name}") for leaf in self.leaves]
        self.inputs: tuple[Port, ...] = (*form.inputs, first, *states)
        """All inputs, in order."""
        self.outputs: tuple[str, ...] = (*form.outputs, *(f"{NEXT}{leaf.name}" for leaf in self.leaves))
        """All outputs, in order."""

    def forward(self, *tensors: Tensor) -> tuple[Tensor, ...]:
        """Return all outputs for all inputs, each ``[b, ...]``."""
        number = len(self.form.inputs)
        given = {port.name: tensor for port, tensor in zip(self.form.inputs, tensors, strict=False)}
        is_first = tensors[number]
        found, state = self.form.step(given, self.unpack(tensors[number + 1 :], is_first.shape[0]), is_first)
        return (*found, *self.pack(state))

    def pack(self, state: Any) -> list[Tensor]:
        """Return the leaves of a state that have elements."""
        return [leaf for leaf, is_kept in zip(leaves(state), self.kept, strict=True) if is_kept]

    def unpack(self, packed: Sequence[Tensor], rows: int) -> Any:
        """Return the state of some rows whose leaves with elements are given."""
        rest, kept = iter(packed), iter(self.kept)
        return map_state(lambda leaf: next(rest) if next(kept) else leaf.new_zeros(rows, *leaf.shape[1:]), self.like)

    def initial(self, rows: int) -> list[Tensor]:
        """Return the leaves of the initial state of some rows, each with its own memory."""
        return [leaf.detach().clone() for leaf in self.pack(self.model.initial_state(rows))]


def one_step(model: nn.Module, *, input_shape: tuple[int, ...] | None = None) -> ModelStep:
    """Return one step of a model in ``eval`` mode, as a module of named tensors.

    Args:
        model: an agent or a core.
        input_shape: of one step of a core that has no ``input_shape`` itself.

    Raises:
        ValueError: as :func:`form_of`.
    """
    model.eval()
    return ModelStep(form_of(model) if input_shape is None else CoreForm(model, input_shape)).eval()


def _port_name(part: str) -> str:
    return part if part == "observation" else f"observation.{part.replace('/', '.')}"


def _space_port(name: str, space: spaces.Space[Any]) -> Port:
    """Return the input of one part of an observation."""
    dtype = torch.as_tensor(np.zeros((), space.dtype)).dtype
    about = f"{space}" if len(f"{space}") < 80 else type(space).__name__
    shape = tuple(space.shape or ())
    if isinstance(space, spaces.Box):
        most = 5.0 if dtype.is_floating_point else 255.0
        low, high = (float(np.clip(np.float64(edge), space.low, space.high).mean()) for edge in (-5.0, most))
        return Port(name, shape, dtype, about, low, high)
    if isinstance(space, spaces.Discrete):
        return Port(name, shape, torch.int64, about, int(space.start), int(space.start + space.n) - 1)
    if isinstance(space, spaces.MultiDiscrete):
        return Port(name, shape, dtype, about, int(space.start.max()), int((space.start + space.nvec).min()) - 1)
    return Port(name, shape, dtype, about, 0, 1)
