import os
import platform
import subprocess
import sys

import pytest

from recollect.ops.allocation import SETTINGS, keep_freed_memory, return_freed_memory

PROGRAM = """
import resource, sys, torch
from recollect.ops.allocation import keep_freed_memory
print(keep_freed_memory() if sys.argv[1] == "keep" else "unset")
def step():
    parts = [torch.ones(5 << 20) for _ in range(4)]  # 20 MB each
for _ in range(5):  # the heap takes some steps to find its size
    step()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(10):
    step()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def run_program(what):
    kept = {name: value for name, value in os.environ.items() if name not in SETTINGS}
    command = [sys.executable, "-c", PROGRAM, what]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=True, env=kept)
    is_set, faults = done.stdout.split()
    return is_set, int(faults)


@pytest.mark.long
@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc has these settings")
def test_a_step_costs_no_fresh_pages():
    """Ten steps of 80 MB: 200 000 new pages of 4 KiB, or a few hundred huge ones."""
    _, anew = run_program("not")
    is_set, kept = run_program("keep")
    assert is_set == "True"
    if not anew:
        pytest.skip("this system counts no faults for fresh memory, so there is nothing to save")
    assert kept < anew / 10


@pytest.mark.parametrize("setting", SETTINGS)
def test_settings_of_users_are_kept(monkeypatch, setting):
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
with return_freed_memory() as is_set:
    returned = held()
print(is_set, returned, held())
"""


@pytest.mark.long
@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc has these settings")
def test_measured_memory_has_no_holes():
    """Of forty blocks only the last is in use: without the setting the process holds all, as the last is on top."""
    kept = {name: value for name, value in os.environ.items() if name not in SETTINGS}
    done = subprocess.run(
        [sys.executable, "-c", MEASURED], capture_output=True, text=True, timeout=600, check=True, env=kept
    )
    is_set, returned, held = done.stdout.split()
    assert is_set == "True"
    assert int(returned) < 8 << 20 < 100 << 20 < int(held)


def test_settings_of_users_are_kept_where_memory_is_measured(monkeypatch):
    monkeypatch.setenv(SETTINGS[0], "1000000")
    with return_freed_memory() as is_set:
        assert not is_set
