"""Does behaviour follow the memory? The memory of another episode, or one memory of it, replaces the own one.

    memory swap    with the whole memory of an episode that ended in another action, is that action taken?
    cue swap       only the memory of the cue is exchanged, the rest stays: of two episodes of one world that have the
                   same question and other answers, is the other's answer given?

Chance of the first is how often the other's action is taken with the own memory. Of the second, how often it is taken
when a memory of the other episode that answers nothing replaces the cue's: forgetting alone does not name an answer.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from recollect.cores import HierarchicalChunkMemory
from recollect.evaluation.agents import evaluation_mode
from recollect.interpret.episodes import LiveEpisode
from recollect.interpret.recall import decisions, overlapping
from recollect.interpret.report import Metric, Sample, add_up, pool
from recollect.state import map_state

MOST_SWAPS = 200  # pairs of episodes whose cues are exchanged
TRIES = 4  # memories that answer nothing and replace the cue's in a pair


@torch.no_grad()
def memory_swap(episodes: Sequence[LiveEpisode]) -> list[Metric]:
    """Measure how often the other's action follows from the other's memory, at decisions where two episodes differ."""
    ratios = [add_up(found for other in episodes if (found := _swapped(one, other)) is not None) for one in episodes]
    return pool("memory swap followed", ratios, against="own memory")


def _swapped(one: LiveEpisode, other: LiveEpisode) -> Sample | None:
    """Return whether the other's action follows the other's memory, and the own one; None if both chose alike."""
    steps = {decision.t for decision in decisions(one)} & {decision.t for decision in decisions(other)}
    steps = {t for t in steps if one.discrete and one.action[t] != other.action[t]}
    if not steps:
        return None
    t = min(steps)
    own = _choice(one, torch.as_tensor(one.logits[t : t + 1]))
    return _decided(one, t, other.playback().state_before(t)) == other.action[t], own == other.action[t]


@torch.no_grad()
def cue_swap(episodes: Sequence[LiveEpisode]) -> list[Metric]:
    """Measure how often the other's answer follows from its cue's chunks. Of a chunk memory only."""
    if not has_chunks(episodes[0].agent.core):
        return []
    asked = [(one, first) for one in episodes if one.discrete and (first := next(iter(decisions(one)), None))]
    memories = {id(one): one.playback().state_before(first.t) for one, first in asked}
    pairs = [
        (one, first, other, theirs)
        for one, first in asked
        for other, theirs in asked
        if one.action[first.t] != other.action[theirs.t] and _same_question(one, first.t, other, theirs.t)
    ]
    generator = np.random.default_rng(0)
    if len(pairs) > MOST_SWAPS:
        pairs = [pairs[i] for i in sorted(generator.choice(len(pairs), MOST_SWAPS, replace=False))]
    found: dict[int, list[Sample]] = {}
    for one, first, other, theirs in pairs:
        own, their = memories[id(one)], memories[id(other)]
        place, cue = _held(one, own, first.t, first.key), _held(other, their, theirs.t, theirs.key)
        rest = [place for place in _held(other, their, theirs.t, None) if place not in cue]
        if not place or not cue or not rest:
            continue
        wanted = other.action[theirs.t]
        followed = _decided(one, first.t, put(own, place, their, cue)) == wanted
        unrelated = [generator.permutation(rest)[: len(place)].tolist() for _ in range(TRIES)]
        by_chance = [_decided(one, first.t, put(own, place, their, chosen)) == wanted for chosen in unrelated]
        found.setdefault(id(one), []).append((followed, float(np.mean(by_chance))))
    return pool("cue swap followed", [add_up(rows) for rows in found.values()], against="another memory in its place")


def has_chunks(core: Any) -> bool:
    """Return whether a core stores chunks of the present episode."""
    return isinstance(core, HierarchicalChunkMemory) and not core.config.carry_across_episodes


def _same_question(one: LiveEpisode, t: int, other: LiveEpisode, there: int) -> bool:
    """Return whether all observations but pictures are equal: the same word is named, or both are at the junction."""
    shown = [name for name, part in one.observations.items() if part.ndim <= 2]
    return bool(shown) and all(np.array_equal(one.observations[n][t], other.observations[n][there]) for n in shown)


def _held(episode: LiveEpisode, state: Any, t: int, key: tuple[int, int] | None) -> list[int]:
    """List places in the state before step t of chunks that overlap a key (None: of all), most of the key first."""
    core = episode.agent.core
    assert isinstance(core, HierarchicalChunkMemory)
    config = core.config
    made = int(config.chunks_after(torch.tensor(t)))
    wanted = np.ones(len(episode.chunks), bool) if key is None else overlapping(episode, key)
    common = [0 if key is None else min(stop, key[1]) - max(start, key[0]) for start, stop in episode.chunks]
    chunks = [chunk for chunk in np.flatnonzero(wanted).tolist() if made - config.num_chunks <= chunk < made]
    chunks.sort(key=lambda chunk: -common[chunk])
    places = [config.num_chunks - made + chunk for chunk in chunks]
    return [place for place in places if int(state.lengths[0, place])]


def put(state: Any, places: Sequence[int], theirs: Any, chosen: Sequence[int]) -> Any:
    """Copy chunks of another state into some places of a state of one row; places without a chunk are emptied."""
    edited = map_state(torch.clone, state)
    pairs = list(zip(places, chosen, strict=False))
    for ours, other in zip(edited.layers, theirs.layers, strict=True):
        for place, taken in pairs:
            ours.contents[:, place], ours.keys[:, place] = other.contents[:, taken], other.keys[:, taken]
    for place in places:
        edited.lengths[:, place] = 0
    for place, taken in pairs:
        edited.lengths[:, place] = theirs.lengths[:, taken]
    return edited


def _decided(episode: LiveEpisode, t: int, state: Any) -> int:
    """Return the likeliest action at a step with this memory."""
    with evaluation_mode(episode.agent, episode.info.seed):
        output, _ = episode.playback().step(t, state)
    return _choice(episode, output.policy[:, 0])


def _choice(episode: LiveEpisode, policy: torch.Tensor) -> int:
    return int(episode.agent.distribution(policy).mode()[0])
