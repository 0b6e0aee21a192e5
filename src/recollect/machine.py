"""What machine this is: processor, memory, versions."""

import os
import platform
import re
import threading
from contextlib import suppress
from multiprocessing import parent_process
from pathlib import Path
from typing import Literal

_ASKED = re.compile(r"allocate ([\d.]+ ?[KMGT]?i?B|\d+ bytes)|buffer size: ([\d.]+ ?[KMGT]i?B)")
_TOO_LARGE = re.compile(
    r"[Oo]verflow|int too large|too large to convert|Storage size calculation|invalid size|"
    r"larger than the maximum|negative dimension|numel: integer multiplication|value cannot be converted"
)
_EXTENSIONS = ("avx2", "avx512f", "avx512_bf16", "amx_bf16")


def processor() -> str:
    """The processor's name, and its design where the system tells: a rented one may only have its maker's name."""
    fields = _fields()
    name = fields.get("model name") or platform.processor() or platform.machine()
    design = [f"{part.removeprefix('cpu ')} {fields[part]}" for part in ("cpu family", "model") if part in fields]
    return f"{name} ({', '.join(design)})" if design else name


def matrix_extensions() -> list[str]:
    """Which instructions for matrix products the processor has, of those that matter here."""
    flags = set(_fields().get("flags", "").split())
    return [flag for flag in _EXTENSIONS if flag in flags]


def processor_maker() -> Literal["amd", "intel", "other"]:
    """Who made the processor."""
    maker = _fields().get("vendor_id", "") or platform.processor()
    return "amd" if "AuthenticAMD" in maker else "intel" if "GenuineIntel" in maker else "other"


def memory_gib() -> float | None:
    """Memory of this machine in GiB; None where the system does not tell."""
    if not hasattr(os, "sysconf") or "SC_PHYS_PAGES" not in os.sysconf_names:
        return None
    return round(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2**30, 1)


def resident_bytes() -> int:
    """Memory of this process that is in RAM now; 0 where the system does not tell."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
    except (OSError, IndexError, ValueError):
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE")


def exit_with_parent() -> None:
    """End this worker process when the one that started it ends, however it does: else a killed one leaves it behind.

    For the ``initializer`` of a pool of processes.
    """
    parent = parent_process()
    assert parent is not None

    def wait() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=wait, daemon=True).start()


def has_process_ended(process: int) -> bool:
    """Whether no such process runs on this machine: it has ended, even if its parent has not looked yet."""
    try:
        os.kill(process, 0)
    except (ProcessLookupError, OverflowError):
        return True
    except OSError:
        return False
    with suppress(OSError, IndexError):  # Linux: ended, and its parent has not looked yet
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    return False


def reset_peak_bytes() -> None:
    """Let :func:`peak_bytes` count from now on, where the system can."""
    try:  # Linux
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        return


def peak_bytes() -> int | None:
    """Most memory of this process in RAM since :func:`reset_peak_bytes`; None where the system does not tell."""
    status = Path("/proc/self/status")
    if status.is_file():
        for line in status.read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 2**10
    return None


def describe_out_of_memory(error: BaseException) -> str | None:
    """What a failed allocation asked for, in words; None where an error is no lack of memory.

    Args:
        error: of torch, NumPy or Python.
    """
    text = str(error)
    asked = _ASKED.search(text)
    if asked is not None:
        size = next(group for group in asked.groups() if group)
        number = re.fullmatch(r"(\d+) bytes", size)
        shown = f"{int(number[1]):,} bytes ({int(number[1]) / 2**30:,.1f} GiB)" if number else size
        where = "the accelerator" if "CUDA" in text or "MPS" in text else f"this machine, which has {memory_gib()} GiB,"
        return f"out of memory: {shown} were asked for and {where} did not have them"
    if isinstance(error, MemoryError) or "out of memory" in text:
        return f"out of memory ({text})" if text else "out of memory"
    if isinstance(error, OverflowError) or _TOO_LARGE.search(text):
        return f"out of memory: a size is beyond all numbers ({text.splitlines()[0][:120]})"
    return None


def _fields() -> dict[str, str]:
    """The first processor's entry of /proc/cpuinfo; empty where there is none."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return {}
    fields = dict(line.split(":", 1) for line in reversed(lines) if ":" in line)
    return {name.strip(): value.strip() for name, value in fields.items()}
