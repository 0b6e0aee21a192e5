"""Workers of a pool end when the process that started them is killed."""

import subprocess
import sys

SCRIPT = """
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from recollect.machine import exit_with_parent
if __name__ == "__main__":
    pool = ProcessPoolExecutor(1, mp_context=get_context("spawn"), initializer=exit_with_parent)
    print(pool.submit(abs, -1).result(), flush=True)
    time.sleep(60)
"""


def test_workers_do_not_outlive_a_killed_process(tmp_path):
    (tmp_path / "script.py").write_text(SCRIPT)
    killed = subprocess.Popen([sys.executable, str(tmp_path / "script.py")], stdout=subprocess.PIPE)
    assert killed.stdout is not None and killed.stdout.readline() == b"1\n"
    killed.kill()
    killed.communicate(timeout=600)  # waits until no worker has the pipe any more
