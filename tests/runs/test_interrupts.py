"""A block that a signal ends leaves torch's gradient mode as it was."""

import signal
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
