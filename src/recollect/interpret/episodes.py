"""Episodes that are recorded with their agent, so that they can be asked again, and lived again with another memory.

    rec = record_episode(agent, TMazeConfig(), seed=3)         an EpisodeRecord, with everything that its core shows
    rec = rec.with_removal()                                   what each chunk of the memory is used for
    other = rec.rerun_from(20, hide=[(0, 8)])                  the same episode, going on without the memory of 0..7
    other = rec.with_memory_from(another, 20)                  ... with the memory of another episode

The agent acts as it always does, and what it did is noted; attention is heard afterwards, in a pass of its own. So
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
from recollect.cores import CORES
from recollect.evaluation.agents import evaluation_mode, initial_action, play
from recollect.evaluation.world_guard import GuardedWorld
from recollect.interpret.attention import record_attention
from recollect.interpret.events import find_events, find_objects, find_pairs
from recollect.interpret.occlusion import can_hide_steps, forget_chunks, hiding
from recollect.interpret.playback import Playback
from recollect.interpret.record import EpisodeInfo, EpisodeRecord
from recollect.interpret.removal import measure_removal
from recollect.interpret.saliency import STRIDE, gradient_saliency, perturbation_saliency
from recollect.tasks.worlds.contract import Scene, Step, Truth, WorldConfig
from recollect.tasks.worlds.pictures import small_picture

LONGEST = 1000
"""Steps of an episode that are recorded: a map of all pairs of steps is quadratic."""
Edit = Callable[[Any], Any]
"""From a state of one row to another one."""


class Moment(NamedTuple):
    """One step as it was lived, of a world with one row."""

    step: Step
    told: Tensor
    """The action before it, ``[1, *action_shape]``."""
    said: tuple[Tensor, Tensor]
    """Policy ``[1, p]`` and features ``[1, d]`` of the step before it, as the agent is shown them."""
    action: Tensor
    policy: Tensor
    value: Tensor
    frame: np.ndarray
    truth: Truth | None
    scene: Scene | None


@dataclass(frozen=True, kw_only=True)
class LiveEpisode(EpisodeRecord):
    """A record that still has its agent and its world, and so can be gone on with in other ways."""

    agent: ActorCritic = field(repr=False)
    world: WorldConfig = field(repr=False)
    inputs: ActorInputs = field(repr=False)
    """What the agent was told, ``[1, T, ...]``."""

    def playback(self) -> Playback:
        """The episode, to be told again."""
        return Playback(self.agent, self.inputs)

    def plain(self) -> EpisodeRecord:
        """The record without agent and world."""
        return EpisodeRecord(**{part.name: getattr(self, part.name) for part in fields(EpisodeRecord)})

    def with_removal(self, unit: str | None = None) -> Self:
        """The same with :attr:`removal`; see :func:`recollect.interpret.removal.measure_removal`."""
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
        """The same with one :attr:`saliency` more; see :mod:`recollect.interpret.saliency`.

        Args:
            targets: ``actor``, ``critic`` or both.
            of: what the actor's map is of: ``logits``, ``action`` or ``sarfa``.
            stride: pixels between places that are tried.
            every: steps of the episode between maps.
            method: ``perturbation`` or ``gradient`` (which has neither stride nor choice of ``of``).
        """
        require(method in ("perturbation", "gradient"), "method", method, "choose perturbation or gradient")
        require(every >= 1, "every", every, "give at least 1")
        steps = range(0, self.num_steps, every)
        with evaluation_mode(self.agent, self.info.seed):
            if method == "gradient":
                found = gradient_saliency(self.playback(), self.action, targets=targets, steps=steps)
            else:
                how = {"targets": targets, "of": of, "stride": stride, "steps": steps}
                found = perturbation_saliency(self.playback(), self.action, **how)
        return replace(self, saliency=(*self.saliency, found))

    def rerun_from(self, step: int, edit: Edit | None = None, *, hide: Sequence[tuple[int, int]] = ()) -> "LiveEpisode":
        """Live the episode again from a step on, with another memory; the world goes on as it did before.

        Args:
            step: the first at which the agent decides anew.
            edit: what becomes of the state before that step; None leaves it.
            hide: half-open intervals of steps that cannot be read any more from then on.

        Raises:
            ValueError: no such step; a core from whose memory no single steps can be taken; a world that does not
                repeat itself.
        """
        state = self.playback().state_before(step)
        if hide and not can_hide_steps(self.agent.core):
            raise ValueError(
                f"hide={list(hide)}: a {type(self.agent.core).__name__} keeps no single steps that could be hidden; "
                "give an edit of its state"
            )
        state = state if edit is None else edit(state)
        with evaluation_mode(self.agent, self.info.seed):
            moments = list(_live_again(self, step, state, hide))
        what = "an edited memory" if edit or hide else "the same memory"
        notes = (f"lived again from step {step} on with {what}",)
        return _assemble(self.agent, self.world, moments, self.info, notes)

    def outcome_from(self, step: int, *, hide: Sequence[tuple[int, int]] = ()) -> float | None:
        """The world's score when the episode is lived again, as :meth:`rerun_from` does; None where it does not end."""
        with evaluation_mode(self.agent, self.info.seed):
            *_, last = _live_again(self, step, self.playback().state_before(step), hide)
        return float(last.step.score[0]) if bool(last.step.is_last[0]) else None

    def without_memory(self, chunk: int, step: int | None = None) -> "LiveEpisode":
        """Live on without one chunk.

        Args:
            chunk: number in :attr:`chunks`.
            step: from when on; None: the first decision that depends on anything, or else as soon as the chunk is past.
        """
        require(0 <= chunk < len(self.chunks), "chunk", chunk, f"this record has {len(self.chunks)} chunks")
        interval = self.chunks[chunk]
        return self.rerun_from(self._decision(interval[1]) if step is None else step, hide=[interval])

    def with_memory_from(self, other: "LiveEpisode", step: int | None = None) -> "LiveEpisode":
        """Live on with the memory that the agent had at the same step of another episode.

        Args:
            other: of the same agent, at least as long.
            step: from when on; None: the first decision that depends on anything.
        """
        step = self._decision(1) if step is None else step
        memory = other.playback().state_before(step)
        return self.rerun_from(step, lambda _: memory)

    def _decision(self, after: int) -> int:
        """The first decision that depends on anything, not before ``after``."""
        first = [max(pair.query[0], after) for pair in self.pairs if pair.query[1] > after]
        return min([*first, self.num_steps - 1]) if first else min(after, self.num_steps - 1)


