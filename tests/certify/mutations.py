"""Plant small bugs in the library's own cores, and report which lines of the certificate catch them.

    python tests/certify/mutations.py --count 120            # about 20 minutes on two idle processors
    python tests/certify/mutations.py --count 20 --cores lstm hcam

Every bug is one change of the source: a flipped comparison, an index or constant off by one, a changed sign, exchanged
branches of a `where`, a missing reset, detach or clone, a slice that starts one later. It is made in a copy of the
package, in a line that the core's sample configs run (not in checks of arguments, error texts, FLOP counts or the
reference), and the certificate runs in a process of its own, with the configs that reach that line. Survivors are
listed with their change: each is a bug that no line catches, or a change without effect. docs/certificate.md counts
those of the committed run, benchmarks/results/mutations.json.

Run it by hand; `test_mutations.py` plants a few bugs.
"""

import argparse
import ast
import importlib.util
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from recollect.certify import Card

ROOT = Path(__file__).resolve().parents[2]
SAMPLES = ROOT / "tests" / "cores" / "samples"
FOLDERS = {
    "memoryless": "memoryless",
    "lstm": "recurrent",
    "gru": "recurrent",
    "causal-transformer": "causal_transformer",
    "transformer-xl": "transformer_xl",
    "hcam": "hcam",
    "tlb": "tlb",
    "ttm": "ttm",
    "feedback-transformer": "feedback",
    "recurrent-transformer": "ttm",
    "long-short-transformer": "long_short",
    "mott": "mott",
    "spatio-temporal": "spatio_temporal",
    "timesformer": "timesformer",
}
SKIPPED_FILES = {"reference.py", "config.py", "__init__.py", "lifelong.py", "chunk_store.py"}
SKIPPED_FUNCTIONS = {
    "__post_init__",
    "flops_per_step",
    "extra_arguments",
    "__repr__",
    "extra_repr",
    "nbytes",
    "buffers",
}
WHOLE = 2
"""Sample configs at which a survivor meets the certificate as a person runs it; the quick one sees all of them."""
LIMIT = 900
LONG = {"long_steps": 2000, "long_seconds": 1.0}
FLIPS: dict[type[ast.cmpop], ast.cmpop] = {
    ast.Lt: ast.LtE(),
    ast.LtE: ast.Lt(),
    ast.Gt: ast.GtE(),
    ast.GtE: ast.Gt(),
    ast.Eq: ast.NotEq(),
    ast.NotEq: ast.Eq(),
}


@dataclass(frozen=True)
class Mutant:
    """One planted bug."""

    file: str
    line: int
    kind: str
    start: int
    """Of the changed text in the file, in characters."""
    stop: int
    new: str

    def text(self, source: str) -> str:
        """What changed."""
        return f"{self.file}:{self.line} {self.kind}: {source[self.start : self.stop]!r} -> {self.new!r}"


def candidates(file: str, source: str, lines: set[int]) -> Iterator[Mutant]:
    """Every change that can be made in these lines."""
    starts = [0]
    for row in source.splitlines(keepends=True):
        starts.append(starts[-1] + len(row))
    for node in _nodes(ast.parse(source)):
        if getattr(node, "lineno", -1) not in lines:
            continue
        for kind, new in _changes(node):
            start = starts[node.lineno - 1] + node.col_offset
            stop = starts[node.end_lineno - 1] + node.end_col_offset
            # Parentheses keep the change together, whatever stands around it.
            text = ast.unparse(new)
            text = text if isinstance(node, ast.Slice | ast.Constant) else f"({text})"
            yield Mutant(file, node.lineno, kind, start, stop, text)


def _nodes(tree: ast.AST) -> Iterator[ast.AST]:
    """Expressions of functions that compute something."""
    stack: list[ast.AST] = [tree]
    while stack:
        node = stack.pop()
        if isinstance(node, ast.FunctionDef) and node.name in SKIPPED_FUNCTIONS:
            continue
        if isinstance(node, ast.Raise | ast.Assert | ast.JoinedStr | ast.arguments | ast.AnnAssign):
            continue
        if isinstance(node, ast.expr | ast.Slice):
            yield node
        stack += list(ast.iter_child_nodes(node))


