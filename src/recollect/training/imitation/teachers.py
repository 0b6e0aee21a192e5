"""Teachers: who shows, at every step that the learner takes, what to do there.

    oracle, ...   a policy that the world offers by name: an action, of which the learner's log-likelihood is raised
    a run         a trained agent with a memory of its own, which sees and does what the learner sees and does: a whole
                  distribution, to which the learner's is brought near

The learner acts, the teacher labels: where the learner's mistakes lead to states that no teacher would reach, it is
told what to do there (DAgger). In the first steps the teacher acts too, in a share of the rows that falls to 0.

Sources: Ross et al. (2011), A reduction of imitation learning and structured prediction to no-regret online learning;
Schmitt et al. (2018), Kickstarting deep reinforcement learning.
"""

import math
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any, NamedTuple

import gymnasium
import torch
from torch import Generator, Tensor

from recollect.agents.actor_critic import ActorCritic, without_target_heads
from recollect.agents.config import ActorCriticConfig
from recollect.agents.contract import ActorInputs, as_previous_output, no_previous_output
from recollect.agents.policies import Distribution
from recollect.agents.registry import REGISTRY
from recollect.config import from_json
from recollect.cores.config import CoreConfig
from recollect.runs import checkpoints
from recollect.runs.run_directory import RunDirectory
from recollect.tasks import TASKS
from recollect.tasks.worlds.contract import World, WorldConfig, WorldSpec
from recollect.training.imitation.config import TeacherConfig
from recollect.training.trainer import load_state


class Teacher(ABC):
    """Shows what to do, step by step, in the rows that one learner plays."""

    acting = 0
    """In how many rows, the first ones, it acts."""
    state: Any = ()
    """Its memory; a tree of tensors."""
    identity: str = ""
    """Which teacher this is exactly, as far as a name does not say: saved with the learner."""

    @abstractmethod
    def show(self, world: World, inputs: ActorInputs, is_first: Tensor) -> Tensor:
        """What to do now: the target of this step, ``[b, ...]``.

        Args:
            world: in the state in which it shows these inputs.
            inputs: what the learner sees, without the time axis.
            is_first: bool ``[b]``.
        """

    @abstractmethod
    def actions(self, target: Tensor, generator: Generator) -> Tensor:
        """What the teacher does itself, ``[b, *action_shape]``."""

    @abstractmethod
    def divergence(self, learner: Distribution, target: Tensor) -> Tensor:
        """How far the learner is from the targets, in nats (a named action: minus its log-likelihood), ``[b, t]``."""

    @abstractmethod
    def choices(self, target: Tensor) -> Tensor:
        """The teacher's likeliest actions, ``[b, t, *action_shape]``."""

    def require(self, world: World) -> None:
        """Raise ``ValueError`` where it has nothing to show in a world that was reset; says who could."""
        return

    def lead(self, actions: Tensor, target: Tensor, generator: Generator) -> Tensor:
        """The learner's actions, but the teacher's in the rows in which it acts."""
        if not self.acting:
            return actions
        led = torch.arange(len(actions), device=actions.device) < self.acting
        led = led.reshape(-1, *[1] * (actions.ndim - 1))
        return torch.where(led, self.actions(target, generator).to(actions.dtype), actions)

    def take_state(self) -> Any:
        """Its memory, to be saved; it goes on from it just as a run that is resumed does."""
        return self.state

    def load_state(self, tensors: dict[str, Tensor]) -> Any:
        """Go on with the memory whose leaves have these names, and give it."""
        return self.state


class NamedActions(Teacher):
    """Targets are actions ``[b, *action_shape]``. This one has them from elsewhere: recorded episodes."""

    def show(self, world: World, inputs: ActorInputs, is_first: Tensor) -> Tensor:
        """Cannot be asked: who recorded the episodes is not here any more.

        Raises:
            RuntimeError: always.
        """
        raise RuntimeError("recorded episodes do not say what to do now; they are read by the trainer cloning alone")

    def actions(self, target: Tensor, generator: Generator) -> Tensor:
        """The actions that are shown."""
        return target

    def divergence(self, learner: Distribution, target: Tensor) -> Tensor:
        """Cross-entropy with the named action: KL from all mass on it."""
        return -learner.log_prob(target)

    def choices(self, target: Tensor) -> Tensor:
        """The actions that are shown."""
        return target


class WorldTeacher(NamedActions):
    """A policy that the world offers.

    Args:
        name: of the policy.
    """

    def __init__(self, name: str) -> None:
        self.name = name

    def show(self, world: World, inputs: ActorInputs, is_first: Tensor) -> Tensor:
        """The policy's actions."""
        actions = world.expert(self.name)
        assert actions is not None  # see require
        return actions

    def require(self, world: World) -> None:
        """Raise ``ValueError`` where the world has no such policy."""
        if world.expert(self.name) is None:
            raise ValueError(
                f"teacher.name={self.name!r}: {type(world).__name__} offers no such policy, and there is no run of "
                f"that name. Worlds with an oracle: {', '.join(worlds_with_an_oracle())}. In others take a trained "
                "run, or recorded episodes (--trainer cloning)"
            )


class RunState(NamedTuple):
    """What a run that teaches remembers."""

    memory: Any
    """That of its agent."""
    policy: Tensor
    """``[b, p]``: its own policy at the step before, as its agent may be shown it."""
    features: Tensor
    """``[b, d]``: its own features at the step before; of no width where its agent does not read them."""


