"""Inputs and outputs of one step of a served model, by name: checks of what clients send, and the step of some rows."""

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor, nn

from recollect.agents.contract import ActorInputs
from recollect.agents.sequence_model import SequenceModel
from recollect.agents.spaces import parts, symbols
from recollect.config import did_you_mean
from recollect.export.step import NO_STEP, ActorForm, Port, form_of
from recollect.serving.refusal import RefusedError
from recollect.state import map_state

Row = dict[str, np.ndarray]
"""Inputs of one stream, by name."""
AT_FIRST = ("reward", "previous_action", "previous_policy", "previous_features")
"""Inputs that no model reads where an episode begins."""


class Interface:
    """What one step of a model reads and answers, by name.

    Args:
        model: an agent that takes single steps, or a core.

    Raises:
        ValueError: models of this kind take no single steps.
    """

    def __init__(self, model: nn.Module) -> None:
        for kind, reason in NO_STEP.items():
            if isinstance(model, kind):
                raise ValueError(f"model={type(model).__name__}: it cannot be served: {reason}")
        self.model = model.eval()
        self._form: Any = form_of(model)
        if any(port.dtype == torch.bfloat16 for port in self._form.inputs):
            remedy = "serve the model in float32, with ServingConfig(weights='bfloat16')"
            raise ValueError(f"model={type(model).__name__}: it reads bfloat16, which NumPy does not have: {remedy}")
        self.inputs: dict[str, Port] = {port.name: port for port in self._form.inputs}
        """What is read, by name."""
        self.outputs: tuple[str, ...] = self._form.outputs
        """What is answered."""
        self.carried = tuple(port for port in self._form.inputs if port.source is not None)
        """Inputs that are an output of the step before; the server keeps them for who does not send them."""
        self._bounds = _bounds(model, self._form)
        kept = {port.name for port in self.carried}
        self._needed = {
            is_first: tuple(name for name in self.inputs if name not in (kept | set(AT_FIRST) if is_first else kept))
            for is_first in (False, True)
        }

    def parse(self, given: Any) -> Row:
        """Return the checked inputs of one stream from JSON data or arrays; nothing is cast or cut in silence.

        Args:
            given: values by name; one value alone where the model reads only one.

        Raises:
            RefusedError: 422, an unknown name, another shape or kind of number, NaN, or an integer outside its space.
        """
        if not isinstance(given, Mapping):
            if len(self.inputs) > 1:
                raise RefusedError(422, f"inputs={_short(given)}: give an object with {', '.join(self.inputs)}")
            given = {next(iter(self.inputs)): given}
        for name in given:
            if name not in self.inputs:
                name = str(name)[:80]
                hint = did_you_mean(name, self.inputs) or f"this model reads {', '.join(self.inputs)}"
                raise RefusedError(422, f"inputs.{name}: there is no such input; {hint}".rstrip())
        return {name: self._parse_one(self.inputs[name], value) for name, value in given.items()}

    def _parse_one(self, port: Port, value: Any) -> np.ndarray:
        wanted, shape = np.dtype(str(port.dtype).removeprefix("torch.")), list(port.shape)
        try:
            array = np.asarray(value)
        except (ValueError, OverflowError):
            raise RefusedError(422, f"{port.name}: lists of different lengths; give numbers of shape {shape}") from None
        if array.dtype.kind not in ("iuf" if wanted.kind == "f" else "iub"):
            kind = "numbers" if wanted.kind == "f" else "integers"
            raise RefusedError(422, f"{port.name}={_short(value)}: no {kind}; give {kind} of shape {shape}")
        if list(array.shape) != shape:
            raise RefusedError(422, f"{port.name} has shape {list(array.shape)}; give one row of shape {shape}")
        if wanted.kind == "f":
            cast = _to_float(array, wanted)
            if not (finite := np.isfinite(cast)).all():
                place = np.argwhere(~finite)[0].tolist()
                raise RefusedError(
                    422,
                    f"{port.name}{place or ''}={array[tuple(place)]}: send finite numbers; the stream did not move, "
                    "so leave out a step that was not measured",
                )
            return cast
        low, high = self._bounds.get(port.name) or _range(wanted)
        if ((array < low) | (array > high)).any():
            raise RefusedError(422, f"{port.name}={_short(value)}: give integers from {_short(low)} to {_short(high)}")
        return array.astype(wanted)

    def missing(self, row: Row, *, is_first: bool) -> str | None:
        """Return the name of an input that is missing; those of the step before are not needed."""
        for name in self._needed[is_first]:
            if name not in row:
                return name
        return None

    def step(
        self, stream: Any, given: Mapping[str, Tensor], rows: Sequence[int], is_first: Tensor
    ) -> dict[str, Tensor]:
        """Take one step of some rows of a stream, in place.

        Args:
            stream: of the model.
            given: all inputs, ``[r, *shape]`` by name.
            rows: r different rows.
            is_first: bool ``[r]``.

        Returns:
            All outputs by name, ``[r, ...]``.
        """
        if not isinstance(self._form, ActorForm):
            return {self.outputs[0]: stream.step_rows(given["inputs"], rows, is_first)}
        with_time = self._form.actor_inputs(given, is_first)
        squeezed = ActorInputs(*(_without_time(part) for part in with_time))
        output = stream.step_rows(squeezed, rows, is_first)
        found = {"action": self._form.model.distribution(output.policy).mode(), "policy": output.policy}
        found["value"] = output.value
        if "features" in self.outputs:
            found["features"] = output.features[..., : self._form.model.feature_dim]
        return found

    def describe(self) -> dict[str, Any]:
        """Return inputs and outputs as JSON data."""
        inputs = {
            port.name: {"shape": list(port.shape), "dtype": str(port.dtype).removeprefix("torch."), "about": port.about}
            | ({"default": f"{port.source} of the step before"} if port.source else {})
            for port in self.inputs.values()
        }
        return {"kind": type(self.model).__name__, "inputs": inputs, "outputs": list(self.outputs)}


