"""What test_learners.py starts with torchrun: two learners that are compared with one, or a command with a fault."""

import json
import os
import signal
import sys
from dataclasses import replace
from pathlib import Path

import torch
from small_worlds import CueConfig
from test_recorded import episodes

from recollect import learners
from recollect.agents.config import ActorCriticConfig
from recollect.agents.encoder_config import EncoderConfig
from recollect.cli import main
from recollect.cores import CORES
from recollect.learners import Learners
from recollect.tasks import TMazeConfig
from recollect.tasks.worlds.contract import TensorWorld
from recollect.training import ImpalaConfig, OptimizerConfig, SupervisedConfig
from recollect.training.imitation.trainers import RecordedTrainer
from recollect.training.impala.config import LossConfig, ReuseConfig
from recollect.training.impala.trainer import ImpalaTrainer
from recollect.training.streams.supervised import SupervisedTrainer
from small_runs import recall

HCAM = CORES["hcam"](dim=16, num_layers=1, num_heads=2, memory_len=8, chunk_len=4, num_chunks=4, top_k=2)
GRU = CORES["gru"](dim=16, num_layers=1)
IMPALA = ImpalaConfig(world=TMazeConfig(length=5, slack=4), core=HCAM, batch_size=6, unroll=12)
RECALL = SupervisedConfig(
    task=recall(12),
    core=GRU,
    batch_size=6,
    unroll=5,
)


def impala(norms=False, **loss):
    config = replace(IMPALA, loss=LossConfig(**loss))
    if norms:
        config = replace(config, agent=ActorCriticConfig(encoders=EncoderConfig(norm_numbers=True), norm_values=True))
    return lambda: ImpalaTrainer(config)


def recorded(whole):
    learner = replace(IMPALA, world=CueConfig(), core=GRU, loss=LossConfig(reduction="mean"))
    return lambda: RecordedTrainer(learner, episodes(), whole=whole)


CASES = {
    "impala, sum": impala(),
    "impala, mean": impala(reduction="mean"),
    "impala, normalised": impala(norms=True, norm_advantages=True, reduction="mean"),
    "impala, passes": impala(reuse=ReuseConfig(passes=2)),
    "supervised": lambda: SupervisedTrainer(RECALL),
    "recorded rows": recorded(False),
    "recorded episodes": recorded(True),
}


def record_gradients(into):
    clip = OptimizerConfig.clip

    def recorded_clip(self, model):
        into.append(torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None]).clone())
        return clip(self, model)

    OptimizerConfig.clip = recorded_clip


def distance(one, other):
    """Largest difference, relative to the largest number."""
    return float((one - other).abs().max() / one.abs().max().clamp(min=1e-12))


def statistics(model):
    return torch.cat([buffer.double().flatten() for buffer in model.buffers()] or [torch.zeros(1)])


def step(trainer, rollouts, rows=None):
    if not isinstance(trainer, ImpalaTrainer):
        return trainer.step()
    rollout = rollouts[0] if rows is None else rollouts[0].rows(torch.arange(len(rollouts[0].reward))[rows])
    return trainer._learn(rollout)


def compare(build):
    """Return the differences of one step of two learners from that of one, on the same rows."""
    gradients, together = [], learners.present()
    record_gradients(gradients)
    with learners._presence(Learners()):
        torch.manual_seed(0)
        one = build()
        rollouts = [one.actors.take().rollout] if isinstance(one, ImpalaTrainer) else []
        alone = step(one, rollouts)
    expected = list(gradients)
    gradients.clear()
    torch.manual_seed(0)
    two = build()
    shared = step(two, rollouts, together.rows(6))
    numbers = {name: abs(alone[name] - shared[name]) / max(1.0, abs(alone[name])) for name in alone}
    return {
        "gradients": max(map(distance, expected, gradients)),
        "updates": [len(expected), len(gradients)],
        "statistics": distance(statistics(one.agent), statistics(two.agent)),
        "numbers": max((value, name) for name, value in numbers.items()),
    }


def weights(trainer):
    return torch.cat([value.double().flatten() for value in trainer.agent.state_dict().values()])


def train(build, steps):
    """Return how many steps, how far apart the learners' weights are then, how far they moved, and their data."""
    torch.manual_seed(0)
    trainer = build()
    begin = weights(trainer)
    for _ in range(steps):
        trainer.step()
    first, second = learners.present().gather(weights(trainer))
    state, _ = trainer.save()
    actors = [state.get(f"{name}actor0.generator") for name in ("", "learner1.")]
    return {
        "apart": float((first - second).abs().max()),
        "moved": float((first - begin).abs().max()),
        "same actors": actors[0] is not None and bool((actors[0] == actors[1]).all()),
    }


def checks():
    with learners.join() as group:
        report = {name: compare(build) for name, build in CASES.items()}
        report["200 updates"] = train(lambda: ImpalaTrainer(replace(IMPALA, core=GRU, batch_size=4, unroll=6)), 200)
        report["200 steps"] = train(CASES["supervised"], 200)
        if group.rank == 0:
            print(json.dumps(report), flush=True)


def fault(kind, at, action):
    """In the second learner, at a step (from 1): do something to the trainer."""
    calls, original = [], getattr(*kind)

    def wrapped(self, *arguments):
        calls.append(1)
        result = original(self, *arguments)
        return action(result) if len(calls) == at else result

    if learners.process_rank() == 1:
        setattr(*kind, wrapped)


def die(_):
    os.kill(os.getpid(), signal.SIGKILL)


FAULTS = {
    "none": lambda: None,
    "kill": lambda: fault((ImpalaTrainer, "step"), 7, die),
    "stop": lambda: fault((ImpalaTrainer, "step"), 4, lambda result: (os.kill(os.getpid(), signal.SIGTERM), result)[1]),
    "reward": lambda: fault((TensorWorld, "step"), 40, lambda step: step._replace(reward=step.reward * torch.nan)),
    "loss": lambda: fault((ImpalaTrainer, "_aids"), 6, break_teacher),
}


def break_teacher(aids):
    import recollect.training.impala.trainer as trainer

    original = trainer.impala_loss
    trainer.impala_loss = lambda *a, **k: (found := original(*a, **k))._replace(loss=found.loss * torch.nan)
    return aids


def thread_names():
    """Return the names of the threads of this process; none where there is no /proc."""
    return [file.read_text().strip() for file in Path("/proc/self/task").glob("*/comm")]


if __name__ == "__main__":
    torch.set_num_threads(1)
    if sys.argv[1] == "checks":
        checks()
    else:
        FAULTS[sys.argv[1]]()
        status = main(sys.argv[2:])
        if not status and (left := [name for name in thread_names() if "gloo" in name]):
            print("error: threads that outlive their group can abort the process:", *left, file=sys.stderr)
        sys.exit(status)