class RunTeacher(Teacher):
    """A trained agent; targets are the parameters of its policy ``[b, p]``.

    It sees what the learner sees, and what was done. Of the step before it is shown what it said itself: the learner's
    policy and features mean nothing to it.

    Args:
        name: directory of its run, or RUN/best.
        spec: of the world in which it is to teach.
        batch_size: rows.
        device: where to compute.

    Raises:
        ValueError: not a run, none in a world, of a world with other observations or actions, or without weights.
    """

    def __init__(self, name: str, spec: WorldSpec, batch_size: int, device: torch.device) -> None:
        self.agent, step = _trained(name, spec)
        self.agent = self.agent.to(device).eval().requires_grad_(False)
        self.identity = f"{name}, step {step}"
        self.stream = self.agent.stream(batch_size)
        self.said = no_previous_output(self.agent, batch_size, torch.zeros((), device=device))

    @property
    def state(self) -> RunState:  # type: ignore[override]
        """The teacher's memory, and what it said last."""
        return RunState(self.stream.state, *self.said)

    def take_state(self) -> RunState:
        """The teacher's memory, which its stream reads again."""
        state = self.state
        self.stream.load_state(state.memory)  # a stream that was loaded may sum in another order
        return state

    def load_state(self, tensors: dict[str, Tensor]) -> RunState:
        """Go on with the memory whose leaves have these names, and give it."""
        example = self.state
        if "policy" not in tensors:  # older files have the memory alone
            tensors = {f"memory.{name}": leaf for name, leaf in tensors.items()}
            tensors |= {"policy": example.policy, "features": example.features}
        state = load_state("", tensors, example)
        self.stream.load_state(state.memory)
        self.said = state.policy, state.features
        return state

    def show(self, world: World, inputs: ActorInputs, is_first: Tensor) -> Tensor:
        """Its policy, after it saw what the learner sees."""
        policy, features = self.said
        output = self.stream.step(inputs._replace(policy=policy, features=features), is_first)
        self.said = as_previous_output(self.agent, output)
        return output.policy

    def actions(self, target: Tensor, generator: Generator) -> Tensor:
        """Drawn from its policy."""
        return self.agent.distribution(target).sample(generator)

    def divergence(self, learner: Distribution, target: Tensor) -> Tensor:
        """KL(teacher || learner)."""
        return learner.divergence(self.agent.distribution(target))  # type: ignore[arg-type]

    def choices(self, target: Tensor) -> Tensor:
        """Its likeliest actions."""
        return self.agent.distribution(target).mode()


def make_teacher(config: TeacherConfig, spec: WorldSpec, batch_size: int, device: torch.device) -> Teacher:
    """The teacher that a config names, for the rows of one learner.

    Raises:
        ValueError: it names recorded episodes, which nobody can ask, or a run that cannot teach here.
    """
    if config.recorded:
        raise ValueError(
            f"teacher.name={config.name!r}: recorded episodes do not say what to do where the learner's own play "
            "leads. Clone them first (--trainer cloning), then train --from that run"
        )
    if _run(config.name)[0].config.is_file():
        return RunTeacher(config.name, spec, batch_size, device)
    return WorldTeacher(config.name)


def worlds_with_an_oracle() -> list[str]:
    """Keys of the worlds that know what is best."""
    worlds = {key: task for key, task in TASKS.items() if issubclass(task, WorldConfig)}
    return [key for key, world in worlds.items() if not math.isnan(world().spec.oracle)]


def _run(name: str) -> tuple[RunDirectory, bool]:
    """A run directory, and whether its best weights are meant."""
    path = Path(name)
    run = RunDirectory(path.parent)
    if path.name == run.best.name and run.config.is_file():
        return run, True
    return RunDirectory(path), False


def _trained(name: str, spec: WorldSpec) -> tuple[ActorCritic, int]:
    """The agent of a run, for our spaces, and after how many steps."""
    run, best = _run(name)
    data, said = run.read_config(), f"teacher.name={name!r}"
    if not {"world", "agent", "core"} <= data.keys():
        raise ValueError(f"{said}: this run did not act in a world; name one that did")
    try:
        theirs = from_json(data["world"], WorldConfig, REGISTRY).spec
        core, agent = (
            from_json(data["core"], CoreConfig, REGISTRY),
            from_json(data["agent"], ActorCriticConfig, REGISTRY),
        )
    except ValueError as error:
        raise ValueError(f"{said}: {error}") from error
    for what in ("observation_space", "action_space"):
        ours, there = getattr(spec, what), getattr(theirs, what)
        if ours != there:
            space = what.replace("_", " ")
            raise ValueError(
                f"{said}: it was trained in another world, whose {space} is {_brief(there)}; here it is {_brief(ours)}"
            )
    folder = run.best if best else run.checkpoints
    checkpoint, _ = checkpoints.read_newest(folder)
    if checkpoint is None:
        raise ValueError(f"{said}: there is no complete checkpoint in {folder} yet")
    model = agent.build(core, spec.observation_space, spec.action_space)
    with checkpoints.belongs(folder, checkpoint.progress["step"]):
        model.load_state_dict(without_target_heads(checkpoint.weights))
    return model, checkpoint.progress["step"]


def _brief(space: gymnasium.Space[Any]) -> str:
    """A space without the bounds of every entry."""
    if isinstance(space, gymnasium.spaces.Dict):
        return f"Dict({', '.join(f'{name}: {_brief(part)}' for name, part in space.items())})"
    return f"Box {list(space.shape)}" if isinstance(space, gymnasium.spaces.Box) else str(space)
