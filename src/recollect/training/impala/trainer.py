"""IMPALA: actors play rollouts, a learner corrects for their lag with V-trace.

    actors:   play T steps with the newest weights, keep the memory of the first row and the policy of every row
    learner:  run over the T + 1 rows from that memory, one gradient step (or several passes), publish the weights

``synchronous`` does one after the other, and resumes exactly. ``asynchronous`` lets them overlap (see actors.py).

With a teacher (``loss.imitation``) the first steps imitate it on the learner's own rollouts, and the steps after them
reinforce, with a divergence from the teacher whose weight falls to 0: one run, the same actors, memories and optimiser.

Sources: Espeholt et al. (2018), IMPALA: scalable distributed deep-RL with importance weighted actor-learner
architectures; Lampinen et al. (2021), Towards mental time travel, appendix A; George (2021), Neural architecture impact
on identifying temporally extended reinforcement learning tasks, section 2.4.
"""

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from time import perf_counter
from types import MappingProxyType
from typing import Any

import numpy as np
import torch
from torch import Tensor

from recollect.agents.actor_critic import ActorCritic
from recollect.config import require
from recollect.evaluation.agents import METRICS
from recollect.learners import present
from recollect.state import detach
from recollect.tasks.worlds.contract import WorldConfig
from recollect.training.config import evaluation_seed
from recollect.training.curriculum import Curriculum, require_same_spec
from recollect.training.devices import choose_device
from recollect.training.imitation.loss import imitation_loss
from recollect.training.imitation.teachers import Teacher, make_teacher
from recollect.training.impala.actor_setup import ActorSetup, SavedActor
from recollect.training.impala.actors import Actors, AsyncActors, SyncActors
from recollect.training.impala.config import ImpalaConfig
from recollect.training.impala.ground_truth import rebase_to_unroll_start, subsample
from recollect.training.impala.large_numbers import name_large_numbers
from recollect.training.impala.loss import REPORTED, impala_loss
from recollect.training.impala.placement import Delivery, PublishedWeights, ThreadPlacement
from recollect.training.impala.ray_placement import RayPlacement
from recollect.training.impala.rollouts import MEANS, Rollout
from recollect.training.impala.supervision import TrainingAids
from recollect.training.optimizers import Undo, begin_step, load_optimizer, optimizer_tensors, take_step
from recollect.training.trainer import Trainer, below

TEACHER_METRICS = ("imitation_loss", "agreement", "teacher_rows")
"""Additional metrics of a run with a teacher."""
RAY_METRICS = ("actor_wait", "learner_wait", "bytes_per_second", "actors_replaced")
"""Additional metrics of a run with actors of Ray: the share of its time that the actor of a rollout waited to be asked
(back-pressure) and that the learner waited for a rollout, the bytes that arrive, and the actors replaced so far."""


