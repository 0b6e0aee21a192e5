"""Does the agent act on its memory? Yes, No or Cannot tell, with the numbers that decide it.

    yes            it scores higher with its memory than without, and above chance
    no             its choices stay the same without memory; or they change, and it gains nothing by it
    cannot tell    a check of the recording failed, there are too few episodes, or the interval of the gain is too wide

Without scores (records alone), only unchanged choices are an answer: that choices change does not say that it helps.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np

from recollect.interpret.ablation import Ablation
from recollect.interpret.recall import decisions
from recollect.interpret.record import EpisodeRecord
from recollect.interpret.report import Report

YES, NO, CANNOT_TELL = "yes", "no", "cannot tell"
LEAST_EPISODES = 5  # fewer give no interval that means anything
LEAST_GAIN = 0.05
"""Share of the range of scores that memory must gain; below it nobody would notice."""
MOST_GAIN = 0.25
"""Share of the range of scores. Where the interval of the gain reaches beyond, nothing is known of it."""
UNMOVED = 0.1
"""Share of a policy's probability that moves without memory at the step where it moves most; below it is the same
policy. An untrained agent, whose actions are all but equally likely, may change its first choice without any reason.
Set on seed 0 and tried on fresh seeds (1000, 2000): the policies of six trained agents move by 0.17 to 1.00,
those drawn anew or with a cut path of memory by 0.006 at most.
"""
CHANGED_KL = 0.1  # nats: by so much a policy of continuous actions changes where its action counts as another
REQUIRED = ("finite", "causality", "rows sum", "heard as acted")
"""Checks without which no number of a record means anything."""


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """What is known of an agent's memory."""

    episodes: int
    """Recorded episodes."""
    has_memory: bool = True
    changed: float = math.nan
    """Share of choices that change when the memory is removed, at decisions if any are known; NaN if not measured."""
    moved: float = math.nan
    """Share of the policy's probability that moves then, at the choice where most does; mean over episodes."""
    of: str = "actions"
    """What the choices are: ``decisions`` that depend on an earlier step, or all ``actions``."""
    ablation: Ablation | None = None
    failed: tuple[str, ...] = ()
    """Checks of :data:`REQUIRED` that failed."""


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """An answer, its reason in one sentence, and the numbers that decide it."""

    answer: str
    reason: str
    numbers: Mapping[str, str]

    def __str__(self) -> str:
        return f"{self.answer.capitalize()}: {self.reason}."


def decide(evidence: Evidence) -> Verdict:
    """Answer whether an agent acts on its memory."""
    numbers = _numbers(evidence)

    def say(answer: str, reason: str) -> Verdict:
        return Verdict(answer=answer, reason=reason, numbers=numbers)

    if not evidence.has_memory:
        return say(NO, "this agent has no memory; it sees the present step alone")
    if evidence.failed:
        return say(
            CANNOT_TELL, f"the recording cannot be believed, because a check failed: {', '.join(evidence.failed)}"
        )
    known = evidence.ablation
    most = max(evidence.episodes, 0 if known is None else known.episodes)
    if most < LEAST_EPISODES:
        return say(
            CANNOT_TELL,
            f"{_count(most)} {'is' if most == 1 else 'are'} too few; {LEAST_EPISODES} are needed (--episodes)",
        )
    if known is None:
        if _is_same(evidence):
            return say(NO, f"without its memory {_changes(evidence)}")
        unknown = "" if math.isnan(evidence.changed) else f"without its memory {_changes(evidence)}, but "
        return say(CANNOT_TELL, f"{unknown}whether memory helps was not tried: explore a run, which plays without it")
    return say(*_judge(evidence, known))


def _judge(evidence: Evidence, known: Ablation) -> tuple[str, str]:
    """Answer from scores with and without memory."""
    scores = f"{known.measure} {known.remembering:.2f} with its memory, {known.forgetting:.2f} without"
    low, high = known.difference
    gain, room = known.remembering - known.forgetting, _range(known)
    changes = "" if math.isnan(evidence.changed) else f"; without it {_changes(evidence)}"
    gains = low > 0 and gain >= LEAST_GAIN * room
    if gains and evidence.changed == 0 and evidence.moved >= UNMOVED:  # few episodes, whose answers are its habit
        changes = "; in the recorded episodes habit and memory agree"
    elif _is_same(evidence):
        return NO, f"it acts the same without its memory: {scores}{changes}"
    if gains:
        if known.remembering <= known.chance + LEAST_GAIN * room:  # False where chance is unknown
            return NO, f"with its memory it scores no better than an agent that has none can ({scores})"
        return YES, f"it acts on what it remembers: {scores}{changes}"
    if high < 0:
        return NO, f"it does better without its memory: {scores}{changes}"
    if high < MOST_GAIN * room:
        return NO, f"its memory does not help it: {scores}{changes}"
    return CANNOT_TELL, (
        f"{scores}, but the gain over {_count(known.episodes)} lies between {low:.2f} and {high:.2f}; record more "
        "(--episodes)"
    )


def _range(known: Ablation) -> float:
    """Return the difference of scores that counts as whole: oracle - chance, or else the larger score."""
    room = known.oracle - known.chance
    if math.isfinite(room) and room > 0:
        return room
    return max(abs(known.remembering), abs(known.forgetting), 1e-6)


def _is_same(evidence: Evidence) -> bool:
    """Return whether the policy stays the same without memory; False where that was not measured."""
    return evidence.changed == 0 or evidence.moved < UNMOVED