def _changes(node: ast.AST) -> Iterator[tuple[str, ast.expr | ast.Slice]]:
    if isinstance(node, ast.Compare) and len(node.ops) == 1 and type(node.ops[0]) in FLIPS:
        yield "comparison", ast.Compare(node.left, [FLIPS[type(node.ops[0])]], node.comparators)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Sub):
        other = ast.Sub() if isinstance(node.op, ast.Add) else ast.Add()
        yield "sign", ast.BinOp(node.left, other, node.right)
        if isinstance(node.right, ast.Constant) and node.right.value == 1:
            yield "off by one", node.left
    if isinstance(node, ast.Slice) and node.lower is None and node.upper is not None and node.step is None:
        yield "off by one", ast.Slice(ast.Constant(0), ast.BinOp(node.upper, ast.Sub(), ast.Constant(1)), None)
    if isinstance(node, ast.Slice) and node.upper is None and node.lower is not None and node.step is None:
        yield "off by one", ast.Slice(ast.BinOp(node.lower, ast.Add(), ast.Constant(1)), None, None)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Invert):
        yield "mask", node.operand
    if isinstance(node, ast.Call):
        yield from _calls(node)


def _calls(node: ast.Call) -> Iterator[tuple[str, ast.expr]]:
    name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
    if name in ("where", "choose") and len(node.args) == 3:
        yield "where", ast.Call(node.func, [node.args[0], node.args[2], node.args[1]], node.keywords)
    if name in ("where_first", "reset") and len(node.args) >= 2:
        yield "missing reset", node.args[-1]
    if name in ("detach", "clone", "contiguous") and isinstance(node.func, ast.Attribute) and not node.args:
        yield f"dropped {name}", node.func.value
    method = isinstance(node.func, ast.Attribute) and getattr(node.func.value, "id", "") not in ("F", "torch")
    if name in ("tanh", "sigmoid", "softmax", "relu") and method and not node.keywords:
        yield f"dropped {name}", node.func.value  # type: ignore[attr-defined]
    if name == "clamp" and isinstance(node.func, ast.Attribute):
        yield "dropped clamp", node.func.value
    if name in ("cumsum", "flip", "roll", "masked_fill") and isinstance(node.func, ast.Attribute):
        yield f"dropped {name}", node.func.value


def plan(keys: list[str], count: int, seed: int, work: Path) -> list[tuple[str, Mutant, list[int]]]:
    """Draws bugs, as evenly as possible over cores and kinds; each with the configs that run its line."""
    dice = random.Random(seed)
    pools: dict[str, dict[str, list[tuple[Mutant, list[int]]]]] = {}
    for key in keys:
        ran = json.loads(_python(work / "src", ["--trace", key], LIMIT))
        pool: dict[str, list[tuple[Mutant, list[int]]]] = {}
        for file, rows in ran.items():
            source = (ROOT / file).read_text()
            for mutant in candidates(file, source, {int(row) for row in rows}):
                pool.setdefault(mutant.kind, []).append((mutant, rows[str(mutant.line)]))
        pools[key] = {kind: dice.sample(found, len(found)) for kind, found in pool.items()}
    chosen: list[tuple[str, Mutant, list[int]]] = []
    seen: set[Mutant] = set()
    while len(chosen) < count and any(pools.values()):
        for key in keys:
            kinds = [kind for kind, found in pools[key].items() if found]
            if not kinds or len(chosen) >= count:
                pools[key] = {}
                continue
            mutant, configs = pools[key][dice.choice(kinds)].pop()
            if mutant not in seen:
                seen.add(mutant)
                chosen.append((key, mutant, configs))
    return chosen


def trial(key: str, mutant: Mutant, configs: list[int], work: Path) -> tuple[list[str], str]:
    """The lines that see a bug, and what the first of them says."""
    with tempfile.TemporaryDirectory(dir=work) as folder:
        copy = Path(folder) / "src"
        shutil.copytree(ROOT / "src", copy, ignore=shutil.ignore_patterns("__pycache__"))
        target = Path(folder) / mutant.file
        source = target.read_text()
        target.write_text(source[: mutant.start] + mutant.new + source[mutant.stop :])
        try:
            found = json.loads(_python(copy, ["--certify", key, *map(str, configs)], LIMIT))
        except subprocess.TimeoutExpired:
            return ["time limit"], ""
        except (subprocess.CalledProcessError, ValueError) as error:
            return ["does not even build"], str(getattr(error, "stderr", error))[-200:]
    return found["failed"], found["detail"]


def _python(source: Path, arguments: list[str], limit: float) -> str:
    environment = {**os.environ, "PYTHONPATH": str(source), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, __file__, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=limit, env=environment)
    return done.stdout.strip().splitlines()[-1]


