"""Start from: a new run that begins with the weights of another one.

Only the weights are taken over. Optimiser, counters, generators and memory are those of a new run.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from os import PathLike
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from recollect.agents.actor_critic import is_target_head, without_target_heads
from recollect.runs.run_directory import RunDirectory
from recollect.training.saved_run import load_checkpoint
from recollect.training.training_aids import all_training_aids


@dataclass(frozen=True)
class Start:
    """Weights of another run."""

    path: str
    """Its directory."""
    step: int
    """After how many of its steps."""
    weights: Mapping[str, Tensor]
    """Parameters and buffers."""
    helped: tuple[str, ...] = ()
    """What helped that run in learning, and the one that it started from."""

    def note(self) -> dict[str, Any]:
        """What environment.json of the new run says of it."""
        helped = {"helped": list(self.helped)} if self.helped else {}
        return {"started_from": {"run": self.path, "step": self.step, **helped}}


def read_start(source: str | PathLike[str]) -> Start:
    """Weights of a run.

    Args:
        source: ``RUN`` for its newest checkpoint, ``RUN/best`` for that of its best evaluation.

    Raises:
        ValueError: not a run directory, or it has no such checkpoint.
    """
    path = Path(source).resolve()
    best = path.name == RunDirectory(path).best.name and RunDirectory(path.parent).config.is_file()
    run = path.parent if best else path
    checkpoint, folder = load_checkpoint(run, best=best), RunDirectory(run)
    before = (folder.started_from() or {}).get("helped", ())
    helped = dict.fromkeys((*before, *all_training_aids(folder.read_config())))
    return Start(str(path), checkpoint.progress["step"], checkpoint.weights, tuple(helped))


def fitted(start: Start, agent: nn.Module) -> Start:
    """The weights of another run for an agent, whose names and shapes they have.

    A head that only targets of training read may be only there, and is left out, or only here, and stays as it is.

    Raises:
        ValueError: they do not fit; says in what, and what to do.
    """
    own = {name: tensor.detach().clone() for name, tensor in agent.state_dict().items() if is_target_head(name)}
    weights = {name: start.weights.get(name, tensor) for name, tensor in own.items()} | without_target_heads(
        start.weights
    )
    start = replace(start, weights=weights)
    theirs = {name: tuple(tensor.shape) for name, tensor in start.weights.items()}
    ours = {name: tuple(tensor.shape) for name, tensor in agent.state_dict().items()}
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
