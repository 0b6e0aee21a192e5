"""Our ListOps generator beside the recursion of Long Range Arena: rows per second on one core.

    python benchmarks/listops.py [--rows 300] [--output benchmarks/results/listops.json]

The recursion is written anew, node by node with Python's ``random``, as the published generator goes about it; it keeps
its trees in a set, and writes text and value of those that it keeps.
"""

import argparse
import json
import random
from pathlib import Path
from statistics import median
from time import process_time

import numpy as np

import source_tree  # noqa: F401
from recollect.files import write_atomically
from recollect.runs.provenance import environment
from recollect.tasks.long_range.expressions import Shape, draw

PUBLISHED = Shape(min_length=500, max_length=2000, max_depth=10, max_args=10)
OPERATORS = ("[MIN", "[MAX", "[MED", "[SM")


def tree(depth, shape):
    """One node with all below it, as nested pairs, and its length."""
    chance = random.random() if depth < shape.max_depth else 1
    if chance > 0.25:
        return random.choice(range(10)), 1
    length, values = 2, []
    for _ in range(random.randint(2, shape.max_args)):
        value, size = tree(depth + 1, shape)
        values.append(value)
        length += size
    found = (random.choice(OPERATORS), values[0])
    for value in values[1:]:
        found = (found, value)
    return (found, "]"), length


def text(node):
    """A tree in brackets."""
    if isinstance(node, (str, int)):
        return str(node)
    return f"( {text(node[0])} {text(node[1])} )"


def value(node):
    """What a tree is worth."""
    if not isinstance(node, tuple):
        return node
    left, right = value(node[0]), value(node[1])
    if right == "]":
        operator, numbers = left
        if operator == "[MIN":
            return min(numbers)
        if operator == "[MAX":
            return max(numbers)
        return int(np.median(numbers)) if operator == "[MED" else sum(numbers) % 10
    if isinstance(left, tuple):
        return left[0], [*left[1], right]
    return left, [right]


def recursion(rows, shape=PUBLISHED):
    """So many kept trees as pairs of text and value."""
    kept = set()
    while len(kept) < rows:
        node, length = tree(1, shape)
        if shape.min_length < length < shape.max_length:
            kept.add(node)
    return [(text(node), value(node)) for node in kept]


def measure(rows=300, repeats=3):
    """Seconds of processor time per row of both, in turns."""
    generator, ours, theirs = np.random.default_rng(0), [], []
    random.seed(0)
    draw(PUBLISHED, generator)
    for _ in range(repeats):
        began = process_time()
        recursion(rows)
        theirs.append((process_time() - began) / rows)
        began, made = process_time(), 0
        while made < 10 * rows:
            made += len(draw(PUBLISHED, generator).labels)
        ours.append((process_time() - began) / made)
    return {
        "ours_us_per_row": round(1e6 * median(ours), 1),
        "recursion_us_per_row": round(1e6 * median(theirs), 1),
        "times_as_fast": round(median(a / b for a, b in zip(theirs, ours, strict=True)), 1),
        "rows": rows,
        "repeats": repeats,
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=300)
    parser.add_argument("--output", type=Path)
    arguments = parser.parse_args()
    found = {**measure(arguments.rows), **environment()}
    print(json.dumps(found, indent=1))
    if arguments.output is not None:
        write_atomically(arguments.output, json.dumps(found, indent=1) + "\n")
