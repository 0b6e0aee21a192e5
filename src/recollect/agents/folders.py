"""A model as a folder: ``model.json`` says what it is, ``weights.safetensors`` holds its weights."""

import json
from collections.abc import Mapping
from os import PathLike
from pathlib import Path
from typing import Any

import safetensors.torch
from torch import nn

from recollect.files import new_file, read_json, require_json_type, write_atomically

DESCRIPTION, WEIGHTS = "model.json", "weights.safetensors"


def write_model(folder: str | PathLike[str], model: nn.Module, description: Mapping[str, Any]) -> None:
    """Write both files, each beside the old one, then renamed."""
    target = Path(folder)
    target.mkdir(parents=True, exist_ok=True)
    write_atomically(target / DESCRIPTION, json.dumps(description, indent=2) + "\n")
    with new_file(target / WEIGHTS) as unfinished:
        safetensors.torch.save_model(model, str(unfinished))


def read_description(folder: str | PathLike[str], writer: str) -> dict[str, Any]:
    """What ``model.json`` says.

    Args:
        folder: that :func:`write_model` wrote.
        writer: name of the class whose ``save`` should have been called, for the error.

    Raises:
        ValueError: a file is missing or damaged. What the description lacks is one too, when it is asked for.
    """
    source = Path(folder)
    for name in (DESCRIPTION, WEIGHTS):
        if not (source / name).is_file():
            raise ValueError(f"{source / name} does not exist: give a folder that {writer}.save wrote")
    path = source / DESCRIPTION
    found = read_json(path, f"write it again with {writer}.save")
    require_json_type(found, dict, path)
    return _Description(found, path=path, writer=writer)


class _Description(dict[str, Any]):
    """What a file says; what it does not say is an error that names the file."""

    def __init__(self, found: Mapping[str, Any], *, path: Path, writer: str) -> None:
        super().__init__(found)
        self.path, self.writer = path, writer

    def __missing__(self, key: str) -> Any:
        raise ValueError(f"{self.path} has no {key!r}: give a folder that {self.writer}.save wrote")


def read_weights(folder: str | PathLike[str], model: nn.Module) -> None:
    """Give a model the weights of a folder."""
    safetensors.torch.load_model(model, str(Path(folder) / WEIGHTS))
