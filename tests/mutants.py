"""Plant small bugs in the parts of the library that carry numbers, and report which of them the short tests kill.

    python tests/mutants.py --count 300 --json mutants.json          # hours; run again, and it goes on where it stopped
    python tests/mutants.py --count 20 --rooms objectives

The bugs are those of `tests/certify/mutations.py`, drawn by a seed, as evenly as possible over rooms. Each is made in a
copy of the package, and the tests that name most of what its module defines run against it, as many files as `--files`.
Before, the same files must pass without the bug. A bug is killed where a test fails; one that keeps the tests from
being collected, or that runs into the time limit, is listed apart, because no assertion saw it.
"""

import argparse
import ast
import json
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests" / "certify"))
from mutations import Mutant, candidates  # noqa: E402

ROOMS = ("objectives", "training", "evaluation", "agents", "tasks")
LIMIT = 900
TIER = "not slow and not gpu and not long"
VERDICTS = {0: "survives", 1: "killed"}
"""Of pytest's exit status; all others mean that no test has judged."""


def draw(count: int, seed: int, rooms: list[str]) -> list[Mutant]:
    """Return bugs, from each room in turn."""
    generator = random.Random(seed)
    pools = []
    for room in rooms:
        pool: list[Mutant] = []
        for path in sorted((ROOT / "src" / "recollect" / room).rglob("*.py")):
            if path.name not in ("__init__.py", "config.py"):
                text = path.read_text()
                pool += candidates(str(path.relative_to(ROOT)), text, set(range(1, text.count("\n") + 2)))
        generator.shuffle(pool)
        pools.append(pool)
    turns = (pool.pop() for _ in range(count) for pool in pools if pool)
    return [mutant for mutant, _ in zip(turns, range(count), strict=False)]


@cache
def tests_of(file: str, number: int) -> tuple[str, ...]:
    """Return the test files that name the module and what it defines most often, those of its own room first."""
    module = file.removeprefix("src/").removesuffix(".py").replace("/", ".")
    tree = ast.parse((ROOT / file).read_text())
    defined = [node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.ClassDef)]
    names = [re.escape(name) for name in defined if not name.startswith("_")]
    pattern = re.compile(rf"\b({'|'.join([re.escape(module), *names])})\b")
    room = ROOT / "tests" / file.split("/")[2]
    found = []
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        hits = len(set(pattern.findall(path.read_text())))
        near = (room in path.parents) + (Path(file).stem in path.stem) * 2
        if hits or near > 1:
            found.append((-(hits + 3 * near), str(path.relative_to(ROOT))))
    return tuple(path for _, path in sorted(found)[:number])


def run_tests(source: Path, files: tuple[str, ...]) -> str:
    """Run the short tests of some files against a source tree; return the verdict."""
    environment = {**os.environ, "PYTHONPATH": str(source), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "pytest", "-n", "0", "-q", "-x", "-m", TIER, "-p", "no:cacheprovider", *files]
    try:
        done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=LIMIT)
    except subprocess.TimeoutExpired:
        return "time limit"
    return VERDICTS.get(done.returncode, f"no verdict (pytest ended with {done.returncode})")


@cache
def passes_without(files: tuple[str, ...]) -> bool:
    """Whether the files pass against the source as it is."""
    return run_tests(ROOT / "src", files) == "survives"


def try_out(mutant: Mutant, number: int) -> str:
    """Return what became of a bug."""
    files = tests_of(mutant.file, number)
    if not files:
        return "no test names its module"
    if not passes_without(files):
        return "no verdict (the tests fail without it)"
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "src"
        shutil.copytree(ROOT / "src", copy, ignore=shutil.ignore_patterns("__pycache__"))
        target = Path(folder) / mutant.file
        text = target.read_text()
        target.write_text(text[: mutant.start] + mutant.new + text[mutant.stop :])
        return run_tests(copy, files)


def main() -> None:
    """Plant, test, report."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=300, help="bugs to plant")
    parser.add_argument("--seed", type=int, default=0, help="of the draw")
    parser.add_argument("--rooms", nargs="+", default=list(ROOMS), help="folders of the package")
    parser.add_argument("--files", type=int, default=4, help="most test files for a bug")
    parser.add_argument("--json", type=Path, help="results, from which a second run goes on")
    arguments = parser.parse_args()
    known: dict[str, str] = {}
    if arguments.json and arguments.json.is_file():
        known = json.loads(arguments.json.read_text())
    for mutant in draw(arguments.count, arguments.seed, arguments.rooms):
        described = mutant.text((ROOT / mutant.file).read_text())
        if described not in known:
            known[described] = try_out(mutant, arguments.files)
            print(f"{known[described]:10} {described}", flush=True)
            if arguments.json:
                arguments.json.write_text(json.dumps(known, indent=1) + "\n")
    print(", ".join(f"{number} {verdict}" for verdict, number in Counter(known.values()).most_common()))


if __name__ == "__main__":
    main()
