"""Experiments that need the agent: does behaviour follow the memory, and does the picture depend on the weights?

    deletion     the original action's probability while chunks are taken away, the most attended first: a low area
                 means that attention names what is used
    insertion    the same while only the most attended chunks are there: a high area means the same

swaps.py has what happens with another's memory, robustness.py what does not hang on where chunks begin.

Areas stand beside those of a random order, and of the best one (by what each chunk's removal does).
Source: deletion and insertion are those of Petsiuk et al., RISE (2018), over chunks of time instead of pixels.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import torch

from recollect.agents.actor_critic import ActorCritic
from recollect.evaluation.agents import evaluation_mode
from recollect.interpret.agreement import blurred_places
from recollect.interpret.attention import Attention, record_attention
from recollect.interpret.episodes import LiveEpisode, record_episode
from recollect.interpret.playback import Playback
from recollect.interpret.recall import Ratio, decisions, maps_of
from recollect.interpret.removal import policies_without
from recollect.interpret.report import Gate, Report
from recollect.interpret.robustness import moved_boundaries, sufficiency
from recollect.interpret.score import memory_heads, pooled, score, verdict
from recollect.interpret.swaps import cue_swap, memory_swap

ORDERS = 4
"""Random orders that stand beside an order."""
ALIKE = 0.5
"""Rank correlation of maps above which other weights are said to make no difference."""


class Areas(NamedTuple):
    """Mean probability of the action that was taken, over all numbers of chunks."""

    attention: float
    random: float
    best: float


def score_with_controls(episodes: Sequence[LiveEpisode]) -> Report:
    """:func:`recollect.interpret.score.score`, and everything that needs the agent.

    Args:
        episodes: of one agent.
    """
    report = score(episodes)
    metrics, gates = list(report.metrics), list(report.gates)
    for name, take in (("deletion", True), ("insertion", False)):
        curves = [found for episode in episodes if (found := area(episode, take=take))]
        metrics += pooled(f"{name} AUC", [Ratio(c.attention, c.random, 1) for c in curves], against="random order")
        metrics += pooled(
            f"{name} AUC, best order", [Ratio(c.best, c.random, 1) for c in curves], against="random order"
        )
    for name, ratios in blurred_places(episodes).items():
        metrics += pooled(name, ratios, against="random order")
    metrics += memory_swap(episodes) + cue_swap(episodes) + moved_boundaries(episodes)
    repeated = repeats(episodes[0])
    if repeated.passed:  # else no episode can be lived again, as the gate says
        metrics += sufficiency(episodes)
    gates += [decides_alike(episodes), repeated, depends_on_weights(episodes[0])]
    gates += untrained(episodes)
    report = replace(report, metrics=tuple(metrics), gates=tuple(gates))
    return replace(report, verdict=verdict(episodes[0], report))


@torch.no_grad()
def area(episode: LiveEpisode, *, take: bool) -> Areas | None:
    """The area of deletion (``take``) or insertion at the decisions of an episode; None where there is none.

    Args:
        episode: with ``removal``, for the best order.
        take: whether chunks are taken away, most attended first, or only those are left.
    """
    removal, agent = episode.removal, episode.agent
    asked = {decision.t for decision in decisions(episode)}
    if removal is None or removal.unit != "chunk" or not episode.discrete or not asked:
        return None
    attended, generator = maps_of(episode, memory_heads(episode)).chunks, np.random.default_rng(0)
    sums: list[np.ndarray] = []
    playback = episode.playback()
    with evaluation_mode(agent, episode.info.seed):
        for t, state in playback.states():
            held = np.flatnonzero(~np.isnan(removal.kl[t]) & ~np.isnan(attended[t])) if t in asked else np.array([])
            if len(held) < 2:
                continue
            orders = [held[np.argsort(-weights[t, held], kind="stable")] for weights in (attended, removal.kl)]
            orders += [generator.permutation(held) for _ in range(ORDERS)]
            hidden = _prefixes(episode, orders, take).to(playback.is_first.device)
            policy = policies_without(playback, t, state, hidden).policy[1:, 0]
            action = torch.as_tensor(episode.action[t], device=policy.device).expand(len(policy))
            right = agent.distribution(policy).log_prob(action).exp().cpu().numpy()
            sums.append(right.reshape(len(orders), -1).mean(1))
    if not sums:
        return None
    mean = np.mean(sums, 0)
    return Areas(float(mean[0]), float(mean[2:].mean()), float(mean[1]))


def _prefixes(episode: LiveEpisode, orders: Sequence[np.ndarray], take: bool) -> torch.Tensor:
    """What is hidden after 0, 1, ... chunks were taken away or put back, bool ``[orders * (m + 1), T]``."""
    rows = []
    for order in orders:
        for number in range(len(order) + 1):
            gone = order[:number] if take else order[number:]
            row = torch.zeros(episode.num_steps, dtype=torch.bool)
            for chunk in gone:
                start, stop = episode.chunks[chunk]
                row[start:stop] = True
            rows.append(row)
    return torch.stack(rows)


@torch.no_grad()
def decides_alike(episodes: Sequence[LiveEpisode]) -> Gate:
    """The pass in which attention was heard gives the policies with which the agent acted."""
    worst = 0.0
    for episode in episodes:
        playback = episode.playback()
        with evaluation_mode(episode.agent, episode.info.seed):
            outputs = record_attention(episode.agent.core, playback.encoded).outputs
            output = episode.agent.decide(outputs, playback.encoded, episode.inputs)
        policy = output.policy[0].float().cpu().numpy()
        worst = max(worst, float(np.abs(policy - episode.logits).max()))
    says = f"largest difference of a policy parameter between acting and listening: {worst:.1e}"
    return Gate(name="heard as acted", passed=worst < 1e-2, says=says)


def repeats(episode: LiveEpisode) -> Gate:
    """The same seed gives the same record."""
    info = episode.info
    again = record_episode(
        episode.agent, episode.world, seed=info.seed, greedy=info.greedy, longest=max(episode.num_steps, 1)
    )
    same = np.array_equal(again.action, episode.action) and np.array_equal(again.frames, episode.frames)
    same = same and all(_same(again.observations[name], part) for name, part in episode.observations.items())
    return Gate(name="equal seeds", passed=same, says="equal" if same else "the same seed gives another episode")


def _same(one: np.ndarray, other: np.ndarray) -> bool:
    return np.array_equal(one, other, equal_nan=np.issubdtype(one.dtype, np.floating))


def _other_weights(agent: ActorCritic, seed: int) -> ActorCritic:
    """The same agent before training."""
    with evaluation_mode(agent, seed):
        return ActorCritic.from_description(agent.describe()).to(next(agent.parameters()).device).eval()


def depends_on_weights(episode: LiveEpisode) -> Gate:
    """Maps of an untrained agent that is told the same: their ranks should not be those of the trained one's."""
    name = "depends on weights"
    if episode.temporal is None:
        return Gate(name=name, passed=None, says="there are no maps")
    found = [_rank_correlation(episode, _other_weights(episode.agent, seed)) for seed in (1, 2, 3)]
    mean = float(np.nanmean(found)) if not np.isnan(found).all() else float("nan")
    passed = None if np.isnan(mean) else mean < ALIKE
    return Gate(name=name, passed=passed, says=f"rank correlation with maps of untrained weights: {mean:.2f}")