def record_episode(
    agent: Agent,
    world: WorldConfig,
    *,
    seed: int = 0,
    greedy: bool = True,
    longest: int = LONGEST,
    info: EpisodeInfo | None = None,
) -> LiveEpisode:
    """Let an agent play one episode, and note all that it shows. Leaves no trace on its modes or global generators.

    Args:
        agent: who plays.
        world: where.
        seed: of the world and of sampled actions.
        greedy: take the likeliest action; False draws from the policy.
        longest: steps that are recorded; of a longer episode the beginning is kept, and a note says so.
        info: what is known of the agent beside what is found here: checkpoint, provenance.

    Raises:
        ValueError: not an actor-critic of this library, or ``longest`` below 1.
    """
    require(longest >= 1, "longest", longest, "record at least 1 step")
    if not isinstance(agent, ActorCritic):
        raise ValueError(
            f"agent={type(agent).__name__}: only the inside of an ActorCritic can be recorded: give an agent or a run "
            "that learned by reinforcement or by cloning"
        )
    watched = GuardedWorld(world, 1, seed=seed, device=next(agent.parameters()).device)
    moments: list[Moment] = []
    try:
        with evaluation_mode(agent, seed):
            told, said = initial_action(watched), None
            for played in play(agent, watched, seed=seed, greedy=greedy):
                output = played.output
                said = no_previous_output(agent, 1, output.value) if said is None else said
                moments.append(_moment(watched, played.step, told, said, played.action, output.policy, output.value))
                told, said = played.action, as_previous_output(agent, output)
                if bool(played.step.is_last[0]) or len(moments) == longest:
                    break
    finally:
        watched.close()
    known = EpisodeInfo(task="", core="") if info is None else info
    known = replace(known, seed=seed, greedy=greedy)
    with evaluation_mode(agent, seed):
        return _assemble(agent, world, moments, known, ())


