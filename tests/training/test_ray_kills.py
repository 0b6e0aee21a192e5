"""Fifty actors killed at random moments, two nodes removed, the learner killed twice: every step once, no row astray.

    python tests/training/test_ray_kills.py [--kills 50] [--steps 400]    the same as a program, prints the figures

The learner is a process of its own that resumes from its checkpoint. It compares the memory of every row with the count
that the world shows (see test_impala_state.py), and notes the ticket of every rollout that it learned from.
"""

import argparse
import json
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

import pytest

EVERY = 20  # steps between checkpoints


def learn(directory, address, steps):
    """Train, or continue, and write one line for every step."""
    import torch
    from small_worlds import CounterConfig, StepsConfig

    from recollect.agents.config import ActorCriticConfig
    from recollect.training import EvaluationConfig, FitConfig, ImpalaConfig, OptimizerConfig, ScheduleConfig, fit
    from recollect.training.impala import actors, trainer

    torch.set_num_threads(1)
    config = ImpalaConfig(
        world=StepsConfig(),
        core=CounterConfig(told=1),
        agent=ActorCriticConfig(norm=False),
        optimizer=OptimizerConfig(learning_rate=1e-30),
        schedule=ScheduleConfig(
            mode="asynchronous", engine="ray", address=address, actors=3, queue_length=6, timeout=900, snapshot_every=3
        ),
        evaluation=EvaluationConfig(episodes=2),
        fit=FitConfig(steps=steps, checkpoint_every=EVERY, evaluate_every=steps, report_every=1),
        batch_size=6,
        unroll=5,
    )
    lines = open(Path(directory).with_suffix(".steps"), "a")  # noqa: SIM115 (open for the whole run)
    began, original, step = {}, trainer.impala_loss, trainer.ImpalaTrainer.step

    def loss(agent, rollout, *arguments, **settings):
        shown = rollout.observation[..., 0]
        output, _ = agent(rollout.inputs, rollout.state, rollout.is_first)
        assert torch.equal(output.features[..., 0], shown), "the learner's memory differs from the world's count"
        carried = ~rollout.is_first[:, 0]
        assert torch.equal(rollout.state.steps[carried].float(), shown[carried, 0]), "the actor's memory differs"
        return original(agent, rollout, *arguments, **settings)

    def stepping(self):
        take = self.actors.take

        def taking():
            delivery = take()
            self.newest = delivery
            return delivery

        self.actors.take = taking
        metrics = step(self)
        self.actors.take = take
        valid = int(self.newest.rollout.valid.sum())
        note = {"step": self.updates, "ticket": self.newest.ticket, "valid": valid, "metrics": metrics}
        print(json.dumps(note), file=lines, flush=True)
        return metrics

    replace, handle = actors.AsyncActors._replace, actors.AsyncActors._handle

    def replacing(self, lost):
        replace(self, lost)
        began[lost.actor, self.incarnations[lost.actor]] = time.monotonic()

    def handling(self, event):
        handle(self, event)
        if isinstance(event, actors.ActorReady) and tuple(event) in began:
            print(json.dumps({"restart": time.monotonic() - began.pop(tuple(event))}), file=lines, flush=True)

    trainer.impala_loss, trainer.ImpalaTrainer.step = loss, stepping
    actors.AsyncActors._replace, actors.AsyncActors._handle = replacing, handling
    outcome = fit(config, directory, resume=True)
    print(json.dumps({"outcome": outcome.status, "steps": outcome.step}), file=lines, flush=True)


def descendants():
    """Actor processes among the descendants of this process, by their command lines."""
    parents, players = {}, []
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            parents[int(name)] = int(Path(f"/proc/{name}/stat").read_text().rpartition(")")[2].split()[1])
            if b"ray::Player" in Path(f"/proc/{name}/cmdline").read_bytes():
                players.append(int(name))
        except (OSError, ValueError):
            continue

    def is_ours(process):
        while process in parents and process != os.getpid():
            process = parents[process]
        return process == os.getpid()

    return [process for process in players if is_ours(process)]


def read(path):
    return [json.loads(line) for line in path.read_text().splitlines() if line.endswith("}")] if path.is_file() else []


def shared_memory():
    """Return the bytes that the file system of shared memory holds."""
    found = os.statvfs("/dev/shm")
    return (found.f_blocks - found.f_bfree) * found.f_frsize


