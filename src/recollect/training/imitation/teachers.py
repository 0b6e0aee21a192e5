"""Teachers: they label every step that the learner takes with a target.

    oracle, ...   a policy that the world offers by name: an action, whose log-likelihood under the learner is raised
    a run         a trained agent with its own memory, which reads the learner's observations and actions: a whole
                  distribution, which the learner's is brought near to

The learner acts and the teacher labels, so that the learner also has targets in states that only its own mistakes
reach (DAgger). In the first steps the teacher acts too, in a share of the rows that falls to 0.

Sources: Ross et al. (2011), A reduction of imitation learning and structured prediction to no-regret online learning;
Schmitt et al. (2018), Kickstarting deep reinforcement learning.
"""

import math
from abc import ABC, abstractmethod
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
from recollect.runs.run_directory import resolve_run
from recollect.tasks import TASKS
from recollect.tasks.worlds.contract import World, WorldConfig, WorldSpec
from recollect.training.imitation.config import TeacherConfig
from recollect.training.trainer import load_state


class Teacher(ABC):
    """Labels every step in the rows that one learner plays."""

    acting = 0
    """Number of rows, the first ones, in which it acts."""
    state: Any = ()
    """Its memory; a tree of tensors."""
    identity: str = ""
    """Details beyond the name, such as its training step; saved with the learner."""

    @abstractmethod
    def show(self, world: World, inputs: ActorInputs, is_first: Tensor) -> Tensor:
        """Return the target of the present step, ``[b, ...]``.

        Args:
            world: in the state in which it shows these inputs.
            inputs: the learner's, without the time axis.
            is_first: bool ``[b]``.
        """

    @abstractmethod
    def actions(self, target: Tensor, generator: Generator) -> Tensor:
        """Return the teacher's own actions, ``[b, *action_shape]``."""

    @abstractmethod
    def divergence(self, learner: Distribution, target: Tensor) -> Tensor:
        """Return the divergence from the targets, in nats (from an action: minus its log-likelihood), ``[b, t]``."""

    @abstractmethod
    def choices(self, target: Tensor) -> Tensor:
        """Return the teacher's likeliest actions, ``[b, t, *action_shape]``."""

    def require(self, world: World) -> None:
        """Raise ``ValueError`` where it has no targets for a world that was reset; names the alternatives."""
        return

    def lead(self, actions: Tensor, target: Tensor, generator: Generator) -> Tensor:
        """Return the learner's actions, but the teacher's in the rows in which it acts."""
        if not self.acting:
            return actions
        led = torch.arange(len(actions), device=actions.device) < self.acting
        led = led.reshape(-1, *[1] * (actions.ndim - 1))
        return torch.where(led, self.actions(target, generator).to(actions.dtype), actions)

    def take_state(self) -> Any:
        """Return its memory to be saved, and continue from it exactly as a resumed run does."""
        return self.state

    def load_state(self, tensors: dict[str, Tensor]) -> Any:
        """Continue from the memory whose leaves have these names, and return it."""
        return self.state


class NamedActions(Teacher):
    """Targets are actions ``[b, *action_shape]``; here those of recorded episodes."""

    def show(self, world: World, inputs: ActorInputs, is_first: Tensor) -> Tensor:
        """Raise ``RuntimeError``: recorded episodes have no targets for other steps."""
        raise RuntimeError("recorded episodes have no targets for other steps; only the trainer cloning reads them")

    def actions(self, target: Tensor, generator: Generator) -> Tensor:
        """Return the actions that the world names as targets."""
        return target

    def divergence(self, learner: Distribution, target: Tensor) -> Tensor:
        """Return the cross-entropy with the target action: the KL divergence from all mass on it."""
        return -learner.log_prob(target)

    def choices(self, target: Tensor) -> Tensor:
        """Return the actions that the world names as targets."""
        return target


class WorldTeacher(NamedActions):
    """A policy that the world offers.

    Args:
        name: of the policy.
    """

    def __init__(self, name: str) -> None:
        self.name = name

    def show(self, world: World, inputs: ActorInputs, is_first: Tensor) -> Tensor:
        """Return the actions of the world's own policy."""
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
    """Memory of a run as a teacher."""

    memory: Any
    """That of its agent."""
    policy: Tensor
    """``[b, p]``: its own policy at the previous step."""
    features: Tensor
    """``[b, d]``: its own features at the previous step; of width 0 where its agent does not read them."""