class ImpalaTrainer(Trainer):
    """One step learns from one rollout of ``batch_size`` rows and ``unroll`` steps.

    A synchronous run resumes exactly. An asynchronous one continues where each actor's newest rollout that was learned
    from ended: memories and worlds continue, rollouts that waited are played anew. Several learners have worlds of
    their own, each with its share of the rows.
    """

    shares_rows = True

    counters = ("environment_steps", "frames_per_second")
    shown = MappingProxyType({"episode_return": "return", "score": "score"})
    step_metrics = (
        *("environment_steps", "frames_per_second", "policy_lag", "episodes"),
        *(f"episode_{name}" for name in MEANS),
        *(*REPORTED, "gradient_norm", "learning_rate"),
    )
    evaluation_metrics = METRICS

    def __init__(self, config: ImpalaConfig) -> None:
        self.config = config
        self.learners = present()
        self.batch_size = self.learners.share(config.batch_size)
        """Rows of this learner."""
        self.device = choose_device(config.device)
        self.model = config.build_agent().to(self.device)
        self.optimizer = config.optimizer.build(self.model)
        self.generator = torch.Generator().manual_seed(config.fit.seed)
        """Assigns rows to minibatches, and draws the steps with targets."""
        self.updates = 0
        self.environment_steps = 0
        self.curriculum = self._curriculum()
        self.step_metrics += config.loss.supervision.metrics
        if self.curriculum is not None:
            self.step_metrics += ("level",)
            self.counters += ("level",)
        if config.schedule.engine == "ray":
            self.step_metrics += RAY_METRICS
            self.counters += RAY_METRICS[2:]
        self.weights = PublishedWeights(self.model)
        self.teacher = self._teacher()
        if self.teacher is not None:
            self.step_metrics += tuple(name for name in TEACHER_METRICS if name not in self.step_metrics)
        self.setup = ActorSetup(config, self.batch_size, self.device, self.learners.rank)
        self.actors = self._actors()
        self.saved: list[SavedActor | None] = self.actors.saved()
        """Every actor after the newest of its rollouts that was learned from and came with its state."""
        self.behind = [0] * len(self.saved)
        """Rollouts of each actor that were learned from after that."""
        self._seconds = 0.0
        # (seconds, environment steps, bytes received) after recent steps
        self._pace = deque([(0.0, 0, 0)], maxlen=50)

    @property
    def agent(self) -> ActorCritic:
        """The agent that learns."""
        return self.model

    def load_initial_weights(self, weights: Mapping[str, Tensor]) -> None:
        """Replace the new weights, also for the actors."""
        super().load_initial_weights(weights)
        self.weights.publish(self.model, self.updates)

    def step(self) -> dict[str, float]:
        """Learn from the next rollout."""
        began = perf_counter()
        if self.curriculum is not None and self.curriculum.passed:
            self._enter(self.curriculum.level + 1)
            self.curriculum.advance()
            self.saved = self.actors.saved()  # a step that fails now is saved with the world of its level
        if self.teacher is not None:
            self.teacher.acting = self.config.loss.imitation.rows(self.updates, self.batch_size)
        with self.learners.together():
            delivery = self.actors.take()
        waited = perf_counter() - began
        lag = self.updates - delivery.version
        metrics = self._learn(delivery.rollout)
        metrics["learning_rate"] = self.config.optimizer.rate(self.updates, self.config.fit.steps)
        if self.teacher is not None:
            metrics["teacher_rows"] = float(self.teacher.acting * self.learners.size)
        self.updates += 1
        episodes = delivery.episodes.add_learners()
        self.environment_steps += episodes.steps
        self.weights.publish(self.model, self.updates)
        self._keep(delivery)
        self.actors.give_back(delivery)
        elapsed = perf_counter() - began
        self._seconds += elapsed
        self._pace.append((self._seconds, self.environment_steps, self._pace[-1][2] + delivery.nbytes))
        (start, before, old_bytes), (end, now, new_bytes) = self._pace[0], self._pace[-1]
        metrics |= {f"episode_{name}": value for name, value in episodes.means().items()}
        if self.curriculum is not None:
            metrics["level"] = float(self.curriculum.level)
            # The success of a teacher is not that of the learner.
            self.curriculum.record(delivery.episodes.own_scores(0 if self.teacher is None else self.teacher.acting))
        if self.config.schedule.engine == "ray":
            shares = (delivery.waited, waited / elapsed, (new_bytes - old_bytes) / (end - start), self.actors.replaced)
            metrics |= dict(zip(RAY_METRICS, map(float, shares), strict=True))
        return metrics | {
            "environment_steps": float(now),
            "frames_per_second": (now - before) / (end - start),
            "policy_lag": float(lag),
            "episodes": float(episodes.ended),
        }

    def evaluate(self) -> dict[str, float]:
        """Score in fresh episodes, the same at every evaluation."""
        config = self.config
        seed = evaluation_seed(config.fit.seed)
        return config.evaluate(self.model, samples=config.evaluation.episodes, seed=seed).metrics()

    def save(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Return optimiser, generators, and the state of every actor: memory, world and last step."""
        tensors = optimizer_tensors(self.optimizer)
        tensors["generator"] = self.generator.get_state()
        worlds = [None if saved is None else saved.world for saved in self.saved]
        data = {"updates": self.updates, "environment_steps": self.environment_steps, "worlds": worlds}
        states = [{} if saved is None else saved.tensors for saved in self.saved]
        for rank, (each, generator, saved) in enumerate(self.learners.gather((states, tensors["generator"], worlds))):
            if rank:
                tensors[f"{_learner(rank)}generator"] = generator
                data[f"{_learner(rank)}worlds"] = saved
            for actor, state in enumerate(each):
                tensors |= {f"{_learner(rank)}actor{actor}.{name}": value for name, value in state.items()}
        if self.config.schedule.engine == "ray":
            data |= {"incarnations": self.actors.incarnations, "behind": self.behind}
        if self.curriculum is not None:
            data["curriculum"] = self.curriculum.save()
        return tensors, data if self.teacher is None else data | {"teacher": self.teacher.identity}

    def load(self, tensors: Mapping[str, Tensor], data: Mapping[str, Any]) -> None:
        """Continue from the return values of :meth:`save`."""
        self.updates, self.environment_steps = data["updates"], data["environment_steps"]
        self._pace = deque([(0.0, self.environment_steps, 0)], maxlen=self._pace.maxlen)
        self._seconds = 0.0
        load_optimizer(self.optimizer, tensors)
        self.weights.publish(self.model, self.updates)
        if self.curriculum is not None:
            self.curriculum.load(data["curriculum"])
            if self.curriculum.level:
                self._enter(self.curriculum.level)
        own = _learner(self.learners.rank)
        worlds = self._saved_worlds(data)
        if worlds is not None:
            self.generator.set_state(tensors[f"{own}generator"])
        seeds = [self.setup.seeds(actor, self.updates)[0] for actor in range(len(self.saved))]
        self.saved = [None for _ in seeds]
        if worlds is not None:
            states = (below(f"{own}actor{actor}.", tensors) for actor in range(len(seeds)))
            pairs = zip(states, worlds, strict=True)
            self.saved = [SavedActor(state, world) if state else None for state, world in pairs]
        self._restore_actors(seeds, data)
        if worlds is None:
            self.notice = "its actors begin new episodes with new memories: each has another number of rows now"
        elif any(saved is not None and saved.world is None for saved in self.saved):
            collectors = self.actors.collectors
            kind = type(collectors[0].world if collectors else self.config.world).__name__
            self.notice = f"{kind} cannot be saved in the middle of an episode: new episodes began on resume"
        if self.teacher is not None and self.teacher.identity != data["teacher"]:
            self.notice = f"the teacher is now {self.teacher.identity}, and was {data['teacher']}: other numbers follow"
        self.saved = [now or before for now, before in zip(self.actors.saved(), self.saved, strict=True)]

    def _restore_actors(self, seeds: Sequence[int], data: Mapping[str, Any]) -> None:
        """Continue with all actors; where rollouts after a snapshot were learned from, with other random actions."""
        nothing = [0] * len(seeds)
        incarnations, behind = data.get("incarnations", nothing), data.get("behind", nothing)
        for actor, (saved, rollouts) in enumerate(zip(self.saved, behind, strict=True)):
            if saved is not None and rollouts:
                seed = self.setup.seeds(actor, incarnations[actor] + 1, 2)[1]
                drawn = {"generator": torch.Generator().manual_seed(seed).get_state()}
                self.saved[actor] = saved._replace(tensors={**saved.tensors, **drawn})
        self.actors.restore(self.saved, seeds, incarnations)

    def _saved_worlds(self, data: Mapping[str, Any]) -> list[Any] | None:
        """Return the data of this learner's worlds; None if they were made for another number of learners."""
        saved = 1 + sum(name.startswith("learner") for name in data)
        return data[f"{_learner(self.learners.rank)}worlds"] if saved == self.learners.size else None

    def close(self) -> None:
        """Stop the actors and close the worlds."""
        self.actors.close()

    def _learn(self, rollout: Rollout) -> dict[str, float]:
        config, loss = self.config, self.config.loss
        self.model.train()
        updates = loss.reuse.passes * loss.reuse.minibatches * len(loss.reuse.updates(config.unroll + 1))
        can_fail_between = updates > 1 or self.model.keeps_statistics or loss.supervision.share < 1
        undo = Undo(self.model, self.optimizer, self.generator) if can_fail_between else None
        aids = self._aids()
        if loss.reuse.learner_memory == "empty":
            truth = None if rollout.truth is None else rebase_to_unroll_start(rollout.truth)
            rollout = rollout._replace(state=detach(self.model.initial_state(len(rollout.reward))), truth=truth)
        try:
            self._update_statistics(rollout)
            if aids.weight:
                rollout = rollout._replace(truth=subsample(rollout.truth, loss.supervision.share, self.generator))
            with name_large_numbers(rollout.numbers_read):
                numbers = self._optimize(rollout, aids)
        except BaseException:
            if undo is not None:
                undo()
            raise
        means = np.mean([list(values.values()) for values in numbers], 0).tolist()
        return dict(zip(numbers[0], means, strict=True))

    def _aids(self) -> TrainingAids:
        """Return the training aids of the present update."""
        loss, steps = self.config.loss, self.config.fit.steps
        weight = loss.supervision.weight(self.updates, steps)
        if self.teacher is None:
            return TrainingAids(loss.supervision, weight)
        imitates = loss.imitation.alone(self.updates)
        cost = 0.0 if imitates else loss.imitation.weight(self.updates, steps)
        return TrainingAids(loss.supervision, weight, self.teacher, cost, imitates)

    def _update_statistics(self, rollout: Rollout) -> None:
        """Update the agent's running statistics with a new rollout."""
        if not self.model.keeps_statistics:
            return
        self.model.update_statistics(rollout.observation)
        # Without these the first values would be compared with returns of unknown size.
        if self.updates == 0 and self.model.norm_values is not None:
            with torch.no_grad():
                targets = impala_loss(self.model, rollout, self.config.loss).targets
            assert targets is not None
            self.model.update_return_statistics(targets[rollout.valid])

    def _optimize(self, rollout: Rollout, aids: TrainingAids) -> list[dict[str, float]]:
        """Take all optimiser steps on a rollout; return the metrics of each."""
        config, reuse = self.config, self.config.loss.reuse
        rate = config.optimizer.rate(self.updates, config.fit.steps)
        how: dict[str, Any] = {"bfloat16": config.bfloat16}
        reference = torch.zeros_like(rollout.reward[:, 1:])
        targets, numbers = [], []
        for done, index in self._minibatches(rollout.reward.shape[0]):
            part = rollout.rows(index) if reuse.minibatches > 1 else rollout
            memory = part.state
            for start, stop in reuse.updates(config.unroll + 1):
                piece = part.between(start, stop, memory)
                begin_step(self.optimizer, rate)
                if aids.imitates:
                    losses = imitation_loss(self.model, piece, aids, config.loss, **how)
                else:
                    known = reference[index, start : stop - 1] if done else None
                    losses = impala_loss(self.model, piece, config.loss, aids, reference=known, **how)
                finite = losses.scalars()
                numbers.append(take_step(self.model, self.optimizer, config.optimizer, losses.loss, finite=finite))
                memory = losses.state
                if done == 0 and losses.log_prob is not None:
                    reference[index, start : stop - 1] = losses.log_prob
                if done == 0 and losses.targets is not None:
                    targets.append(losses.targets[piece.valid])
            if reuse.kl_stop is not None and not aids.imitates and numbers[-1]["kl"] > reuse.kl_stop:
                break
        if targets:
            self.model.update_return_statistics(torch.cat(targets))
        return numbers

    def _minibatches(self, rows: int) -> Iterator[tuple[int, Tensor]]:
        """Yield ``(pass, rows of a minibatch)``, every row once in each pass."""
        reuse = self.config.loss.reuse
        for done in range(reuse.passes):
            order = torch.randperm(rows, generator=self.generator) if reuse.minibatches > 1 else torch.arange(rows)
            for index in order.to(self.device).tensor_split(reuse.minibatches):
                yield done, index

    def _teacher(self) -> Teacher | None:
        config = self.config
        if config.loss.imitation.steps is None:
            return None
        return make_teacher(config.loss.imitation.teacher, config.world.spec, self.batch_size, self.device)

    def _curriculum(self) -> Curriculum[WorldConfig] | None:
        config = self.config.schedule.curriculum
        levels = config.levels(self.config.world)
        shapes = ("observation_space", "action_space")
        if self.config.loss.supervision.label_cost:
            shapes += ("num_labels", "labels_per_step")
        require_same_spec(levels, shapes, config.field)
        return Curriculum(config, levels) if config.field else None

    def _enter(self, level: int) -> None:
        """Play at another level from now on, in new episodes."""
        assert self.curriculum is not None
        (collector,) = self.actors.collectors
        self.setup.enter(collector, self.curriculum.levels[level], level)

    def _actors(self) -> Actors:
        schedule = self.config.schedule
        how: dict[str, Any] = {"queue_length": schedule.queue_length, "timeout": schedule.timeout}
        if schedule.engine == "ray":
            remedy = f"the {self.learners.size} learners of torchrun have actors in their own processes: use 'threads'"
            require(self.learners.size == 1, "engine", schedule.engine, remedy)
            placed = RayPlacement(self.setup, self.weights)
            actors = AsyncActors(placed, schedule.actors, save_every=schedule.snapshot_every, **how)
            actors.wait_until_started()
            return actors
        task = None if self.curriculum is None else self.curriculum.task
        collectors = self.setup.make_all(schedule.actors, self.model, task=task, teacher=self.teacher)
        if schedule.mode == "synchronous":
            return SyncActors(collectors[0], self.weights)
        return AsyncActors(ThreadPlacement(collectors, self.weights, schedule.queue_length), schedule.actors, **how)

    def _keep(self, delivery: Delivery) -> None:
        """Keep the actor of a rollout that was learned from, to be saved."""
        actor = delivery.ticket.actor
        self.behind[actor] = 0 if delivery.saved is not None else self.behind[actor] + 1
        self.saved[actor] = delivery.saved or self.saved[actor]


def _learner(rank: int) -> str:
    """Return the prefix of a learner's actors in a checkpoint."""
    return f"learner{rank}." if rank else ""
