"""Plant small bugs in the parts of the library that carry numbers, and report which of them the short tests kill.

    python tests/mutants.py --count 300 --json mutants.json          # run again, and it goes on where it stopped
    python tests/mutants.py --count 20 --rooms objectives

The bugs are those of `tests/certify/mutations.py`, drawn by a seed, as evenly as possible over rooms. Each is made in a
copy of the package. Before the first one, the short tests run once under coverage (`--coverage` keeps what they found),
so that a bug meets only the tests that run its line: the most specific ones first, which run the fewest lines, then the
others and their files. A bug in a line that runs at import, or in another process, meets the test files that name its
module. A bug is killed where a test fails that passes without it; one that keeps the tests from being collected, or
that runs into the time limit, is listed apart, because no assertion saw it.

Needs `pytest-cov` and a system with forks. The first run takes twice as long as `make test` in one process, a bug some
seconds to a minute.
"""

import argparse
import ast
import compileall
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path

import gymnasium  # noqa: F401 (forks need not import it again)
import pytest
import torch  # noqa: F401

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests" / "certify"))
from mutations import Mutant, candidates  # noqa: E402

ROOMS = ("objectives", "training", "evaluation", "agents", "tasks")
LIMIT = 900
TIER = "not slow and not gpu and not long"
FAILED = re.compile(r"^(?:FAILED|ERROR) (\S+?\.py(?:::.*?)?)(?: - .*)?$", re.MULTILINE)
BATCHES = (12, 60)
"""Number of tests that a bug meets first, and of those that a survivor meets then."""
UNKNOWN_TEST = "no verdict (pytest ended with 4)"
"""A test has another name since the coverage was recorded."""
FILES = 4
"""Number of test files for a survivor, and for a bug in a line that no test runs in its own process."""


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


def record_coverage(target: Path) -> None:
    """Run the short tests once, and write which of them run which lines."""
    rooms = "\n".join(f"    src/recollect/{room}/*" for room in ROOMS)
    with tempfile.TemporaryDirectory() as folder:
        config = Path(folder) / "coveragerc"
        config.write_text(f"[run]\nrelative_files = true\ndata_file = {target.resolve()}\ninclude =\n{rooms}\n")
        options = ["--cov", f"--cov-config={config}", "--cov-context=test", "--cov-report="]
        command = [sys.executable, "-m", "pytest", *_arguments([*options, "-q", "-m", TIER])]
        subprocess.run(command, cwd=ROOT, env={**os.environ, **_settings(ROOT / "src")}, check=False)


class LineTests:
    """The tests that run a line, most specific ones first.

    Args:
        coverage: file of :func:`record_coverage`.
    """

    def __init__(self, coverage: Path) -> None:
        from coverage import CoverageData

        data = CoverageData(str(coverage))
        data.read()
        self.lines: dict[str, dict[int, set[str]]] = {}
        self.sizes: Counter[str] = Counter()
        for file in data.measured_files():
            found = data.contexts_by_lineno(file)
            tests = {line: {name.rsplit("|", 1)[0] for name in names if name} for line, names in found.items()}
            self.lines[file[file.index("src/recollect/") :]] = tests  # wherever the tests were run
            self.sizes.update(test for of_line in tests.values() for test in of_line)

    def of(self, file: str, line: int) -> list[str]:
        """Return tests of a line, those that run the fewest lines first, in turn over test functions."""
        tests = self.lines.get(file, {}).get(line, set())
        by_size = sorted(tests, key=lambda test: (self.sizes[test], test))
        seen: Counter[str] = Counter()
        turns = []
        for test in by_size:
            function = test.split("[")[0]
            turns.append(seen[function])
            seen[function] += 1
        return [test for _, test in sorted(zip(turns, by_size, strict=True), key=lambda pair: pair[0])]


@cache
def tests_of(file: str, number: int = FILES) -> tuple[str, ...]:
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


def _arguments(arguments: Sequence[str]) -> list[str]:
    return ["-n", "0", "-p", "no:cacheprovider", *arguments]


def _settings(source: Path) -> dict[str, str]:
    return {"PYTHONPATH": str(source), "OMP_NUM_THREADS": "1", "COLUMNS": "400"}


