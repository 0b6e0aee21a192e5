"""Certificates of one core, or of many in parallel processes."""

import dataclasses
import multiprocessing
import os
import platform
import secrets
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from typing import Any

import torch
from torch import nn

from recollect.certify import (
    equivalence,
    gradients,
    hidden_state,
    invalid_inputs,
    isolation,
    long_runs,
    portability,
    precision,
    purity,
    row_subset,
    streams,
    transforms,
)
from recollect.certify import reference as reference_line
from recollect.certify.card import Card, Line
from recollect.certify.comparison import NotApplicable, Violation
from recollect.certify.loading import Candidate, load, load_function, suggest
from recollect.certify.preflight import first_call
from recollect.certify.snapshot import settings_kept
from recollect.certify.subject import Options, Reference, Subject
from recollect.config import lookup, require
from recollect.state import nbytes

Check = Callable[[Subject], str | tuple[str, dict[str, Any]]]

LINES: dict[str, Check] = {
    "splits": equivalence.splits,
    "modes": equivalence.modes,
    "stream": streams.stream,
    "copies": streams.copies,
    "row-subset": row_subset.row_subset,
    "reference": reference_line.reference,
    "reset": equivalence.reset,
    "poison": isolation.poison,
    "frames": invalid_inputs.frames,
    "frames-memory": invalid_inputs.frames_memory,
    "reset-gradient": isolation.reset_gradient,
    "future": isolation.future,
    "rows": isolation.rows,
    "purity": purity.purity,
    "hidden-state": hidden_state.hidden_state,
    "weights": hidden_state.weights,
    "long": long_runs.long,
    "state-bytes": long_runs.state_bytes,
    "cost": long_runs.cost,
    "gradients": gradients.every_gradient,
    "backward": gradients.backward,
    "transforms": transforms.transforms,
    "float32": precision.float32,
    "bfloat16": precision.bfloat16,
    "float16": precision.float16,
    "save-load": portability.save_load,
    "device": portability.device,
    "compile": portability.compiled,
    "export": portability.export,
}
"""Check of every line of the card."""

SLOW_LINES = ("long", "state-bytes", "cost", "compile", "export")
"""Lines that take seconds; the others take a fraction of one."""

ALIASES = {"future-gradient": "future"}

LARGEST_ROUNDING = 1e-2  # larger relative differences are no rounding


def certify(  # noqa: PLR0913 (each one is an option of the command)
    core: nn.Module | Candidate,
    *,
    input_shape: tuple[int, ...] | None = None,
    lines: Sequence[str] | None = None,
    exemptions: Mapping[str, str] | None = None,
    rebuild: Callable[[], nn.Module] | None = None,
    steps: int | None = None,
    batch: int = 4,
    seed: int = 0,
    size_seed: int | None = None,
    backend: str = "eager",
    long_steps: int = 100_000,
    long_seconds: float = 1.0,
    reference: Reference | str | None = None,
    thorough: bool = False,
    quick: bool = False,
    name: str | None = None,
) -> Card:
    """Check the streaming contract of a core.

    Args:
        core: a module with ``initial_state(batch_size)`` and ``core(inputs, state, is_first) -> outputs, state``
            (:mod:`recollect.cores.contract`), which is copied and never changed; or a result of :func:`load`.
        input_shape: shape of one step's input; ``core.input_shape`` when None.
        lines: names from :data:`LINES`; all of them when None.
        exemptions: reasons by line, added to ``core.exemptions``. An exempt line is run, but cannot fail the card.
        rebuild: makes another module of the same config, into which weights are loaded. None: as loaded, or a copy.
        steps: length of the test sequences, which should cross every window and chunk at least twice. 48 when None.
        batch: number of rows; at least 3.
        seed: of inputs, resets and the values that replace exact zeros among the weights.
        size_seed: of sizes and modes that are drawn; a new one, named on the card, when None. Quick ones draw none.
        backend: of ``torch.compile``; ``"inductor"`` is slow and thorough.
        long_steps, long_seconds: length and time limit of the run of ``state-bytes``; the card has the number of steps.
        reference: a plain form, as ``"package.module:function"`` or a function with the arguments of ``Reference``.
        thorough: no time limit for the long run, every line at three seeds, and the exported step in onnxruntime.
        quick: fewer repetitions, for test suites that certify hundreds of configs.
        name: of the core on the card; when None, that of a result of :func:`load`, else the name of the class.

    Raises:
        ValueError: a module that cannot be copied or lacks ``initial_state``; no shape; an unknown line; bad sizes.
    """
    candidate = _candidate(core, name, rebuild)
    module = candidate.core
    started, shape = time.perf_counter(), _input_shape(module, input_shape or candidate.input_shape)
    excused, chosen = _exemptions(module, exemptions or {}), _lines(lines)
    options = Options(
        steps=(candidate.steps or 48) if steps is None else steps,
        batch=batch,
        seed=seed,
        size_seed=secrets.randbelow(10**6) if size_seed is None else size_seed,
        backend=backend,
        long_steps=long_steps,
        long_seconds=float("inf") if thorough else long_seconds,
        quick=quick,
        thorough=thorough,
        reference=load_function(reference) if isinstance(reference, str) else reference,
    )
    subject = _subject(module, shape, candidate.rebuild, options)
    return Card(
        core=candidate.name,
        config=candidate.config,
        lines=_all_lines(subject, module, chosen, excused, thorough=thorough),
        parameters=sum(p.numel() for p in module.parameters()),
        state_bytes=_state_bytes(module),
        size_seed=None if quick else options.size_seed,
        dtype=str(subject.dtype).removeprefix("torch."),
        versions={"python": platform.python_version(), "torch": torch.__version__},
        seconds=time.perf_counter() - started,
    )


