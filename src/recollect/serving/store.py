"""A store of live streams of one model, by id: step, fork, roll back, send to disk and back, expire, new weights.

    store = StreamStore(model, ServingConfig(capacity=2000, rollback=8))
    store.create("robot-7")
    [answer] = store.step([Step("robot-7", {"observation": seen})])

All streams in memory are rows of one stream of the model, so that the steps of any of them are one call. One thread
calls a store at a time; :class:`~recollect.serving.batcher.Batcher` sees to that.
"""

import re
import shutil
import tempfile
import time
import weakref
from collections import Counter, OrderedDict
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from secrets import token_hex
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from recollect.cores.arrays import to_array
from recollect.serving.config import ServingConfig
from recollect.serving.interface import Interface, Row, weights_version
from recollect.serving.refusal import RefusedError
from recollect.serving.spill import SUFFIX, read_about, read_stream, write_stream
from recollect.state import leaves, map_state, nbytes, take_rows

ID = re.compile(r"[A-Za-z0-9_-]{1,64}")
"""Ids of streams; they are names of files too."""


class Step(NamedTuple):
    """A step that is asked for."""

    id: str
    inputs: Row
    """From :meth:`~recollect.serving.interface.Interface.parse`."""
    is_first: bool = False
    """Whether an episode begins; so it does at a stream's first step, in any case."""
    at: int | None = None
    """Number of steps that the stream must have taken before: a step that is sent twice is not taken twice."""


class Answer(NamedTuple):
    """A step that was taken."""

    id: str
    outputs: dict[str, np.ndarray]
    steps: int
    """Number of steps of the stream, with this one and without those rolled back."""
    weights: str
    """Version of the weights that computed it."""


class Memory(NamedTuple):
    """What is kept of streams: all leaves ``[r, ...]``."""

    state: Any
    """State of the model."""
    carried: tuple[Tensor, ...]
    """Outputs of the step before that are inputs of the next one, such as the action."""


@dataclass
class Entry:
    """Where the memory of a live stream is, its steps, and the time of its last request."""

    steps: int = 0
    undo: int = 0  # steps that can be rolled back
    used: float = 0.0  # time of the last request
    row: int = -1  # in memory; -1: on disk