class RunTeacher(Teacher):
    """A trained agent; targets are the parameters of its policy ``[b, p]``.

    It reads the learner's observations and actions. As outputs of the previous step it reads its own, since the
    learner's policy and features have another meaning.

    Args:
        name: directory of its run, or RUN/best.
        spec: of the learner's world.
        batch_size: rows.
        device: where to compute.

    Raises:
        ValueError: not a run, none in a world, of a world with other observations or actions, or without weights.
    """

    def __init__(self, name: str, spec: WorldSpec, batch_size: int, device: torch.device) -> None:
        self.agent, step = _load_agent(name, spec)
        self.agent = self.agent.to(device).eval().requires_grad_(False)
        self.identity = f"{name}, step {step}"
        self.stream = self.agent.stream(batch_size)
        self.outputs = no_previous_output(self.agent, batch_size, torch.zeros((), device=device))

    @property
    def state(self) -> RunState:  # type: ignore[override]
        """The teacher's memory, and its previous outputs."""
        return RunState(self.stream.state, *self.outputs)

    def take_state(self) -> RunState:
        """Return the teacher's memory, which its stream reads again."""
        state = self.state
        self.stream.load_state(state.memory)  # a stream that was loaded may sum in another order
        return state

    def load_state(self, tensors: dict[str, Tensor]) -> RunState:
        """Continue from the memory whose leaves have these names, and return it."""
        example = self.state
        if "policy" not in tensors:  # older files have the memory alone
            tensors = {f"memory.{name}": leaf for name, leaf in tensors.items()}
            tensors |= {"policy": example.policy, "features": example.features}
        state = load_state("", tensors, example)
        self.stream.load_state(state.memory)
        self.outputs = state.policy, state.features
        return state

    def show(self, world: World, inputs: ActorInputs, is_first: Tensor) -> Tensor:
        """Return its policy for the learner's inputs."""
        policy, features = self.outputs
        output = self.stream.step(inputs._replace(policy=policy, features=features), is_first)
        self.outputs = as_previous_output(self.agent, output)
        return output.policy

    def actions(self, target: Tensor, generator: Generator) -> Tensor:
        """Draw actions from the trained agent's policy."""
        return self.agent.distribution(target).sample(generator)

    def divergence(self, learner: Distribution, target: Tensor) -> Tensor:
        """Return KL(teacher || learner)."""
        return learner.divergence(self.agent.distribution(target))  # type: ignore[arg-type]

    def choices(self, target: Tensor) -> Tensor:
        """Return the likeliest actions of the trained agent."""
        return self.agent.distribution(target).mode()


def make_teacher(config: TeacherConfig, spec: WorldSpec, batch_size: int, device: torch.device) -> Teacher:
    """Make the teacher that a config names, for the rows of one learner.

    Raises:
        ValueError: it names recorded episodes, which have no targets for other steps, or a run that does not fit.
    """
    if config.recorded:
        raise ValueError(
            f"teacher.name={config.name!r}: recorded episodes have no targets for the steps that a learner reaches by "
            "itself. Clone them first (--trainer cloning), then train --from that run"
        )
    if resolve_run(config.name)[0].config_file.is_file():
        return RunTeacher(config.name, spec, batch_size, device)
    return WorldTeacher(config.name)


def worlds_with_an_oracle() -> list[str]:
    """Return the keys of the worlds with an oracle."""
    worlds = {key: task for key, task in TASKS.items() if issubclass(task, WorldConfig)}
    return [key for key, world in worlds.items() if not math.isnan(world().spec.oracle)]


def _load_agent(name: str, spec: WorldSpec) -> tuple[ActorCritic, int]:
    """Load the agent of a run that acts in a world with the same spaces; return it and its step."""
    run, best = resolve_run(name)
    field = f"teacher.name={name!r}"
    if not {"world", "agent", "core"} <= run.config.keys():
        raise ValueError(f"{field}: this run did not act in a world; name one that did")
    try:
        theirs = from_json(run.config["world"], WorldConfig, REGISTRY).spec
        core = from_json(run.config["core"], CoreConfig, REGISTRY)
        agent = from_json(run.config["agent"], ActorCriticConfig, REGISTRY)
    except ValueError as error:
        raise ValueError(f"{field}: {error}") from error
    for name_of_space in ("observation_space", "action_space"):
        ours, other = getattr(spec, name_of_space), getattr(theirs, name_of_space)
        if ours != other:
            raise ValueError(
                f"{field}: it was trained in another world, whose {name_of_space.replace('_', ' ')} is "
                f"{_describe(other)}; here it is {_describe(ours)}"
            )
    folder = run.checkpoint_folder(best=best)
    checkpoint, _ = checkpoints.read_newest(folder)
    if checkpoint is None:
        raise ValueError(f"{field}: there is no complete checkpoint in {folder} yet")
    model = agent.build(core, spec.observation_space, spec.action_space)
    with checkpoints.mismatch_errors(folder, checkpoint.progress["step"]):
        model.load_state_dict(without_target_heads(checkpoint.weights))
    return model, checkpoint.progress["step"]


def _describe(space: gymnasium.Space[Any]) -> str:
    """Describe a space without the bounds of every entry."""
    if isinstance(space, gymnasium.spaces.Dict):
        return f"Dict({', '.join(f'{name}: {_describe(part)}' for name, part in space.items())})"
    return f"Box {list(space.shape)}" if isinstance(space, gymnasium.spaces.Box) else str(space)
