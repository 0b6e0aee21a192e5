"""Street networks of cities, and the neighbourhoods that are sampled from them.

A city is a planar graph: places with coordinates, connected by streets. It is generated from a seed
(:func:`generate_city`) or read from a published file (:func:`read_gexf`). A neighbourhood is found as in the code of
One-Shot StreetLearn: places where a street only continues (degree 2) are contracted; then a breadth-first search from a
junction (degree above 2) stops when ``num_junctions`` places have degree above 2 among the streets found.

An agent is on a *directed edge* (a place and the street it faces) and has three moves:

    forward    go to the end of the street and face the street there that needs the smallest turn
    left       face the next street counter-clockwise
    right      face the next street clockwise

Source:   Ritter et al., "Rapid Task-Solving in Novel Environments" (2021), section 4, and its public code.
Differs:  the smallest turn is measured on the circle (the public code subtracts bearings and can mistake a sharp turn
          near due south for a straight one); left and right are as seen by the agent (mirrored in that code); streets
          from a place to itself are dropped, as they have no bearing.
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
"""Largest number of directed edges in a neighbourhood, which is the number of symbols of an observation."""
GRAPHS_URL = "https://console.cloud.google.com/storage/browser/one_shot_streetlearn_graphs"

_UNREACHED = 10_000


class CityGraph(NamedTuple):
    """Places and the streets between them."""

    places: np.ndarray  # float64 [n, 2]: east and north, in any unit
    streets: np.ndarray  # int64 [e, 2]: the ends of every street, smaller one first, each street once, sorted


class Neighbourhoods(NamedTuple):
    """p neighbourhoods as tables over their directed edges, padded to e edges and v places."""

    num_edges: torch.Tensor  # long [p]: number of directed edges; the remaining rows of the tables are padding
    move: torch.Tensor  # long [p, e, 3]: the edge after forward, left and right
    place: torch.Tensor  # long [p, e]: place where an edge starts, 0..v-1
    distance: torch.Tensor  # int16 [p, e, e]: fewest moves from an edge (second axis) to another (third)
    best: torch.Tensor  # uint8 [p, e, e]: first move of a shortest path, the earliest of forward, left, right


def generate_city(seed: int, size: int = 16) -> CityGraph:
    """Generate a city: a distorted grid with missing streets, and diagonals across some blocks.

    Grid corners move by less than a quarter of a block, so every block stays convex; a diagonal then stays inside its
    block, and no two streets cross. The shares of missing streets and diagonals differ between cities. Only the largest
    connected component is kept.

    Args:
        seed: seed of the city.
        size: corners along each side of the grid.
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
    return _keep_largest_component(places, np.concatenate(kept).tolist())


def read_gexf(path: str | Path) -> CityGraph:
    """Read a published city: a GEXF file whose nodes have the attributes ``lat`` and ``lng``, in degrees.

    Raises:
        ValueError: the file does not exist, or is no such graph.
    """
    path = Path(path)
    if not path.is_file():
        raise ValueError(
            f"graphs={str(path)!r}: no such file. Download a city (for example madrid_full_graph.gexf) from "
            f"{GRAPHS_URL} and give its path, or leave graphs empty for generated cities"
        )
    try:
        root = ElementTree.parse(path).getroot()
    except ElementTree.ParseError as error:
        raise ValueError(
            f"graphs={str(path)!r}: not XML ({error}); download the file again from {GRAPHS_URL}"
        ) from None
    of_edges = root.findall(".//{*}attributes[@class='edge']/{*}attribute")  # ids of nodes and edges may be the same
    titles = {a.get("id"): a.get("title") for a in root.findall(".//{*}attribute") if a not in of_edges}
    degrees = {}
    for node in root.findall(".//{*}node"):
        values = {titles.get(v.get("for")): v.get("value") for v in node.findall(".//{*}attvalue")}
        if values.get("lat") is None or values.get("lng") is None:
            raise ValueError(
                f"graphs={str(path)!r}: node {node.get('id')!r} has no lat or no lng; use the files of {GRAPHS_URL}"
            )
        degrees[node.get("id")] = tuple(
            _parse_degrees(values[name], name, node.get("id"), path) for name in ("lng", "lat")
        )
    number = {name: index for index, name in enumerate(degrees)}
    ends = [(edge.get("source"), edge.get("target")) for edge in root.findall(".//{*}edge")]
    unknown = {end for street in ends for end in street} - number.keys()
    if unknown or not ends:
        what = f"edges name the unknown node {min(map(str, unknown))!r}" if unknown else "it has no edges"
        raise ValueError(f"graphs={str(path)!r}: {what}; download the file again from {GRAPHS_URL}")
    places = np.array(list(degrees.values()))
    places[:, 0] *= np.cos(np.radians(places[:, 1].mean()))  # a degree of longitude is shorter than one of latitude
    return _keep_largest_component(places, ((number[a], number[b]) for a, b in ends))


