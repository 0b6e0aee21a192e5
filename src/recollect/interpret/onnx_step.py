"""One step of an agent as an ONNX model, with its memory as inputs and outputs, to be run elsewhere.

    observation, action, reward, is_first, hidden, state.*   ->   policy, value, window, relevance, next.*

Weights are inside. ``hidden`` ``[1, w + 1]`` marks the places of the windows that are hidden (occlusion.py does the
same in Python); cores without a window have no such input. ``window`` ``[w + 1]`` and ``relevance`` ``[n]`` are the
weights of attention, over places of the window and over chunks, as means of layers and heads, where the core has them.
"""

import logging
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from gymnasium.spaces import Box, Discrete
from torch import Tensor, nn

from recollect.agents.actor_critic import ActorCritic
from recollect.agents.contract import ActorInputs
from recollect.cores import HierarchicalChunkMemory, HierarchicalChunkMemoryConfig
from recollect.interpret.attention import RELEVANCE
from recollect.interpret.occlusion import can_hide_steps
from recollect.interpret.playback import core_key
from recollect.layers.tap import Tap, edit_taps, listen, remove_keys
from recollect.ops.torch_internals import single_step_decompositions
from recollect.state import leaves, map_state, named_leaves

PACKAGES = ("onnx", "onnxscript")


class Axis(NamedTuple):
    """The axis of moments in a leaf of the state, the newest in the last place."""

    kind: Literal["steps", "chunks", "lengths"]
    """Single steps of a window, chunks, or how many steps each chunk has (0: no chunk)."""
    place: int  # which axis, from the left


LIVE_CORES: dict[str, dict[str, Axis]] = {
    "hcam": {
        "window": Axis("steps", 1),
        "contents": Axis("chunks", 1),
        "keys": Axis("chunks", 1),
        "lengths": Axis("lengths", 1),
    },
    "transformer-xl": {"window": Axis("steps", 2)},
    "causal-transformer": {"keys": Axis("steps", 2), "values": Axis("steps", 2)},
    "gru": {},
    "lstm": {},
}
"""Cores that can be exported, and the axes of moments in their states, by the last part of a leaf's name."""


class Leaf(NamedTuple):
    """A tensor of the state."""

    name: str
    first: np.ndarray  # what it is before an episode, ``[1, ...]``
    axis: Axis | None


@dataclass(frozen=True, kw_only=True)
class ExportedStep:
    """The model and its signature."""

    model: bytes  # ONNX
    leaves: tuple[Leaf, ...]  # the state, in the order of the inputs ``state.NAME`` and the outputs ``next.NAME``
    window: int  # w; 0 without a window
    outputs: tuple[str, ...]  # names of the outputs, in order


class _Step(nn.Module):
    """A call of one row and one step with its state as a list of tensors."""

    def __init__(self, agent: ActorCritic, window: int) -> None:
        super().__init__()
        self.agent = agent
        self.like = agent.initial_state(1)
        taps = {name: tap for name, tap in agent.core.named_modules() if isinstance(tap, Tap)}
        self.windows = {name: tap for name, tap in taps.items() if window and tap.axes == "b h t s"}
        self.has_taps = bool(taps)
        self.has_chunks = isinstance(agent.core, HierarchicalChunkMemory)

    def forward(self, observation: Tensor, action: Tensor, reward: Tensor, is_first: Tensor, *more: Tensor) -> Any:
        rest = iter(more)
        hidden = next(rest)[:, None, None] if self.windows else None
        state = map_state(lambda _: next(rest), self.like)
        weights: dict[str, list[Tensor]] = {"window": [], "relevance": []}

        def record(name: str, tensor: Tensor) -> None:
            if name in self.windows:
                weights["window"].append(tensor.mean((0, 1, 2)))
            elif name.endswith(RELEVANCE):
                weights["relevance"].append(tensor.flatten(0, -2).mean(0))  # heads may each have one of their own

        inputs = ActorInputs(observation[:, None], action[:, None], reward[:, None])
        with ExitStack() as contexts:
            if hidden is not None:
                edits = {name: partial(remove_keys, hidden=hidden) for name in self.windows}
                contexts.enter_context(edit_taps(self.windows, edits))
            if self.has_taps:
                contexts.enter_context(listen(self.agent.core, record))
            output, state = self.agent(inputs, state, is_first[:, None])
        means = [torch.stack(parts).mean(0) for parts in weights.values() if parts]
        return (output.policy[:, 0], output.value[:, 0], *means, *leaves(state))

    def named_outputs(self) -> tuple[str, ...]:
        means = [name for name, there in (("window", self.windows), ("relevance", self.has_chunks)) if there]
        return ("policy", "value", *means, *(f"next.{name}" for name, _ in named_leaves(self.like)))


