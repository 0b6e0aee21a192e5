"""One step of an agent as ONNX for a page: an exported step that also shows attention and hides places of windows.

    inputs of the agent, hidden, is_first, state.*   ->   action, policy, value, window, relevance, next.*

``hidden`` ``[b, w + 1]`` marks the places of the windows that are hidden (occlusion.py does the same in Python); cores
without a window have no such input. ``window`` ``[w + 1]`` and ``relevance`` ``[n]`` are the weights of attention, over
places of the window and over chunks, as means of rows, layers and heads, where the core has them. Any agent that can be
exported (:mod:`recollect.export`) can be in a page; a memory that keeps no single moments is edited as a whole there.
"""

from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from gymnasium.spaces import Box, Discrete
from torch import Tensor

from recollect.agents.actor_critic import ActorCritic
from recollect.cores import HierarchicalChunkMemory
from recollect.export.step import NEXT, STATE, ActorForm, ModelStep, Named, Port
from recollect.export.trace import require_format, to_onnx, trace
from recollect.interpret.attention import RELEVANCE
from recollect.interpret.occlusion import can_hide_steps
from recollect.interpret.playback import core_key
from recollect.layers.tap import Tap, edit_taps, listen, remove_keys


class Axis(NamedTuple):
    """The axis of moments in a leaf of the state, the newest in the last place."""

    kind: Literal["steps", "chunks", "lengths"]
    """Single steps of a window, chunks, or how many steps each chunk has (0: no chunk)."""
    place: int  # which axis, from the left


AXES: dict[str, dict[str, Axis]] = {
    "hcam": {
        "window": Axis("steps", 1),
        "contents": Axis("chunks", 1),
        "keys": Axis("chunks", 1),
        "lengths": Axis("lengths", 1),
    },
    "transformer-xl": {"window": Axis("steps", 2)},
    "causal-transformer": {"keys": Axis("steps", 2), "values": Axis("steps", 2)},
}
"""Axes of moments in the states of cores that keep single moments, by the last part of a leaf's name."""


class Leaf(NamedTuple):
    """A tensor that a caller keeps from one step to the next: of the state, or an output that the agent reads again."""

    input: str
    output: str
    first: np.ndarray  # what it is before an episode, ``[1, ...]``
    axis: Axis | None


@dataclass(frozen=True, kw_only=True)
class ExportedStep:
    """The model and its signature."""

    model: bytes  # ONNX
    leaves: tuple[Leaf, ...]
    window: int  # w; 0 without a window
    outputs: tuple[str, ...]  # names of the outputs, in order


class LiveForm(ActorForm):
    """A step of an actor-critic with hidden places of its windows, and means of its attention."""

    def __init__(self, agent: ActorCritic, window: int) -> None:
        super().__init__(agent)
        taps = {name: tap for name, tap in agent.core.named_modules() if isinstance(tap, Tap)}
        self.windows = {name: tap for name, tap in taps.items() if window and tap.axes == "b h t s"}
        self.has_taps, self.own = bool(taps), self.outputs
        means = {"window": bool(self.windows), "relevance": isinstance(agent.core, HierarchicalChunkMemory)}
        self.outputs = (*self.own, *(name for name, is_there in means.items() if is_there))
        if self.windows:
            self.inputs = (*self.inputs, Port("hidden", (window + 1,), torch.bool, "places of the windows", 0, 0))

    def step(self, given: Named, state: Any, is_first: Tensor) -> tuple[tuple[Tensor, ...], Any]:
        """Compute one step of the page's model from flat tensors."""
        weights: dict[str, list[Tensor]] = {"window": [], "relevance": []}

        def record(name: str, tensor: Tensor) -> None:
            if name in self.windows:
                weights["window"].append(tensor.mean((0, 1, 2)))
            elif name.endswith(RELEVANCE):
                weights["relevance"].append(tensor.flatten(0, -2).mean(0))  # heads may each have one of their own

        with ExitStack() as contexts:
            if self.windows:
                hidden = given["hidden"][:, None, None]
                edits = {name: partial(remove_keys, hidden=hidden) for name in self.windows}
                contexts.enter_context(edit_taps(self.windows, edits))
            if self.has_taps:
                contexts.enter_context(listen(self.model.core, record))
            found, state = super().step(given, state, is_first)
        means = [torch.stack(parts).mean(0) for name, parts in weights.items() if name in self.outputs and parts]
        return (*found, *means), state


def has_moments(agent: ActorCritic) -> bool:
    """Return whether single moments of an agent's memory can be edited in a page."""
    return core_key(agent) in AXES and can_hide_steps(agent.core)


def require_exportable(agent: ActorCritic) -> None:
    """Raise ``ValueError`` for an agent that cannot be in a page: missing packages, or other spaces."""
    require_format("onnx")
    if not isinstance(agent.action_space, Discrete):
        raise ValueError(f"action_space={agent.action_space}: a live page offers a choice, so give Discrete actions")
    if not isinstance(agent.observation_space, Box):
        raise ValueError(f"observation_space={agent.observation_space}: a live page shows one array, so give a Box")


def live_step(agent: ActorCritic) -> ModelStep:
    """Return the step of a page."""
    window = int(getattr(agent.core_config, "memory_len", 0)) if has_moments(agent) else 0
    return ModelStep(LiveForm(agent, window)).eval()


def export_step(agent: ActorCritic) -> ExportedStep:
    """Export one step of a model with its state to ONNX, for the live page.

    Args:
        agent: in ``eval`` mode, on the processor.

    Raises:
        ValueError: as :func:`require_exportable`, or the agent cannot be exported.
    """
    require_exportable(agent)
    step = live_step(agent)
    hidden = [port.shape[0] for port in step.inputs if port.name == "hidden"]
    axes = AXES.get(core_key(agent), {}) if has_moments(agent) else {}
    kept = [
        Leaf(f"{STATE}{port.name}", f"{NEXT}{port.name}", leaf.numpy(), axes.get(port.name.rsplit(".", 1)[-1]))
        for port, leaf in zip(step.leaves, step.initial(1), strict=True)
    ]
    kept += [  # the page itself gives the action that was taken
        Leaf(port.name, port.source, np.zeros((1, *port.shape), np.float32), None)
        for port in step.form.inputs
        if port.source not in (None, "action")
    ]
    model = to_onnx(trace(step), step)
    return ExportedStep(model=model, leaves=tuple(kept), window=hidden[0] - 1 if hidden else 0, outputs=step.outputs)