def _configs(key: str) -> list:
    spec = importlib.util.spec_from_file_location("samples", SAMPLES / f"{key.replace('-', '_')}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return list(module.CONFIGS)


def _trace(key: str) -> None:
    """Prints which lines of the core's folder which configs run: a sequence with gradients, and a stream."""
    import recollect  # here, since tests/mutants.py imports this file and then the copies with bugs
    from recollect.certify import certify, from_config

    base = Path(recollect.__file__).parents[1]
    folder = str(base / "recollect" / "cores" / FOLDERS[key])
    ran: dict[str, dict[int, list[int]]] = {}
    current = 0

    def watch(frame, event, argument):  # type: ignore[no-untyped-def]
        name = frame.f_code.co_filename
        if not name.startswith(folder) or Path(name).name in SKIPPED_FILES:
            return None
        rows = ran.setdefault(f"src/{Path(name).relative_to(base)}", {})

        def line(frame, event, argument):  # type: ignore[no-untyped-def]
            seen = rows.setdefault(frame.f_lineno, [])
            if current not in seen:
                seen.append(current)
            return line

        return line(frame, event, argument)

    for current, config in enumerate(_configs(key)):  # noqa: B007 (read by `watch`)
        candidate = from_config(config, name=key)
        sys.settrace(watch)
        certify(candidate, lines=["gradients", "stream"], quick=True)
        sys.settrace(None)
    print(json.dumps(ran))


def _certify(key: str, chosen: list[int]) -> None:
    """Prints the lines that fail with the first config in which any does.

    First the quick certificate at every config that comes by the line, then at those of cores with the same code, then
    the whole certificate at a few: a survivor has met everything that a person's core meets.
    """
    from recollect.certify import LINES, SLOW_LINES, certify, from_config

    siblings = [other for other, folder in FOLDERS.items() if folder == FOLDERS[key] and other != key]
    quick = [(key, _configs(key)[index]) for index in chosen]
    quick += [(other, config) for other in siblings for config in _configs(other)]
    for name, config in quick:
        # The long lines last, and only if nothing else sees the bug.
        for lines in ([line for line in LINES if line not in SLOW_LINES], ["long", "state-bytes", "compile"]):
            _stop_if_seen(certify(from_config(config, name=name), lines=lines, quick=True, **LONG))
    for name, config in quick[:WHOLE]:
        _stop_if_seen(certify(from_config(config, name=name), **LONG))
    print(json.dumps({"failed": [], "detail": ""}))


def _stop_if_seen(card: "Card") -> None:
    if card.failed:
        print(json.dumps({"failed": list(card.failed), "detail": card[card.failed[0]].detail}))
        raise SystemExit


def main() -> None:
    """Plant, certify, report."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=120, help="bugs to plant")
    parser.add_argument("--cores", nargs="*", default=list(FOLDERS), help="keys of cores")
    parser.add_argument("--seed", type=int, default=0, help="of the draw")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1, help="bugs tried at a time")
    parser.add_argument("--json", type=Path, help="also write the result to this file")
    parser.add_argument("--again", type=Path, help="result of the same draw: only its survivors are tried again")
    parser.add_argument("--trace", help=argparse.SUPPRESS)
    parser.add_argument("--certify", nargs="*", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.trace:
        _trace(arguments.trace)
        return
    if arguments.certify:
        _certify(arguments.certify[0], [int(index) for index in arguments.certify[1:]])
        return
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        (work / "src").symlink_to(ROOT / "src")
        mutants = plan(arguments.cores, arguments.count, arguments.seed, work)
        known = _caught_before(arguments.again)
        with ThreadPoolExecutor(arguments.processes) as pool:
            jobs = [pool.submit(_seen, known, mutant, work) for mutant in mutants]
            rows = []
            for (key, mutant, _), job in zip(mutants, jobs, strict=True):
                failed = job.result()
                said = mutant.text((ROOT / mutant.file).read_text())
                rows.append({"core": key, "bug": said, "lines": failed})
                print(f"{'SURVIVES' if not failed else 'caught  '} {key} {said}  {', '.join(failed)}", flush=True)
    report(rows, arguments.json)


def _caught_before(result: Path | None) -> dict[str, list[str]]:
    rows = [] if result is None else json.loads(result.read_text())
    return {row["bug"]: row["lines"] for row in rows if row["lines"]}


def _seen(known: dict[str, list[str]], planted: tuple[str, Mutant, list[int]], work: Path) -> list[str]:
    key, mutant, configs = planted
    said = mutant.text((ROOT / mutant.file).read_text())
    return known[said] if said in known else trial(key, mutant, configs, work)[0]


def report(rows: list[dict], target: Path | None) -> None:
    """How many were caught, by which line first, and who survives."""
    caught = [row for row in rows if row["lines"]]
    print(f"\n{len(caught)} of {len(rows)} caught")
    for line, number in Counter(line for row in caught for line in row["lines"]).most_common():
        alone = sum(row["lines"] == [line] for row in caught)
        print(f"  {line}: {number}, alone {alone}")
    for row in rows:
        if not row["lines"]:
            print(f"survivor: {row['core']} {row['bug']}")
    if target is not None:
        target.write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
