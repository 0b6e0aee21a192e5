"""The levels of the ballet, spelled out: who dances what, where, and who is asked for.

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


class Dancer(NamedTuple):
    """One dancer of a :class:`BalletLevel`."""

    home: tuple[int, int]
    """Row and column in the room, walls are 0 and 10: each one of 2, 5, 8, not both 5."""
    dance: str
    """A key of :data:`~recollect.tasks.worlds.ballet.dances.DANCES`."""
    shape: str
    """One of :data:`~recollect.tasks.worlds.ballet.render.SHAPES`."""
    colour: str
    """A key of :data:`~recollect.tasks.worlds.ballet.render.COLOURS`."""


@dataclass(frozen=True, kw_only=True)
class BalletLevel:
    """An episode in full, to be performed by :meth:`recollect.tasks.worlds.ballet.world.Ballet.stage`."""

    dancers: tuple[Dancer, ...]
    """In the order in which they dance."""
    target: int
    """Index of the dancer to go to."""
    delay: int = 16
    """Delay after a dance."""

    def __post_init__(self) -> None:
        for i, dancer in enumerate(self.dancers):
            if self._cells[i] not in HOMES:
                raise ValueError(f"dancers[{i}].home={dancer.home}: use a row and a column of 2, 5, 8, not both 5")
            for field, known in (("dance", DANCES), ("shape", SHAPES), ("colour", COLOURS)):
                name = getattr(dancer, field)
                remedy = f"{did_you_mean(name, known)}known: {', '.join(known)}"
                require(name in known, f"dancers[{i}].{field}", name, remedy)
        for field, values in (("home", self._cells), ("dance", [dancer.dance for dancer in self.dancers])):
            if len(set(values)) < len(values):
                raise ValueError(f"dancers: two have the same {field}; give each its own")
        if not 0 <= self.target < len(self.dancers):
            raise ValueError(f"target={self.target}: give the index of one of {len(self.dancers)} dancers")

    @property
    def _cells(self) -> list[int]:
        return [dancer.home[0] * SIDE + dancer.home[1] for dancer in self.dancers]

    def numbers(self, places: int) -> list[list[int]]:
        """Homes, dances, shapes and colours as numbers, ``[4][places]``; nobody stands at the last places."""
        shapes, colours = list(SHAPES), list(COLOURS)
        cast = [
            [cell, list(DANCES).index(dancer.dance), shapes.index(dancer.shape), colours.index(dancer.colour)]
            for cell, dancer in zip(self._cells, self.dancers, strict=True)
        ]
        cast += [[NOWHERE, STILL, 0, 0]] * (places - len(cast))
        return [list(column) for column in zip(*cast, strict=True)]
