"""Description of a trained model for people and programs: names, units and origin."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, kw_only=True)
class ModelSpec:
    """Names, units and provenance of a trained model; everything is optional."""

    title: str = ""
    """Task and core, for people."""
    task: str = ""
    """Key of the task or world that it was trained on, or ``package.module:Class`` of a user-defined one."""
    teacher: str | None = None
    """Teacher that it learned from; None without one."""
    class_names: tuple[str, ...] = ()
    """Names of the classes, in the order of the model's outputs."""
    input_names: tuple[str, ...] = ()
    """Names of the numbers of a step, in their order; columns of a table."""
    output_names: tuple[str, ...] = ()
    """Names of the values that it answers; columns of a table."""
    action_names: tuple[str, ...] = ()
    """Names of the actions."""
    words: tuple[str, ...] = ()
    """Word of every number in an observation's ``language``."""
    units: str = ""
    """Units of inputs and outputs, for people."""
    library: str = ""
    """Version of this library that wrote it."""
    run: Mapping[str, Any] = field(default_factory=dict)
    """Provenance: command, commit, versions, hardware, seed, step and evaluation of the run, as JSON data."""

    def name_classes(self, indices: Any) -> Any:
        """Return the names of classes: text for a number, nested lists for an array, a tensor or nested lists.

        Raises:
            ValueError: the model has no class names, or an index is out of range.
        """
        if not self.class_names:
            raise ValueError("class_names=(): this model's classes have no names; use their numbers")
        return self._names(indices.tolist() if hasattr(indices, "tolist") else indices)

    def _names(self, indices: Any) -> Any:
        if isinstance(indices, (list, tuple)):
            return [self._names(index) for index in indices]
        if not isinstance(indices, int) or not 0 <= indices < len(self.class_names):
            raise ValueError(f"indices: {indices!r} is no class; give whole numbers below {len(self.class_names)}")
        return self.class_names[indices]
