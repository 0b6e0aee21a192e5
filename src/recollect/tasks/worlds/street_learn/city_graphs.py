"""Street networks, and the neighbourhoods that are cut out of them.

A city is a planar graph: points with a place on the map, joined by streets. It comes from a seed
(:func:`grow_city`) or from a published file (:func:`read_gexf`). A neighbourhood is found as One-Shot StreetLearn's
code finds it: places where a street merely goes on (degree 2) are contracted, and from a junction (degree above 2)
one walks breadth first until ``num_junctions`` places have degree above 2 among the streets walked so far.

A walker is on a *directed edge* (place, street it faces) and has three moves:

    forward    go to the end of the street and face the street there that turns the least
    left       face the next street counter-clockwise
    right      face the next street clockwise

Source:   Ritter et al., "Rapid Task-Solving in Novel Environments" (2021), section 4, and its public code.
Differs:  the least turn is measured around the circle (the public code subtracts bearings, so at due south it can
          take a sharp turn for a straight one); left and right are as a walker means them, where that code has them
          mirrored; streets that lead back to their own start are dropped, as nobody could say which way they face.
"""

from __future__ import annotations

import math
import xml.etree.ElementTree as ElementTree
from collections import Counter, deque
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from recollect.lazy import np, torch

FORWARD, LEFT, RIGHT = 0, 1, 2
MAX_EDGES = 60
"""Most directed edges of a neighbourhood: what an observation has symbols for."""
PUBLISHED = "https://console.cloud.google.com/storage/browser/one_shot_streetlearn_graphs"

_UNREACHED = 10_000


class CityGraph(NamedTuple):
    """Places and the streets between them."""

    places: np.ndarray
    """float64 ``[n, 2]``: east and north, in units of one's choice."""
    streets: np.ndarray
    """int64 ``[e, 2]``: the two ends of every street, smaller one first, each street once, sorted."""


class Neighbourhoods(NamedTuple):
    """p neighbourhoods as tables over their directed edges, padded to e edges and v places."""

    num_edges: torch.Tensor
    """long ``[p]``: directed edges; the tables' rows behind them are padding."""
    move: torch.Tensor
    """long ``[p, e, 3]``: the edge on which forward, left and right end."""
    place: torch.Tensor
    """long ``[p, e]``: where the walker on an edge stands, 0..v-1."""
    distance: torch.Tensor
    """int16 ``[p, e, e]``: fewest moves from an edge (second axis) to another (third)."""
    best: torch.Tensor
    """uint8 ``[p, e, e]``: first move of a shortest way; of equal ones the earliest of forward, left, right."""


def grow_city(seed: int, size: int = 16) -> CityGraph:
    """A made-up city: a distorted chequerboard with streets missing and alleys across some blocks.

    Corners of the board move by less than a quarter of a block, which leaves every block convex: an alley from corner
    to corner stays inside its block, so no two streets cross. How many streets miss and how many alleys there are
    differs from city to city. What is cut off from the largest part is left away.

    Args:
        seed: of the city; the same city for the same seed.
        size: corners along each side of the board.
    """
    random = np.random.default_rng(seed)
    missing, alleys = random.uniform(0.15, 0.35), random.uniform(0.0, 0.15)
    corner = np.arange(size * size).reshape(size, size)
    places = np.stack(np.divmod(corner.ravel(), size)[::-1], 1) + random.uniform(-0.24, 0.24, (size * size, 2))

    eastward = np.stack((corner[:, :-1].ravel(), corner[:, 1:].ravel()), 1)
    northward = np.stack((corner[:-1].ravel(), corner[1:].ravel()), 1)
    board = np.concatenate((eastward, northward))
    rising = np.stack((corner[:-1, :-1].ravel(), corner[1:, 1:].ravel()), 1)
    falling = np.stack((corner[:-1, 1:].ravel(), corner[1:, :-1].ravel()), 1)
    across = np.where(random.random((len(rising), 1)) < 0.5, rising, falling)
    kept = (board[random.random(len(board)) >= missing], across[random.random(len(across)) < alleys])
    return _largest_part(places, np.concatenate(kept).tolist())


