"""One recorded episode of an agent: plain NumPy arrays, read by scores and writers alike.

Axes: ``T`` steps of the episode, its last observation included; ``LH`` heads (:attr:`EpisodeRecord.heads`); ``C``
chunks (:attr:`EpisodeRecord.chunks`); ``A`` parameters of the policy (for Discrete actions: one logit per action).
Steps are counted from 0 at the start of the episode, and every map names the past by such absolute steps.

A map is None where the core keeps nothing of that kind; :attr:`EpisodeInfo.notes` then explains it.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np

from recollect.config import require

MOST_STEPS = 65_534  # steps are stored as 16 bits, and 65 535 means that there is none


@dataclass(frozen=True, kw_only=True)
class EpisodeInfo:
    """Description of a recorded episode and its agent."""

    task: str  # name of the world, for example ``TMaze``
    core: str  # key of the core, for example ``hcam``
    agent: str = "actor-critic"  # name of the model around the core
    checkpoint_step: int | None = None  # training step of the weights; None when they are not from a run
    seed: int = 0  # of the world and of sampled actions
    greedy: bool = True  # whether the likeliest action was taken
    version: str = ""  # of the library
    score: float | None = None  # the world's score of the episode; None when it did not end
    success: bool | None = None
    """Whether the score reached the oracle's; None when the oracle's is unknown, or the episode was cut."""
    total_reward: float = 0.0  # sum of rewards, undiscounted
    provenance: Mapping[str, str] = field(default_factory=dict)  # origin: run, command, commit, whatever is known
    notes: tuple[str, ...] = ()  # remarks for a person: what this core does not keep, what was cut


@dataclass(frozen=True, kw_only=True)
class Head:
    """One attention map of the core."""

    layer: int  # counted from 0
    head: int  # counted from 0 within its layer and kind
    kind: str
    """``window`` (attention to the last steps one by one), ``chunks`` (hierarchical attention to stored chunks) or
    ``places`` (attention to the present picture alone)."""
    tap: str = ""  # name of its Tap below the core

    @property
    def name(self) -> str:
        """For a person, counted from 1, unique in a record."""
        return f"layer {self.layer + 1} head {self.head + 1}" + ("" if self.kind == "window" else f" ({self.kind})")


@dataclass(frozen=True, kw_only=True)
class Event:
    """Something that happened at steps ``t .. t1 - 1``."""

    t: int
    t1: int
    kind: str  # a name of ``WorldSpec.events``, ``reward``, or ``end``
    label: str  # text for a person; not safe for HTML until it is escaped
    id: str  # unique in the record


@dataclass(frozen=True, kw_only=True)
class Pair:
    """Decisions at the steps of ``query`` depend on what was seen at the steps of ``key``; both half-open."""

    query: tuple[int, int]
    key: tuple[int, int]
    strength: float = 1.0


@dataclass(frozen=True, kw_only=True)
class SlotWeights:
    """Weights with which slots of a memory were read or written."""

    name: str  # of the Tap
    kind: str  # ``read`` or ``write``
    weights: np.ndarray
    """float32 ``[T, q, s]``: at every step, of q queries (heads, output tokens or written slots) to s places; rows sum
    to 1 where ``axes`` does not say otherwise."""
    axes: str = ""  # description of q and s


@dataclass(frozen=True, kw_only=True)
class SpaceTime:
    """Attention to cells of all frames in a window, the present one too: the largest k weights of a step and head."""

    step: np.ndarray  # int32 ``[T, LH, k]``; -1 where there is no such entry
    cell: np.ndarray  # int32 ``[T, LH, k]``: row-major in the grid
    weight: np.ndarray  # float32 ``[T, LH, k]``, descending; with the tail they sum to 1
    tail: np.ndarray  # float32 ``[T, LH]``: the mass outside the k
    grid: tuple[int, int]  # rows and columns of cells


@dataclass(frozen=True, kw_only=True)
class Saliency:
    """Change of policy and value when a place of the present observation is blurred."""

    steps: np.ndarray  # int32 ``[T']``: steps of the episode with a map
    actor: np.ndarray | None
    """float32 ``[T', m, n]`` at the resolution at which it was computed; :func:`recollect.interpret.saliency.upsample`
    brings it to pixels. None where it was not requested."""
    critic: np.ndarray | None  # float32 ``[T', m, n]``
    method: str = "perturbation"  # ``perturbation`` or ``gradient``
    target: str = "logits"  # target of the actor's map: ``logits``, ``action`` or ``sarfa``
    stride: int = 5  # pixels between places in the observation


@dataclass(frozen=True, kw_only=True)
class Removal:
    """Policy and value at every step without one part of the memory (``unit``); the rest is unchanged."""

    kl: np.ndarray
    """float32 ``[T, C]``: KL(policy || policy without chunk c) in nats; NaN where the memory holds no such chunk."""
    dv: np.ndarray  # float32 ``[T, C]``: value without chunk c minus value; NaN as above
    logits: np.ndarray  # float32 ``[T, C, A]``: the policy's parameters without chunk c; NaN as above
    unit: str = "chunk"
    """``chunk``: C as in :attr:`EpisodeRecord.chunks`; ``slot``: C are the slots of the memory; ``head``: C are the
    heads, each with a matrix; ``all``: C is 1, the whole memory. All but chunks are set back to their initial state."""
    method: str = ""  # how it was removed, in words
    whole: np.ndarray | None = None
    """float32 ``[T, A]``: the policy's parameters with the whole memory set back to its initial state before each step;
    None where it was not measured."""
    whole_kl: np.ndarray | None = None  # float32 ``[T]``: KL(policy || that policy) in nats


@dataclass(frozen=True, kw_only=True)
class Objects:
    """The things in every frame, which only the world knows (``World.scene``)."""

    names: tuple[str, ...]
    boxes: np.ndarray
    """int32 ``[T, things, 4]``: first row, first column, the row and column behind the last, in the observation's
    pixels."""
    visible: np.ndarray  # bool ``[T, things]``
    matters: np.ndarray  # bool ``[T, things]``: the present decision depends on it


@dataclass(frozen=True, kw_only=True)
class EpisodeRecord:
    """Observations, actions, attention and measurements of one episode."""

    info: EpisodeInfo
    actions: tuple[str, ...]  # names of the actions of a Discrete space; empty when the world has none
    frames: np.ndarray  # uint8 ``[T, H, W, 3]``: pictures for a person, as the world draws itself, else the observation
    observations: Mapping[str, np.ndarray]
    """Observations ``[T, ...]`` by their dotted key; a plain array is called ``observation``."""
    action: np.ndarray  # ``[T, *action_shape]``: taken at this observation; at the last step the world ignores it
    reward: np.ndarray  # float32 ``[T]``: received with this observation; 0 at the first
    value: np.ndarray  # float32 ``[T]``
    logits: np.ndarray  # float32 ``[T, A]``: parameters of the policy
    done: np.ndarray  # bool ``[T]``: only the last one may be True
    terminated: bool = False
    """Whether the last step is the end, after which nothing is gained; else a time limit cut the episode there."""
    discrete: bool = True
    """Whether ``logits`` are those of one softmax; else they are parameters of some other distribution."""

    heads: tuple[Head, ...] = ()
    temporal: np.ndarray | None = None
    """float32 ``[T, LH, T]``: weight of head h at step t on step s, in absolute steps. NaN where step s is not in reach
    of the head (in the future, outside its window, forgotten): absent is not zero. Rows of a window's heads sum to 1;
    those of chunk heads to the relevance of the chunks that were read, less the mass in other episodes."""
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
    the same attention goes to past observations as well (``spacetime``), to the mass on the present one."""
    what_where: np.ndarray | None = None
    """float32 ``[T, LH, p, q]``, signed: by how many nats content (above 0) or location (below 0) favours a cell more
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
        """Number of steps."""
        return len(self.reward)

    @property
    def blocks(self) -> list[Event]:
        """Events of the world that last: neither rewards nor the end."""
        return [event for event in self.events if event.kind not in ("reward", "end")]

    @property
    def has_chunk_removal(self) -> bool:
        """Whether the effect of removing single chunks was measured."""
        return self.removal is not None and self.removal.unit == "chunk"

    def saliency_maps(self) -> Iterator[tuple[str, np.ndarray, np.ndarray]]:
        """Yield name, steps and maps of every saliency of actor and critic."""
        for one in self.saliency:
            for who, maps in (("actor", one.actor), ("critic", one.critic)):
                if maps is not None:
                    yield f"{one.method} {who}", one.steps, maps


def memory_heads(record: EpisodeRecord) -> list[int]:
    """List the heads whose mean stands for the memory: those that read chunks, or all where there are none."""
    chunked = [i for i, head in enumerate(record.heads) if head.kind == "chunks"]
    return chunked or list(range(len(record.heads)))


def check_record(record: EpisodeRecord) -> None:
    """Raise ``ValueError`` where a record has no steps, has broken frames, or remembers the future."""
    steps = record.num_steps
    require(steps >= 1, "num_steps", steps, "record at least one step")
    require(steps <= MOST_STEPS, "num_steps", steps, f"record at most {MOST_STEPS} steps")
    _check_frames(record)
    _check_shapes(record)
    _check_causality(record)


def _check_frames(record: EpisodeRecord) -> None:
    frames = record.frames
    if not frames.size:
        return
    if np.issubdtype(frames.dtype, np.floating) and not np.isfinite(frames).all():
        step = int(np.flatnonzero(~np.isfinite(frames).reshape(len(frames), -1).all(1))[0])
        raise ValueError(f"frames: NaN or infinite pixels at step {step}; give uint8 pictures [T, H, W, 3]")
    form = f"{frames.dtype} {list(frames.shape)}"
    fits = frames.dtype == np.uint8 and frames.ndim == 4 and frames.shape[-1] == 3 and len(frames) == record.num_steps
    require(fits, "frames", form, f"give uint8 [{record.num_steps}, H, W, 3]")


def _check_shapes(record: EpisodeRecord) -> None:
    steps, heads, chunks = record.num_steps, len(record.heads), len(record.chunks)
    for name in ("value", "logits", "action"):
        curve = getattr(record, name)
        require(len(curve) == steps, name, list(curve.shape), f"give one entry for each of {steps} steps")
    expected = {
        "temporal": (steps, heads, steps),
        "chunk_rel": (steps, heads, chunks),
        "chunk_read": (steps, heads, chunks),
        "chunk_tail": (steps, heads),
    }
    for name, shape in expected.items():
        array = getattr(record, name)
        if array is not None:
            require(array.shape == shape, name, list(array.shape), f"give {list(shape)}")
    for name in ("spatial", "what_where"):
        array = getattr(record, name)
        if array is not None:
            fits = array.ndim == 4 and array.shape[:2] == (steps, heads)
            require(fits, name, list(array.shape), f"give [{steps}, {heads}, rows, columns]")
    if record.chunk_rel is not None and record.temporal is None:
        raise ValueError("chunk_rel: without temporal there is nothing to draw by step; give both")
    if record.removal is not None and record.has_chunk_removal:
        shape = record.removal.kl.shape
        require(shape == (steps, chunks), "removal.kl", list(shape), f"give {[steps, chunks]}")


def _check_causality(record: EpisodeRecord) -> None:
    """Require that maps of step t cover steps up to t; later ones are NaN: absent, which is not zero."""
    starts = np.array([start for start, _ in record.chunks], int)
    for t in range(record.num_steps):
        if record.temporal is not None:
            _require_absent("temporal", t, record.temporal[t, :, t + 1 :], "steps")
        later = starts > t
        if record.chunk_rel is not None:
            _require_absent("chunk_rel", t, record.chunk_rel[t][:, later], "chunks")
        if record.removal is not None and record.has_chunk_removal:
            _require_absent("removal.kl", t, record.removal.kl[t][None, later], "chunks")
    past = record.spacetime
    if past is not None:
        ahead = past.step > np.arange(record.num_steps)[:, None, None]
        if ahead.any():
            t, head = (int(axis[0]) for axis in np.nonzero(ahead)[:2])
            raise ValueError(f"spacetime: head {head} at step {t} is on the later step {past.step[t, head].max()}")


def _require_absent(name: str, t: int, numbers: np.ndarray, what: str) -> None:
    wrong = ~np.isnan(numbers)
    if wrong.any():
        head, ahead = (int(axis[0]) for axis in np.nonzero(wrong))
        raise ValueError(
            f"{name}: head {head} at step {t} has {numbers[head, ahead]:.3g} for {what} of the future; no memory holds "
            "the future: give NaN there (absent, which is not zero)"
        )
