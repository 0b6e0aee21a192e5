"""Nested list operations of Long Range Arena, drawn level by level for many trees at once.

    node at depth k     k < max_depth: an operator with probability 1/4, else a digit;   k = max_depth: a digit
    digit               uniform in 0..9
    operator            uniform in MIN, MAX, MED (the median, rounded down), SM (the sum modulo 10)
    its arguments       2 to max_args of them, uniform, each a node at depth k + 1
    length              1 for a digit; 2 (operator and closing bracket) and its arguments' for an operator
    a tree is kept      where min_length < length < max_length

    [MAX 2 9 [MIN 4 7 ] 0 ]     is 9

A tree whose root is a digit has length 1 and is never kept, so roots are operators here. Whether a tree is kept
depends on its shape alone: digits and operators are drawn for kept trees only. Nodes of a level are ordered tree by
tree, and the arguments of a node side by side, so that lengths, values (bottom up) and places in the row (top down) are
sums over consecutive stretches.

Source: Nangia & Bowman, ListOps (2018); Tay et al., Long Range Arena (2021), whose generator has these numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from recollect.lazy import np

OPERATORS = ("[MIN", "[MAX", "[MED", "[SM")
MIN, MAX, MEDIAN, SUM = range(11, 15)
CLOSE = 15
WORDS = ("", *map(str, range(10)), *OPERATORS, "]")  # the tokens' names, by number; token 0 is padding
ROOTS = 2048  # trees that are drawn together


class Shape(NamedTuple):
    """Limits of the trees that are drawn and kept."""

    min_length: int  # kept trees are longer
    max_length: int  # kept trees are shorter
    max_depth: int  # depth at which all nodes are digits; the root has depth 1
    max_args: int  # most arguments of an operator


class Rows(NamedTuple):
    """A number of ListOps expressions, concatenated."""

    tokens: np.ndarray  # uint8, of all rows
    ends: np.ndarray  # int64 [n]: end of each row in tokens
    labels: np.ndarray  # uint8 [n]: values, 0..9

    def row(self, number: int) -> np.ndarray:
        """Return the tokens of one expression."""
        return self.tokens[self.ends[number - 1] if number else 0 : self.ends[number]]


def draw(shape: Shape, random: np.random.Generator, roots: int = ROOTS) -> Rows:
    """Draw trees whose roots are operators, and keep those of the right length: about a third, at the published sizes.

    Args:
        shape: of the trees.
        random: source of all randomness.
        roots: trees that are drawn.
    """
    return _write(_grow(shape, random, roots), random)


def _grow(shape: Shape, random: np.random.Generator, roots: int) -> list[np.ndarray]:
    """Draw tree shapes and keep those of the right length: arguments of each node (0: a digit), by level."""
    args = [random.integers(2, shape.max_args + 1, roots, dtype=np.uint8)]
    counts = [np.ones(roots, np.int64)]  # nodes that each tree has at a level
    length = np.full(roots, 2)
    for depth in range(2, shape.max_depth + 1):
        nodes = _sum_by_tree(args[-1], counts[-1])
        length += nodes
        nodes[length >= shape.max_length] = 0  # too long already: stop growing it
        if not nodes.all():
            args[-1] = np.where(np.repeat(nodes == 0, counts[-1]), np.uint8(0), args[-1])
        below = np.zeros(int(nodes.sum()), np.uint8)
        if depth < shape.max_depth:
            operators = np.flatnonzero(random.integers(0, 256, len(below), dtype=np.uint8) < 64)
            below[operators] = random.integers(2, shape.max_args + 1, len(operators), dtype=np.uint8)
            length += _sum_by_tree(below != 0, nodes)
        args.append(below)
        counts.append(nodes)
    keep = (length > shape.min_length) & (length < shape.max_length)
    return [level[np.repeat(keep, count)] for level, count in zip(args, counts, strict=True)]


def _sum_by_tree(numbers: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Sum over each tree's nodes of a level."""
    sums = np.concatenate(([0], np.cumsum(numbers, dtype=np.int64)))
    ends = np.cumsum(counts)
    return sums[ends] - sums[ends - counts]


def _write(levels: Sequence[np.ndarray], random: np.random.Generator) -> Rows:
    """Draw digits and operators for trees of given shape, and return their tokens and values."""
    parents = [np.flatnonzero(level) for level in levels]
    stretches = [_starts(level[ops]) for level, ops in zip(levels, parents, strict=True)]
    lengths, values = [np.empty(0, np.int64)] * len(levels), [np.empty(0, np.uint8)] * len(levels)
    names = []
    for depth in reversed(range(len(levels))):
        length = np.ones(len(levels[depth]), np.int64)
        value = random.integers(0, 10, len(length), dtype=np.uint8)
        tokens = value + np.uint8(1)
        ops, starts = parents[depth], stretches[depth]
        if len(ops):
            operators = random.integers(MIN, SUM + 1, len(ops), dtype=np.uint8)
            length[ops] = 2 + np.add.reduceat(lengths[depth + 1], starts)
            value[ops] = _evaluate(operators, values[depth + 1], starts, levels[depth][ops])
            tokens[ops] = operators
        lengths[depth], values[depth] = length, value
        names.append(tokens)
    ends = np.cumsum(lengths[0])
    row, places = np.empty(int(ends[-1]) if len(ends) else 0, np.uint8), ends - lengths[0]
    for depth, tokens in enumerate(reversed(names)):
        row[places] = tokens
        ops, starts = parents[depth], stretches[depth]
        if not len(ops):
            break
        row[places[ops] + lengths[depth][ops] - 1] = CLOSE
        before = _starts(lengths[depth + 1])
        places = before + np.repeat(places[ops] + 1 - before[starts], levels[depth][ops])
    return Rows(row, ends, values[0])


def _starts(counts: np.ndarray) -> np.ndarray:
    """Return the starts of consecutive stretches of these lengths."""
    ends = np.cumsum(counts, dtype=np.int64)
    return ends - counts


def _evaluate(operators: np.ndarray, values: np.ndarray, starts: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Evaluate operators, whose arguments' values are the stretches of ``counts`` from ``starts`` on."""
    found = np.minimum.reduceat(values, starts)
    found = np.where(operators == MAX, np.maximum.reduceat(values, starts), found)
    found = np.where(operators == SUM, np.add.reduceat(values, starts, dtype=np.int64) % 10, found).astype(np.uint8)
    which = np.flatnonzero(operators == MEDIAN)
    if len(which):
        count = counts[which].astype(np.int64)
        places = np.arange(int(count.max()))
        inside = places < count[:, None]
        several = values[np.where(inside, starts[which, None] + places, 0)]
        several = np.sort(np.where(inside, several, np.uint8(255)), 1)
        rows = np.arange(len(which))
        found[which] = (several[rows, (count - 1) // 2] + several[rows, count // 2]) // 2
    return found