def read_gexf(path: str | Path) -> CityGraph:
    """A published city: a GEXF file whose nodes have the attributes ``lat`` and ``lng``, in degrees.

    Raises:
        ValueError: no such file, or not such a graph.
    """
    path = Path(path)
    if not path.is_file():
        raise ValueError(
            f"graphs={str(path)!r}: no such file. Download a city (for example madrid_full_graph.gexf) from "
            f"{PUBLISHED} and give the path of the file, or leave graphs empty for made-up cities"
        )
    try:
        root = ElementTree.parse(path).getroot()
    except ElementTree.ParseError as error:
        raise ValueError(f"graphs={str(path)!r}: not XML ({error}); download the file again from {PUBLISHED}") from None
    titles = {a.get("id"): a.get("title") for a in root.findall(".//{*}attribute")}
    degrees = {}
    for node in root.findall(".//{*}node"):
        values = {titles.get(v.get("for")): v.get("value") for v in node.findall(".//{*}attvalue")}
        if values.get("lat") is None or values.get("lng") is None:
            raise ValueError(
                f"graphs={str(path)!r}: node {node.get('id')!r} has no lat or no lng; use the files of {PUBLISHED}"
            )
        degrees[node.get("id")] = tuple(_degrees(values[name], name, node.get("id"), path) for name in ("lng", "lat"))
    number = {name: index for index, name in enumerate(degrees)}
    ends = [(edge.get("source"), edge.get("target")) for edge in root.findall(".//{*}edge")]
    strangers = {end for street in ends for end in street} - number.keys()
    if strangers or not ends:
        what = f"edges name the unknown node {min(map(str, strangers))!r}" if strangers else "it has no edges"
        raise ValueError(f"graphs={str(path)!r}: {what}; download the file again from {PUBLISHED}")
    places = np.array(list(degrees.values()))
    places[:, 0] *= np.cos(np.radians(places[:, 1].mean()))  # a degree of longitude is shorter than one of latitude
    return _largest_part(places, ((number[a], number[b]) for a, b in ends))


def _degrees(text: str | None, name: str, node: str | None, path: Path) -> float:
    try:
        found = float(text or "")
    except ValueError:
        found = math.nan
    if not math.isfinite(found):
        raise ValueError(
            f"graphs={str(path)!r}: node {node!r} has {name}={text!r}: give finite degrees, or use the files of "
            f"{PUBLISHED}"
        )
    return found


def contract(city: CityGraph) -> CityGraph:
    """The city without the places where a street merely goes on (degree 2): junctions and dead ends remain."""
    links = neighbours(city)
    found = set()
    for start, others in enumerate(links):
        if len(others) == 2:
            continue
        for first in others:
            before, here = start, first
            while len(links[here]) == 2:
                before, here = here, sum(links[here]) - before
            if here != start:
                found.add((min(start, here), max(start, here)))
    kept, streets = np.unique(np.array(sorted(found), dtype=np.int64).reshape(-1, 2), return_inverse=True)
    return CityGraph(city.places[kept], streets.reshape(-1, 2))


def neighbours(city: CityGraph) -> list[list[int]]:
    """The places at the other ends of every place's streets, in order of their numbers."""
    links: list[list[int]] = [[] for _ in city.places]
    for a, b in city.streets.tolist():
        links[a].append(b)
        links[b].append(a)
    return [sorted(others) for others in links]


def streets_around(links: Sequence[Sequence[int]], center: int, num_junctions: int) -> list[tuple[int, int]] | None:
    """Walk breadth first from ``center`` until ``num_junctions`` places have more than two of the streets walked.

    Args:
        links: :func:`neighbours` of a contracted city.
        center: where to start.
        num_junctions: how many junctions are wanted; the last place visited may bring more than one.

    Returns:
        The streets, in the order found; None where the city is too small.
    """
    streets: dict[tuple[int, int], None] = {}
    degree: Counter[int] = Counter()
    waiting, seen = deque([center]), {center}
    while waiting:
        here = waiting.popleft()
        for there in links[here]:
            street = (min(here, there), max(here, there))
            if street not in streets:
                streets[street] = None
                degree.update(street)
            if there not in seen:
                seen.add(there)
                waiting.append(there)
        if sum(count > 2 for count in degree.values()) >= num_junctions:
            return list(streets)
    return None


