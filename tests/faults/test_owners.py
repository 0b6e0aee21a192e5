"""One process at a time works on a run directory: the second is refused, the first unharmed."""

import json
import multiprocessing
import os
import signal
import socket
import time
from pathlib import Path

import pytest
import torch

from recollect.cores import CORES
from recollect.runs.folder_lock import FolderLock
from recollect.runs.metrics import read_rows
from recollect.training import FitConfig, SupervisedConfig, fit
from recollect.training.streams.supervised import SupervisedTrainer
from small_runs import recall

CONFIG = SupervisedConfig(
    task=recall(10),
    core=CORES["gru"](dim=4, num_layers=1),
    fit=FitConfig(steps=6, report_every=1, report_seconds=None, evaluate_every=3, checkpoint_every=2),
    batch_size=2,
    evaluation_rows=4,
)
FORK = multiprocessing.get_context("fork")


def work(directory, begun, goes_on):
    """Train, and wait in the middle until somebody says so."""
    original = SupervisedTrainer.step

    def step(self):
        if self.updates == 3:
            begun.set()
            goes_on.wait(600)
        return original(self)

    SupervisedTrainer.step = step
    fit(CONFIG, directory, resume=True)


@pytest.fixture
def owner(tmp_path):
    begun, goes_on = FORK.Event(), FORK.Event()
    process = FORK.Process(target=work, args=(tmp_path / "run", begun, goes_on))
    process.start()
    assert begun.wait(600)
    yield process, tmp_path / "run", goes_on
    process.kill()
    process.join()


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    path = tmp_path_factory.mktemp("whole") / "run"
    torch.manual_seed(0)
    return fit(CONFIG, path).agent.state_dict(), steps(path)


def steps(path):
    return [{k: v for k, v in row.items() if k != "seconds"} for row in read_rows(path / "metrics.csv")]


def refused(path):
    message = rf"{path} is in use by process \d+ on {socket.gethostname()}, since 20\d\d-.*: wait for it, end it, or"
    for resume in (True, False):
        with pytest.raises(ValueError, match=message):
            fit(CONFIG, path, resume=resume)


def attempts(owner, whole, number):
    process, path, goes_on = owner
    before = {file: file.read_bytes() for file in path.rglob("*") if file.is_file()}
    for _ in range(number):
        refused(path)
    assert before == {file: file.read_bytes() for file in path.rglob("*") if file.is_file()}
    goes_on.set()
    process.join(600)
    assert process.exitcode == 0 and not (path / "lock").exists()
    assert steps(path) == whole[1]
    assert fit(CONFIG, path, resume=True).message.startswith("nothing to do")


def test_the_second_is_refused_and_the_first_unharmed(owner, whole):
    attempts(owner, whole, 2)


@pytest.mark.slow
@pytest.mark.parametrize("time", range(20))
def test_the_second_is_refused_every_time(owner, whole, time):
    attempts(owner, whole, 1)


def test_what_a_killed_process_leaves_is_taken_over(owner, whole):
    process, path, _ = owner
    os.kill(process.pid, signal.SIGKILL)
    process.join()
    assert json.loads((path / "lock").read_text())["pid"] == process.pid
    assert fit(CONFIG, path, resume=True).status == "finished"
    assert steps(path) == whole[1]


def test_a_worker_that_outlives_the_owner_does_not_keep_the_folder(tmp_path):
    reading, writing = os.pipe()
    owner = os.fork()
    if owner == 0:
        lock = FolderLock(tmp_path)
        lock.acquire()
        worker = os.fork()  # it inherits what holds the lock
        if worker:
            os.write(writing, str(worker).encode())
            os._exit(0)
        time.sleep(20)
        os._exit(0)
    worker = int(os.read(reading, 20))
    os.waitid(os.P_PID, owner, os.WEXITED | os.WNOWAIT)  # it has ended, and nobody has looked yet
    lock = FolderLock(tmp_path)
    lock.acquire()
    assert json.loads((tmp_path / "lock").read_text())["pid"] == os.getpid()
    lock.release()
    os.kill(worker, signal.SIGKILL)
    os.waitpid(owner, 0)
    os.close(reading)
    os.close(writing)


@pytest.mark.parametrize("content", ["", "{", "[]", "null", "{}", '{"pid": "me"}', '{"pid": -1}', '{"pid": 4194399}'])
def test_a_lock_that_nobody_holds_is_taken_over(tmp_path, content):
    (tmp_path / "lock").write_text(content)
    if content.startswith('{"pid'):
        (tmp_path / "lock").write_text(json.dumps(json.loads(content) | {"host": socket.gethostname()}))
    FolderLock(tmp_path).acquire()


def test_the_lock_of_another_machine_is_respected(tmp_path):
    content = json.dumps({"pid": 1, "host": "elsewhere", "since": "2026-01-01 00:00:00 UTC"})
    path = tmp_path / "run"
    path.mkdir()
    (path / "lock").write_text(content)
    with pytest.raises(
        ValueError, match=r"by process 1 on elsewhere, since 2026-01-01.*if that process is gone, remove"
    ):
        fit(CONFIG, path)
    assert [(file.name, file.read_text()) for file in path.iterdir()] == [("lock", content)]
    Path(path / "lock").unlink()
    assert fit(CONFIG, path).status == "finished"
