"""Evaluation of agents: scores and returns in fresh episodes of a world.

Short episodes must not be counted more often than long ones, so the number of episodes per row is fixed in advance:
``episodes`` are shared out evenly, and episodes after a row's share are not counted.
Rows are the independent units of the interval (an agent may carry memory from one episode of a row to the next).
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple, cast

import gymnasium
import numpy as np
import torch
from torch import Tensor, nn

from recollect.agents.contract import ActorInputs, ActorOutput, Agent, as_previous_output, no_previous_output
from recollect.agents.policies import marginal_policy
from recollect.evaluation.confidence_interval import confidence_interval
from recollect.evaluation.score import Score
from recollect.evaluation.sequences import eval_mode
from recollect.evaluation.world_guard import GuardedWorld
from recollect.runs.errors import RunError, WorldError
from recollect.runs.interrupts import TimeLimitExceeded, time_limited
from recollect.runs.progress import ProgressReporter
from recollect.runs.random_states import random_states, restore_random_states, seed_everything
from recollect.state import spread_rows
from recollect.tasks.worlds.contract import Step, World, WorldConfig, observation_leaves

TIME_LIMIT = 3600.0  # time limit of an evaluation in seconds
EPISODE_LIMIT = (
    "begin a run whose episodes have a limit: max_steps in the world's config; of a Gymnasium environment "
    "--world.options max_episode_steps=1000"
)
"""Settings that limit the length of episodes, for messages."""
METRICS = ("score", "low", "high", "return", "length")


@dataclass(frozen=True, kw_only=True)
class AgentEvaluation(Score):
    """Evaluation of an agent in fresh episodes of a world; :attr:`score` is the mean over episodes."""

    mean_return: float
    """Mean sum of rewards of an episode, undiscounted."""
    mean_length: float
    """Mean number of actions in an episode."""
    truncated: float
    """Share of episodes that a time limit truncated."""
    oracle: float
    """Expected score of the best policy; NaN when unknown."""
    policies: Mapping[str, float] = field(default_factory=dict)
    """Scores of the world's reference policies, where requested."""
    scores: list[float]
    """Score of every episode, ordered by row."""
    returns: list[float]
    """Sum of rewards of every episode."""
    lengths: list[int]
    """Actions of every episode."""
    rows: list[int]
    """Row that played every episode."""

    def metrics(self) -> dict[str, float]:
        """Return the numbers of a row of metrics.csv, by the names of :data:`METRICS`."""
        numbers = (self.score, self.low, self.high, self.mean_return, self.mean_length)
        return dict(zip(METRICS, numbers, strict=True))

    def to_json(self) -> dict[str, Any]:
        """Return all numbers but those of single episodes."""
        known = {"chance": self.chance, "oracle": self.oracle, "truncated": self.truncated}
        return {**self.metrics(), **known, **self.policies, "episodes": len(self.scores)}

    def by_row(self) -> tuple[list[float], list[int]]:
        """Return the sum of scores and the number of episodes of each row."""
        rows = np.array(self.rows)
        return np.bincount(rows, self.scores).round(6).tolist(), np.bincount(rows).tolist()

    def describe(self) -> str:
        """Describe the evaluation in one line."""
        known = {"chance": self.chance, **self.policies, "oracle": self.oracle}
        return (
            f"score {self.score:.4f} ({self.interval()}{len(self.scores)} episodes), "
            f"return {self.mean_return:.4g}, length {self.mean_length:.4g}"
            + "".join(f", {name} {value:.4g}" for name, value in known.items() if not math.isnan(value))
        )


class PlayStep(NamedTuple):
    """One step of b rows during play."""

    step: Step
    """Step of the world."""
    output: ActorOutput
    """Output of the agent, without a time axis."""
    action: Tensor
    """Next action, ``[b, *action_shape]``; the world ignores it in rows with ``step.is_last``."""


