"""A world may change settings of the process, and they are as before after each call of its code."""

import os
import signal
import threading

import pytest
import torch

from recollect.evaluation.world_guard import world_errors
from recollect.runs.errors import WorldError
from recollect.tasks.process_settings import kept_process_settings

CHANGES = {
    "working directory": lambda folder: os.chdir(folder),
    "gradients": lambda folder: torch.set_grad_enabled(False),
    "default dtype": lambda folder: torch.set_default_dtype(torch.float64),
    "threads": lambda folder: torch.set_num_threads(torch.get_num_threads() + 1),
    "signal handler": lambda folder: signal.signal(signal.SIGTERM, signal.SIG_IGN),
}


def settings():
    found = torch.is_grad_enabled(), torch.get_default_dtype(), torch.get_num_threads()
    return os.getcwd(), *found, signal.getsignal(signal.SIGTERM)


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("fails", [False, True])
def test_settings_are_put_back(change, fails, tmp_path):
    before = settings()
    try:
        with world_errors("Roaming", "its reset"):
            CHANGES[change](tmp_path)
            changed = settings()
            if fails:
                raise OSError("broken")
    except WorldError as error:
        assert fails and "Roaming in its reset: OSError: broken" in str(error)
    assert changed != before and settings() == before


def test_two_threads_do_not_restore_what_the_other_one_changed(tmp_path):
    before, moved, done = os.getcwd(), threading.Event(), threading.Event()

    def roam():
        with kept_process_settings():
            os.chdir(tmp_path)
            moved.set()
            done.wait(600)

    thread = threading.Thread(target=roam)
    thread.start()
    assert moved.wait(600)
    with kept_process_settings():  # begins while the other world is elsewhere
        pass
    done.set()
    thread.join()
    assert os.getcwd() == before


@pytest.mark.parametrize("roams", [False, True])
def test_a_thread_that_is_given_up_no_longer_holds_the_working_directory(roams, tmp_path, monkeypatch):
    begun, done = threading.Event(), threading.Event()
    (tmp_path / "its").mkdir()
    (tmp_path / "ours").mkdir()

    def hang():
        with kept_process_settings():
            if roams:
                os.chdir(tmp_path / "its")
            begun.set()
            done.wait(600)
        with kept_process_settings():  # a later block of the thread is one like any other
            os.chdir(tmp_path / "its")

    thread = threading.Thread(target=hang)
    thread.start()
    try:
        assert begun.wait(600)
        kept_process_settings.give_up(thread.ident)
        monkeypatch.chdir(tmp_path / "ours")
        with kept_process_settings():
            pass
        assert os.getcwd() == str(tmp_path / "ours")
    finally:
        done.set()
        thread.join()
    assert os.getcwd() == str(tmp_path / "ours")
    kept_process_settings.give_up(thread.ident)  # it is in no block: nothing is left of it
    assert not kept_process_settings.given_up and not kept_process_settings.directories


def test_a_block_that_a_signal_ended_early_is_forgotten(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    kept_process_settings().__enter__()  # a signal came before the first line of its body
    (tmp_path / "next").mkdir()
    monkeypatch.chdir(tmp_path / "next")
    with kept_process_settings():
        pass
    assert os.getcwd() == str(tmp_path / "next")


def test_a_working_directory_that_was_deleted_is_no_error(tmp_path, monkeypatch):
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    with kept_process_settings():
        pass
