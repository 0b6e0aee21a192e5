"""The benchmark of steps beside busy processes, on few steps."""

import torch

from recollect.benchmark import NeighboursBenchmark, render_neighbours, run_neighbours
from recollect.ops import threads


def test_all_forms_are_timed_beside_neighbours_and_settings_are_restored():
    before = torch.get_num_threads(), threads.SMALL
    results = run_neighbours(NeighboursBenchmark(quick=True, output=""))
    assert [(row.neighbours, row.form) for row in results.rows] == [
        (number, form) for number in (0, 1) for form in ("one thread", "all threads", "default")
    ]
    assert all(0 < row.p50_us <= row.p99_us <= row.worst_us and row.steps == 10 for row in results.rows)
    assert (torch.get_num_threads(), threads.SMALL) == before
    assert render_neighbours(results)