def require_exportable(agent: ActorCritic) -> None:
    """Raise ``ValueError`` for an agent that cannot be exported: missing packages, core, spaces or previous outputs."""
    absent = [name for name in PACKAGES if find_spec(name) is None]
    if absent:
        raise ValueError(f"a live page needs {' and '.join(absent)}: pip install {' '.join(absent)}")
    core, config = type(agent.core).__name__, agent.core_config
    carried = isinstance(config, HierarchicalChunkMemoryConfig) and config.carry_across_episodes
    if core_key(agent) not in LIVE_CORES or carried:
        own = f"{core} with carry_across_episodes" if carried else core
        raise ValueError(f"core={own}: a live page can have {', '.join(LIVE_CORES)}; train one of these")
    if not isinstance(agent.action_space, Discrete):
        raise ValueError(f"action_space={agent.action_space}: a live page offers a choice, so give Discrete actions")
    if not isinstance(agent.observation_space, Box):
        raise ValueError(f"observation_space={agent.observation_space}: a live page shows one array, so give a Box")
    if agent.config.previous_action == "logits" or agent.feature_dim:
        raise ValueError(
            "an agent that receives its own logits or features has no live page: use previous_action=action"
        )


def export_step(agent: ActorCritic) -> ExportedStep:
    """Export one step of one row.

    Args:
        agent: in ``eval`` mode, on the processor.

    Raises:
        ValueError: as :func:`require_exportable`.
    """
    require_exportable(agent)
    window = int(getattr(agent.core_config, "memory_len", 0)) if can_hide_steps(agent.core) else 0
    step = _Step(agent, window).eval()
    space = agent.observation_space
    assert isinstance(space, Box) and isinstance(agent.action_space, Discrete)
    state = agent.initial_state(1)
    named = [(name, leaf.detach().clone()) for name, leaf in named_leaves(state)]
    inputs = {
        "observation": torch.zeros(1, *space.shape, dtype=torch.as_tensor(space.low).dtype),
        "action": torch.full((1,), int(agent.action_space.start)),
        "reward": torch.zeros(1),
        "is_first": torch.ones(1, dtype=torch.bool),
    }
    inputs |= {"hidden": torch.zeros(1, window + 1, dtype=torch.bool)} if window else {}
    inputs |= {f"state.{name}": leaf for name, leaf in named}
    outputs = step.named_outputs()
    with torch.no_grad(), _quiet():
        program = torch.export.export(step, tuple(inputs.values()), strict=False)
        program = program.run_decompositions(single_step_decompositions())
        exported = torch.onnx.export(
            program, (), dynamo=True, verbose=False, input_names=list(inputs), output_names=list(outputs)
        )
    assert exported is not None
    axes = LIVE_CORES[core_key(agent)]
    kept = tuple(Leaf(name, leaf.numpy(), axes.get(name.rsplit(".", 1)[-1])) for name, leaf in named)
    return ExportedStep(model=exported.model_proto.SerializeToString(), leaves=kept, window=window, outputs=outputs)


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence the exporter's warnings about optional packages."""
    log = logging.getLogger("torch.onnx")
    before = log.level
    log.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        log.setLevel(before)
