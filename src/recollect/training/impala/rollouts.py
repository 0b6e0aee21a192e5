"""Rollouts: T steps of b rows of a world and an agent, as a learner reads them.

    row        0     1     2    ...    T-1    T        T + 1 observations, T actions
    action        a_0   a_1   ...   a_{T-1}            drawn from policy_t, or a teacher's; both are kept at row t + 1
    reward           r_1   r_2   ...        r_T        r_{t+1} follows action t
    state      the agent's memory before row 0: one for the whole rollout

Row T of a rollout is row 0 of the next: the memory has not consumed it, and no action was taken there. Where row t is
the last observation of an episode, row t + 1 is the first of a new one; action t is ignored there, and t is no *valid*
transition. The final observation of an episode is thus a row like any other, whose value a learner can read.

Acting costs little beside the model: small tensors are stacked once per rollout, and statistics of episodes are
computed from a whole rollout at once.
"""

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor

from recollect.agents.contract import ActorInputs, Agent, AgentStream, as_previous_output, no_previous_output
from recollect.evaluation.agents import initial_action
from recollect.evaluation.world_guard import world_errors
from recollect.learners import present
from recollect.runs.errors import NonFiniteError, WorldError
from recollect.runs.interrupts import Block, TimeLimitExceeded, time_limited
from recollect.state import take_rows
from recollect.tasks.worlds.answers import Answers
from recollect.tasks.worlds.contract import Step, World, escape_key, observation_leaves
from recollect.training.imitation.teachers import Teacher
from recollect.training.impala.ground_truth import GroundTruthRecorder
from recollect.training.impala.large_numbers import name_large_numbers
from recollect.training.trainer import below, load_state, state_tensors

R = TypeVar("R")

PATIENCE = 5.0
"""Seconds that a rollout in progress may still take after a signal or the end of a run."""


class Rollout(NamedTuple):
    """T steps of b rows; T + 1 observations. All tensors are batch-first."""

    observation: Any
    """``[b, T + 1, ...]``: an :data:`~recollect.tasks.worlds.contract.Observation`."""
    action: Tensor
    """``[b, T + 1, *action_shape]``: the action *before* each row; without meaning at ``is_first``."""
    reward: Tensor
    """float32 ``[b, T + 1]``: received with each row."""
    is_first: Tensor
    """bool ``[b, T + 1]``."""
    terminated: Tensor
    """bool ``[b, T + 1]``."""
    truncated: Tensor
    """bool ``[b, T + 1]``."""
    score: Tensor
    """float32 ``[b, T + 1]``: of the episodes that end at a row, 0 elsewhere."""
    policy: Tensor
    """float32 ``[b, T + 1, p]``: parameters of the actor's own policy at the step before each row. The action was drawn
    from it, unless a teacher acted in that row."""
    features: Tensor
    """``[b, T + 1, d]``: the actor's features at the step before each row; none where the agent does not read them."""
    state: Any
    """The agent's memory before row 0, leading axis b."""
    target: Tensor | None = None
    """A teacher's targets at rows 0 .. T - 1, ``[b, T, ...]``: see its class; None without a teacher."""
    truth: Any = None
    """Ground truth of every row, long ``[b, T + 1]`` by name (see ground_truth.py); None where no aid needs it."""

    @property
    def inputs(self) -> ActorInputs:
        """Inputs of the agent at rows 0 .. T."""
        return ActorInputs(self.observation, self.action, self.reward, self.policy, self.features)

    @property
    def actions(self) -> Tensor:
        """Actions at rows 0 .. T - 1, ``[b, T, *action_shape]``."""
        return self.action[:, 1:]

    @property
    def policies(self) -> Tensor:
        """Parameters of the actor's policy at rows 0 .. T - 1, ``[b, T, p]``."""
        return self.policy[:, 1:]

    @property
    def numbers_read(self) -> dict[str, Tensor]:
        """Rewards and observations of floats, by name."""
        leaves = {f"observation{name}": leaf for name, leaf in observation_leaves(self.observation)}
        return {"reward": self.reward} | {name: leaf for name, leaf in leaves.items() if leaf.is_floating_point()}

    @property
    def valid(self) -> Tensor:
        """Whether action t was taken: row t is not the last of an episode. Bool ``[b, T]``."""
        return ~(self.terminated | self.truncated)[:, :-1]

    @property
    def seen(self) -> Tensor:
        """Whether rows are steps of an episode, and not padding after recorded ones. Bool ``[b, T + 1]``."""
        ended = torch.nn.functional.pad((self.terminated | self.truncated)[:, :-1], (1, 0))
        return self.is_first | ~ended

    def rows(self, index: Tensor) -> "Rollout":
        """Return some of the rows, for a minibatch."""
        parts = [map_observation(lambda leaf: leaf[index], part) for part in self[: self._fields.index("state")]]
        target = None if self.target is None else self.target[index]
        truth = None if self.truth is None else map_observation(lambda leaf: leaf[index], self.truth)
        return Rollout(*parts, state=take_rows(self.state, index), target=target, truth=truth)

    def between(self, start: int, stop: int, state: Any) -> "Rollout":
        """Return steps start .. stop - 1 of the T + 1 as a rollout that begins with another memory."""

        def cut(tree: Any, last: int) -> Any:
            return None if tree is None else map_observation(lambda leaf: leaf[:, start:last], tree)

        parts = [cut(part, stop) for part in self[: self._fields.index("state")]]
        return Rollout(*parts, state=state, target=cut(self.target, stop - 1), truth=cut(self.truth, stop))


