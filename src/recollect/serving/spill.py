"""Files of streams that are not in memory: the state now and before each step that can be rolled back."""

import json
import zlib
from pathlib import Path
from typing import Any

import safetensors.torch
from safetensors import SafetensorError, safe_open

from recollect.files import write_atomically
from recollect.serving.refusal import RefusedError
from recollect.state import map_state, named_leaves

SUFFIX = ".stream"


def write_stream(path: Path, memory: Any, about: dict[str, Any]) -> None:
    """Write the memory ``[1 + n, ...]`` of one stream, newest first, atomically.

    Args:
        path: of the file.
        memory: a state tree.
        about: JSON data that is kept with it.

    Raises:
        OSError: the disk is full, or the folder cannot be written.
    """
    tensors = {name: leaf.cpu().contiguous() for name, leaf in named_leaves(memory)}
    text = json.dumps(about)
    metadata = {"about": text, "crc32": str(_checksum(tensors, text))}
    write_atomically(path, safetensors.torch.save(tensors, metadata=metadata))


def read_about(path: Path) -> dict[str, Any] | None:
    """Return the JSON data of a file; None for a damaged one."""
    try:
        with safe_open(path, framework="pt") as file:
            return json.loads(file.metadata()["about"])
    except (SafetensorError, OSError, KeyError, TypeError, ValueError):
        return None


def read_stream(path: Path, like: Any) -> Any:
    """Return the memory of a file.

    Args:
        path: of a file that :func:`write_stream` wrote.
        like: a memory of one row of the same model.

    Raises:
        RefusedError: 410, the file is missing, damaged, or of another model.
    """
    remedy = "delete the stream and create it again"
    try:
        with safe_open(path, framework="pt") as file:
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118  # it is no dict
            metadata = file.metadata() or {}
    except (SafetensorError, OSError) as error:
        raise RefusedError(410, f"stream={path.stem!r}: its file cannot be read ({error}): {remedy}") from None
    if metadata.get("crc32") != str(_checksum(tensors, metadata.get("about", ""))):
        raise RefusedError(410, f"stream={path.stem!r}: its file is damaged (its checksum differs): {remedy}")
    names = [name for name, _ in named_leaves(like)]
    fits = sorted(tensors) == sorted(names) and all(
        tensors[name].shape[1:] == leaf.shape[1:] and tensors[name].dtype == leaf.dtype
        for name, leaf in named_leaves(like)
    )
    if not fits:
        raise RefusedError(410, f"stream={path.stem!r}: its file is of a model of another config: {remedy}")
    remaining = iter(names)
    return map_state(lambda leaf: tensors[next(remaining)].to(leaf.device), like)


def _checksum(tensors: dict[str, Any], about: str) -> int:
    found = zlib.crc32(about.encode())
    for name in sorted(tensors):
        found = zlib.crc32(safetensors.torch.save({name: tensors[name]}), found)
    return found