def _rank_correlation(episode: LiveEpisode, other: ActorCritic) -> float:
    """Mean Spearman correlation of the memory's maps over steps, at decisions where there are any."""
    assert episode.temporal is not None
    with evaluation_mode(other, 0):
        maps = record_attention(other.core, Playback(other, episode.inputs).encoded).temporal
    if maps is None:
        return float("nan")
    heads = memory_heads(episode)
    ours, theirs = maps_of(episode, heads).steps, maps_of(replace(episode, temporal=maps), heads).steps
    steps = [decision.t for decision in decisions(episode)] or range(episode.num_steps)
    found = []
    for t in steps:
        seen = ~np.isnan(ours[t]) & ~np.isnan(theirs[t])
        if seen.sum() >= 8 and ours[t, seen].std() > 0 and theirs[t, seen].std() > 0:
            found.append(np.corrcoef(_ranks(ours[t, seen]), _ranks(theirs[t, seen]))[0, 1])
    return float(np.mean(found)) if found else float("nan")


def _ranks(values: np.ndarray) -> np.ndarray:
    return values.argsort(kind="stable").argsort(kind="stable").astype(float)


def untrained(episodes: Sequence[LiveEpisode]) -> list[Gate]:
    """An untrained agent that is told the same episodes does not recall as well; nothing without ground truth."""
    ours = score(episodes)
    if "mass on key" not in ours:
        return []
    other = _other_weights(episodes[0].agent, 1)
    theirs = []
    for episode in episodes:
        with evaluation_mode(other, 0):
            heard = record_attention(other.core, Playback(other, episode.inputs).encoded)
        theirs.append(replace(episode, agent=other, removal=None, **_maps(heard)))
    value, control = ours["mass on key"].value, score(theirs)["mass on key"].value
    says = f"mass on the key {value:.2f}, with untrained weights {control:.2f}"
    return [Gate(name="untrained agent recalls less", passed=value > control, says=says)]


def _maps(heard: Attention) -> dict[str, Any]:
    names = ("heads", "temporal", "chunks", "chunk_rel", "chunk_read", "chunk_tail")
    return {name: getattr(heard, name) for name in names}
