"""Sanity gates: they must pass before any picture is believed (Adebayo et al. 2018; Atrey et al. 2020).

of records alone    causality, rows that sum to what they should, finite numbers, recall above chance, and a policy
                    that changes when the recalled memory is removed
with the agent      the pass in which attention was recorded decides as the agent did; equal seeds give equal records;
                    other weights give other maps; an untrained agent does not recall
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from recollect.agents.actor_critic import ActorCritic
from recollect.evaluation.agents import evaluation_mode
from recollect.interpret.attention import Attention, record_attention
from recollect.interpret.episodes import LiveEpisode, record_episode
from recollect.interpret.playback import Playback
from recollect.interpret.recall import decision_steps, maps_of, mass_on_key, mean_ranks
from recollect.interpret.record import EpisodeRecord, memory_heads
from recollect.interpret.report import Gate, Metric, add_up, pool

TOLERANCE = 1e-3
USED = 0.01
"""Nats of a policy's change below which a memory does not count as used: an untrained agent may look at the right
moment, because it looks unlike the others, but nothing follows from it (1e-7 nats; most trained agents have 0.06
and more).
"""
ALIKE = 0.5  # rank correlation of maps above which other weights make no difference


def check_records(records: Sequence[EpisodeRecord], metrics: Sequence[Metric]) -> Iterator[Gate]:
    """Yield the gates that need no agent."""
    yield _finite(records)
    if records[0].temporal is not None:
        yield _causality(records)
        yield _sums(records)
    yield from (_above_chance(metric) for metric in metrics if metric.name in ("recall@1", "lift"))
    yield from (_is_used(metric) for metric in metrics if metric.name == "removal KL")


def _finite(records: Sequence[EpisodeRecord]) -> Gate:
    found = []
    for number, record in enumerate(records):
        parts = {**record.observations, "policy": record.logits, "value": record.value}
        for name, part in parts.items():
            broken = ~np.isfinite(part.astype(np.float64)).reshape(record.num_steps, -1).all(-1)
            if broken.any():
                found.append(f"{name} of episode {number} from step {int(np.argmax(broken))} on")
                break
    says = f"not a number: {', '.join(found[:3])}" if found else "observations, policies and values are finite"
    return Gate(name="finite", passed=not found, says=says)


def _causality(records: Sequence[EpisodeRecord]) -> Gate:
    worst = 0.0
    for record in records:
        assert record.temporal is not None
        future = np.triu(np.ones((record.num_steps, record.num_steps)), 1) > 0
        worst = max(worst, float(np.nan_to_num(np.abs(record.temporal)).max(axis=1)[future].max(initial=0)))
    return Gate(name="causality", passed=worst == 0.0, says=f"largest weight on a later step: {worst:g}")


def _sums(records: Sequence[EpisodeRecord]) -> Gate:
    worst = 0.0
    for record in records:
        assert record.temporal is not None
        sums: np.ndarray = np.nansum(record.temporal, -1)
        reached = np.asarray((~np.isnan(record.temporal)).any(-1))
        for index, head in enumerate(record.heads):
            part = sums[reached[:, index], index]
            off = np.abs(part - 1) if head.kind == "window" else np.maximum(part - 1, 0)
            worst = max(worst, float(off.max(initial=0)))
    return Gate(name="rows sum", passed=worst < TOLERANCE, says=f"largest error of a row's sum: {worst:.1e}")


def _above_chance(metric: Metric) -> Gate:
    shown = f"{metric.value:.2f}, chance {metric.chance:.2f}"
    return Gate(name=f"{metric.name} above chance", passed=bool(_lower_end(metric) > metric.chance), says=shown)


def _is_used(metric: Metric) -> Gate:
    """Check that removing the memory of the right moment changes the policy, more than removing another one."""
    other = 0.0 if np.isnan(metric.chance) else metric.chance
    shown = f"removing it changes the policy by {metric.value:.1g} nats, another by {other:.1g}; required: {USED:g}"
    return Gate(name="what is recalled is used", passed=bool(_lower_end(metric) > max(USED, other)), says=shown)


def _lower_end(metric: Metric) -> float:
    """Return the lower end of the interval, or the value where there is none."""
    return metric.value if np.isnan(metric.low) else metric.low


@torch.no_grad()
def decides_alike(episodes: Sequence[LiveEpisode]) -> Gate:
    """Check that the pass in which attention was recorded gives the policies with which the agent acted."""
    worst = 0.0
    for episode in episodes:
        playback = episode.playback()
        with evaluation_mode(episode.agent, episode.info.seed):
            outputs = record_attention(episode.agent.core, playback.encoded).outputs
            output = episode.agent.decide(outputs, playback.encoded, episode.inputs)
        policy = output.policy[0].float().cpu().numpy()
        difference = np.abs(policy - episode.logits)
        difference[np.isnan(policy) & np.isnan(episode.logits)] = 0.0  # a broken observation has no policy
        worst = float(np.maximum(worst, difference.max()))  # NaN in one of the two stays NaN, and fails
    says = f"largest difference of a policy parameter between acting and recording attention: {worst:.1e}"
    return Gate(name="heard as acted", passed=worst < 1e-2, says=says)


def repeats(episode: LiveEpisode) -> Gate:
    """Check that the same seed gives the same record."""
    info, longest = episode.info, max(episode.num_steps, 1)
    again = record_episode(episode.agent, episode.world, seed=info.seed, greedy=info.greedy, longest=longest)
    same = np.array_equal(again.action, episode.action) and np.array_equal(again.frames, episode.frames)
    for name, part in episode.observations.items():
        same &= np.array_equal(again.observations[name], part, equal_nan=np.issubdtype(part.dtype, np.floating))
    return Gate(name="equal seeds", passed=same, says="equal" if same else "the same seed gives another episode")


def _untrained(agent: ActorCritic, seed: int) -> ActorCritic:
    """Build the same agent before training."""
    with evaluation_mode(agent, seed):
        return ActorCritic.from_description(agent.describe()).to(next(agent.parameters()).device).eval()


def _attention_of(agent: ActorCritic, episode: LiveEpisode) -> Attention:
    """Record the attention of another agent that receives the inputs of an episode."""
    with evaluation_mode(agent, 0):
        return record_attention(agent.core, Playback(agent, episode.inputs).encoded)


def depends_on_weights(episode: LiveEpisode) -> Gate:
    """Check that maps of an untrained agent with the same inputs have other ranks than those of the trained one."""
    name = "depends on weights"
    if episode.temporal is None:
        return Gate(name=name, passed=None, says="there are no maps")
    found = [_rank_correlation(episode, _untrained(episode.agent, seed)) for seed in (1, 2, 3)]
    mean = float(np.nanmean(found)) if not np.isnan(found).all() else float("nan")
    passed = None if np.isnan(mean) else mean < ALIKE
    return Gate(name=name, passed=passed, says=f"rank correlation with maps of untrained weights: {mean:.2f}")


def _rank_correlation(episode: LiveEpisode, other: ActorCritic) -> float:
    """Return the mean Spearman correlation of the memory's maps, at decisions where there are any."""
    maps = _attention_of(other, episode).temporal
    if maps is None:
        return float("nan")
    heads = memory_heads(episode)
    ours, theirs = maps_of(episode, heads).steps, maps_of(replace(episode, temporal=maps), heads).steps
    found = []
    for t in decision_steps(episode):
        seen = ~np.isnan(ours[t]) & ~np.isnan(theirs[t])
        if seen.sum() >= 8 and ours[t, seen].std() > 0 and theirs[t, seen].std() > 0:
            found.append(np.corrcoef(mean_ranks(ours[t, seen]), mean_ranks(theirs[t, seen]))[0, 1])
    return float(np.mean(found)) if found else float("nan")


def untrained_recalls_less(episodes: Sequence[LiveEpisode]) -> list[Gate]:
    """Check that an untrained agent recalls less in the same episodes; empty without ground truth or maps."""
    ours = _mass_on_key(episodes)
    if not ours:
        return []
    other = _untrained(episodes[0].agent, 1)
    theirs = _mass_on_key([replace(one, **_attention_of(other, one).maps()) for one in episodes])
    value, control = ours[0].value, theirs[0].value
    says = f"mass on the key {value:.2f}, with untrained weights {control:.2f}"
    return [Gate(name="untrained agent recalls less", passed=value > control, says=says)]


def _mass_on_key(records: Sequence[EpisodeRecord]) -> list[Metric]:
    if records[0].temporal is None:
        return []
    samples: list[Any] = [mass_on_key(record, maps_of(record, memory_heads(record))) for record in records]
    return pool("mass on key", [add_up(one) for one in samples])