class Episodes(NamedTuple):
    """Statistics of a rollout. The sums are over the episodes that ended."""

    steps: int
    """Actions without those that the world ignores at the end of an episode."""
    ended: int
    """Episodes that ended."""
    returned: float
    """Sum of their returns (sums of rewards, undiscounted)."""
    score: float
    """Sum of their scores."""
    length: int
    """Sum of their lengths, in actions."""
    own: Tensor
    """float64 ``[b, T]``: scores of the episodes that ended at rows 1 .. T without any action of a teacher; NaN
    elsewhere."""

    def add_learners(self) -> "Episodes":
        """Return the sums over all learners; ``own`` stays this learner's."""
        steps, ended, returned, score, length = present().sum(*self[:-1])
        return Episodes(int(steps), int(ended), returned, score, int(length), self.own)

    def own_scores(self, led: int) -> list[list[float] | None]:
        """Return the scores in ``own``, row by row; None for the first ``led`` rows, in which a teacher acts."""
        rows = [[score for score in row if not math.isnan(score)] for row in self.own.tolist()]
        return [None if row < led else scores for row, scores in enumerate(rows)]

    def means(self) -> dict[str, float]:
        """Return the mean return, score and length of an episode; empty when none ended."""
        if not self.ended:
            return {}
        return {name: getattr(self, field) / self.ended for name, field in MEANS.items()}


MEANS = {"return": "returned", "score": "score", "length": "length"}


class PreviousStep(NamedTuple):
    """An actor's action and outputs at the previous step; see :class:`Rollout`."""

    action: Tensor
    policy: Tensor
    features: Tensor


class EpisodeCounts(NamedTuple):
    """Statistics of the present episodes, ``[b]`` each; see :class:`ActorSnapshot`."""

    returned: Tensor
    length: Tensor
    taught: Tensor


class ActorSnapshot(NamedTuple):
    """All that the next rollout depends on, except for the weights. Its tensors are never written to again."""

    step: Step
    """Present step of the world."""
    action: Tensor
    """Action before it."""
    policy: Tensor
    """The actor's policy before it; see :class:`Rollout`."""
    features: Tensor
    """The actor's features before it; see :class:`Rollout`."""
    state: Any
    """The agent's memory before it."""
    generator: Tensor
    """State of the generator of actions."""
    returned: Tensor
    """float64 ``[b]``: sum of rewards of the present episodes, so far."""
    length: Tensor
    """long ``[b]``: their actions, so far."""
    taught: Tensor
    """bool ``[b]``: whether a teacher has acted in them."""
    world: tuple[Mapping[str, Tensor], Mapping[str, Any]] | None
    """Return value of ``World.save``; None for a world that cannot be saved."""
    teacher: Any = ()
    """The memory of a teacher."""

    def tensors(self) -> dict[str, Tensor]:
        """Return all tensors by name."""
        named = {name: getattr(self, name) for name in (*PreviousStep._fields, "generator", *EpisodeCounts._fields)}
        for field, value in self.step._asdict().items():
            named |= {f"step.{field}{name}": leaf for name, leaf in observation_leaves(value)}
        named |= state_tensors("state.", self.state) | state_tensors("teacher.", self.teacher)
        return named | {f"world.{name}": leaf for name, leaf in (self.world[0] if self.world else {}).items()}