def _moment(
    watched: GuardedWorld,
    step: Step,
    told: Tensor,
    said: tuple[Tensor, Tensor],
    action: Tensor,
    policy: Tensor,
    value: Tensor,
) -> Moment:
    world = watched.world
    frame = small_picture(world, step.observation, 0)
    return Moment(step, told, said, action, policy, value, frame, world.truth(), world.scene())


@torch.no_grad()
def _live_again(episode: LiveEpisode, start: int, state: Any, hide: Sequence[tuple[int, int]]) -> Iterator[Moment]:
    """The moments of an episode: as they were before ``start``, then those of an agent with this memory."""
    agent, seed, inputs = episode.agent, episode.info.seed, episode.inputs
    assert inputs.policy is not None and inputs.features is not None  # recorded for every agent
    device = next(agent.parameters()).device
    watched = GuardedWorld(episode.world, 1, seed=seed, device=device)
    generator = torch.Generator(device).manual_seed(seed)
    actions = torch.as_tensor(episode.action, device=device)
    logits, values = (torch.as_tensor(part, device=device) for part in (episode.logits, episode.value))
    limit = max(LONGEST, episode.num_steps)
    try:
        step, told = watched.reset(), initial_action(watched)
        said = inputs.policy[:, 0], inputs.features[:, 0]
        for t in range(limit):
            if t <= start:
                said = inputs.policy[:, t], inputs.features[:, t]
            lived = said
            if t < start:
                _require_same(episode, step, t)
                policy, value = logits[t : t + 1], values[t : t + 1]
            else:
                hidden = _hidden(hide, max(limit, t + 1), device)
                state = forget_chunks(agent.core, state, hidden, t)
                heard = (part[:, None] for part in (told, step.reward, *said))
                with hiding(agent.core, hidden, t):
                    output, state = agent(
                        ActorInputs(_in_time(step.observation), *heard), state, step.is_first[:, None]
                    )
                output = type(output)(*(part[:, 0] for part in output))
                policy, value, said = output.policy, output.value, as_previous_output(agent, output)
            distribution = agent.distribution(policy)
            action = distribution.mode() if episode.info.greedy else distribution.sample(generator=generator)
            action = actions[t : t + 1] if t < start else action
            yield _moment(watched, step, told, lived, action, policy, value)
            if bool(step.is_last[0]):
                return
            step, told = watched.step(action), action
    finally:
        watched.close()


def _hidden(intervals: Sequence[tuple[int, int]], steps: int, device: torch.device) -> Tensor:
    hidden = torch.zeros(1, steps, dtype=torch.bool, device=device)
    for start, stop in intervals:
        hidden[:, start:stop] = True
    return hidden


def _require_same(episode: LiveEpisode, step: Step, t: int) -> None:
    """Raise ``ValueError`` where a world shows something else than before."""
    for name, now in named_observations(step.observation):
        if not np.array_equal(now[0].cpu().numpy(), episode.observations[name][t], equal_nan=now.is_floating_point()):
            raise ValueError(
                f"step {t} of {episode.info.task} shows another {name} than when it was recorded: this world does not "
                "repeat itself from a seed, so no episode of it can be lived again"
            )


def _in_time(observation: Any) -> Any:
    if isinstance(observation, dict):
        return {name: _in_time(part) for name, part in observation.items()}
    return observation[:, None]


