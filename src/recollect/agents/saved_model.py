"""Models as folders: ``model.json`` describes a model, ``weights.safetensors`` has its weights."""

import json
from abc import ABC, abstractmethod
from collections.abc import Mapping
from os import PathLike
from pathlib import Path
from typing import Any, Self

import safetensors.torch
import torch
from torch import nn

from recollect.files import new_file, read_json, require_json_type, write_atomically

DESCRIPTION, WEIGHTS = "model.json", "weights.safetensors"


class SavedModel(nn.Module, ABC):
    """Module that is written to a folder and made again from it."""

    @abstractmethod
    def describe(self) -> dict[str, Any]:
        """Return everything but the weights, as JSON data."""

    @classmethod
    @abstractmethod
    def from_description(cls, description: Mapping[str, Any]) -> Self:
        """Make the model that :meth:`describe` described, with new weights.

        Raises:
            ValueError: a config names an unknown core or encoder.
        """

    def save(self, folder: str | PathLike[str]) -> None:
        """Write ``model.json`` and ``weights.safetensors`` into a folder (each beside the old one, then renamed)."""
        target = Path(folder)
        target.mkdir(parents=True, exist_ok=True)
        write_atomically(target / DESCRIPTION, json.dumps(self.describe(), indent=2) + "\n")
        with new_file(target / WEIGHTS) as unfinished:
            safetensors.torch.save_model(self, str(unfinished))

    @classmethod
    def load(cls, folder: str | PathLike[str], device: torch.device | str = "cpu") -> Self:
        """Return the model that :meth:`save` wrote, in ``eval`` mode.

        Raises:
            ValueError: a file is missing or damaged, ``model.json`` lacks an entry, or it names an unknown class.
        """
        source, remedy = Path(folder), f"give a folder that {cls.__name__}.save wrote"
        for name in (DESCRIPTION, WEIGHTS):
            if not (source / name).is_file():
                raise ValueError(f"{source / name} does not exist: {remedy}")
        path = source / DESCRIPTION
        found = read_json(path, f"write it again with {cls.__name__}.save")
        require_json_type(found, dict, path)
        try:
            model = cls.from_description(found)
        except KeyError as error:
            raise ValueError(f"{path} has no {error}: {remedy}") from None
        safetensors.torch.load_model(model, str(source / WEIGHTS))
        return model.to(device).eval()