def _candidate(core: nn.Module | Candidate, name: str | None, rebuild: Callable[[], nn.Module] | None) -> Candidate:
    given = core if isinstance(core, Candidate) else Candidate(name=type(core).__name__, core=core)
    return dataclasses.replace(given, name=name or given.name, rebuild=rebuild or given.rebuild)


def _subject(
    module: nn.Module, shape: tuple[int, ...], rebuild: Callable[[], nn.Module] | None, options: Options
) -> Subject:
    _check_options(options)
    try:
        return Subject(module, input_shape=shape, rebuild=rebuild, options=options)
    except RuntimeError as error:
        raise ValueError(
            f"{type(module).__name__} cannot be copied ({' '.join(str(error).split())[:200]}), but the certificate "
            "tests copies: call a lazy module once before, and take weight_norm from torch.nn.utils.parametrizations"
        ) from None


def _check_options(options: Options) -> None:
    steps, batch = options.steps, options.batch
    require(batch >= 3, "batch", batch, "give at least 3 rows, which are compared")
    least = 2 * batch + 4
    if steps < least:
        raise ValueError(f"steps={steps} (--length): too short to place resets in {batch} rows, give at least {least}")
    require(options.long_steps >= 1, "long_steps", options.long_steps, "give at least 1 step (--steps)")
    require(options.long_seconds >= 0, "long_seconds", options.long_seconds, "give a time limit of 0 or more seconds")
    if options.backend != "eager":  # listing the backends takes a second
        lookup(dict.fromkeys(torch.compiler.list_backends(exclude_tags=())), options.backend, "backend")


@settings_kept()
def _all_lines(
    subject: Subject, module: nn.Module, chosen: list[str], excused: Mapping[str, str], *, thorough: bool
) -> tuple[Line, ...]:
    failed_call = first_call(subject)
    if failed_call is not None:
        return (failed_call,)
    found = tuple(_run_line(line, subject, excused.get(line)) for line in chosen)
    return tuple(_at_other_seeds(line, module, subject, excused) for line in found) if thorough else found


def _run_line(name: str, subject: Subject, excuse: str | None) -> Line:
    started = time.perf_counter()
    numbers: dict[str, Any] = {}
    cause = ""
    try:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(subject.seed)
            result = _second_opinion(LINES[name], subject)
        detail, numbers = (result, {}) if isinstance(result, str) else result
        status = "pass"
    except Violation as violation:
        status, detail, cause = "fail", violation.detail, violation.cause
    except NotApplicable as reason:
        status, detail = "skip", f"not applicable: {reason}"
    except Exception as error:  # an exception of a user-defined module is a finding, and other lines still run
        status, detail = "fail", f"raised {type(error).__name__}: {' '.join(str(error).split())[:400]}"
        cause = "the core rejects a call that the contract allows"
    if excuse is not None and status != "skip":
        if status == "pass":
            detail = f"passes without exemption: {detail}"
        status, cause = "exempt", ""
    return Line(
        name=name,
        status=status,  # type: ignore[arg-type]
        detail=detail,
        cause=cause,
        reason=excuse or "",
        numbers=numbers,
        seconds=time.perf_counter() - started,
    )


def _at_other_seeds(line: Line, module: nn.Module, subject: Subject, excused: Mapping[str, str]) -> Line:
    """Return the line, or its first failure at two other seeds."""
    if line.status != "pass" or line.name in SLOW_LINES:
        return line
    seed = subject.options.seed
    for other in (seed + 1, seed + 2):
        sizes = subject.options.size_seed + other - seed
        options = dataclasses.replace(subject.options, seed=other, size_seed=sizes)
        twin = Subject(module, input_shape=subject.input_shape, rebuild=subject.rebuild, options=options)
        again = _run_line(line.name, twin, excused.get(line.name))
        if again.status == "fail":
            return dataclasses.replace(again, detail=f"seed {other}: {again.detail}")
    return dataclasses.replace(line, detail=f"{line.detail}; also at seeds {seed + 1} and {seed + 2}")


