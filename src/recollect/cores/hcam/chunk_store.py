"""Storage for the steps of very many chunks, in host memory or in a memory-mapped file.

A store has a fixed number of places, each for one chunk of every layer. It is written in whole chunks, and only the
chosen chunks are read, so its size does not change the time of a step.
"""

import mmap
import os
import tempfile
import weakref
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor


class ChunkStore(ABC):
    """Places for chunks ``(layers, c, d)`` on the CPU, at first zeros."""

    data: Tensor
    """``[places * layers, c, d]``, to be read only; chunk p of layer l is entry ``p * layers + l``."""
    path: Path | None = None
    """Of the file, if there is one and it has a name."""
    on_disk: bool
    """Whether the contents are in a file."""

    @abstractmethod
    def put(self, places: Sequence[int], chunks: Tensor) -> None:
        """Write chunks ``[r, layers, c, d]`` into r places."""

    def take(self, entries: Tensor) -> Tensor:
        """Return a copy of entries ``[r]`` of :attr:`data`, ``[r, c, d]``."""
        return self.data.index_select(0, entries)


class MemoryStore(ChunkStore):
    """A store in host memory; pages that were never written take no RAM where the system allocates zeros lazily."""

    on_disk = False

    def __init__(self, places: int, shape: tuple[int, int, int], dtype: torch.dtype) -> None:
        # Through numpy: torch writes the zeros, which is slow and takes all the RAM at once.
        zeros = torch.from_numpy(np.zeros(places * torch.Size(shape).numel() * dtype.itemsize, dtype=np.uint8))
        self._chunks = zeros.view(dtype).view(places, *shape)
        self.data = self._chunks.flatten(0, 1)

    def put(self, places: Sequence[int], chunks: Tensor) -> None:
        """Write chunks ``[r, layers, c, d]`` into r places."""
        self._chunks[torch.tensor(places)] = chunks.to(self._chunks)


class FileStore(ChunkStore):
    """A store in a sparse file: disk blocks are allocated as chunks come, and RAM only as the system's cache.

    It is read through a memory map and written by ``pwrite``: with a full disk a write fails, while a store into a
    mapped page kills the process. Linux and macOS show a written chunk in the map at once.

    Args:
        places: how many.
        shape: ``(layers, c, d)``.
        dtype: of the contents.
        folder: an existing folder for the file.
        keep_file: keep the file, as :attr:`path`. Otherwise it is unlinked at once, and its blocks are freed when the
            store or the process ends.

    Raises:
        ValueError: no file can be made in the folder, or a write fails (a full disk).
    """

    on_disk = True

    def __init__(
        self,
        places: int,
        shape: tuple[int, int, int],
        dtype: torch.dtype,
        folder: str | os.PathLike[str],
        *,
        keep_file: bool = False,
    ) -> None:
        self.folder = Path(folder)
        self._bytes = torch.Size(shape).numel() * dtype.itemsize
        try:
            self._file, name = tempfile.mkstemp(prefix="chunks-", suffix=".bin", dir=self.folder)
        except OSError as error:
            raise ValueError(
                f"folder={str(folder)!r}: no file can be made there ({error.strerror}): "
                "give a folder that exists and that you may write to"
            ) from error
        weakref.finalize(self, os.close, self._file)
        self.path = Path(name)
        try:
            os.ftruncate(self._file, places * self._bytes)  # a hole: no blocks yet
            self._map = mmap.mmap(self._file, places * self._bytes)
        except (OSError, ValueError) as error:
            self.path.unlink()
            raise ValueError(
                f"folder={str(folder)!r}: a file of {places * self._bytes / 2**20:.0f} MiB cannot be made there "
                f"({error}): lower capacity_steps or batch_size, or give another folder"
            ) from error
        if not keep_file:
            self.path.unlink()
            self.path = None
        self.data = torch.frombuffer(self._map, dtype=dtype).view(places * shape[0], *shape[1:])

    @property
    def disk_bytes(self) -> int:
        """Bytes that the file takes on the disk now."""
        return os.fstat(self._file).st_blocks * 512

    def put(self, places: Sequence[int], chunks: Tensor) -> None:
        """Write chunks ``[r, layers, c, d]`` into r places."""
        rows = chunks.to(self.data).contiguous().view(len(places), -1).view(torch.uint8).numpy()
        for place, row in zip(places, rows, strict=True):
            rest, offset = memoryview(row), place * self._bytes
            try:
                while rest:
                    written = os.pwrite(self._file, rest, offset)
                    rest, offset = rest[written:], offset + written
            except OSError as error:
                raise ValueError(
                    f"folder={str(self.folder)!r}: a chunk could not be written ({error.strerror}) and is not "
                    f"remembered; the file has {self.disk_bytes / 2**20:.0f} of at most "
                    f"{self.data.nbytes / 2**20:.0f} MiB: free that much, or save the stream and load it into one with "
                    "another folder"
                ) from error
