"""Episodes recorded with their agent, so that they can be continued with another memory.

    rec = record_episode(agent, TMazeConfig(), seed=3)         an EpisodeRecord, with the attention of its core
    rec = rec.with_removal()                                   and the effect of removing each chunk of the memory
    other = rec.rerun_from(20, hide=[(0, 8)])                  the same episode, continued without the memory of 0..7
    other = rec.with_memory_from(another, 20)                  ... with the memory of another episode

The agent acts as always while its outputs are recorded; attention is recorded afterwards, in a pass of its own. So
recording changes no action.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, NamedTuple, Self

import numpy as np
import torch
from gymnasium.spaces import Discrete
from torch import Tensor

from recollect import __version__
from recollect.agents.actor_critic import ActorCritic
from recollect.agents.contract import ActorInputs, Agent, as_previous_output, no_previous_output
from recollect.config import require
from recollect.evaluation.agents import evaluation_mode, initial_action, named_parts, play
from recollect.evaluation.world_guard import GuardedWorld
from recollect.interpret.attention import record_attention
from recollect.interpret.events import find_events, find_objects, find_pairs
from recollect.interpret.occlusion import can_hide_steps, forget_chunks, hiding, mask_of
from recollect.interpret.playback import Playback, core_key
from recollect.interpret.record import EpisodeInfo, EpisodeRecord
from recollect.interpret.removal import measure_removal
from recollect.interpret.saliency import STRIDE, gradient_saliency, perturbation_saliency
from recollect.tasks.worlds.contract import Scene, Step, Truth, WorldConfig
from recollect.tasks.worlds.pictures import shows_image, small_picture

LONGEST = 1000  # steps of an episode that are recorded: a map of all pairs of steps is quadratic
Intervals = Sequence[tuple[int, int]]


class Moment(NamedTuple):
    """One step of a world with one row, and the agent's output."""

    step: Step
    previous_action: Tensor  # ``[1, *action_shape]``
    previous_output: tuple[Tensor, Tensor]
    """Policy ``[1, p]`` and features ``[1, d]`` of the step before, as the agent receives them."""
    action: Tensor
    policy: Tensor
    value: Tensor
    frame: np.ndarray
    truth: Truth | None
    event: str | None  # name of the present event
    scene: Scene | None


