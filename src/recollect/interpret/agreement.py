"""Do two maps of the same picture agree, and are the places that they name the ones that count?

    IoU          of the fifth of places that attention favours and the fifth that saliency favours: common over all;
                 beside it the same with attention at another step, for two maps may agree because neither ever moves
    deletion     the taken action's probability while places are blurred, the ones that a map names first: low is good
    insertion    the same while all others are blurred: high is good; both beside random orders

Source: deletion and insertion are those of Petsiuk et al., RISE (2018), with the blur of perturbation saliency.
"""

from collections.abc import Iterator, Sequence

import numpy as np
import torch
import torch.nn.functional as F

from recollect.evaluation.agents import evaluation_mode
from recollect.interpret.episodes import LiveEpisode
from recollect.interpret.recall import Ratio
from recollect.interpret.record import EpisodeRecord
from recollect.interpret.saliency import find_image, policy_with_blur, sees_image

TOP = 0.2
"""Share of places that a map favours."""
STEPS = 6
"""Of an episode, at which places are blurred one after the other."""
GRID = 10
"""Rows and columns of places, and parts of a curve."""
ORDERS = 4
"""Random orders beside a map's."""


def agreement(record: EpisodeRecord) -> dict[str, Ratio]:
    """IoU of attention with every saliency map that there is."""
    found: dict[str, Ratio] = {}
    if record.spatial is None:
        return found
    attention = record.spatial.mean(1)
    for one in record.saliency:
        for who, maps in (("actor", one.actor), ("critic", one.critic)):
            if maps is not None and len(maps) > 1:
                ours, theirs = _on_grid(attention[one.steps]), _on_grid(maps)
                other = np.roll(ours, len(ours) // 2, 0)
                sums = [sum(_iou(a, b) for a, b in zip(part, theirs, strict=True)) for part in (ours, other)]
                found[f"IoU of attention and {one.method} {who}"] = Ratio(sums[0], sums[1], len(ours))
    return found


def _on_grid(maps: np.ndarray) -> np.ndarray:
    """Maps ``[n, y, x]`` as ``[n, GRID ** 2]``."""
    return F.interpolate(torch.as_tensor(maps)[:, None].float(), (GRID, GRID), mode="area").flatten(1).numpy()


def _iou(one: np.ndarray, other: np.ndarray) -> float:
    number = round(TOP * one.size)
    first, second = (set(np.argsort(-part, kind="stable")[:number]) for part in (one, other))
    return len(first & second) / len(first | second)


@torch.no_grad()
def blurred_places(episodes: Sequence[LiveEpisode]) -> dict[str, list[Ratio]]:
    """Deletion and insertion of places by attention and by every saliency of the actor, at some steps of each."""
    found: dict[str, list[Ratio]] = {}
    for episode in episodes:
        for name, steps, maps in _maps_of(episode):
            chosen = np.unique(np.linspace(0, len(steps) - 1, STEPS).round().astype(int))
            with evaluation_mode(episode.agent, episode.info.seed):
                areas = _areas(episode, steps[chosen], _on_grid(maps[chosen]))
            for place, curve in enumerate(("deletion", "insertion")):
                ratio = Ratio(areas[:, place, 0].sum(), areas[:, place, 1].sum(), len(areas))
                found.setdefault(f"{curve} of places, {name}", []).append(ratio)
    return found


def _maps_of(episode: LiveEpisode) -> Iterator[tuple[str, np.ndarray, np.ndarray]]:
    if not episode.discrete or not sees_image(episode.agent):  # what is blurred are pixels
        return
    if episode.spatial is not None:
        yield "attention", np.arange(episode.num_steps), episode.spatial.mean(1)
    for one in episode.saliency:
        if one.actor is not None:
            yield one.method, one.steps, one.actor


def _areas(episode: LiveEpisode, steps: np.ndarray, maps: np.ndarray) -> np.ndarray:
    """``[steps, 2, 2]``: deletion and insertion, by the map and by random orders."""
    playback, generator = episode.playback(), np.random.default_rng(0)
    size = find_image(playback).size
    wanted, found = dict(zip(steps.tolist(), maps, strict=True)), []
    counts = np.linspace(0, GRID**2, GRID + 1).round().astype(int)
    for t, state in playback.states():
        if t not in wanted:
            continue
        orders = [np.argsort(-wanted[t], kind="stable"), *(generator.permutation(GRID**2) for _ in range(ORDERS))]
        ranks = np.array([np.argsort(order) for order in orders])  # o p: when a place is taken
        gone = np.stack([ranks[:, None] < counts[:, None], ranks[:, None] >= counts[:, None]])  # 2 o n p
        masks = torch.as_tensor(gone.reshape(-1, 1, GRID, GRID)).float()
        policy = policy_with_blur(playback, t, state, F.interpolate(masks, size, mode="nearest")[:, 0])
        action = torch.as_tensor(episode.action[t], device=policy.device).expand(len(policy))
        right = episode.agent.distribution(policy).log_prob(action).exp().cpu().numpy()
        areas = right.reshape(2, len(orders), -1).mean(-1)
        found.append(np.stack([areas[:, 0], areas[:, 1:].mean(1)], -1))
        if t == steps[-1]:
            break
    return np.array(found)
