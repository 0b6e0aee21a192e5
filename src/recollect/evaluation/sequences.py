"""Scores with an interval, and models from run directories.

The score of a sequence model is the share of asked steps that are answered correctly. Rows are the independent
units: the interval is the percentile bootstrap over rows (Efron, 1979), 95 %. Agents in worlds are scored by
``evaluate_agents.py``; :func:`evaluate_run` serves the runs of both.
"""

from dataclasses import dataclass
from os import PathLike
from typing import Any

import torch

from recollect.agents.actor_critic import ActorCritic
from recollect.agents.sequence_model import SequenceModel
from recollect.config import from_json
from recollect.evaluation.agents import AgentEvaluation, evaluate_agent
from recollect.evaluation.confidence_interval import confidence_interval
from recollect.objectives.cross_entropy import correct, cross_entropy
from recollect.runs import checkpoints
from recollect.runs.checkpoints import Checkpoint
from recollect.runs.run_directory import RunDirectory
from recollect.tasks.streams.contract import StreamTask


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """What a model scores on fresh rows of a task."""

    score: float
    """Share of asked steps answered correctly."""
    low: float
    """Lower end of the 95 % interval."""
    high: float
    """Upper end of the 95 % interval."""
    perfect: float
    """Share of rows without a mistake."""
    loss: float
    """Mean negative log-likelihood of a scored step, in nats."""
    chance: float
    """Score of a model without memory."""
    correct: list[int]
    """Right answers in each row."""
    asked: list[int]
    """Questions in each row."""

    def metrics(self) -> dict[str, float]:
        """The numbers of a metrics row."""
        return {name: getattr(self, name) for name in METRICS}


METRICS = ("score", "low", "high", "perfect")


@torch.no_grad()
def evaluate(
    model: SequenceModel,
    task: StreamTask,
    *,
    rows: int = 512,
    batch_size: int = 64,
    seed: int = 0,
    unroll: int | None = None,
    bfloat16: bool = False,
) -> Evaluation:
    """Score a model on fresh rows.

    Args:
        model: on any device; its mode is put back afterwards.
        task: what is asked.
        rows: how many rows.
        batch_size: rows at a time.
        seed: of the rows. Nothing is drawn from the global generators.
        unroll: steps per call, with the memory carried; None takes a row at once. The numbers are the same.
        bfloat16: use autocast.
    """
    if rows < 1:
        raise ValueError(f"rows={rows}: evaluate on at least one row")
    device = next(model.parameters()).device
    generator = torch.Generator().manual_seed(seed)
    right, asked, losses = [], [], []
    was_training = model.training
    model.eval()
    try:
        for start in range(0, rows, batch_size):
            batch = task.sample(min(batch_size, rows - start), generator).to(device)
            state: Any = model.initial_state(batch.inputs.shape[0])
            cuts = []
            for begin in range(0, batch.inputs.shape[1], unroll or batch.inputs.shape[1]):
                part = batch.steps(begin, begin + (unroll or batch.inputs.shape[1]))
                with torch.autocast(device.type, torch.bfloat16, enabled=bfloat16):
                    logits, state = model(part.inputs, state, part.is_first)
                cuts.append(logits.float())
            logits = torch.cat(cuts, 1)
            right.append(correct(logits, batch.targets, batch.score_mask).sum(1))
            asked.append(batch.score_mask.sum(1))
            losses.append(cross_entropy(logits, batch.targets, batch.score_mask) * batch.score_mask.sum())
    finally:
        model.train(was_training)
    n_right, n_asked = torch.cat(right).cpu().numpy(), torch.cat(asked).cpu().numpy()
    low, high = confidence_interval(n_right, n_asked)
    return Evaluation(
        score=float(n_right.sum() / n_asked.sum()),
        low=low,
        high=high,
        perfect=float((n_right == n_asked).mean()),
        loss=float(torch.stack(losses).sum() / n_asked.sum()),
        chance=task.spec.chance,
        correct=n_right.tolist(),
        asked=n_asked.tolist(),
    )


def load_config(directory: str | PathLike[str]) -> Any:
    """The config of a run directory, as the trainer's dataclass.

    Raises:
        ValueError: not a run directory, or its config names something unknown.
    """
    from recollect.training.fit import TrainerConfig
    from recollect.training.trainers import KINDS  # the table lists the trainers, which import this module

    return from_json(RunDirectory(directory).read_config(), TrainerConfig, KINDS)


def load_checkpoint(directory: str | PathLike[str]) -> Checkpoint:
    """The newest complete checkpoint of a run.

    Raises:
        ValueError: not a run directory, or there is no complete checkpoint in it.
    """
    run = RunDirectory(directory)
    run.read_config()
    checkpoint, torn = checkpoints.read_newest(run.checkpoints)
    if checkpoint is None:
        torn_too = f" ({'; '.join(torn)})" if torn else ""
        raise ValueError(f"{run.path} has no complete checkpoint yet{torn_too}: train it with --resume")
    return checkpoint


def load_model(directory: str | PathLike[str], device: torch.device | str = "cpu") -> Any:
    """The agent of a run directory, with the weights of its newest complete checkpoint, in ``eval`` mode.

    Returns:
        What the run's trainer trains: a ``SequenceModel``, or an ``ActorCritic``.

    Raises:
        ValueError: as :func:`load_config` and :func:`load_checkpoint`.
    """
    model = load_config(directory).build_agent()
    model.load_state_dict(dict(load_checkpoint(directory).weights))
    return model.to(device).eval()


FRESH_SEED = 2_000_003  # far from the seeds that runs train and evaluate with


def evaluate_run(
    directory: str | PathLike[str],
    *,
    rows: int = 512,
    episodes: int = 128,
    greedy: bool | None = None,
    seed: int = 0,
    device: torch.device | str = "cpu",
) -> Evaluation | AgentEvaluation:
    """Score the newest checkpoint of a run on fresh rows of its own task, or in fresh episodes of its own world.

    Args:
        directory: of the run.
        rows: how many rows, for a stream task.
        episodes: how many episodes, for a world.
        greedy: in a world, take the likeliest action, or else draw from the policy; None does what the run's own
            evaluations did.
        seed: of the rows or the world, which no run has trained or been evaluated on.
        device: where to compute.

    Raises:
        ValueError: as :func:`load_config` and :func:`load_checkpoint`, or no rows or episodes are asked for.
    """
    config, model = load_config(directory), load_model(directory, device)
    if isinstance(model, ActorCritic):
        how = config.evaluation.greedy if greedy is None else greedy
        return evaluate_agent(model, config.world, episodes, seed=FRESH_SEED + seed, greedy=how)
    return evaluate(
        model, config.task, rows=rows, seed=FRESH_SEED + seed, unroll=config.unroll, bfloat16=config.bfloat16
    )
