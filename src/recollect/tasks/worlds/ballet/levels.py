"""Hand-written levels of the ballet: the dancers, their dances, and the requested one.

level = BalletLevel(
    dancers=(Dancer((2, 5), "zee", "tee", "red"), Dancer((8, 8), "plus_cw", "circle", "cyan")), target=1
)
step = BalletConfig().build(batch_size=1).stage([level])
"""

from dataclasses import dataclass
from typing import NamedTuple

from recollect.config import did_you_mean, require
from recollect.tasks.worlds.ballet.dances import DANCES, HOMES, NOWHERE, SIDE, STILL
from recollect.tasks.worlds.ballet.render import COLOURS, SHAPES

_HOMES = tuple(divmod(cell, SIDE) for cell in HOMES)  # rows and columns


class Dancer(NamedTuple):
    """One dancer of a :class:`BalletLevel`."""

    home: tuple[int, int]
    """Row and column in the room, whose walls are 0 and 10: each one of 2, 5, 8, not both 5."""
    dance: str
    """A key of :data:`~recollect.tasks.worlds.ballet.dances.DANCES`."""
    shape: str
    """One of :data:`~recollect.tasks.worlds.ballet.render.SHAPES`."""
    colour: str
    """A key of :data:`~recollect.tasks.worlds.ballet.render.COLOURS`."""


@dataclass(frozen=True, kw_only=True)
class BalletLevel:
    """A complete episode, for :meth:`recollect.tasks.worlds.ballet.world.Ballet.stage`."""

    dancers: tuple[Dancer, ...]
    """Dancers in the order in which they dance."""
    target: int
    """Index of the requested dancer."""
    delay: int = 16
    """Delay after each dance."""

    def __post_init__(self) -> None:
        for i, dancer in enumerate(self.dancers):
            remedy = "use a row and a column of 2, 5, 8, not both 5"
            require(tuple(dancer.home) in _HOMES, f"dancers[{i}].home", dancer.home, remedy)
            for field, known in (("dance", DANCES), ("shape", SHAPES), ("colour", COLOURS)):
                name = getattr(dancer, field)
                remedy = f"{did_you_mean(name, known)}known: {', '.join(known)}"
                require(name in known, f"dancers[{i}].{field}", name, remedy)
        for field, values in (("home", self._cells), ("dance", [dancer.dance for dancer in self.dancers])):
            require(len(set(values)) == len(values), f"dancers: {field}", values, "use each value once")
        remedy = f"give the index of one of {len(self.dancers)} dancers"
        require(0 <= self.target < len(self.dancers), "target", self.target, remedy)

    @property
    def _cells(self) -> list[int]:
        return [dancer.home[0] * SIDE + dancer.home[1] for dancer in self.dancers]

    def to_indices(self, places: int) -> list[list[int]]:
        """Return homes, dances, shapes and colours as indices, ``[4][places]``; the remaining places are empty."""
        shapes, colours = list(SHAPES), list(COLOURS)
        cast = [
            [cell, list(DANCES).index(dancer.dance), shapes.index(dancer.shape), colours.index(dancer.colour)]
            for cell, dancer in zip(self._cells, self.dancers, strict=True)
        ]
        cast += [[NOWHERE, STILL, 0, 0]] * (places - len(cast))
        return [list(column) for column in zip(*cast, strict=True)]
