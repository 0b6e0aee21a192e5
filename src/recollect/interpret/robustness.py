"""Does recall depend on where chunks begin, and are the most attended chunks enough? Of a chunk memory only.

boundaries moved    the first observation is repeated some times, so that chunks begin elsewhere in the episode: is
                    the key still recalled, is the likeliest action the same (Lampinen et al. 2021, appendix D.2)
chunks of n         the same weights with chunks of another length: is the key still recalled
sufficiency         from its first decision on the agent has nothing but the k most attended chunks: does it
                    succeed as often as with all, and more often than with k others
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from math import nan
from typing import Any

import numpy as np
import torch

from recollect.agents.actor_critic import ActorCritic
from recollect.agents.registry import REGISTRY
from recollect.config import to_json
from recollect.cores import HierarchicalChunkMemory
from recollect.evaluation.agents import evaluation_mode
from recollect.interpret.attention import Attention, record_attention
from recollect.interpret.episodes import LiveEpisode
from recollect.interpret.playback import Playback, map_inputs
from recollect.interpret.recall import decisions, maps_of, recall_at
from recollect.interpret.record import EpisodeRecord, Pair, memory_heads
from recollect.interpret.report import Metric, Ratio, add_up, pool
from recollect.interpret.swaps import has_chunks

ENOUGH = (1, 2, 4)  # chunks that are left
ORDERS = 2  # random choices of chunks beside the most attended ones


@torch.no_grad()
def moved_boundaries(episodes: Sequence[LiveEpisode]) -> list[Metric]:
    """Measure recall and decisions where chunks begin elsewhere, or have another length."""
    core = episodes[0].agent.core
    if not has_chunks(core) or not any(decisions(episode) for episode in episodes):
        return []
    assert isinstance(core, HierarchicalChunkMemory)
    size = core.config.chunk_len
    own = [recall(one) for one in episodes]
    moved, kept = [], []
    for one, before in zip(episodes, own, strict=True):
        for extra in sorted({max(1, size // 4), max(1, size // 2)}):
            recalled, same = delayed(one, extra)
            moved.append(_against(recalled, before))
            kept.append(same)
    found = pool("recall@1, boundaries moved", moved, against="as trained")
    found += pool("decision kept, boundaries moved", kept)
    for length in (size // 2, 2 * size):
        if (other := with_chunks_of(episodes[0].agent, length)) is not None:
            ratios = [_against(_recall_of(one, other), before) for one, before in zip(episodes, own, strict=True)]
            found += pool(f"recall@1, chunks of {length}", ratios, against=f"of {size}, as trained")
    return found


def recall(record: EpisodeRecord) -> Ratio:
    """Return recall@1 of a record's memory."""
    return add_up(recall_at(record, maps_of(record, memory_heads(record))))


def _against(found: Ratio, before: Ratio) -> Ratio:
    """Put the recall as trained in the place of chance."""
    share = before.total / before.number if before.number else 0.0
    return Ratio(found.total, share * found.number, found.number)


def delayed(episode: LiveEpisode, extra: int) -> tuple[Ratio, Ratio]:
    """Return recall, and unchanged decisions, when the first observation comes ``extra`` times more."""
    agent = episode.agent
    inputs = map_inputs(lambda part: torch.cat([part[:, :1]] * extra + [part], 1), episode.inputs)
    playback = Playback(agent, inputs)
    with evaluation_mode(agent, episode.info.seed):
        attention = record_attention(agent.core, playback.encoded)
        output = agent.decide(attention.outputs, playback.encoded, inputs)
    pairs = tuple(
        Pair(query=_shifted(pair.query, extra), key=_shifted(pair.key, extra), strength=pair.strength)
        for pair in episode.pairs
    )
    steps = sorted({decision.t for decision in decisions(episode)})
    # The likeliest actions: an action drawn from the old policy says little about the new one.
    before = agent.distribution(torch.as_tensor(episode.logits[steps])).mode().numpy()
    action = agent.distribution(output.policy[0, [t + extra for t in steps]]).mode().cpu().numpy()
    same = [np.array_equal(one, other) for one, other in zip(action, before, strict=True)]
    longer = {name: np.pad(getattr(episode, name), (extra, 0)) for name in ("reward", "done")}
    return _recall_with(episode, attention, pairs=pairs, **longer), add_up((one, nan) for one in same)


def _shifted(interval: tuple[int, int], extra: int) -> tuple[int, int]:
    return interval[0] + extra, interval[1] + extra


def _recall_with(episode: LiveEpisode, attention: Attention, **changes: Any) -> Ratio:
    return recall(replace(episode, **attention.maps(), **changes))


def _recall_of(episode: LiveEpisode, other: ActorCritic) -> Ratio:
    with evaluation_mode(other, episode.info.seed):
        return _recall_with(episode, record_attention(other.core, Playback(other, episode.inputs).encoded))


def with_chunks_of(agent: ActorCritic, length: int) -> ActorCritic | None:
    """Build the agent with chunks of another length and as many steps of memory; None where they do not fit."""
    config = agent.core_config
    assert isinstance(agent.core, HierarchicalChunkMemory)
    old = agent.core.config
    if length <= old.chunk_overlap or old.memory_len < length - 1:
        return None
    number, top = (max(1, round(part * old.chunk_len / length)) for part in (old.num_chunks, old.top_k))
    memory = replace(config, chunk_len=length, num_chunks=number, top_k=top)
    with evaluation_mode(agent, 0):
        other = ActorCritic.from_description(agent.describe() | {"core": to_json(memory, REGISTRY)})
    other.load_state_dict(agent.state_dict())
    return other.to(next(agent.parameters()).device).eval()


def sufficiency(episodes: Sequence[LiveEpisode]) -> list[Metric]:
    """Measure success with the k most attended chunks alone, from the first decision on; beside k others."""
    if not has_chunks(episodes[0].agent.core):
        return []
    ratios: dict[int, list[Ratio]] = {k: [] for k in ENOUGH}
    for episode in episodes:
        for k, succeeded, others in _with_few(episode):
            ratios[k].append(Ratio(float(succeeded), others, 1))
    return [
        metric
        for k, found in ratios.items()
        for metric in pool(f"success with the {k} most attended", found, against=f"with {k} others")
    ]


def _with_few(episode: LiveEpisode) -> Iterator[tuple[int, bool, float]]:
    """Yield, for every k, success and the mean success with random chunks."""
    first = next(iter(decisions(episode)), None)
    if first is None or episode.info.success is None or not np.isfinite(episode.world.spec.oracle):
        return
    attended, generator = maps_of(episode, memory_heads(episode)).chunks[first.t], np.random.default_rng(0)
    held = np.flatnonzero(~np.isnan(attended))
    best = held[np.argsort(-attended[held], kind="stable")]

    def succeeds(kept: np.ndarray) -> bool:
        hide = [episode.chunks[chunk] for chunk in held if chunk not in kept]
        score = episode.outcome_from(first.t, hide=hide)
        return score is not None and score >= episode.world.spec.oracle - 1e-6

    for k in ENOUGH:
        if len(held) > k:
            others = [succeeds(generator.permutation(best[k:])[:k]) for _ in range(ORDERS)]
            yield k, succeeds(best[:k]), float(np.mean(others))
