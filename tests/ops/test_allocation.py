import os
import platform
import subprocess
import sys

import pytest

from recollect.ops.allocation import SETTINGS, keep_freed_memory, return_freed_memory

PROGRAM = """
import resource, sys, torch
from recollect.ops.allocation import keep_freed_memory
print(keep_freed_memory() if sys.argv[1] == "keep" else "untold")
def step():
    parts = [torch.ones(5 << 20) for _ in range(4)]  # 20 MB each
for _ in range(5):  # the heap takes some steps to find its size
    step()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(10):
    step()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def told_and_faults(what):
    kept = {name: value for name, value in os.environ.items() if name not in SETTINGS}
    command = [sys.executable, "-c", PROGRAM, what]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True, env=kept)
    told, faults = done.stdout.split()
    return told, int(faults)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc is told")
def test_a_step_costs_no_fresh_pages():
    """Ten steps of 80 MB: 200 000 pages of 4 KiB if all came anew, a few hundred larger ones where they are huge."""
    _, anew = told_and_faults("not")
    told, kept = told_and_faults("keep")
    assert told == "True"
    if not anew:
        pytest.skip("this system counts no faults for fresh memory, so there is nothing to save")
    assert kept < anew / 10


@pytest.mark.parametrize("setting", SETTINGS)
def test_a_users_own_settings_stand(monkeypatch, setting):
    monkeypatch.setenv(setting, "1000000")
    assert not keep_freed_memory()


MEASURED = """
import torch
from recollect.machine import resident_bytes
from recollect.ops.allocation import return_freed_memory, keep_freed_memory
keep_freed_memory()
def held():
    before = resident_bytes()
    parts = [torch.ones(1 << 20) for _ in range(40)]  # 4 MB each
    last = parts[-1]
    del parts
    return resident_bytes() - before  # beyond the last part: what the allocator keeps
with return_freed_memory() as told:
    returned = held()
print(told, returned, held())
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc is told")
def test_measured_memory_has_no_holes():
    """Of forty blocks the last is used on: without being told the process holds all of them, for that one is on top."""
    kept = {name: value for name, value in os.environ.items() if name not in SETTINGS}
    done = subprocess.run(
        [sys.executable, "-c", MEASURED], capture_output=True, text=True, timeout=120, check=True, env=kept
    )
    told, returned, held = done.stdout.split()
    assert told == "True"
    assert int(returned) < 8 << 20 < 100 << 20 < int(held)


def test_a_users_settings_stand_where_memory_is_measured(monkeypatch):
    monkeypatch.setenv(SETTINGS[0], "1000000")
    with return_freed_memory() as told:
        assert not told