def _changes(evidence: Evidence) -> str:
    if evidence.changed == 0:
        return f"none of its {evidence.of} change"
    if evidence.moved < UNMOVED:
        return f"its policy moves by {evidence.moved:.1%} at most, on average over episodes"
    return f"{_percent(evidence.changed)} of its {evidence.of} change"


def _percent(share: float) -> str:
    return f"{share:.1%}" if 0 < share < 0.01 else f"{share:.0%}"


def _numbers(evidence: Evidence) -> dict[str, str]:
    found: dict[str, str] = {}
    if (known := evidence.ablation) is not None:
        found |= {f"{known.measure} with memory": f"{known.remembering:.2f}"}
        found |= {f"{known.measure} without": f"{known.forgetting:.2f}"}
    if evidence.changed > 0 and evidence.moved < UNMOVED:
        found["of the policy moves without it"] = f"{evidence.moved:.1%}"
    elif not math.isnan(evidence.changed):
        found[f"of its {evidence.of} change without it"] = _percent(evidence.changed)
    return found


def _count(number: int) -> str:
    return f"{number} episode{'' if number == 1 else 's'}"


def with_verdict(report: Report, records: Sequence[EpisodeRecord], ablation: Ablation | None = None) -> Report:
    """Return a report with its verdict.

    Args:
        report: of the records, with its checks.
        records: episodes of one agent.
        ablation: scores with and without memory; None where they were not played.
    """
    told = [one for one in records if decisions(one)]
    measured = [choices for one in told or records if (choices := choices_changed(one)) is not None]
    failed = tuple(gate.name for gate in report.gates if gate.passed is False and gate.name in REQUIRED)
    evidence = Evidence(
        episodes=len(records),
        has_memory=records[0].info.core != "memoryless",
        changed=_mean([changed for changed, _ in measured]),
        moved=_mean([moved.max(keepdims=True) for _, moved in measured]),
        of="decisions" if told else "actions",
        ablation=ablation,
        failed=failed,
    )
    found = decide(evidence)
    return replace(report, verdict=str(found), answer=found.answer, key_numbers=found.numbers)


def _mean(parts: Sequence[np.ndarray]) -> float:
    values = np.concatenate([*parts, np.array([])])
    return float(values.mean()) if len(values) else math.nan


def choices_changed(record: EpisodeRecord) -> tuple[np.ndarray, np.ndarray] | None:
    """Return whether each choice changes without the whole memory, and the share of probability that moves.

    Of an episode's decisions that depend on an earlier step, or, where it has none, of all its steps but the last of an
    ended episode. None where it was not measured, or every policy is NaN.

    Returns:
        float ``[choices]`` twice.
    """
    removal = record.removal
    if removal is None or removal.whole is None or removal.whole_kl is None:
        return None
    steps = choice_steps(record)
    if record.discrete:
        own, other = (_softmax(part[steps]) for part in (record.logits, removal.whole))
        changed, moved = own.argmax(-1) != other.argmax(-1), 0.5 * np.abs(own - other).sum(-1)
    else:
        moved = 1 - np.exp(-removal.whole_kl[steps].astype(float))
        changed = removal.whole_kl[steps] > CHANGED_KL
    known = np.isfinite(moved)  # a broken observation has no policy
    return (changed[known].astype(float), moved[known]) if known.any() else None


def choice_steps(record: EpisodeRecord) -> list[int]:
    """List the decisions that depend on an earlier step; without any, all steps at which something is chosen."""
    found = sorted({decision.t for decision in decisions(record)})
    return found or list(range(max(record.num_steps - bool(record.done[-1]), 1)))


def _softmax(logits: np.ndarray) -> np.ndarray:
    shifted = np.exp(logits.astype(float) - logits.max(-1, keepdims=True).astype(float))
    return shifted / shifted.sum(-1, keepdims=True)


Episode = TypeVar("Episode", bound=EpisodeRecord)


def typical_episode(records: Sequence[Episode]) -> Episode:
    """Return the episode whose effect of removing memory is the median (of an even number the larger of both).

    The effect is the largest KL over the choices of an episode. Episodes that reach a decision come before those that
    do not; without measured effects the first episode is returned.
    """
    told = [one for one in records if decisions(one)] or list(records)
    known = [one for one in told if one.removal is not None and one.removal.whole_kl is not None]
    if not known:
        return told[0]
    return sorted(known, key=_effect)[len(known) // 2]


def _effect(record: EpisodeRecord) -> float:
    assert record.removal is not None and record.removal.whole_kl is not None
    return float(np.nan_to_num(record.removal.whole_kl[choice_steps(record)]).max(initial=0.0))


def describe_episode(record: EpisodeRecord) -> str:
    """Say whether memory decided in this episode, or habit and memory agree; empty where it was not measured."""
    found = choices_changed(record)
    if found is None:
        return ""
    changed, moved = found
    of = "decision" if decisions(record) else "action"
    if moved.max() < UNMOVED and changed.any():
        return f"In this episode the policy moves by {moved.max():.1%} at most without memory."
    if moved.max() < UNMOVED:
        return f"In this episode no {of} would change without memory."
    if changed.any():
        return f"In this episode {int(changed.sum())} of {len(changed)} {of}s would change without memory."
    return f"In this episode habit and memory agree: no {of} would change without memory, only how sure the agent is."