@dataclass(frozen=True, kw_only=True)
class LiveEpisode(EpisodeRecord):
    """A record that still has its agent and its world, and so can be continued in other ways."""

    agent: ActorCritic = field(repr=False)
    world: WorldConfig = field(repr=False)
    inputs: ActorInputs = field(repr=False)  # inputs of the agent, ``[1, T, ...]``

    def playback(self) -> Playback:
        """Return the inputs of the episode, to be given to the agent again."""
        return Playback(self.agent, self.inputs)

    def plain(self) -> EpisodeRecord:
        """Return the record without agent and world."""
        return EpisodeRecord(**{part.name: getattr(self, part.name) for part in fields(EpisodeRecord)})

    def with_removal(self, unit: str | None = None) -> Self:
        """Return the same with :attr:`removal`; see :func:`recollect.interpret.removal.measure_removal`."""
        with evaluation_mode(self.agent, self.info.seed):
            return replace(self, removal=measure_removal(self.playback(), self.chunks, unit))

    def with_saliency(
        self,
        *,
        targets: Sequence[str] = ("actor", "critic"),
        of: str = "logits",
        stride: int = STRIDE,
        every: int = 1,
        method: str = "perturbation",
    ) -> Self:
        """Return the same with one more :attr:`saliency`; see :mod:`recollect.interpret.saliency`.

        Args:
            targets: ``actor``, ``critic`` or both.
            of: target of the actor's map: ``logits``, ``action`` or ``sarfa``.
            stride: pixels between blurred places.
            every: steps of the episode between maps.
            method: ``perturbation`` or ``gradient`` (without ``stride`` and ``of``).
        """
        require(method in ("perturbation", "gradient"), "method", method, "choose perturbation or gradient")
        require(every >= 1, "every", every, "give at least 1")
        options: dict[str, Any] = {"targets": targets, "steps": range(0, self.num_steps, every)}
        with evaluation_mode(self.agent, self.info.seed):
            if method == "gradient":
                found = gradient_saliency(self.playback(), self.action, **options)
            else:
                found = perturbation_saliency(self.playback(), self.action, of=of, stride=stride, **options)
        return replace(self, saliency=(*self.saliency, found))

    def rerun_from(self, step: int, edit: Callable[[Any], Any] | None = None, *, hide: Intervals = ()) -> "LiveEpisode":
        """Run the episode again, from a step on with another memory; until then the world repeats the episode.

        Args:
            step: the first at which the agent decides anew.
            edit: function of the state before that step; None leaves it.
            hide: half-open intervals of steps that cannot be read any more from then on.

        Raises:
            ValueError: no such step; a core whose memory has no single steps to hide; a world that does not repeat
                itself from its seed.
        """
        state = self.playback().state_before(step)
        if hide and not can_hide_steps(self.agent.core):
            raise ValueError(
                f"hide={list(hide)}: a {type(self.agent.core).__name__} keeps no single steps that could be hidden; "
                "give an edit of its state"
            )
        state = state if edit is None else edit(state)
        with evaluation_mode(self.agent, self.info.seed):
            moments = [_moment(*played) for played in _rerun(self, step, state, hide)]
        what = "an edited memory" if edit or hide else "the same memory"
        return _assemble(self.agent, self.world, moments, self.info, (f"run again from step {step} on with {what}",))

    def outcome_from(self, step: int, *, hide: Intervals = ()) -> float | None:
        """Return the world's score after :meth:`rerun_from`; None where the episode does not end."""
        with evaluation_mode(self.agent, self.info.seed):
            *_, (_, last, *_) = _rerun(self, step, self.playback().state_before(step), hide)
        return float(last.score[0]) if bool(last.is_last[0]) else None

    def without_memory(self, chunk: int, step: int | None = None) -> "LiveEpisode":
        """Continue without one chunk.

        Args:
            chunk: number in :attr:`chunks`.
            step: the first without it; None: the first decision with a key, or else as soon as the chunk is past.
        """
        require(0 <= chunk < len(self.chunks), "chunk", chunk, f"this record has {len(self.chunks)} chunks")
        interval = self.chunks[chunk]
        return self.rerun_from(self._decision(interval[1]) if step is None else step, hide=[interval])

    def with_memory_from(self, other: "LiveEpisode", step: int | None = None) -> "LiveEpisode":
        """Continue with the memory that the agent had at the same step of another episode.

        Args:
            other: of the same agent, at least as long.
            step: the first with that memory; None: the first decision with a key.
        """
        step = self._decision(1) if step is None else step
        memory = other.playback().state_before(step)
        return self.rerun_from(step, lambda _: memory)

    def _decision(self, after: int) -> int:
        """Return the first step from ``after`` on at which the agent is asked about a moment in its memory."""
        first = [max(pair.query[0], after) for pair in self.pairs if pair.query[1] > after]
        return min([*(first or [after]), self.num_steps - 1])


