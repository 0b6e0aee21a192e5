"""One episode of an agent, with all that was heard of it: plain NumPy arrays, read by scores and writers alike.

Axes: ``T`` steps of the episode, its last observation included; ``LH`` heads (:attr:`EpisodeRecord.heads`); ``C``
chunks (:attr:`EpisodeRecord.chunks`); ``A`` parameters of the policy (for Discrete actions: one logit per action).
Steps are counted from 0 at the start of the episode, and every map names the past by such absolute steps.

A map is None where the core keeps nothing of that kind; :attr:`EpisodeInfo.notes` then says so in words.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np


@dataclass(frozen=True, kw_only=True)
class EpisodeInfo:
    """What was recorded, and with what."""

    task: str
    """Name of the world, for example ``TMaze``."""
    core: str
    """Key of the core, for example ``hcam``."""
    agent: str = "actor-critic"
    """Name of the model around the core."""
    checkpoint_step: int | None = None
    """Step of training of the weights; None when they are not of a run."""
    seed: int = 0
    """Of the world and of sampled actions."""
    greedy: bool = True
    """Whether the likeliest action was taken."""
    version: str = ""
    """Of the library."""
    score: float | None = None
    """The world's score of the episode; None when it did not end."""
    success: bool | None = None
    """Whether the score reached the oracle's; None when the world does not know its oracle, or the episode was cut."""
    total_reward: float = 0.0
    """Sum of rewards, undiscounted."""
    provenance: Mapping[str, str] = field(default_factory=dict)
    """Where it comes from: run, command, commit, whatever is known."""
    notes: tuple[str, ...] = ()
    """Whatever a person has to know: what this core does not keep, what was cut."""


@dataclass(frozen=True, kw_only=True)
class Head:
    """One attention map of the core."""

    layer: int
    """Counted from 0."""
    head: int
    """Counted from 0 within its layer and kind."""
    kind: str
    """``window`` (attention to the last steps one by one), ``chunks`` (hierarchical attention to stored chunks) or
    ``places`` (attention to the present picture alone)."""
    tap: str = ""
    """Name of the Tap below the core that was heard."""

    @property
    def name(self) -> str:
        """For a person, counted from 1, unique in a record."""
        return f"layer {self.layer + 1} head {self.head + 1}" + ("" if self.kind == "window" else f" ({self.kind})")


@dataclass(frozen=True, kw_only=True)
class Event:
    """Something that happened at steps ``t .. t1 - 1``."""

    t: int
    t1: int
    kind: str
    """What: a name of ``WorldSpec.events``, ``reward``, or ``end``."""
    label: str
    """Text for a person; not safe for HTML until it is escaped."""
    id: str
    """Unique in the record."""


@dataclass(frozen=True, kw_only=True)
class Pair:
    """Decisions at the steps of ``query`` depend on what was seen at the steps of ``key``; both half-open."""

    query: tuple[int, int]
    key: tuple[int, int]
    strength: float = 1.0


@dataclass(frozen=True, kw_only=True)
class SlotWeights:
    """Which slots of a memory were read or written."""

    name: str
    """Of the Tap."""
    kind: str
    """``read`` or ``write``."""
    weights: np.ndarray
    """float32 ``[T, q, s]``: at every step, of q queries (heads, output tokens or written slots) to s places; rows sum
    to 1 where ``axes`` does not say otherwise."""
    axes: str = ""
    """What q and s are, in words."""


@dataclass(frozen=True, kw_only=True)
class SpaceTime:
    """Attention to cells of all frames that a window holds, the present one too: the largest k weights of every step
    and head. With the tail they sum to 1.
    """

    step: np.ndarray
    """int32 ``[T, LH, k]``; -1 where there is no such entry."""
    cell: np.ndarray
    """int32 ``[T, LH, k]``: row-major in the grid."""
    weight: np.ndarray
    """float32 ``[T, LH, k]``, descending."""
    tail: np.ndarray
    """float32 ``[T, LH]``: the mass outside the k."""
    grid: tuple[int, int]
    """Rows and columns of cells."""


@dataclass(frozen=True, kw_only=True)
class Saliency:
    """How much policy and value change when a place of the present observation is blurred."""

    steps: np.ndarray
    """int32 ``[T']``: steps of the episode that were looked at."""
    actor: np.ndarray | None
    """float32 ``[T', m, n]`` at the resolution at which it was computed; :func:`recollect.interpret.saliency.upsample`
    brings it to pixels. None where it was not asked for."""
    critic: np.ndarray | None
    """float32 ``[T', m, n]``."""
    method: str = "perturbation"
    """``perturbation`` or ``gradient``."""
    target: str = "logits"
    """What the actor's map is of: ``logits``, ``action`` or ``sarfa``."""
    stride: int = 5
    """Pixels between places in the observation."""