def walk_tables(places: np.ndarray, streets: Sequence[tuple[int, int]]) -> tuple[np.ndarray, np.ndarray]:
    """The moves of a walker.

    Args:
        places: float ``[n, 2]``: east and north.
        streets: pairs of places. Directed edge i leads along street i, edge i + len(streets) back along it.

    Returns:
        ``move``, int64 ``[2 * len(streets), 3]``, and ``place``, int64 ``[2 * len(streets)]``: where each edge starts,
        counted from 0 in the order of the places' numbers.
    """
    ends = np.array(streets)
    tail, head = np.concatenate((ends, ends[:, ::-1])).T
    east, north = (places[head] - places[tail]).T
    bearing = np.arctan2(east, north)  # clockwise from north
    leaving: dict[int, list[int]] = {}
    for edge in np.argsort(bearing, kind="stable").tolist():
        leaving.setdefault(int(tail[edge]), []).append(edge)

    move = np.empty((len(tail), 3), dtype=np.int64)
    for around in leaving.values():
        move[around, LEFT] = np.roll(around, 1)
        move[around, RIGHT] = np.roll(around, -1)
    for edge, (there, faced) in enumerate(zip(head.tolist(), bearing.tolist(), strict=True)):
        turns = [abs(math.remainder(bearing[other] - faced, math.tau)) for other in leaving[there]]
        move[edge, FORWARD] = leaving[there][int(np.argmin(turns))]
    return move, np.unique(tail, return_inverse=True)[1]


def cut_neighbourhoods(cities: Iterable[CityGraph], num_junctions: int, limit: int) -> Neighbourhoods:
    """Neighbourhoods of ``limit`` junctions drawn from all cities alike, or of every junction where there are fewer.

    A junction always has the same neighbourhood, so this is the set that the published code draws from, thinned out.
    Neighbourhoods of more than 60 directed edges, for which an observation has no symbols, are passed over.

    Raises:
        ValueError: there is none.
    """
    contracted = [contract(city) for city in cities]
    links = [neighbours(city) for city in contracted]
    centers = [(i, j) for i, city in enumerate(links) for j, others in enumerate(city) if len(others) > 2]
    found = []
    for index in np.random.default_rng(0).permutation(len(centers)).tolist():
        number, center = centers[index]
        streets = streets_around(links[number], center, num_junctions)
        if streets is not None and 2 * len(streets) <= MAX_EDGES:
            found.append(walk_tables(contracted[number].places, streets))
        if len(found) == limit:
            break
    if not found:
        raise ValueError(
            f"num_junctions={num_junctions}: no neighbourhood of these cities has so many junctions and at most "
            f"{MAX_EDGES // 2} streets; ask for fewer junctions or give larger cities"
        )
    return _stack(found)


def _stack(found: Sequence[tuple[np.ndarray, np.ndarray]]) -> Neighbourhoods:
    num_edges = torch.tensor([len(place) for _, place in found])
    p, e = len(found), int(num_edges.max())
    move = torch.arange(e)[:, None].repeat(p, 1, 3)  # on a padding edge every move leads nowhere
    place = torch.zeros(p, e, dtype=torch.long)
    for row, (moves, places) in enumerate(found):
        move[row, : len(moves)] = torch.from_numpy(moves)
        place[row, : len(places)] = torch.from_numpy(places)
    distance = _distances(move)
    after = torch.stack([distance.gather(1, move[:, :, a, None].expand(-1, -1, e)) for a in range(3)])
    # torch's argmin may name any of equal moves; the mover's number breaks the tie.
    best = (after * 3 + torch.arange(3, dtype=torch.int16)[:, None, None, None]).argmin(0)
    return Neighbourhoods(num_edges, move, place, distance, best.to(torch.uint8))


def _distances(move: torch.Tensor) -> torch.Tensor:
    # Bellman's equation for the way from s to g, iterated until nothing changes: at most the longest way's moves.
    p, e, _ = move.shape
    distance = torch.full((p, e, e), _UNREACHED, dtype=torch.int16)
    distance.diagonal(dim1=1, dim2=2).zero_()
    while True:
        after = torch.stack([distance.gather(1, move[:, :, a, None].expand(-1, -1, e)) for a in range(3)])
        shorter = torch.minimum(distance, after.amin(0) + 1)
        if torch.equal(shorter, distance):
            return distance
        distance = shorter


def _largest_part(places: np.ndarray, streets: Iterable[Sequence[int]]) -> CityGraph:
    unique = sorted({(min(a, b), max(a, b)) for a, b in streets if a != b})
    links = neighbours(CityGraph(places, np.array(unique, dtype=np.int64).reshape(-1, 2)))
    part = np.full(len(places), -1)
    for start in range(len(places)):
        if part[start] >= 0:
            continue
        part[start], waiting = start, [start]
        while waiting:
            for there in links[waiting.pop()]:
                if part[there] < 0:
                    part[there] = start
                    waiting.append(there)
    kept = part == np.bincount(part).argmax()
    number = np.cumsum(kept) - 1
    streets_kept = [(number[a], number[b]) for a, b in unique if kept[a]]
    return CityGraph(places[kept], np.array(streets_kept, dtype=np.int64).reshape(-1, 2))