def split_episodes(episodes: int, rows: int) -> np.ndarray:
    """Share episodes out over rows as evenly as possible, int64 ``[rows]``."""
    return np.array([episodes // rows + (row < episodes % rows) for row in range(rows)])


def evaluate_agent(  # noqa: PLR0913  (two of them are limits)
    agent: Agent,
    world_config: WorldConfig,
    episodes: int = 128,
    *,
    seed: int = 0,
    greedy: bool = True,
    device: torch.device | str | None = None,
    batch_size: int = 64,
    step_limit: int = 100_000,
    time_limit: float = TIME_LIMIT,
) -> AgentEvaluation:
    """Score an agent in fresh episodes; its modes and the global generators are restored afterwards.

    Args:
        agent: plays in ``eval`` mode.
        world_config: of the world.
        episodes: exact number of counted episodes.
        seed: of the world and of sampled actions.
        greedy: take the most probable action; False samples from the policy.
        device: of the world; None takes the agent's.
        batch_size: most rows that play in parallel.
        step_limit: most steps of an episode, for worlds that set no limit of their own.
        time_limit: seconds of the whole evaluation.

    Raises:
        ValueError: fewer than one episode or row.
        WorldError: the world raises, exits, hangs or returns invalid steps; an episode outlasts ``step_limit``, or the
            evaluation ``time_limit``: names the rows that did not end.
    """
    if episodes < 1 or batch_size < 1:
        raise ValueError(f"episodes={episodes}, batch_size={batch_size}: play at least one episode in one row")
    where = next(agent.parameters()).device if device is None else torch.device(device)
    width = min(episodes, batch_size)
    tally = _Tally(torch.tensor(split_episodes(episodes, width).tolist(), device=where))
    with evaluation_mode(agent, seed):
        try:
            with time_limited(time_limit, patience=0.0):
                world = GuardedWorld(world_config, width, seed=seed, device=where)
                try:
                    _play_shares(agent, world, tally, seed, greedy, step_limit)
                finally:
                    world.close()
        except TimeLimitExceeded:
            raise WorldError(
                f"{world_config.title}: an evaluation of {episodes} episodes is not over after {time_limit:g} s; "
                f"{tally.missing()}",
                f"put the world right or raise evaluation.time_limit, then resume; or {EPISODE_LIMIT}",
            ) from None
    return _summary(tally, world)


def _play_shares(agent: Agent, world: GuardedWorld, tally: "_Tally", seed: int, greedy: bool, step_limit: int) -> None:
    check_every = 1 if world.device.type == "cpu" else 32  # each check waits for the accelerator
    limit = int(tally.share.max()) * ((world.spec.max_steps or step_limit) + 1) + check_every
    count = ProgressReporter(int(tally.share.sum()), "episodes")
    try:
        for taken, played in enumerate(play(agent, world, seed=seed, greedy=greedy)):
            tally.add(played.step)
            if taken % check_every == 0:
                if bool((tally.done >= tally.share).all()):
                    break
                count.update(lambda: int(tally.done.sum()), f"step {taken}")
            if taken > limit:
                raise WorldError(
                    f"an episode of {world.name} is not over after {taken} steps ({tally.missing()})",
                    f"{EPISODE_LIMIT}; or raise step_limit",
                )
    except RunError:
        raise
    except Exception:
        world.check_last_step()
        raise
    tally.check(world.name)


def play(
    agent: Agent, world: World, *, seed: int = 0, greedy: bool = True, noise: Sequence[float] = ()
) -> Iterator[PlayStep]:
    """Play without end, from a reset; the caller stops.

    Args:
        agent: plays in its present mode.
        world: is reset, without a new seed.
        seed: of sampled actions.
        greedy: take the most probable action; False samples from the policy.
        noise: shares of actions drawn from the marginal policy, cycling over the rows; empty: none.
    """
    device = next(agent.parameters()).device
    generator = torch.Generator(device).manual_seed(seed)
    stream = agent.stream(world.batch_size)
    turns = torch.arange(world.batch_size) % len(noise) if noise else None
    share = None if turns is None else torch.tensor(list(noise), device=device)[turns.to(device)]
    step, action = world.reset(), initial_action(world)
    policy, features = no_previous_output(agent, world.batch_size, torch.zeros((), device=device))
    while True:
        here = _move(step, device)
        inputs = ActorInputs(here.observation, action.to(device), here.reward, policy, features)
        output = stream.step(inputs, here.is_first)
        policy, features = as_previous_output(agent, output)
        distribution = agent.distribution(output.policy)
        action = distribution.mode() if greedy else distribution.sample(generator=generator)
        if share is not None:
            marginal = agent.distribution(marginal_policy(output.policy))
            drawn = torch.rand(share.shape, generator=generator, device=device) < share
            action = torch.where(spread_rows(drawn, action), marginal.sample(generator=generator), action)
        yield PlayStep(step, output, action)
        step = world.step(action.to(world.device))


def initial_action(world: World) -> Tensor:
    """Return a placeholder for the action before the first observation, ``[b, *action_shape]``; no agent reads it."""
    space = world.spec.action_space
    dtype = torch.float32 if isinstance(space, gymnasium.spaces.Box) else torch.long
    return torch.zeros(world.batch_size, *(space.shape or ()), dtype=dtype, device=world.device)


class _Tally:
    """Statistics of every row's share of episodes, updated without waiting for the device."""

    def __init__(self, share: Tensor) -> None:
        shape = (len(share), int(share.max()))
        self.share = share  # b
        self.done = torch.zeros_like(share)
        self.sum_reward = torch.zeros(len(share), dtype=torch.float64, device=share.device)
        self.actions = torch.zeros_like(share)
        self.score = torch.zeros(shape, dtype=torch.float64, device=share.device)
        self.returned = torch.zeros_like(self.score)
        self.length = torch.zeros(shape, dtype=torch.long, device=share.device)
        self.cut = torch.zeros(shape, dtype=torch.bool, device=share.device)
        self.unusable = torch.zeros(len(share), dtype=torch.bool, device=share.device)

    def add(self, step: Step) -> None:
        self.sum_reward = torch.where(step.is_first, 0.0, self.sum_reward + step.reward)
        self.actions = torch.where(step.is_first, 0, self.actions + 1)
        for _, leaf in named_parts(step.observation):
            if leaf.is_floating_point():
                self.unusable = self.unusable | ~leaf.isfinite().flatten(1).all(1)
        counted = step.is_last & (self.done < self.share)
        if counted.device.type == "cpu" and not counted.any():  # on an accelerator the check would cost more
            return
        place = self.done.clamp(max=self.score.shape[1] - 1)[:, None]
        for kept, value in (
            (self.score, step.score.double()),
            (self.returned, self.sum_reward),
            (self.length, self.actions),
            (self.cut, step.truncated),
        ):
            old = kept.gather(1, place)
            kept.scatter_(1, place, torch.where(counted[:, None], value[:, None], old))
        self.done = self.done + counted

    def missing(self) -> str:
        """Describe the rows that have not played their share."""
        rows = (self.done < self.share).nonzero()[:, 0].tolist()
        shown = ", ".join(map(str, rows[:8])) + (", ..." if len(rows) > 8 else "")
        never = [row for row in rows if not self.done[row]]
        which = "all of them" if len(never) == len(rows) else f"{len(never)} of them" if never else "none of them"
        return f"{len(rows)} of {len(self.share)} rows have not ended their episodes: {shown}; {which} ended none"

    def check(self, name: str) -> None:
        """Raise :class:`WorldError` where an observation, reward or score is not finite."""
        numbers = torch.where(self.unusable, torch.nan, self.returned.sum(1) + self.score.sum(1))
        wrong = (~numbers.isfinite()).nonzero()[:, 0].tolist()
        if wrong:
            what = "an observation" if bool(self.unusable[wrong[0]]) else "a reward or score"
            raise WorldError(f"{name}: {what} in row {wrong[0]} of an evaluation is not finite")


def _summary(tally: _Tally, world: World) -> AgentEvaluation:
    share = tally.share.cpu().numpy()
    played = np.arange(tally.score.shape[1]) < share[:, None]
    score, returned, length, cut = (x.cpu().numpy() for x in (tally.score, tally.returned, tally.length, tally.cut))
    low, high = confidence_interval(score.sum(1), share)
    return AgentEvaluation(
        score=float(score[played].mean()),
        low=low,
        high=high,
        mean_return=float(returned[played].mean()),
        mean_length=float(length[played].mean()),
        truncated=float(cut[played].mean()),
        chance=world.spec.chance,
        oracle=world.spec.oracle,
        scores=score[played].tolist(),
        returns=returned[played].tolist(),
        lengths=length[played].tolist(),
        rows=np.repeat(np.arange(len(share)), share).tolist(),
    )


@contextmanager
def evaluation_mode(agent: Agent, seed: int) -> Iterator[None]:
    """Put an agent in ``eval`` mode and seed global generators (user worlds may use them); restore both afterwards."""
    states = random_states()
    try:
        seed_everything(seed)
        with eval_mode(cast(nn.Module, agent)):
            yield
    finally:
        restore_random_states(states.tensors, states.data)


def named_parts(tree: Any) -> Iterator[tuple[str, Any]]:
    """Yield dotted name and part of every leaf of an observation, or of its space; the name of a lone one is empty."""
    for name, leaf in observation_leaves(tree):
        yield name.removeprefix("."), leaf


def _move(step: Step, device: torch.device) -> Step:
    def move(value: Any) -> Any:
        return {k: move(v) for k, v in value.items()} if isinstance(value, dict) else value.to(device)

    return Step(*(move(field) for field in step))
