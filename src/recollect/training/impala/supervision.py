"""Help from what a world knows: targets for what must be remembered, and for where attention has to look.

    L = L_IMPALA + w (label_cost L_label + attention_cost L_attention)        w = max(0, 1 - update / (until updates))

``L_label`` asks a linear head behind the core to name the world's ``Truth.label``; ``L_attention`` asks the core's
attention to fall on the steps ``Truth.start .. Truth.stop - 1``. Both are sums (or means) over the steps that have a
target, like the policy loss, and a step's cross-entropy is of the size of its policy loss with an advantage of 1: a
cost of 1 is the ratio 1 : 1 at the start of a world whose episodes are worth 1.

Attention is heard through Taps, with gradients: the weights of every layer's window in ``transformer-xl`` and
``causal-transformer``, and in ``hcam`` the softmax over all chunks before k of them are chosen; with ``inside`` the
weights of the steps inside the chunks that are read, times the relevance of their chunk. Mass is averaged over heads
and layers before the log, so that some of them suffice. Only steps whose interval is in the past and in some place of
the memory have a target.

The critic reads nothing that the agent does not: privileged critics hurt recall (arXiv 2509.26000).
"""

from collections.abc import Callable
from contextlib import ExitStack
from types import TracebackType
from typing import NamedTuple, Self

import torch
from torch import Tensor

from recollect.agents.actor_critic import ActorCritic
from recollect.config import require
from recollect.cores.contract import MemoryCore
from recollect.layers.tap import Tap, listen, multiply_by_relevance
from recollect.objectives.policy_gradient import Reduction
from recollect.objectives.privileged_targets import attention_loss, interval_mass, label_loss
from recollect.tasks.worlds.contract import World
from recollect.training.impala.config import SupervisionConfig


def require_targets(config: SupervisionConfig, world: World, core: MemoryCore) -> None:
    """Raise ``ValueError`` unless the world and the core have what the config asks for."""
    name = type(world).__name__
    if config.label_cost:
        missing = f"{name} names nothing that must be remembered (Truth.label, spec.num_labels): use 0 here"
        truth = world.truth() if world.spec.num_labels else None
        require(truth is not None and truth.label is not None, "label_cost", config.label_cost, missing)
    missing = f"{name} does not say what its decisions depend on (World.truth): use 0 here"
    if config.decision_cost:
        require(world.truth() is not None, "decision_cost", config.decision_cost, missing)
    if config.attention_cost:
        require(world.truth() is not None, "attention_cost", config.attention_cost, missing)
        clock = torch.zeros(1, 1, dtype=torch.long)
        missing = f"this {type(core).__name__} does not attend to steps of the episode (recalled_steps): use 0 here"
        require(bool(core.recalled_steps(clock)), "attention_cost", config.attention_cost, missing)


def decides(truth: dict[str, Tensor], steps: int) -> Tensor:
    """Where the first steps of a rollout depend on what is past: bool ``[b, steps]``."""
    clock, start, stop = (truth[part][:, :steps] for part in ("clock", "start", "stop"))
    return (start >= 0) & (stop <= clock)


def _relevance(name: str) -> str:
    """The Tap of chunks beside one of the steps inside them."""
    return name.removesuffix("tap") + "relevance_tap"


class Supervised(NamedTuple):
    """What targets cost."""

    loss: Tensor
    """The weighted sum, to differentiate."""
    reported: dict[str, Tensor]
    """Scalars, by name."""


class AttentionRecorder:
    """A context in which the attention of a core is heard, with gradients.

    Args:
        core: that is called once in this context.
        truth: of the rows of that call: ``clock``, ``start``, ``stop``, long ``[b, t]``.
        inside: hear the steps inside chunks.
    """

    def __init__(self, core: MemoryCore, truth: dict[str, Tensor], inside: bool = False) -> None:
        self.core, self.truth = core, truth
        self.inside, self.places = inside, core.read_steps if inside else core.recalled_steps
        self.relevance: dict[str, Tensor] = {}
        """Of the chunks whose steps are heard next, by the name of the Tap that hears them."""
        self.heard: dict[str, list[tuple[Tensor, Tensor]]] = {}
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        for name in self.places(self.truth["clock"][:, :1]):
            self._listen(name, lambda weights, name=name: self._hear(name, weights))
            if self.inside and _relevance(name) in dict(self.core.named_modules()):
                self._listen(_relevance(name), lambda weights, name=name: self.relevance.update({name: weights}))
        return self

    def _listen(self, name: str, hear: Callable[[Tensor], None]) -> None:
        tap = self.core.get_submodule(name)
        assert isinstance(tap, Tap)
        self._stack.enter_context(listen(tap, lambda _, weights: hear(weights), gradients=True))

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, place: TracebackType | None
    ) -> None:
        self._stack.close()

    def _hear(self, name: str, weights: Tensor) -> None:
        """``[b, t, s]``, ``[b, h, t, s]`` or ``[b, h, t, n, c]`` of the next t steps: a long call has several parts."""
        if weights.ndim == 5:
            weights = multiply_by_relevance(weights, self.relevance[name]).mean(1).flatten(-2)
        weights = weights.mean(1) if weights.ndim == 4 else weights
        parts = self.heard.setdefault(name, [])
        began = sum(part.shape[1] for part, _ in parts)
        now = slice(began, began + weights.shape[1])
        clock, start, stop = (self.truth[part][:, now] for part in ("clock", "start", "stop"))
        past = torch.where(stop <= clock, start, -1)
        parts.append(interval_mass(weights, self.places(clock)[name], past, stop))

    def mass(self) -> tuple[Tensor, Tensor]:
        """Mass on the intervals, the mean over layers, ``[b, t]``; and where there is a target, bool ``[b, t]``."""
        layers = [[torch.cat(side, 1) for side in zip(*parts, strict=True)] for parts in self.heard.values()]
        masses, reached = zip(*layers, strict=True)
        return torch.stack(masses).mean(0), torch.stack(reached).any(0)


def supervise(
    agent: ActorCritic,
    features: Tensor,
    attention: AttentionRecorder | None,
    truth: dict[str, Tensor],
    config: SupervisionConfig,
    reduction: Reduction,
) -> Supervised:
    """What the targets at rows 0 .. T - 1 of a rollout cost, before they are weighted by w.

    Args:
        agent: that learns.
        features: ``[b, T, d]``, which the head reads.
        attention: what was heard while the agent ran over these rows, or one more; None without a cost for it.
        truth: of the rollout, ``[b, T + 1]``.
        config: costs.
        reduction: over steps with a target.
    """
    loss, reported = features.new_zeros((), dtype=torch.float32), {}
    rows = slice(features.shape[1])
    if config.label_cost:
        labels = truth["label"][:, rows]
        logits = agent.predict_labels(features)
        reported["label_loss"] = label_loss(logits, labels, reduction=reduction)
        right = (logits.detach().argmax(-1) == labels).sum()
        reported["label_accuracy"] = right / (labels >= 0).sum().clamp(min=1)
        loss = loss + config.label_cost * reported["label_loss"]
    if attention is not None:
        mass, valid = attention.mass()
        reported["attention_loss"] = attention_loss(mass[:, rows], valid[:, rows], reduction=reduction)
        loss = loss + config.attention_cost * reported["attention_loss"]
    return Supervised(loss, reported)