class StreamStore:
    """Live streams of one model, by id.

    Args:
        model: an agent that takes single steps, or a core.
        config: limits.
        clock: seconds that never go back, for tests.

    Raises:
        ValueError: models of this kind take no single steps, or the folder cannot be used.
    """

    def __init__(
        self, model: nn.Module, config: ServingConfig | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.config = ServingConfig() if config is None else config
        self.interface = Interface(model)
        self.version = weights_version(model)
        self.counts: Counter[str] = Counter()
        """Events since the start: created, steps, batches, evicted, restored, expired, ..."""
        self._clock = clock
        agent: Any = self.interface.model
        formats = {"weights": self.config.weights, "cache": self.config.cache}
        asked = {} if set(formats.values()) == {"float32"} else formats  # a core of a user may have streams without
        self._stream: Any = agent.stream(self.config.capacity, **asked)
        self._carried = tuple(
            torch.zeros(self.config.capacity, *port.shape, dtype=port.dtype, device=self._stream.like.device)
            for port in self.interface.carried
        )
        self._like = Memory(self._stream.fresh_state(1), tuple(part[:1].clone() for part in self._carried))
        places = self.config.capacity * self.config.rollback
        self._past = map_state(lambda leaf: leaf.new_zeros(places, *leaf.shape[1:]), self._like) if places else None
        self._free = list(range(self.config.capacity))[::-1]
        self._live: OrderedDict[str, Entry] = OrderedDict()  # least recently used first
        self._on_disk: OrderedDict[str, Entry] = OrderedDict()
        self._folder = self.config.folder or Path(tempfile.mkdtemp(prefix="recollect-streams-"))
        self._temporary = (
            None if self.config.folder else weakref.finalize(self, shutil.rmtree, self._folder, ignore_errors=True)
        )
        self._find_files()

    def __len__(self) -> int:
        return len(self._live) + len(self._on_disk)

    @property
    def live(self) -> int:
        """Number of streams in memory."""
        return len(self._live)

    @property
    def nbytes(self) -> int:
        """Bytes of the memory of all places, a constant."""
        return self._stream.nbytes + nbytes(self._carried) + (nbytes(self._past) if self._past is not None else 0)

    def create(self, id: str | None = None) -> str:
        """Begin a stream, and return its id; a random one when None.

        Raises:
            RefusedError: 400 an id that is none, 409 one that exists, 507 no place in memory or on disk.
        """
        id = self._new_id(id)
        self._live[id] = Entry(used=self._clock(), row=self._place(id))
        self.counts["created"] += 1
        return id

    def about(self, id: str) -> dict[str, Any]:
        """Return what is known of a stream: steps, how many can be rolled back, whether it is in memory.

        Raises:
            RefusedError: 404.
        """
        entry = self._entry(id)
        found = {"id": id, "steps": entry.steps, "rollback": entry.undo, "in_memory": entry.row >= 0}
        return found | {"weights": self.version}

    def step(self, steps: Sequence[Step]) -> list[Answer | RefusedError]:
        """Take one step of each of some streams, all different, in one call of the model.

        A step that is refused changes nothing, neither in its own stream nor in the others.

        Returns:
            What became of each, in order.
        """
        ids, now = {step.id for step in steps}, self._clock()
        refused = [self._refusal_of(step, ids, now) for step in steps]
        accepted = [step for step, refusal in zip(steps, refused, strict=True) if refusal is None]
        answers = iter(self._advance(accepted))
        found = [next(answers) if refusal is None else refusal for refusal in refused]
        self.counts["batches"] += bool(accepted)
        self.counts.update(Counter("steps" if isinstance(one, Answer) else f"refused {one.status}" for one in found))
        return found

    def fork(self, id: str, new: str | None = None) -> str:
        """Copy a stream, with the steps that can be rolled back, and return the id of the copy.

        Raises:
            RefusedError: as :meth:`create`, or 404.
        """
        self._entry(id)
        new = self._new_id(new)
        entry = self._in_memory(id, {id})
        row = self._place(new, keep={id})
        self._write(self._read([entry.row]), [row])
        if self._past is not None:
            for back in range(1, entry.undo + 1):
                self._remember(self._recall(entry, back), [row], [entry.steps - back])
        self._live[new] = Entry(entry.steps, entry.undo, self._clock(), row)
        self.counts["forked"] += 1
        return new

    def roll_back(self, id: str, steps: int) -> int:
        """Undo the last steps of a stream, and return how many it has then.

        Raises:
            RefusedError: 404; 409 not so many steps can be undone.
        """
        entry = self._entry(id)
        if not 0 <= steps <= entry.undo:
            remedy = f"give 0 to {entry.undo}; the server keeps rollback={self.config.rollback} steps"
            raise RefusedError(409, f"steps={steps}: {entry.undo} steps of stream {id!r} can be rolled back: {remedy}")
        entry = self._in_memory(id, {id})
        if steps:
            self._write(self._recall(entry, steps), [entry.row])
            entry.steps, entry.undo = entry.steps - steps, entry.undo - steps
        self.counts["rolled back"] += 1
        return entry.steps

    def delete(self, id: str) -> None:
        """End a stream.

        Raises:
            RefusedError: 404; 507 its file cannot be removed: the stream stays.
        """
        self._entry(id)
        self._forget(id)
        self.counts["deleted"] += 1

    def evict(self, id: str) -> None:
        """Send a stream to disk, where it stays until its next request.

        Raises:
            RefusedError: 404; 507 the disk is full: the stream stays in memory.
        """
        self._entry(id)
        self._send_to_disk(id)

    def _send_to_disk(self, id: str) -> None:
        entry = self._live.get(id)
        if entry is None:
            return
        kept = [self._read([entry.row]), *(self._recall(entry, back) for back in range(1, entry.undo + 1))]
        about = {"steps": entry.steps, "undo": entry.undo}
        try:
            write_stream(self._path(id), map_state(lambda *parts: torch.cat(parts), *kept), about)
        except OSError as error:
            self.counts["evictions that failed"] += 1
            raise RefusedError(
                507,
                f"stream={id!r} cannot be written to disk ({error.strerror or error}): "
                "delete streams, or make room in the server's folder",
            ) from error
        self._free.append(entry.row)
        entry.row = -1
        self._on_disk[id] = self._live.pop(id)
        self.counts["evicted"] += 1

    def restore(self, id: str) -> None:
        """Bring a stream back into memory; a step does so by itself.

        Raises:
            RefusedError: 404; 410 its file is damaged; 507 no place in memory.
        """
        self._entry(id)
        self._in_memory(id, {id})

    def sweep(self) -> None:
        """Delete streams that were not used for ``expire_seconds``, and evict those not used for ``evict_seconds``."""
        now, config = self._clock(), self.config
        for id, entry in [*self._on_disk.items(), *self._live.items()]:
            try:
                if now - entry.used >= config.expire_seconds:
                    self._forget(id)
                    self.counts["expired"] += 1
                elif entry.row >= 0 and now - entry.used >= config.evict_seconds:
                    self._send_to_disk(id)
            except RefusedError:
                return  # the disk is full or read-only: streams stay where they are

    def swap(self, model: nn.Module) -> str:
        """Continue all streams under other weights, and return their version.

        Raises:
            RefusedError: 409, a model of another config; all streams continue as before.
        """
        try:
            self._stream.swap_weights(model)
        except ValueError as error:
            raise RefusedError(409, str(error)) from error
        self.interface, self.version = Interface(model), weights_version(model)
        self.counts["swaps of weights"] += 1
        return self.version

    def close(self) -> None:
        """Send all streams to the folder, if it outlives the server, or remove it.

        Raises:
            RefusedError: 507, the disk is full; names the first stream that could not be written. All others were.
        """
        if self._temporary is not None:
            self._temporary()
            return
        refusals = []
        for id in list(self._live):
            try:
                self._send_to_disk(id)
            except RefusedError as refusal:
                refusals.append(refusal)
        if refusals:
            raise refusals[0]

    def _find_files(self) -> None:
        """Take up the streams whose files are in the folder already."""
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            files = sorted(self._folder.glob(f"[!.]*{SUFFIX}"))  # a server that was killed leaves unfinished ones
        except OSError as error:
            raise ValueError(
                f"folder={str(self._folder)!r}: it cannot be used ({error.strerror}): give a folder that can be written"
            ) from error
        for path in files:
            about = read_about(path) or {}
            undo = min(about.get("undo", 0), self.config.rollback)  # a server before may have kept more steps
            self._on_disk[path.stem] = Entry(about.get("steps", 0), undo, self._clock())

    def _new_id(self, id: str | None) -> str:
        """Return an id that is free; a random one for None."""
        if id is None:
            id = token_hex(8)
        if not isinstance(id, str) or not ID.fullmatch(id):
            raise RefusedError(400, f"id={str(id)[:80]!r}: give 1 to 64 letters, digits, - or _")
        if id in self._live or id in self._on_disk:
            raise RefusedError(409, f"id={id!r}: there is such a stream; give another id, or none for a random one")
        if len(self) >= self.config.most_streams:
            most = self.config.most_streams
            raise RefusedError(507, f"streams={len(self)}: no more than most_streams={most}; delete some, or raise it")
        return id

    def _entry(self, id: str, now: float | None = None) -> Entry:
        entry = self._live.get(id) or self._on_disk.get(id)
        if entry is None:
            raise RefusedError(404, f"stream={str(id)[:80]!r}: there is none; create it with POST /streams")
        entry.used = self._clock() if now is None else now
        if entry.row >= 0:
            self._live.move_to_end(id)
        return entry

    def _refusal_of(self, step: Step, ids: Collection[str], now: float) -> RefusedError | None:
        """Bring the stream of a step into memory, and return why the step cannot be taken; None if it can."""
        try:
            self._accept(step, ids, now)
        except RefusedError as refusal:
            return refusal
        return None

    def _accept(self, step: Step, ids: Collection[str], now: float) -> None:
        """Bring the stream of a step into memory, and raise a RefusedError if the step cannot be taken."""
        entry = self._entry(step.id, now)
        if step.at is not None and step.at != entry.steps:
            raise RefusedError(409, f"at={step.at}: stream {step.id!r} has taken {entry.steps} steps; send that number")
        missing = self.interface.missing(step.inputs, is_first=step.is_first or not entry.steps)
        if missing is not None:
            raise RefusedError(422, f"inputs.{missing}: it is missing; give {', '.join(self.interface.inputs)}")
        if entry.row < 0:
            self._in_memory(step.id, ids)

    def _advance(self, steps: Sequence[Step]) -> list[Answer | RefusedError]:
        """Take accepted steps; where the model refuses one, the others are taken without it."""
        if not steps:
            return []
        try:
            return list(self._step_rows(steps))
        except (ValueError, IndexError) as error:  # of the inputs: the model checks them before any memory moves
            if len(steps) > 1:
                return [answer for step in steps for answer in self._advance([step])]
            return [RefusedError(422, f"inputs: the model refuses them: {' '.join(str(error).split())[:300]}")]

    def _step_rows(self, steps: Sequence[Step]) -> list[Answer]:
        entries = [self._live[step.id] for step in steps]
        rows = [entry.row for entry in entries]
        index, device = torch.tensor(rows), self._stream.like.device
        first = torch.tensor(
            [step.is_first or not entry.steps for step, entry in zip(steps, entries, strict=True)], device=device
        )
        index = index.to(device)
        given = self._inputs_of(steps, index)
        before = self._read(rows) if self._past is not None else None
        outputs = self.interface.step(self._stream, given, rows, first)
        if before is not None:  # not earlier: it takes the place of the oldest memory, also where a step is refused
            self._remember(before, rows, [entry.steps for entry in entries])
        for port, part in zip(self.interface.carried, self._carried, strict=True):
            part.index_copy_(0, index, outputs[str(port.source)].to(part.dtype))
        answers = []
        for step, entry, *values in zip(steps, entries, *map(to_array, outputs.values()), strict=True):
            entry.steps, entry.undo = entry.steps + 1, min(entry.undo + 1, self.config.rollback)
            answers.append(Answer(step.id, dict(zip(outputs, values, strict=True)), entry.steps, self.version))
        return answers

    def _inputs_of(self, steps: Sequence[Step], index: Tensor) -> dict[str, Tensor]:
        """Return the inputs of steps of some rows, ``[r, *shape]`` by name."""
        carried = {port.name: part for port, part in zip(self.interface.carried, self._carried, strict=True)}
        given = {}
        for name, port in self.interface.inputs.items():
            kept = (
                carried[name][index].cpu()
                if name in carried
                else torch.zeros(len(steps), *port.shape, dtype=port.dtype)
            )
            array = kept.numpy()  # the same memory
            for place, step in enumerate(steps):
                if (sent := step.inputs.get(name)) is not None:
                    if np.shape(sent) != array.shape[1:]:  # would be repeated to the shape in silence
                        has = f"has shape {list(np.shape(sent))}, of {list(array.shape[1:])}"
                        raise ValueError(f"inputs.{name} {has}: take inputs from StreamStore.interface.parse")
                    array[place] = sent
            given[name] = kept.to(index.device)
        return given

    def _in_memory(self, id: str, keep: Collection[str]) -> Entry:
        """Return a stream after it was brought into memory; those of ``keep`` are not sent to disk for it."""
        if (entry := self._live.get(id)) is not None:
            return entry
        entry = self._on_disk[id]
        memory = read_stream(self._path(id), self._like)
        row = self._place(id, keep, is_fresh=False)
        self._write(take_rows(memory, slice(0, 1)), [row])
        entry.undo = min(len(leaves(memory)[0]) - 1, self.config.rollback)
        for back in range(1, entry.undo + 1):
            self._remember(take_rows(memory, slice(back, back + 1)), [row], [entry.steps - back])
        entry.row = row
        self._live[id] = self._on_disk.pop(id)
        with suppress(OSError):  # of a read-only disk: the file stays until the stream is written again
            self._path(id).unlink(missing_ok=True)
        self.counts["restored"] += 1
        return entry

    def _place(self, id: str, keep: Collection[str] = (), *, is_fresh: bool = True) -> int:
        """Return a row for a stream, of which the least recently used one is sent to disk if none is free."""
        if not self._free:
            oldest = next((other for other in self._live if other not in keep), None)
            if oldest is None:
                capacity = self.config.capacity
                raise RefusedError(507, f"stream={id!r}: all capacity={capacity} places are in use by this request")
            self._make_place(oldest, id)
        row = self._free.pop()
        if is_fresh:
            self._stream.reset([row])
            for part in self._carried:
                part[row] = 0
        return row

    def _make_place(self, oldest: str, id: str) -> None:
        """Send the least recently used stream to disk to make place for another one."""
        try:
            self._send_to_disk(oldest)
        except RefusedError as refusal:
            full = f"stream={id!r}: memory is full (capacity={self.config.capacity})"
            raise RefusedError(507, f"{full}, and {refusal}") from None

    def _forget(self, id: str) -> None:
        try:
            self._path(id).unlink(missing_ok=True)
        except OSError as error:
            reason = f"its file cannot be removed ({error.strerror or error})"
            raise RefusedError(507, f"stream={id!r}: {reason}: make the server's folder writable") from error
        entry = self._live.pop(id, None)
        if entry is not None:
            self._free.append(entry.row)
        self._on_disk.pop(id, None)

    def _path(self, id: str) -> Path:
        return self._folder / f"{id}{SUFFIX}"

    def _read(self, rows: list[int]) -> Memory:
        named = self._stream.named_rows(rows)
        return Memory(self._stream.read_rows(named), tuple(part[named.index] for part in self._carried))

    def _write(self, memory: Memory, rows: list[int]) -> None:
        named = self._stream.named_rows(rows)
        with torch.inference_mode(False), torch.no_grad():
            self._stream.write_rows(memory.state, named)
        for part, new in zip(self._carried, memory.carried, strict=True):
            part.index_copy_(0, named.index, new)

    def _remember(self, memory: Any, rows: list[int], steps: list[int]) -> None:
        """Keep the memory of rows before their step of these numbers."""
        size = self.config.rollback
        places = torch.tensor([row * size + step % size for row, step in zip(rows, steps, strict=True)])
        places = places.to(self._stream.like.device)
        map_state(lambda kept, leaf: kept.index_copy_(0, places, leaf.to(kept.dtype)), self._past, memory)

    def _recall(self, entry: Entry, back: int) -> Any:
        """Return the memory of a stream so many steps ago."""
        place = entry.row * self.config.rollback + (entry.steps - back) % self.config.rollback
        return map_state(torch.clone, take_rows(self._past, slice(place, place + 1)))