def named_observations(observation: Any, prefix: str = "") -> Iterator[tuple[str, Tensor]]:
    """The parts of an observation by dotted key; ``observation`` where there is only one."""
    if isinstance(observation, dict):
        for name, part in observation.items():
            yield from named_observations(part, f"{prefix}.{name}" if prefix else str(name))
    else:
        yield prefix or "observation", observation


def _stacked(observations: Sequence[Any]) -> Any:
    if isinstance(observations[0], dict):
        return {name: _stacked([one[name] for one in observations]) for name in observations[0]}
    return torch.stack(list(observations), 1)


def _assemble(
    agent: ActorCritic, world: WorldConfig, moments: Sequence[Moment], info: EpisodeInfo, notes: tuple[str, ...]
) -> LiveEpisode:
    """The record of what was lived, with what the core shows when it reads the episode again."""
    steps = [moment.step for moment in moments]
    inputs = ActorInputs(
        _stacked([step.observation for step in steps]),
        torch.stack([moment.told for moment in moments], 1),
        torch.stack([step.reward for step in steps], 1),
        *(torch.stack([moment.said[part] for moment in moments], 1) for part in range(2)),
    )
    spec, over = world.spec, bool(steps[-1].is_last[0])
    attention = record_attention(agent.core, Playback(agent, inputs).encoded)
    logits, value, reward = (
        torch.cat(part).float().cpu().numpy()
        for part in (
            [moment.policy for moment in moments],
            [moment.value for moment in moments],
            [step.reward for step in steps],
        )
    )
    truths = [moment.truth for moment in moments]
    notes = (*notes, *attention.notes, *(() if over else (f"cut after {len(steps)} steps: the episode was not over",)))
    return LiveEpisode(
        info=_described(agent, world, info, float(steps[-1].score[0]) if over else None, float(reward.sum()), notes),
        actions=tuple(spec.action_names),
        frames=_frames([moment.frame for moment in moments]),
        observations={name: part[0].cpu().numpy() for name, part in named_observations(inputs.observation)},
        action=torch.cat([moment.action for moment in moments]).cpu().numpy(),
        reward=reward,
        value=value,
        logits=logits,
        done=np.array([bool(step.is_last[0]) for step in steps]),
        terminated=bool(steps[-1].terminated[0]),
        discrete=isinstance(spec.action_space, Discrete),
        heads=attention.heads,
        temporal=attention.temporal,
        chunks=attention.chunks,
        chunk_rel=attention.chunk_rel,
        chunk_read=attention.chunk_read,
        chunk_tail=attention.chunk_tail,
        spatial=attention.places.spatial,
        what_where=attention.places.what_where,
        spacetime=attention.places.spacetime,
        slots=attention.slots,
        events=find_events(truths, reward, spec, over),
        pairs=find_pairs(truths, len(steps)),
        objects=find_objects([moment.scene for moment in moments], spec.object_names),
        agent=agent,
        world=world,
        inputs=inputs,
    )


def _described(
    agent: ActorCritic, world: WorldConfig, info: EpisodeInfo, score: float | None, total: float, notes: tuple[str, ...]
) -> EpisodeInfo:
    keys = [key for key, kind in CORES.items() if type(agent.core_config) is kind]
    oracle = world.spec.oracle
    known = score is not None and not np.isnan(oracle)
    return replace(
        info,
        task=world.title,
        core=keys[0] if keys else type(agent.core).__name__,
        version=__version__,
        score=score,
        success=bool(score >= oracle - 1e-6) if known and score is not None else None,
        total_reward=total,
        notes=notes,
    )


def _frames(frames: Sequence[np.ndarray]) -> np.ndarray:
    """Pictures as one array; smaller ones are padded with black."""
    if len({frame.shape for frame in frames}) == 1:
        return np.stack(frames)
    tall, wide = (max(frame.shape[axis] for frame in frames) for axis in (0, 1))
    padding = [((0, tall - frame.shape[0]), (0, wide - frame.shape[1]), (0, 0)) for frame in frames]
    return np.stack([np.pad(frame, pad) for frame, pad in zip(frames, padding, strict=True)])