class Collector:
    """Plays rollouts, one after the other, in one world with one agent.

    Args:
        agent: that acts, in its present mode. After a change of its weights call :meth:`reload_weights`.
        world: where; it is reset here.
        unroll: T, steps of a rollout.
        generator: of the actions, on the agent's device.
        name: its name in messages.
        bfloat16: act under autocast. Policies, values and the memory's leaves keep their precision.
        timeout: seconds that a step may take in the main thread before the world is reported to hang.
        teacher: labels every step, and acts in some of the rows.
        ground_truth: records the ground truth of every step.
    """

    def __init__(  # noqa: PLR0913 (agent, world, and settings)
        self,
        agent: Agent,
        world: World,
        unroll: int,
        generator: torch.Generator,
        name: str = "the world",
        *,
        bfloat16: bool = False,
        timeout: float = math.inf,
        teacher: Teacher | None = None,
        ground_truth: GroundTruthRecorder | None = None,
    ) -> None:
        self.agent = agent
        self.world = world
        self.unroll = unroll
        self.generator = generator
        self.name = name
        self.bfloat16 = bfloat16
        self.timeout = timeout
        self.teacher = teacher
        self.ground_truth = ground_truth
        self.answers = Answers(world.spec.observation_space, world.batch_size)
        self.stream = self._make_stream()
        self.seen: list[Step] = []
        """Steps of the rollout in progress."""
        self.snapshot = self._initial_snapshot()
        """State after the newest finished rollout: it is saved, and the next rollout starts from it."""

    def reload_weights(self) -> None:
        """Read the agent's weights again."""
        self.stream = self._make_stream()
        self.stream.load_state(self.snapshot.state)

    def enter(self, world: World) -> None:
        """Play in another world with the same spaces from now on, in new episodes with new memories."""
        self.world, self.answers = world, Answers(world.spec.observation_space, world.batch_size)
        self.stream = self._make_stream()
        self.snapshot = self._initial_snapshot()

    def _initial_snapshot(self) -> ActorSnapshot:
        return self._snapshot(self._reset(), self._no_previous_step(), self._no_counts())

    def _no_previous_step(self) -> PreviousStep:
        like = torch.zeros((), device=self.world.device)
        return PreviousStep(initial_action(self.world), *no_previous_output(self.agent, self.world.batch_size, like))

    def _no_counts(self) -> EpisodeCounts:
        zero = torch.zeros(self.world.batch_size, dtype=torch.float64, device=self.world.device)
        return EpisodeCounts(zero, zero.long(), zero.bool())

    def begin(self, seed: int) -> None:
        """Begin new episodes with new memories, in a world with this seed."""
        self.stream = self._make_stream()
        self.snapshot = self._snapshot(self._reset(seed), self._no_previous_step(), self._no_counts())

    def buffer(self) -> Rollout:
        """Return an empty rollout that :meth:`collect` can fill repeatedly."""
        snapshot = self.snapshot

        def rows(number: int) -> Callable[[Tensor], Tensor]:
            return lambda leaf: leaf.new_empty((leaf.shape[0], number, *leaf.shape[1:]))

        step = [map_observation(rows(self.unroll + 1), part) for part in snapshot.step]
        said = {name: rows(self.unroll + 1)(getattr(snapshot, name)) for name in PreviousStep._fields}
        seen = dict(zip(Step._fields, step, strict=True))
        return Rollout(**seen, **said, state=snapshot.state)

    @torch.no_grad()
    def collect(self, buffer: Rollout) -> tuple[Rollout, Episodes]:
        """Play T steps into a buffer.

        Returns:
            The rollout, whose tensors are the buffer's, and its statistics.

        Raises:
            NonFiniteError: a reward, an observation or the policy is not finite; names what, row and step.
            WorldError: the world raised something else. The snapshot is still the one before this rollout.
        """
        before = self.snapshot
        try:
            with time_limited(self.timeout, PATIENCE) as block, world_errors(self.name):
                step, said, targets = self._play(buffer, block)
        except TimeLimitExceeded:
            raise WorldError(
                f"{self.name}: no answer for {self.timeout:g} s ({len(self.seen) - 1} steps into a rollout): its world "
                f"hangs, or takes longer than timeout={self.timeout:g},"
            ) from None
        except WorldError as error:
            self._check_seen()  # a number that is not finite or outside its space may have caused the error
            raise WorldError(f"{error} ({len(self.seen) - 1} steps into a rollout)") from error.__cause__
        for field in Step._fields[1:]:
            torch.stack([getattr(seen, field) for seen in self.seen], 1, out=getattr(buffer, field))
        for name, parts in zip(PreviousStep._fields, zip(*said, strict=True), strict=True):
            torch.stack(parts, 1, out=getattr(buffer, name))
        rollout = buffer._replace(state=before.state, target=torch.stack(targets, 1) if targets else None)
        if self.ground_truth is not None:
            rollout = rollout._replace(truth=self.ground_truth.rows(rollout.is_first, before.length))
        episodes, counted = self._count(rollout)
        self.snapshot = self._snapshot(step, said[-1], counted)
        return rollout, episodes

    def _play(self, buffer: Rollout, block: Block) -> tuple[Step, list[PreviousStep], list[Tensor]]:
        """Play T steps; return the last one, the previous step of every row, and the targets of a teacher."""
        step, said = (
            self.snapshot.step,
            [PreviousStep(*(getattr(self.snapshot, name) for name in PreviousStep._fields))],
        )
        agent, world, generator = self.agent, self.world, self.generator
        kept = [leaf.unbind(1) for _, leaf in observation_leaves(buffer.observation)]
        targets = []
        self.seen = [step]
        self._keep(kept, step, 0)
        for t in range(self.unroll):
            action, policy, features = said[-1]
            inputs = ActorInputs(step.observation, action, step.reward, policy, features)
            with self._precision():
                output = self.stream.step(inputs, step.is_first)
            action = agent.distribution(output.policy).sample(generator)
            if self.teacher is not None:
                targets.append(self.teacher.show(world, inputs, step.is_first))
                action = self.teacher.lead(action, targets[-1], generator)
            step = world.step(action)
            block.restart_clock()
            self.answers.check(step)
            self._keep(kept, step, t + 1)
            self.seen.append(step)
            policy, shown = as_previous_output(agent, output)
            said.append(PreviousStep(action, policy, shown.to(features.dtype)))
        return step, said, targets

    def _make_stream(self) -> AgentStream:
        with self._precision():  # a stream keeps the precision in which it was made
            return self.agent.stream(self.world.batch_size)

    def _precision(self) -> torch.autocast:
        return torch.autocast(self.world.device.type, torch.bfloat16, enabled=self.bfloat16)

    def _keep(self, kept: list[tuple[Tensor, ...]], step: Step, t: int) -> None:
        if self.ground_truth is not None:
            self.ground_truth.record(self.world)
        # Observations may be large, so they are copied to the buffer at once.
        for rows, (_, leaf) in zip(kept, observation_leaves(step.observation), strict=True):
            rows[t].copy_(leaf)

    def _snapshot(self, step: Step, said: PreviousStep, counted: EpisodeCounts) -> ActorSnapshot:
        teacher = () if self.teacher is None else self.teacher.take_state()
        return self._make_snapshot(step, said, counted, self.stream.state, teacher)

    def _make_snapshot(
        self, step: Step, said: PreviousStep, counted: EpisodeCounts, state: Any, teacher: Any
    ) -> ActorSnapshot:
        try:
            saved = self.world.save()
        except ValueError:
            saved = None
        generator = self.generator.get_state()
        return ActorSnapshot(step, said.action, said.policy, said.features, state, generator, *counted, saved, teacher)

    def _count(self, rollout: Rollout) -> tuple[Episodes, EpisodeCounts]:
        """Return statistics of rows 1 .. T, and of the present episodes. Synchronises with the device once."""
        snapshot = self.snapshot
        is_first = rollout.is_first[:, 1:]
        ended = (rollout.terminated | rollout.truncated)[:, 1:]
        t = torch.arange(1, self.unroll + 1, device=is_first.device)
        began = torch.where(is_first, t, 0).cummax(1).values  # row at which the episode began; 0: before this rollout
        older = began == 0
        sums = torch.nn.functional.pad(rollout.reward[:, 1:].double().cumsum(1), (1, 0))  # b T+1
        returned = sums[:, 1:] - sums.gather(1, began) + torch.where(older, snapshot.returned[:, None], 0.0)
        length = t - began + torch.where(older, snapshot.length[:, None], 0)
        scores = rollout.score[:, 1:].double()
        of_ended = (returned, scores, length.double())
        numbers = [(~is_first).sum(), ended.sum(), *(torch.where(ended, value, 0.0).sum() for value in of_ended)]
        led = torch.arange(len(ended), device=ended.device) < (0 if self.teacher is None else self.teacher.acting)
        # A row that the teacher no longer plays may still end an episode that the teacher began.
        taught = (led[:, None] & (t > began)) | (snapshot.taught[:, None] & older)
        floats = [leaf for _, leaf in observation_leaves(rollout.observation) if leaf.is_floating_point()]
        # A finite sum has finite terms.
        numbers += [part.sum(dtype=torch.float64).isfinite() for part in (*floats, rollout.reward, rollout.policies)]
        numbers = torch.stack([number.double() for number in numbers]).tolist()
        steps, count, total, score, actions, *finite = numbers
        if not all(finite):
            self._check_seen()
            with name_large_numbers(rollout.numbers_read):
                self._check(lambda: iter([("policy", rollout.policies)]))
        own = torch.where(ended & ~taught, scores, torch.nan)
        episodes = Episodes(int(steps), int(count), total, score, int(actions), own)
        return episodes, EpisodeCounts(*(part[:, -1].clone() for part in (returned, length, taught)))

    def _reset(self, seed: int | None = None) -> Step:
        """Reset the world, and check its first observations."""
        with world_errors(self.name, "its reset"):
            step = self.world.reset(seed)
            self.answers.check(step)
            self.answers.check_numbers(step)
        return step

    def _check_seen(self) -> None:
        def parts() -> Iterator[tuple[str, Tensor]]:
            yield "reward", torch.stack([step.reward for step in self.seen], 1)
            for index, (name, leaf) in enumerate(observation_leaves(self.seen[0].observation)):
                if leaf.is_floating_point():
                    rows = [list(observation_leaves(step.observation))[index][1] for step in self.seen]
                    yield f"observation{name}", torch.stack(rows, 1)

        self._check(parts)
        with world_errors(self.name):
            for step in self.seen:
                self.answers.check_numbers(step)

    def _check(self, parts: Callable[[], Iterator[tuple[str, Tensor]]]) -> None:
        for what, part in parts():
            broken = ~part.isfinite().flatten(2).all(2) if part.ndim > 2 else ~part.isfinite()
            if broken.any():
                steps = broken.any(0).nonzero()[0, 0]
                row = broken[:, steps].nonzero()[0, 0]
                value = part[row, steps].flatten()
                value = value[~value.isfinite()][0].item()
                remedy = None if what == "policy" else f"the world gave it: {WorldError.remedy}"
                raise NonFiniteError(
                    f"the {what} is {value} in row {int(row)} of {self.name}, {int(steps)} steps into a rollout,",
                    remedy,
                )

    def load(self, tensors: Mapping[str, Tensor], data: Mapping[str, Any] | None, seed: int) -> None:
        """Continue from the tensors of an :class:`ActorSnapshot` and the data of its world.

        Args:
            tensors: what :meth:`ActorSnapshot.tensors` gave.
            data: the second half of ``snapshot.world``; None resets the world.
            seed: for a world that is reset.
        """
        device = self.world.device
        self.generator.set_state(tensors["generator"].cpu())
        state = load_state("state.", tensors, self.snapshot.state)
        self.stream.load_state(state)
        teacher = () if self.teacher is None else self.teacher.load_state(below("teacher.", tensors))
        if data is None:
            self.snapshot = self._snapshot(self._reset(seed), self._no_previous_step(), self._no_counts())
            return
        self.world.load(below("world.", tensors), data)
        step = [_like(part, f"step.{field}", tensors) for field, part in self.snapshot.step._asdict().items()]
        # Older runs did not save all of these.
        counted = (tensors.get(name, nothing).to(device) for name, nothing in self._no_counts()._asdict().items())
        said = (tensors.get(name, unread).to(device) for name, unread in self._no_previous_step()._asdict().items())
        # The memories as they were saved: a stream that stores them in another form would round them again.
        self.snapshot = self._make_snapshot(Step(*step), PreviousStep(*said), EpisodeCounts(*counted), state, teacher)


def map_observation(fn: Callable[[Tensor], Tensor], observation: Any) -> Any:
    """Apply ``fn`` to every tensor of an observation."""
    if isinstance(observation, Tensor):
        return fn(observation)
    return {name: map_observation(fn, part) for name, part in observation.items()}


def _like(example: Any, name: str, tensors: Mapping[str, Tensor]) -> Any:
    if isinstance(example, Tensor):
        return tensors[name].to(example.device)
    return {key: _like(part, f"{name}.{escape_key(key)}", tensors) for key, part in example.items()}
