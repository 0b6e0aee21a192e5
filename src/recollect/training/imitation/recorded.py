"""Cloning of recorded episodes: b endless rows of them, cut into unrolls, memory carried from one to the next.

    row 0   | episode 7 ........ | episode 2 ...| episode 9 .......
    row 1   | episode 4 ... | episode 1 ................ | episode 8
            |  unroll  |  unroll  |  unroll  |

Where an episode of a row ends, the next one of the shuffled list begins, with ``is_first``: episodes of any lengths lie
side by side without padding, every one is seen from its first step, and what a memory holds is never cut short.
Gradients reach back one unroll. Each episode comes once before any comes again.

As in rollouts, the last row of an unroll is the first one of the next, and only its value is read before that.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from recollect.agents.actor_critic import ActorCritic
from recollect.evaluation.agents import METRICS
from recollect.evaluation.recordings import Recording
from recollect.state import detach, map_state, named_leaves
from recollect.training.devices import choose_device
from recollect.training.frame import Trainer, below, evaluation_seed
from recollect.training.imitation.loss import REPORTED, imitation_loss
from recollect.training.imitation.teachers import NamedActions
from recollect.training.impala.rollouts import Rollout, map_observation
from recollect.training.impala.trainer import ImpalaConfig
from recollect.training.optimizers import Undo, begin_step, load_optimizer, optimizer_tensors, take_step


class EpisodeRows:
    """Endless rows of recorded episodes.

    Args:
        recording: the episodes.
        batch_size: rows.
        device: where unrolls go.
        seed: of the order.
    """

    carries = True
    """Whether an unroll goes on where the one before it stopped, with the memory of then."""

    def __init__(self, recording: Recording, batch_size: int, device: torch.device, seed: int) -> None:
        self.device = device
        self.starts = np.concatenate(([0], recording.lengths.cumsum()[:-1]))
        self.lengths = recording.lengths
        last = self.starts + self.lengths - 1
        steps = int(self.lengths.sum())

        def at(places: np.ndarray, values: Any) -> Tensor:
            marked = torch.zeros(steps, dtype=torch.float32 if np.asarray(values).dtype.kind == "f" else torch.bool)
            marked[torch.from_numpy(places)] = torch.as_tensor(values)
            return marked

        action = torch.from_numpy(recording.action)
        done = torch.cat((torch.zeros_like(action[:1]), action[:-1]))
        first = at(self.starts, True)
        done[first] = 0
        self.action = action
        self.parts = {
            "action": done,
            "reward": torch.from_numpy(recording.reward).float(),
            "is_first": first,
            "terminated": at(last, recording.terminated),
            "truncated": at(last, ~recording.terminated),
            "score": at(last, recording.score.astype(np.float32)),
        }
        self.observation = {name: torch.from_numpy(leaf) for name, leaf in recording.observation.items()}
        self.generator = torch.Generator().manual_seed(seed)
        self.order = torch.randperm(len(self.lengths), generator=self.generator)
        self.next = 0
        """Place in the order of the episode that the next free row gets."""
        self._stand(batch_size)

    def take(self, steps: int, state: Any) -> Rollout:
        """The next unroll of all rows.

        Args:
            steps: T.
            state: the learner's memory before it.
        """
        walked = [self._walk(row, steps) for row in range(len(self.places))]
        return self.gather(torch.from_numpy(np.stack(walked)), state)

    def gather(self, index: Tensor, state: Any) -> Rollout:
        """The recorded steps at these places, long ``[b, T + 1]``."""
        parts = {name: part[index].to(self.device) for name, part in self.parts.items()}
        observation = nested({name: leaf[index].to(self.device) for name, leaf in self.observation.items()})
        target = self.action[index[:, :-1]].to(self.device)
        unknown = parts["reward"].new_empty((*index.shape, 0))
        return Rollout(observation=observation, policy=unknown, features=unknown, state=state, target=target, **parts)

    def tensors(self) -> dict[str, Tensor]:
        """Where it stands."""
        standing = {"order": self.order, "places": self.places.clone(), "next": torch.tensor(self.next)}
        return standing | {"generator": self.generator.get_state()}

    def load(self, tensors: Mapping[str, Tensor]) -> None:
        """Go on from what :meth:`tensors` gave.

        Raises:
            ValueError: it was of another number of episodes.
        """
        if len(tensors["order"]) != len(self.lengths):
            raise ValueError(f"there were {len(tensors['order'])} recorded episodes, and now {len(self.lengths)}")
        self.order, self.places, self.next = tensors["order"], tensors["places"], int(tensors["next"])
        self.generator.set_state(tensors["generator"])

    def _stand(self, batch_size: int) -> None:
        """Begin as many rows."""
        self.places = torch.tensor([self._begin() for _ in range(batch_size)])
        """``[b, 2]``: episode and step of it at which the next unroll of each row begins."""

    def _walk(self, row: int, steps: int) -> np.ndarray:
        """Places of the next T + 1 steps of a row; the row then stands at the last of them."""
        episode, step = self.places[row].tolist()
        parts, missing = [], steps + 1
        while True:
            taken = min(missing, int(self.lengths[episode]) - step)
            parts.append(self.starts[episode] + np.arange(step, step + taken))
            missing -= taken
            if not missing:
                self.places[row] = torch.tensor((episode, step + taken - 1))
                return np.concatenate(parts)
            episode, step = self._begin()

    def _begin(self) -> tuple[int, int]:
        if self.next == len(self.order):
            self.order, self.next = torch.randperm(len(self.lengths), generator=self.generator), 0
        self.next += 1
        return int(self.order[self.next - 1]), 0


class RecordedTrainer(Trainer):
    """One step learns from the next unroll of ``batch_size`` rows of recorded episodes.

    Args:
        learner: agent, optimiser, unroll and batch size.
        recording: the episodes.
        rows: how they are read: endless rows, or :class:`~recollect.training.imitation.whole.WholeEpisodes`.
    """

    counters = ("recorded_steps",)
    step_metrics = ("recorded_steps", *REPORTED, "gradient_norm", "learning_rate")
    evaluation_metrics = METRICS

    def __init__(self, learner: ImpalaConfig, recording: Recording, rows: type[EpisodeRows] = EpisodeRows) -> None:
        self.learner = learner
        self.device = choose_device(learner.device)
        self.model = learner.build_agent().to(self.device)
        self.optimizer = learner.optimizer.build(self.model)
        self.generator = torch.Generator()
        self.rows = rows(recording, learner.batch_size, self.device, learner.fit.seed)
        self.teacher = NamedActions()
        self.state: Any = detach(self.model.initial_state(learner.batch_size))
        self.updates = 0
        self.recorded_steps = 0

    @property
    def agent(self) -> ActorCritic:
        """The learner's agent."""
        return self.model

    def step(self) -> dict[str, float]:
        """Learn from the next unroll."""
        learner = self.learner
        rate = learner.optimizer.rate(self.updates, learner.fit.steps)
        before = self.rows.tensors()
        undo = Undo(self.model, self.optimizer, self.generator) if self.model.keeps_statistics else None
        self.model.train()
        try:
            rollout = self.rows.take(learner.unroll, self.state)
            if undo is not None:
                seen = rollout.seen
                self.model.update_statistics(map_observation(lambda leaf: leaf[seen][None], rollout.observation))
            begin_step(self.optimizer, rate)
            losses = imitation_loss(self.model, rollout, self.teacher, learner.loss, bfloat16=learner.bfloat16)
            numbers = take_step(self.model, self.optimizer, learner.optimizer, losses.loss, finite=losses.scalars())
        except BaseException:
            self.rows.load(before)
            if undo is not None:
                undo()
            raise
        if losses.targets is not None:
            self.model.update_return_statistics(losses.targets[rollout.valid])
        if self.rows.carries:
            self.state = losses.state
        self.updates += 1
        self.recorded_steps += rollout.valid.numel() if self.rows.carries else int(rollout.valid.sum())
        return numbers | {"learning_rate": rate, "recorded_steps": float(self.recorded_steps)}

    def evaluate(self) -> dict[str, float]:
        """Score in fresh episodes of the world, the same at every evaluation."""
        seed = evaluation_seed(self.learner.fit.seed)
        return self.learner.evaluate(self.model, samples=self.learner.evaluation.episodes, seed=seed).metrics()

    def save(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Optimiser, memory, and where every row stands in the episodes."""
        tensors = {f"optimizer.{name}": value for name, value in optimizer_tensors(self.optimizer).items()}
        tensors |= {f"rows.{name}": value for name, value in self.rows.tensors().items()}
        tensors |= {f"memory.{name}": leaf for name, leaf in named_leaves(self.state)}
        return tensors, {"updates": self.updates, "recorded_steps": self.recorded_steps}

    def load(self, tensors: Mapping[str, Tensor], data: Mapping[str, Any]) -> None:
        """Continue from what :meth:`save` gave."""
        self.updates, self.recorded_steps = data["updates"], data["recorded_steps"]
        load_optimizer(self.optimizer, below("optimizer.", tensors))
        self.rows.load(below("rows.", tensors))
        names = iter([name for name, _ in named_leaves(self.state)])
        self.state = map_state(lambda leaf: tensors[f"memory.{next(names)}"].to(leaf.device), self.state)


def nested(parts: Mapping[str, Tensor]) -> Any:
    """An observation of its parts by dotted names; a lone part has no name."""
    if "" in parts:
        return parts[""]
    nested: dict[str, Any] = {}
    for name, part in parts.items():
        *keys, last = name.split(".")
        at = nested
        for key in keys:
            at = at.setdefault(key, {})
        at[last] = part
    return nested
