"""Facts about this machine: processor, memory, processes, optional packages."""

import os
import platform
import re
import threading
from contextlib import suppress
from multiprocessing import parent_process
from pathlib import Path
from typing import Any, Literal

_ASKED = re.compile(r"allocate ([\d.]+ ?[KMGT]?i?B|\d+ bytes)|buffer size: ([\d.]+ ?[KMGT]i?B)")
_TOO_LARGE = re.compile(
    r"[Oo]verflow|int too large|too large to convert|Storage size calculation|invalid size|"
    r"larger than the maximum|negative dimension|numel: integer multiplication|value cannot be converted"
)
LIMIT_PARTS = 4
"""Parts of every time limit, of which a stop of this process (Ctrl-Z, SIGSTOP, a frozen container) uses up only one."""
_EXTENSIONS = ("avx2", "avx512f", "avx512_bf16", "amx_bf16")


def processor() -> str:
    """Return the processor's name, with family and model where known: virtual machines may hide the name."""
    fields = _fields()
    name = fields.get("model name") or platform.processor() or platform.machine()
    design = [f"{part.removeprefix('cpu ')} {fields[part]}" for part in ("cpu family", "model") if part in fields]
    return f"{name} ({', '.join(design)})" if design else name


def matrix_extensions() -> list[str]:
    """Return which of the relevant instruction sets for matrix products the processor has."""
    flags = set(_fields().get("flags", "").split())
    return [flag for flag in _EXTENSIONS if flag in flags]


def processor_maker() -> Literal["amd", "intel", "other"]:
    """Return the processor's manufacturer."""
    maker = _fields().get("vendor_id", "") or platform.processor()
    return "amd" if "AuthenticAMD" in maker else "intel" if "GenuineIntel" in maker else "other"


def memory_gib() -> float | None:
    """Return the memory of this machine in GiB; None where unknown."""
    if not hasattr(os, "sysconf") or "SC_PHYS_PAGES" not in os.sysconf_names:
        return None
    return round(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2**30, 1)


def resident_bytes() -> int:
    """Return the resident memory of this process; 0 where unknown."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
    except (OSError, IndexError, ValueError):
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE")


def exit_with_parent() -> None:
    """End this worker process when its parent ends, even if that was killed.

    For the ``initializer`` of a pool of processes.
    """
    parent = parent_process()
    assert parent is not None

    def wait() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=wait, daemon=True).start()


def has_process_ended(process: int) -> bool:
    """Return whether no process with this number runs on this machine; zombies have ended."""
    try:
        os.kill(process, 0)
    except (ProcessLookupError, OverflowError):
        return True
    except OSError:
        return False
    with suppress(OSError, IndexError):  # a zombie, on Linux
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    return False


def reset_peak_bytes() -> None:
    """Restart the measurement of :func:`peak_bytes`, where the system supports it."""
    try:  # Linux
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        return


def peak_bytes() -> int | None:
    """Return the peak resident memory since :func:`reset_peak_bytes`; None where unknown."""
    status = Path("/proc/self/status")
    if status.is_file():
        for line in status.read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 2**10
    return None


def describe_out_of_memory(error: BaseException) -> str | None:
    """Describe a failed allocation of torch, NumPy or Python; None where an error is not about memory."""
    text = str(error)
    asked = _ASKED.search(text)
    if asked is not None:
        size = next(group for group in asked.groups() if group)
        number = re.fullmatch(r"(\d+) bytes", size)
        shown = f"{int(number[1]):,} bytes ({int(number[1]) / 2**30:,.1f} GiB)" if number else size
        where = "the accelerator" if "CUDA" in text or "MPS" in text else f"this machine, which has {memory_gib()} GiB,"
        return f"out of memory: {shown} were requested and {where} did not have them"
    if isinstance(error, MemoryError) or "out of memory" in text:
        return f"out of memory ({text})" if text else "out of memory"
    if isinstance(error, OverflowError) or _TOO_LARGE.search(text):
        return f"out of memory: a size overflows ({text.splitlines()[0][:120]})"
    return None


def _fields() -> dict[str, str]:
    """Return the first processor's entry of /proc/cpuinfo; empty where there is none."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return {}
    fields = dict(line.split(":", 1) for line in reversed(lines) if ":" in line)
    return {name.strip(): value.strip() for name, value in fields.items()}


def require_matplotlib() -> Any:
    """Import matplotlib, or say which extra brings it.

    Raises:
        ValueError: matplotlib is not installed.
    """
    try:
        import matplotlib.figure
    except ImportError as error:
        raise ValueError('pictures need matplotlib: pip install "recollect-torch[plots]"') from error
    return matplotlib
