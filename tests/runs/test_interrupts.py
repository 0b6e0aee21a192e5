"""Blocks that a signal ends leave torch's gradient mode as it was; time limits count the time of a running process."""

import os
import signal
import subprocess
import sys
import time

import pytest
import torch

from recollect.runs.interrupts import Interrupted, Interrupts, SecondInterrupt, TimeLimitExceeded, time_limited


@pytest.mark.parametrize("enabled", [True, False])
def test_a_time_limit_between_the_lines_of_no_grad_restores_the_gradient_mode(enabled):
    with torch.set_grad_enabled(enabled):
        with pytest.raises(TimeLimitExceeded), time_limited(0.05, patience=0.0):
            torch.set_grad_enabled(not enabled)  # torch.no_grad has set the mode, and has not restored it
            time.sleep(30)
        assert torch.is_grad_enabled() == enabled


def test_the_inner_of_two_blocks_restores_it_too():
    with time_limited(60, patience=0.0):
        with pytest.raises(TimeLimitExceeded), time_limited(0.05, patience=0.0):
            torch.set_grad_enabled(False)
            time.sleep(30)
        assert torch.is_grad_enabled()


def test_ctrl_c_restores_it():
    with pytest.raises(Interrupted), Interrupts(), time_limited(60, patience=0.0):
        torch.set_grad_enabled(False)
        signal.raise_signal(signal.SIGINT)
    assert torch.is_grad_enabled()


def test_a_second_ctrl_c_restores_it():
    with pytest.raises(SecondInterrupt), Interrupts() as interrupts:
        torch.set_grad_enabled(False)
        signal.raise_signal(signal.SIGINT)
        assert interrupts.received == "Ctrl-C"
        signal.raise_signal(signal.SIGINT)
    assert torch.is_grad_enabled()


STOPPED = """
import os, signal, time
from recollect.runs.interrupts import TimeLimitExceeded, time_limited
with time_limited(60, patience=0.0) as outer, time_limited(1.0, patience=0.0) as block:
    before = outer.end
    os.kill(os.getpid(), signal.SIGSTOP)
    time.sleep(0.1)
    assert outer.end > before + 1
    print("continued")
    try:
        time.sleep(30)
    except TimeLimitExceeded:
        print("limited")
"""


def test_time_in_which_the_process_is_stopped_does_not_count():
    with subprocess.Popen([sys.executable, "-c", STOPPED], stdout=subprocess.PIPE, text=True) as process:
        assert os.WIFSTOPPED(os.waitpid(process.pid, os.WUNTRACED)[1])
        time.sleep(2)
        process.send_signal(signal.SIGCONT)
        assert process.communicate()[0].split() == ["continued", "limited"]


def test_a_block_that_catches_its_end_is_ended_again():
    caught = 0
    with time_limited(0.05, patience=0.0):
        while caught < 2:
            try:
                time.sleep(30)
            except TimeLimitExceeded:
                caught += 1