def record_episode(
    agent: Agent,
    world: WorldConfig,
    *,
    seed: int = 0,
    greedy: bool = True,
    longest: int = LONGEST,
    info: EpisodeInfo | None = None,
) -> LiveEpisode:
    """Let an agent play one episode, and record it. Modes and global generators stay as they were.

    Args:
        agent: an actor-critic.
        world: to play in.
        seed: of the world and of sampled actions.
        greedy: take the likeliest action; False draws from the policy.
        longest: steps that are recorded; of a longer episode the beginning is kept, and a note says so.
        info: what is known of the agent beforehand: checkpoint, provenance.

    Raises:
        ValueError: not an actor-critic of this library, or ``longest`` below 1.
    """
    require(longest >= 1, "longest", longest, "record at least 1 step")
    if not isinstance(agent, ActorCritic):
        raise ValueError(
            f"agent={type(agent).__name__}: only an ActorCritic can be recorded: give an agent or a run that learned "
            "by reinforcement or by cloning"
        )
    if not shows_image(world.spec.observation_space):  # maps are laid over the image that the agent sees
        world = world.with_rendering()
    guarded = GuardedWorld(world, 1, seed=seed, device=next(agent.parameters()).device)
    moments: list[Moment] = []
    try:
        with evaluation_mode(agent, seed):
            action, previous = initial_action(guarded), None
            for played in play(agent, guarded, seed=seed, greedy=greedy):
                output = played.output
                previous = no_previous_output(agent, 1, output.value) if previous is None else previous
                decided = played.action, output.policy, output.value
                moments.append(_moment(guarded, played.step, action, previous, decided))
                action, previous = played.action, as_previous_output(agent, output)
                if bool(played.step.is_last[0]) or len(moments) == longest:
                    break
    finally:
        guarded.close()
    known = replace(info or EpisodeInfo(task="", core=""), seed=seed, greedy=greedy)
    with evaluation_mode(agent, seed):
        return _assemble(agent, world, moments, known, ())


Played = tuple[GuardedWorld, Step, Tensor, tuple[Tensor, Tensor], tuple[Tensor, Tensor, Tensor]]
"""The world at a step, the step, the previous action, the agent's previous output, and its action, policy and value."""


def _moment(
    guarded: GuardedWorld,
    step: Step,
    previous_action: Tensor,
    previous_output: tuple[Tensor, Tensor],
    decided: tuple[Tensor, Tensor, Tensor],
) -> Moment:
    world = guarded.world
    frame = small_picture(world, step.observation, 0)
    truth = world.truth()
    number = -1 if truth is None else int(truth.event[0])
    event = world.spec.events[number] if number >= 0 else None  # a Gymnasium environment names events as they happen
    return Moment(step, previous_action, previous_output, *decided, frame, truth, event, world.scene())


@torch.no_grad()
def _rerun(episode: LiveEpisode, start: int, state: Any, hide: Intervals) -> Iterator[Played]:
    """Play an episode again: as it was before ``start``, then by an agent with this memory."""
    agent, seed, inputs = episode.agent, episode.info.seed, episode.inputs
    assert inputs.policy is not None and inputs.features is not None  # recorded for every agent
    device = next(agent.parameters()).device
    guarded = GuardedWorld(episode.world, 1, seed=seed, device=device)
    generator = torch.Generator(device).manual_seed(seed)
    actions = torch.as_tensor(episode.action, device=device)
    logits, values = (torch.as_tensor(part, device=device) for part in (episode.logits, episode.value))
    limit = max(LONGEST, episode.num_steps)
    hidden = mask_of(hide, limit, device)[None]
    try:
        step, previous_action = guarded.reset(), initial_action(guarded)
        following = inputs.policy[:, 0], inputs.features[:, 0]
        for t in range(limit):
            previous = (inputs.policy[:, t], inputs.features[:, t]) if t <= start else following
            if t < start:
                _require_same(episode, step, t)
                policy, value = logits[t : t + 1], values[t : t + 1]
            else:
                state = forget_chunks(agent.core, state, hidden, t)
                others = (part[:, None] for part in (previous_action, step.reward, *previous))
                now = ActorInputs(_map_observation(lambda part: part[:, None], step.observation), *others)
                with hiding(agent.core, hidden, t):
                    output, state = agent(now, state, step.is_first[:, None])
                output = type(output)(*(part[:, 0] for part in output))
                policy, value, following = output.policy, output.value, as_previous_output(agent, output)
            distribution = agent.distribution(policy)
            action = distribution.mode() if episode.info.greedy else distribution.sample(generator=generator)
            action = actions[t : t + 1] if t < start else action
            yield guarded, step, previous_action, previous, (action, policy, value)
            if bool(step.is_last[0]):
                return
            step, previous_action = guarded.step(action), action
    finally:
        guarded.close()