def _fork_pytest(source: Path, arguments: Sequence[str]) -> tuple[int | None, str]:
    """Run pytest in a fork, which has torch already; return its exit status, None at the time limit, and its output."""
    with tempfile.TemporaryFile("w+") as output:
        child = os.fork()
        if not child:
            os.setpgrp()
            for stream in (1, 2):
                os.dup2(output.fileno(), stream)
            sys.stdout = sys.stderr = output
            os.chdir(ROOT)
            os.environ |= {**_settings(source), "PYTHONDONTWRITEBYTECODE": "1"}
            sys.dont_write_bytecode = True  # that of a bug could be taken for that of the next one
            sys.path.insert(0, str(source))
            status = pytest.main(_arguments(arguments))
            output.flush()
            os._exit(status)
        end = time.monotonic() + LIMIT
        while not (done := os.waitpid(child, os.WNOHANG))[0]:
            if time.monotonic() > end:
                os.killpg(child, signal.SIGKILL)
                os.waitpid(child, 0)
                return None, ""
            time.sleep(0.05)
        output.seek(0)
        return os.waitstatus_to_exitcode(done[1]), output.read()


def run_tests(source: Path, tests: Sequence[str]) -> tuple[str, str]:
    """Run tests against a source tree until one fails; return the verdict and the test that failed."""
    status, output = _fork_pytest(source, ["-q", "-x", "-m", TIER, *tests])
    if status is None:
        return "time limit", ""
    if status == 0:
        return "survives", ""
    failed = FAILED.search(output)
    if status == 1 and failed:
        return "killed", failed[1]
    return f"no verdict (pytest ended with {status})", ""


@cache
def passes_without(test: str) -> bool:
    """Whether a test passes against the source as it is."""
    return run_tests(ROOT / "src", [test])[0] == "survives"


def _batches(mutant: Mutant, lines: LineTests) -> Iterator[Sequence[str]]:
    """Yield tests for a bug: a few, then more, then their files and those that name its module.

    What several tests share, as a fixture or in a cache, runs in the first of them only: others look at what it made.
    """
    tests = lines.of(mutant.file, mutant.line)
    first, last = BATCHES
    yield from (batch for batch in (tests[:first], tests[first:last]) if batch)
    files = tuple(dict.fromkeys(test.split("::")[0] for test in tests))[:FILES]
    yield tuple(dict.fromkeys((*files, *tests_of(mutant.file))))


def try_out(mutant: Mutant, lines: LineTests, copy: Path) -> str:
    """Return what became of a bug that is made in a copy of the package for a moment."""
    target = copy / mutant.file.removeprefix("src/")
    text = target.read_text()
    target.write_text(text[: mutant.start] + mutant.new + text[mutant.stop :])
    verdict = "no test names its module"
    try:
        for batch in _batches(mutant, lines):
            verdict, test = run_tests(copy, batch) if batch else (verdict, "")
            if verdict == "killed" and not passes_without(test):
                return f"no verdict ({test} fails without it)"
            if verdict not in ("survives", UNKNOWN_TEST):
                return verdict
        return verdict
    finally:
        target.write_text(text)


def main() -> None:
    """Plant, test, report."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=300, help="bugs to plant")
    parser.add_argument("--seed", type=int, default=0, help="of the draw")
    parser.add_argument("--rooms", nargs="+", default=list(ROOMS), help="folders of the package")
    parser.add_argument("--coverage", type=Path, default=Path(".coverage.mutants"), help="kept between runs")
    parser.add_argument("--json", type=Path, help="results, from which a second run goes on")
    arguments = parser.parse_args()
    known: dict[str, str] = {}
    if arguments.json and arguments.json.is_file():
        known = json.loads(arguments.json.read_text())
    if not arguments.coverage.is_file():
        record_coverage(arguments.coverage)
    lines = LineTests(arguments.coverage)
    with tempfile.TemporaryDirectory() as folder:
        copy = shutil.copytree(ROOT / "src", Path(folder) / "src")
        compileall.compile_dir(copy, quiet=2)
        for mutant in draw(arguments.count, arguments.seed, arguments.rooms):
            described = mutant.text((ROOT / mutant.file).read_text())
            if described not in known:
                known[described] = try_out(mutant, lines, Path(copy))
                print(f"{known[described]:10} {described}", flush=True)
                if arguments.json:
                    arguments.json.write_text(json.dumps(known, indent=1) + "\n")
    print(", ".join(f"{number} {verdict}" for verdict, number in Counter(known.values()).most_common()))


if __name__ == "__main__":
    main()