def node():
    """Return the settings of a node. Ray waits for agents that choose their ports for 15 s only, so they are given."""
    agents = ("metrics_agent_port", "runtime_env_agent_port", "dashboard_agent_listen_port")
    with ExitStack() as open_sockets:
        sockets = [open_sockets.enter_context(socket.socket()) for _ in agents]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        ports = dict(zip(agents, (each.getsockname()[1] for each in sockets), strict=True))
    return {"num_cpus": 2, "object_store_memory": 10**8, **ports}


def kill(kills, steps, say=lambda text: None):
    """Kill, and return the figures."""
    import ray
    from ray.cluster_utils import Cluster

    draw, before, began = random.Random(0), shared_memory(), time.monotonic()
    cluster = Cluster(initialize_head=True, head_node_args={**node(), "include_dashboard": False})
    others = [cluster.add_node(**node()) for _ in range(2)]
    folder = Path(tempfile.mkdtemp())
    notes = folder / "run.steps"
    command = [sys.executable, __file__, "--learn", str(folder / "run"), cluster.address, "--steps", str(steps)]

    def start():
        return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=open(folder / "errors", "a"))

    killed, removed, learners, last, learner = 0, 0, 0, 0, start()
    try:
        while learner.poll() is None or learner.returncode == -signal.SIGKILL:
            if learner.poll() is not None:
                learner = start()
            time.sleep(draw.uniform(0.05, 0.5))
            done = sum("step" in note for note in read(notes))
            share = killed / kills
            if removed < 2 and share > (removed + 1) / 3:
                cluster.remove_node(others[removed], allow_graceful=False)
                removed += 1
                say(f"node {removed} removed after {killed} kills")
            elif learners < 2 and share > (learners + 0.75) / 2.25 and done > EVERY * (learners + 1):
                learner.kill()
                learner.wait()
                learners += 1
                last = done
                say(f"learner killed after {killed} kills")
            elif killed < kills and done > last + 2 and (players := descendants()):
                os.kill(draw.choice(players), signal.SIGKILL)
                killed, last = killed + 1, done
                say(f"{killed} kills, {done} steps, {time.monotonic() - began:.0f} s")
        assert learner.returncode == 0, (folder / "errors").read_text()[-3000:]
        ray.init(address=cluster.address, log_to_driver=False)
        deadline = time.monotonic() + 600
        while _used(ray) and time.monotonic() < deadline:
            time.sleep(0.5)
        left = _used(ray)
        ray.shutdown()
    finally:
        learner.kill()
        cluster.shutdown()
    found = read(notes)
    lineage = {note["step"]: note for note in found if "step" in note}  # a step after a resume replaces the lost one
    restarts = sorted(note["restart"] for note in found if "restart" in note)
    counted = sum(note["valid"] for note in lineage.values())
    return {
        "kills": killed,
        "nodes removed": removed,
        "learners killed": learners,
        "updates": sorted(lineage) == list(range(1, steps + 1)) and found[-1].get("steps"),
        "distinct rollouts": len({tuple(note["ticket"]) for note in lineage.values()}),
        "environment steps": int(lineage[steps]["metrics"]["environment_steps"]),
        "environment steps counted": counted,
        "restarts": len(restarts),
        "median restart s": round(restarts[len(restarts) // 2], 1) if restarts else None,
        "longest restart s": round(restarts[-1], 1) if restarts else None,
        "object store bytes left": left,
        "shared memory bytes more than before": shared_memory() - before,
        "seconds": round(time.monotonic() - began),
    }


def _used(ray):
    name = "object_store_memory"
    return ray.cluster_resources().get(name, 0) - ray.available_resources().get(name, 0)


@pytest.mark.slow
def test_every_step_is_taken_once_whoever_dies():
    pytest.importorskip("ray")
    command = [sys.executable, __file__, "--kills", "12", "--steps", "120"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=3000)
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["updates"] == 120 == found["distinct rollouts"]
    assert found["environment steps"] == found["environment steps counted"]
    assert (found["kills"], found["nodes removed"], found["learners killed"]) == (12, 2, 2)
    assert found["object store bytes left"] == 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--learn", nargs=2)
    options = parser.parse_args()
    if options.learn:
        learn(*options.learn, options.steps)
    else:
        print(json.dumps(kill(options.kills, options.steps, lambda text: print(text, flush=True))))