def _require_same(episode: LiveEpisode, step: Step, t: int) -> None:
    """Raise ``ValueError`` where a world shows something else than in the recorded episode."""
    for name, now in named_observations(step.observation):
        if not np.array_equal(now[0].cpu().numpy(), episode.observations[name][t], equal_nan=now.is_floating_point()):
            raise ValueError(
                f"step {t} of {episode.info.task} shows another {name} than when it was recorded: this world does not "
                "repeat itself from a seed, so no episode of it can be run again"
            )


def named_observations(observation: Any) -> Iterator[tuple[str, Tensor]]:
    """Yield the parts of an observation by dotted key; ``observation`` where there is only one."""
    for name, leaf in named_parts(observation):
        yield name or "observation", leaf


def _map_observation(change: Callable[..., Tensor], first: Any, *others: Any) -> Any:
    if isinstance(first, dict):
        return {name: _map_observation(change, part, *(one[name] for one in others)) for name, part in first.items()}
    return change(first, *others)


def _assemble(
    agent: ActorCritic, world: WorldConfig, moments: Sequence[Moment], info: EpisodeInfo, notes: tuple[str, ...]
) -> LiveEpisode:
    """Make the record of played moments, with the core's attention when it reads the episode again."""
    steps = [moment.step for moment in moments]
    inputs = ActorInputs(
        _map_observation(lambda *parts: torch.stack(parts, 1), *(step.observation for step in steps)),
        torch.stack([moment.previous_action for moment in moments], 1),
        torch.stack([step.reward for step in steps], 1),
        *(torch.stack(parts, 1) for parts in zip(*(moment.previous_output for moment in moments), strict=True)),
    )
    spec, over = world.spec, bool(steps[-1].is_last[0])
    attention = record_attention(agent.core, Playback(agent, inputs).encoded)
    curves = zip(*((moment.policy, moment.value, moment.step.reward) for moment in moments), strict=True)
    logits, value, reward = (torch.cat(parts).float().cpu().numpy() for parts in curves)
    truths = [moment.truth for moment in moments]
    notes = (*notes, *attention.notes, *(() if over else (f"cut after {len(steps)} steps: the episode was not over",)))
    return LiveEpisode(
        info=_describe(agent, world, info, float(steps[-1].score[0]) if over else None, float(reward.sum()), notes),
        actions=tuple(spec.action_names),
        frames=_stack_frames([moment.frame for moment in moments]),
        observations={name: part[0].cpu().numpy() for name, part in named_observations(inputs.observation)},
        action=torch.cat([moment.action for moment in moments]).cpu().numpy(),
        reward=reward,
        value=value,
        logits=logits,
        done=np.array([bool(step.is_last[0]) for step in steps]),
        terminated=bool(steps[-1].terminated[0]),
        discrete=isinstance(spec.action_space, Discrete),
        **attention.maps(),
        spatial=attention.places.spatial,
        what_where=attention.places.what_where,
        spacetime=attention.places.spacetime,
        slots=attention.slots,
        events=find_events([moment.event for moment in moments], reward, over),
        pairs=find_pairs(truths),
        objects=find_objects([moment.scene for moment in moments], spec.object_names),
        agent=agent,
        world=world,
        inputs=inputs,
    )


def _describe(
    agent: ActorCritic, world: WorldConfig, info: EpisodeInfo, score: float | None, total: float, notes: tuple[str, ...]
) -> EpisodeInfo:
    oracle = world.spec.oracle
    return replace(
        info,
        task=world.title,
        core=core_key(agent) or type(agent.core).__name__,
        version=__version__,
        score=score,
        success=None if score is None or np.isnan(oracle) else bool(score >= oracle - 1e-6),
        total_reward=total,
        notes=notes,
    )


def _stack_frames(frames: Sequence[np.ndarray]) -> np.ndarray:
    """Join pictures as one array; smaller ones are padded with black."""
    tall, wide = (max(frame.shape[axis] for frame in frames) for axis in (0, 1))
    padding = [((0, tall - frame.shape[0]), (0, wide - frame.shape[1]), (0, 0)) for frame in frames]
    return np.stack([np.pad(frame, pad) for frame, pad in zip(frames, padding, strict=True)])