def _second_opinion(check: Check, subject: Subject) -> str | tuple[str, dict[str, Any]]:
    """Run the check; where rounding explains its failure in float32, run it in float64, where a mistake remains.

    Rounding explains 1e-5, and more only if a core amplifies the last digit of its weights and inputs
    (:func:`recollect.certify.precision.rounding`).
    """
    try:
        return check(subject)
    except Violation as violation:
        if subject.dtype == torch.float64 or violation.relative > LARGEST_ROUNDING:
            raise
        try:
            allowed = precision.rounding(subject)
            if violation.relative > 10 * allowed:
                raise violation
            result = check(subject.in_float64())
        except Exception:
            raise violation from None
        detail = result if isinstance(result, str) else result[0]
        return f"{detail} in float64; in float32 rounding grows to {violation.relative:.1g}"


def _input_shape(core: object, given: tuple[int, ...] | None) -> tuple[int, ...]:
    if not isinstance(core, nn.Module):
        raise ValueError(f"core is a {type(core).__name__}: give a torch.nn.Module that follows the streaming contract")
    if not callable(getattr(core, "initial_state", None)):
        raise ValueError(
            f"{type(core).__name__} has no initial_state(batch_size): add this method, which returns a fresh memory"
        )
    shape = given if given is not None else getattr(core, "input_shape", None)
    if shape is None:
        raise ValueError(
            f"input_shape=None: {type(core).__name__} has no input_shape; give input_shape=(width,), or set "
            "self.input_shape in the module"
        )
    return tuple(int(size) for size in shape)


def _exemptions(core: nn.Module, given: Mapping[str, str]) -> dict[str, str]:
    merged: dict[str, str] = {**getattr(core, "exemptions", {}), **given}
    found = {ALIASES.get(name, name): reason for name, reason in merged.items()}
    for name, reason in found.items():
        if name not in LINES:
            raise ValueError(f"exemptions[{name!r}]: no such line{suggest(name, LINES)}")
        if not isinstance(reason, str) or not reason.strip():
            raise ValueError(f"exemptions[{name!r}]={reason!r}: give a reason in words")
    return found


def _lines(given: Sequence[str] | None) -> list[str]:
    if given is None:
        return list(LINES)
    names = [ALIASES.get(name, name) for name in given]
    for name in names:
        if name not in LINES:
            raise ValueError(f"lines: no line {name!r}{suggest(name, LINES)}")
    return [name for name in LINES if name in names]


def _state_bytes(core: Any) -> int:
    try:
        with torch.no_grad():
            return nbytes(core.initial_state(1))
    except Exception:
        return 0  # the card has the error


def certify_many(
    names: Sequence[str], *, processes: int | None = None, options: Mapping[str, Any] | None = None
) -> Iterator[Card]:
    """Certify several cores, each in a process with one thread, and yield the cards in the order of ``names``.

    Args:
        names: arguments of :func:`load`.
        processes: number of processes at a time; that of the processors when None. 1 starts no new processes.
        options: further arguments of :func:`certify`.

    Raises:
        ValueError: a name that cannot be loaded, or no process (before anything runs).
    """
    require(processes is None or processes >= 1, "processes", processes, "give at least 1, or None for all processors")
    loaded = [load(name) for name in names]
    arguments = dict(options or {})
    processes = min(len(names), processes or os.cpu_count() or 1)
    if processes <= 1:
        yield from (certify(load(name), **arguments) for name in names)
        return
    # spawn: a fork of a process whose torch has started threads may hang.
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(processes, mp_context=context, initializer=torch.set_num_threads, initargs=(1,)) as pool:
        # The dearest ones start first, so that none of them runs alone at the end.
        costs = [_time_steps(candidate, arguments.get("input_shape")) for candidate in loaded]
        dearest_first = sorted(range(len(names)), key=costs.__getitem__, reverse=True)
        jobs = {index: pool.submit(_certify_name, names[index], arguments) for index in dearest_first}
        try:
            yield from (jobs[index].result() for index in range(len(names)))
        finally:
            for job in jobs.values():
                job.cancel()


@settings_kept()
@torch.no_grad()
def _time_steps(candidate: Candidate, input_shape: tuple[int, ...] | None) -> float:
    """Return the seconds of a few steps, least of three tries; 0 for a module that cannot be called, as its card says.

    Single steps are most of a certificate.
    """
    core: Any = candidate.core
    try:
        frame = torch.zeros(2, 1, *_input_shape(core, input_shape or candidate.input_shape))
        state, never, times = core.initial_state(2), torch.zeros(2, 1, dtype=torch.bool), []
        for _ in range(3):
            started = time.perf_counter()
            for _ in range(5):
                core(frame, state, never)
            times.append(time.perf_counter() - started)
    except Exception:
        return 0.0
    return min(times)


def _certify_name(name: str, options: dict[str, Any]) -> Card:
    return certify(load(name), **options)