def _parse_degrees(text: str | None, name: str, node: str | None, path: Path) -> float:
    try:
        found = float(text or "")
    except ValueError:
        found = math.nan
    if not math.isfinite(found):
        raise ValueError(
            f"graphs={str(path)!r}: node {node!r} has {name}={text!r}: give finite degrees, or use the files of "
            f"{GRAPHS_URL}"
        )
    return found


def contract_streets(city: CityGraph) -> CityGraph:
    """Return the city without the places where a street only continues (degree 2): junctions and dead ends remain."""
    links = list_neighbours(city)
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


def list_neighbours(city: CityGraph) -> list[list[int]]:
    """Return the sorted neighbours of every place."""
    links: list[list[int]] = [[] for _ in city.places]
    for a, b in city.streets.tolist():
        links[a].append(b)
        links[b].append(a)
    return [sorted(others) for others in links]


def collect_streets(links: Sequence[Sequence[int]], center: int, num_junctions: int) -> list[tuple[int, int]] | None:
    """Search breadth first from ``center`` until ``num_junctions`` places have more than two of the streets found.

    Args:
        links: :func:`list_neighbours` of a contracted city.
        center: place to start from.
        num_junctions: number of junctions; the last place visited may add more than one.

    Returns:
        The streets in the order found; None where the city is too small.
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


def build_move_tables(places: np.ndarray, streets: Sequence[tuple[int, int]]) -> tuple[np.ndarray, np.ndarray]:
    """Compute the edge after every move.

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


def sample_neighbourhoods(cities: Iterable[CityGraph], num_junctions: int, limit: int) -> Neighbourhoods:
    """Sample ``limit`` neighbourhoods around junctions of all cities, or take all where there are fewer.

    A junction always has the same neighbourhood, so this is a sample of the set that the published code draws from.
    Neighbourhoods of more than 60 directed edges are skipped, as an observation has no symbols for them.

    Raises:
        ValueError: no neighbourhood was found.
    """
    contracted = [contract_streets(city) for city in cities]
    links = [list_neighbours(city) for city in contracted]
    centers = [(i, j) for i, city in enumerate(links) for j, others in enumerate(city) if len(others) > 2]
    found = []
    for index in np.random.default_rng(0).permutation(len(centers)).tolist():
        number, center = centers[index]
        streets = collect_streets(links[number], center, num_junctions)
        if streets is not None and 2 * len(streets) <= MAX_EDGES:
            found.append(build_move_tables(contracted[number].places, streets))
        if len(found) == limit:
            break
    if not found:
        raise ValueError(
            f"num_junctions={num_junctions}: no neighbourhood of these cities has so many junctions and at most "
            f"{MAX_EDGES // 2} streets; ask for fewer junctions or give larger cities"
        )
    return _stack_tables(found)


def _stack_tables(found: Sequence[tuple[np.ndarray, np.ndarray]]) -> Neighbourhoods:
    num_edges = torch.tensor([len(place) for _, place in found])
    p, e = len(found), int(num_edges.max())
    move = torch.arange(e)[:, None].repeat(p, 1, 3)  # moves on a padding edge have no effect
    place = torch.zeros(p, e, dtype=torch.long)
    for row, (moves, places) in enumerate(found):
        move[row, : len(moves)] = torch.from_numpy(moves)
        place[row, : len(places)] = torch.from_numpy(places)
    distance = _distances(move)
    after = torch.stack([distance.gather(1, move[:, :, a, None].expand(-1, -1, e)) for a in range(3)])
    # torch's argmin may return any of equal moves; the move's number breaks the tie.
    best = (after * 3 + torch.arange(3, dtype=torch.int16)[:, None, None, None]).argmin(0)
    return Neighbourhoods(num_edges, move, place, distance, best.to(torch.uint8))


def _distances(move: torch.Tensor) -> torch.Tensor:
    # Bellman's equation for the distance from s to g, iterated until nothing changes.
    p, e, _ = move.shape
    distance = torch.full((p, e, e), _UNREACHED, dtype=torch.int16)
    distance.diagonal(dim1=1, dim2=2).zero_()
    while True:
        after = torch.stack([distance.gather(1, move[:, :, a, None].expand(-1, -1, e)) for a in range(3)])
        shorter = torch.minimum(distance, after.amin(0) + 1)
        if torch.equal(shorter, distance):
            return distance
        distance = shorter


def _keep_largest_component(places: np.ndarray, streets: Iterable[Sequence[int]]) -> CityGraph:
    unique = sorted({(min(a, b), max(a, b)) for a, b in streets if a != b})
    links = list_neighbours(CityGraph(places, np.array(unique, dtype=np.int64).reshape(-1, 2)))
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
