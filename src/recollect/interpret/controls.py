"""Experiments that need the agent: does behaviour follow the memory, and does the picture depend on the weights?

    deletion     the original action's probability while chunks are removed, the most attended first: a low area means
                 that attention names what is used
    insertion    the same while only the most attended chunks are present: a high area means the same
    of places    the same for places of the picture that are blurred, in the order of attention or of a saliency

Areas of chunks have two controls: a random order, and the best one (by the effect of each chunk's removal); those of
places a random order. swaps.py exchanges memories, robustness.py moves the boundaries of chunks.

Source: deletion and insertion are those of Petsiuk et al., RISE (2018), here over chunks of time too.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from recollect.evaluation.agents import evaluation_mode
from recollect.interpret.ablation import Ablation
from recollect.interpret.episodes import LiveEpisode
from recollect.interpret.findings import describe_findings
from recollect.interpret.gates import decides_alike, depends_on_weights, repeats, untrained_recalls_less
from recollect.interpret.occlusion import mask_of
from recollect.interpret.pointing import GRID, on_grid
from recollect.interpret.recall import decisions, maps_of
from recollect.interpret.record import memory_heads
from recollect.interpret.removal import policies_without
from recollect.interpret.report import Ratio, Report, pool
from recollect.interpret.robustness import moved_boundaries, sufficiency
from recollect.interpret.saliency import find_image, policy_with_blur, sees_image
from recollect.interpret.score import score
from recollect.interpret.swaps import cue_swap, memory_swap
from recollect.interpret.verdict import with_verdict

ORDERS = 4  # random orders that are compared with an order
STEPS = 6  # steps of an episode at which places are blurred one after the other


class Areas(NamedTuple):
    """Mean probability of the action that was taken, over all numbers of chunks."""

    attention: float
    random: float
    best: float


def score_with_controls(episodes: Sequence[LiveEpisode], ablation: Ablation | None = None) -> Report:
    """Return :func:`recollect.interpret.score.score` with all experiments that need the agent.

    Args:
        episodes: of one agent.
        ablation: of the same agent, for the verdict: scores with and without its memory.
    """
    report, first = score(episodes), episodes[0]
    metrics, gates = list(report.metrics), list(report.gates)
    for name, take in (("deletion", True), ("insertion", False)):
        areas = [found for episode in episodes if (found := chunk_areas(episode, take=take))]
        metrics += pool(f"{name} AUC", [Ratio(a.attention, a.random, 1) for a in areas], against="random order")
        best = [Ratio(a.best, a.random, 1) for a in areas]
        metrics += pool(f"{name} AUC, best order", best, against="random order")
    for name, ratios in place_areas(episodes).items():
        metrics += pool(name, ratios, against="random order")
    metrics += memory_swap(episodes) + cue_swap(episodes) + moved_boundaries(episodes)
    repeated = repeats(first)
    if repeated.passed:  # else no episode can be rerun, as the gate says
        metrics += sufficiency(episodes)
    gates += [decides_alike(episodes), repeated, depends_on_weights(first), *untrained_recalls_less(episodes)]
    report = replace(report, metrics=tuple(metrics), gates=tuple(gates))
    return with_verdict(replace(report, findings=describe_findings(first, report)), episodes, ablation)


@torch.no_grad()
def chunk_areas(episode: LiveEpisode, *, take: bool) -> Areas | None:
    """Return the area of deletion (``take``) or insertion at the decisions of an episode; None without decisions.

    Args:
        episode: with ``removal``, for the best order.
        take: whether chunks are removed, most attended first, or only those are left.
    """
    removal = episode.removal
    deciding = {decision.t for decision in decisions(episode)}
    if removal is None or removal.unit != "chunk" or not episode.discrete or not deciding:
        return None
    attended, generator = maps_of(episode, memory_heads(episode)).chunks, np.random.default_rng(0)
    sums: list[np.ndarray] = []
    playback = episode.playback()
    with evaluation_mode(episode.agent, episode.info.seed):
        for t, state in playback.states(deciding):
            held = np.flatnonzero(~np.isnan(removal.kl[t]) & ~np.isnan(attended[t]))
            if len(held) < 2:
                continue
            orders = [held[np.argsort(-weights[t, held], kind="stable")] for weights in (attended, removal.kl)]
            orders += [generator.permutation(held) for _ in range(ORDERS)]
            hidden = _prefixes(episode, orders, take).to(playback.is_first.device)
            right = _probability(episode, t, policies_without(playback, t, state, hidden).policy[1:, 0])
            sums.append(right.reshape(len(orders), -1).mean(1))
    if not sums:
        return None
    mean = np.mean(sums, 0)
    return Areas(float(mean[0]), float(mean[2:].mean()), float(mean[1]))


def _probability(episode: LiveEpisode, t: int, policy: Tensor) -> np.ndarray:
    """Return the probability of the action that was taken at step t, under policies ``[r, p]``."""
    action = torch.as_tensor(episode.action[t], device=policy.device).expand(len(policy))
    return episode.agent.distribution(policy).log_prob(action).exp().cpu().numpy()


def _prefixes(episode: LiveEpisode, orders: Sequence[np.ndarray], take: bool) -> Tensor:
    """Mark the hidden steps after 0, 1, ... chunks were removed or put back, bool ``[orders * (m + 1), T]``."""
    rows = [
        mask_of([episode.chunks[chunk] for chunk in (order[:number] if take else order[number:])], episode.num_steps)
        for order in orders
        for number in range(len(order) + 1)
    ]
    return torch.stack(rows)


@torch.no_grad()
def place_areas(episodes: Sequence[LiveEpisode]) -> dict[str, list[Ratio]]:
    """Return deletion and insertion of places by attention and by every saliency of the actor, at some steps."""
    found: dict[str, list[Ratio]] = {}
    for episode in episodes:
        for name, steps, maps in _maps_of_pixels(episode):
            chosen = np.unique(np.linspace(0, len(steps) - 1, STEPS).round().astype(int))
            with evaluation_mode(episode.agent, episode.info.seed):
                areas = _areas(episode, steps[chosen], on_grid(maps[chosen]))
            for place, curve in enumerate(("deletion", "insertion")):
                ratio = Ratio(areas[:, place, 0].sum(), areas[:, place, 1].sum(), len(areas))
                found.setdefault(f"{curve} of places, {name}", []).append(ratio)
    return found


def _maps_of_pixels(episode: LiveEpisode) -> Iterator[tuple[str, np.ndarray, np.ndarray]]:
    if not episode.discrete or not sees_image(episode.agent):
        return
    if episode.spatial is not None:
        yield "attention", np.arange(episode.num_steps), episode.spatial.mean(1)
    for one in episode.saliency:
        if one.actor is not None:
            yield one.method, one.steps, one.actor


def _areas(episode: LiveEpisode, steps: np.ndarray, maps: np.ndarray) -> np.ndarray:
    """Return the areas under deletion and insertion by the map, and by random orders: ``[steps, 2, 2]``."""
    playback, generator = episode.playback(), np.random.default_rng(0)
    size = find_image(playback).size
    wanted, found = dict(zip(steps.tolist(), maps, strict=True)), []
    counts = np.linspace(0, GRID**2, GRID + 1).round().astype(int)
    for t, state in playback.states(wanted):
        orders = [np.argsort(-wanted[t], kind="stable"), *(generator.permutation(GRID**2) for _ in range(ORDERS))]
        ranks = np.array([np.argsort(order) for order in orders])  # o p: when a place is taken
        gone = np.stack([ranks[:, None] < counts[:, None], ranks[:, None] >= counts[:, None]])  # 2 o n p
        masks = torch.as_tensor(gone.reshape(-1, 1, GRID, GRID)).float()
        blurred = F.interpolate(masks, size, mode="nearest")[:, 0].to(playback.is_first.device)
        policy = policy_with_blur(playback, t, state, blurred)
        areas = _probability(episode, t, policy).reshape(2, len(orders), -1).mean(-1)
        found.append(np.stack([areas[:, 0], areas[:, 1:].mean(1)], -1))
    return np.array(found)