@dataclass(frozen=True, kw_only=True)
class Removal:
    """What the agent would do at every step if one chunk of its memory were not there; the mask, the rest unchanged."""

    kl: np.ndarray
    """float32 ``[T, C]``: KL(policy || policy without chunk c) in nats; NaN where the memory holds no such chunk."""
    dv: np.ndarray
    """float32 ``[T, C]``: value without chunk c minus value; NaN as above."""
    logits: np.ndarray
    """float32 ``[T, C, A]``: the policy's parameters without chunk c; NaN as above."""
    unit: str = "chunk"
    """``chunk``: C as in :attr:`EpisodeRecord.chunks`; ``slot``: C are the slots of the memory; ``all``: C is 1, the
    whole memory set back to its initial state."""
    method: str = ""
    """How it was taken away, in words."""


@dataclass(frozen=True, kw_only=True)
class Objects:
    """The things in every frame, which only the world knows (``World.scene``)."""

    names: tuple[str, ...]
    boxes: np.ndarray
    """int32 ``[T, things, 4]``: first row, first column, the row and column behind the last, in the observation's
    pixels."""
    visible: np.ndarray
    """bool ``[T, things]``."""
    matters: np.ndarray
    """bool ``[T, things]``: the present decision depends on it."""


@dataclass(frozen=True, kw_only=True)
class EpisodeRecord:
    """One episode: what was seen and done, and what was heard of the agent meanwhile."""

    info: EpisodeInfo
    actions: tuple[str, ...]
    """Names of the actions of a Discrete space; empty when the world has none."""
    frames: np.ndarray
    """uint8 ``[T, H, W, 3]``: pictures for a person, as the world draws itself, else the observation."""
    observations: Mapping[str, np.ndarray]
    """What the agent saw, ``[T, ...]`` each, by its dotted key; a plain array is called ``observation``."""
    action: np.ndarray
    """``[T, *action_shape]``: taken at this observation; at the last step the world ignores it."""
    reward: np.ndarray
    """float32 ``[T]``: received with this observation; 0 at the first."""
    value: np.ndarray
    """float32 ``[T]``."""
    logits: np.ndarray
    """float32 ``[T, A]``: parameters of the policy."""
    done: np.ndarray
    """bool ``[T]``: only the last one may be True."""
    terminated: bool = False
    """Whether the last step is the end, after which nothing is gained; else a limit of time cut the episode there."""
    discrete: bool = True
    """Whether ``logits`` are those of one softmax; else they are parameters of some other distribution."""

    heads: tuple[Head, ...] = ()
    temporal: np.ndarray | None = None
    """float32 ``[T, LH, T]``: weight of head h at step t on step s, in absolute steps. NaN where step s is not in reach
    of the head (in the future, outside its window, forgotten): absent is not zero. Rows of a window's heads sum to 1;
    those of chunk heads to the relevance of the chunks that were read, less what lies in other episodes."""
    chunks: tuple[tuple[int, int], ...] = ()
    """Half-open intervals of steps: the chunks of the core's memory, or, where the core has none, groups of steps."""
    chunk_rel: np.ndarray | None = None
    """float32 ``[T, LH, C]``: for chunk heads the relevance, a softmax over all visible chunks that is not renormalised
    over the top k; for window heads the mass inside the interval. NaN where the chunk is not in reach."""
    chunk_read: np.ndarray | None = None
    """bool ``[T, LH, C]``: the chunk was among the k that were read. All True in reach for window heads."""
    chunk_tail: np.ndarray | None = None
    """float32 ``[T, LH]``: mass outside the top k, that is, relevance of chunks that were not read; 0 for windows."""
    spatial: np.ndarray | None = None
    """float32 ``[T, LH, p, q]``: attention to cells of the present observation, mean over queries. Sums to 1, or where
    the same attention goes to past observations as well (``spacetime``), to what is left for the present one."""
    what_where: np.ndarray | None = None
    """float32 ``[T, LH, p, q]``, signed: by how many nats content (above 0) or location (below 0) says more for a cell
    than the other, each against its mean over cells; cut at log 10."""
    spacetime: SpaceTime | None = None
    slots: tuple[SlotWeights, ...] = ()

    saliency: tuple[Saliency, ...] = ()
    removal: Removal | None = None

    events: tuple[Event, ...] = ()
    pairs: tuple[Pair, ...] = ()
    objects: Objects | None = None

    @property
    def num_steps(self) -> int:
        """T."""
        return len(self.reward)

    @property
    def mem_kl(self) -> np.ndarray | None:
        """``removal.kl``, or None."""
        return None if self.removal is None else self.removal.kl

    @property
    def mem_dv(self) -> np.ndarray | None:
        """``removal.dv``, or None."""
        return None if self.removal is None else self.removal.dv
