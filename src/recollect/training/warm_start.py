"""Warm start: a new run begins with the weights of another one.

Only the weights are used. Optimiser, counters, generators and memory are those of a new run.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from os import PathLike
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from recollect.agents.actor_critic import is_target_head, without_target_heads
from recollect.agents.normalization import Standardization
from recollect.runs.run_directory import resolve_run
from recollect.training.saved_run import load_checkpoint
from recollect.training.training_aids import all_training_aids


@dataclass(frozen=True)
class Start:
    """Weights of another run from which a run starts."""

    path: str
    """Its directory."""
    step: int
    """Steps that it had trained."""
    weights: Mapping[str, Tensor]
    """Parameters and buffers."""
    training_aids: tuple[str, ...] = ()
    """Training aids of that run, and of the one that it started from."""

    def note(self) -> dict[str, Any]:
        """Return its entry in environment.json of the new run."""
        aids = {"helped": list(self.training_aids)} if self.training_aids else {}
        return {"started_from": {"run": self.path, "step": self.step, **aids}}


def read_start(source: str | PathLike[str]) -> Start:
    """Read the weights of a run.

    Args:
        source: ``RUN`` for its newest checkpoint, ``RUN/best`` for that of its best evaluation.

    Raises:
        ValueError: not a run directory, or it has no such checkpoint.
    """
    path = Path(source).resolve()
    run, best = resolve_run(path)
    checkpoint = load_checkpoint(run.path, best=best)
    earlier = (run.started_from or {}).get("helped", ())
    aids = dict.fromkeys((*earlier, *all_training_aids(run.config)))
    return Start(str(path), checkpoint.progress["step"], checkpoint.weights, tuple(aids))


def fit_weights(start: Start, agent: nn.Module) -> Start:
    """Return the weights of another run for an agent with the same names and shapes.

    Heads that only training targets read may differ: those of the other run are dropped, those of the agent are kept.
    So are the scales of its data.

    Raises:
        ValueError: the weights do not fit; names the differences and the remedy.
    """
    own = {name: tensor.detach().clone() for name, tensor in agent.state_dict().items() if is_target_head(name)}
    heads = {name: start.weights.get(name, tensor) for name, tensor in own.items()}
    norms = [name for name, module in agent.named_modules() if isinstance(module, Standardization)]
    scales = {f"{name}.{part}": tensor for name in norms for part, tensor in agent.get_submodule(name).named_buffers()}
    weights = heads | without_target_heads(start.weights) | scales
    ours = {name: tuple(tensor.shape) for name, tensor in agent.state_dict().items()}
    # Modules may drop names of earlier versions when they load; none of these is a name of the agent's own.
    former = {name: tensor for name, tensor in weights.items() if name not in ours}
    dropped = former.keys() - agent.load_state_dict(former, strict=False).unexpected_keys
    start = replace(start, weights={name: tensor for name, tensor in weights.items() if name not in dropped})
    theirs = {name: tuple(tensor.shape) for name, tensor in start.weights.items()}
    wrong = [
        *(f"{name} is {_shape(theirs[name])} there and {_shape(ours[name])} here"
          for name in ours if name in theirs and theirs[name] != ours[name]),
        *(f"{name} is only here" for name in ours if name not in theirs),
        *(f"{name} is only there" for name in theirs if name not in ours),
    ]  # fmt: skip
    if wrong:
        more = f", and {len(wrong) - 3} more" if len(wrong) > 3 else ""
        raise ValueError(
            f"the weights of {start.path} do not fit this run: {'; '.join(wrong[:3])}{more}. "
            "Choose the task, core and agent settings of that run (they are in its config.json)"
        )
    return start


def _shape(shape: tuple[int, ...]) -> str:
    return "x".join(map(str, shape)) or "a number"