def weights_version(model: nn.Module) -> str:
    """Return the first 12 hex digits of the SHA-256 of all weights and buffers of a model, with their names."""
    digest = hashlib.sha256()
    for name, tensor in sorted(model.state_dict().items()):
        digest.update(f"{name} {tensor.dtype} {list(tensor.shape)}".encode())
        digest.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()[:12]


def _bounds(model: Any, form: Any) -> dict[str, tuple[Any, Any]]:
    """Return the least and the largest value of inputs that are integers of a space, by name."""
    if isinstance(model, SequenceModel) and model.vocabulary is not None:
        return {"inputs": (0, model.vocabulary - 1)}
    if not isinstance(form, ActorForm):
        return {}
    agent: Any = model
    known = {form.paths[name]: space for name, space in parts(agent.observation_space)}
    bounds = {}
    for name, space in (known | {"previous_action": agent.action_space}).items():
        if isinstance(space, spaces.Discrete):
            bounds[name] = int(space.start), int(space.start + space.n) - 1
        elif isinstance(space, spaces.MultiDiscrete):
            bounds[name] = space.start, space.start + space.nvec - 1
        elif isinstance(space, spaces.MultiBinary):
            bounds[name] = 0, 1
        elif isinstance(space, spaces.Box) and np.issubdtype(space.dtype, np.integer):
            bounds[name] = symbols(space)
    return bounds


def _range(wanted: np.dtype) -> tuple[int, int]:
    return (0, 1) if wanted == np.bool_ else (int(np.iinfo(wanted).min), int(np.iinfo(wanted).max))


def _to_float(array: np.ndarray, wanted: np.dtype) -> np.ndarray:
    with np.errstate(over="ignore"):  # too large for float32 becomes infinite, which is refused
        return array.astype(wanted)


def _without_time(part: Any) -> Any:
    if part is None:
        return None
    if isinstance(part, Mapping):
        return {name: _without_time(child) for name, child in part.items()}
    return map_state(lambda leaf: leaf[:, 0], part)


def _short(value: Any) -> str:
    text = " ".join(repr(value.tolist() if isinstance(value, np.ndarray) else value).split())
    return text if len(text) <= 60 else f"{text[:57]}..."
