import io
from dataclasses import replace

import pytest
import torch
from rich.console import Console

from recollect.cores import CORES
from recollect.recipes.demo import demo, demo_config, stream
from recollect.recipes.recall import recall
from recollect.training import FitConfig, evaluate_run


def tiny(key):
    sizes = {"dim": 8, "num_layers": 1, "num_heads": 2, "hidden_dim": 8, "memory_len": 4, "chunk_len": 4}
    core = CORES[key](**{name: value for name, value in sizes.items() if name in CORES[key].__dataclass_fields__})
    fit = FitConfig(steps=3, evaluate_every=3)
    return replace(recall(key), core=core, fit=fit, batch_size=2, evaluation_rows=2)


def test_the_demo_shows_what_it_says(tmp_path):
    console = Console(file=io.StringIO(), record=True, width=200)
    settings = {"steps": 2000, "memory": tiny("hcam"), "ablation": tiny("memoryless"), "rows": 8}
    shown = demo(tmp_path / "runs", **settings, console=console)
    text = console.export_text()
    for words in ("hcam", "memoryless", "chance", "step 1 000", "bytes", "whole-sequence pass", "Try next"):
        assert words in text
    assert text.strip().splitlines()[-1].startswith("Try next: recollect ")
    assert shown.streamed.steps >= 2000
    assert shown.streamed.agree == shown.streamed.queries > 100
    assert shown.streamed.largest_difference < 1e-4
    assert shown.streamed.early_bytes == shown.streamed.late_bytes
    assert evaluate_run(shown.directory, rows=4).chance == shown.memory.chance
    again = demo(tmp_path / "runs", **settings)
    assert again.directory != shown.directory, "a second demo leaves the first alone"


def test_a_stream_that_differs_is_told(tmp_path):
    config = tiny("gru")
    torch.manual_seed(0)
    model = config.build_agent().eval()
    good = stream(model, config, 2000)
    assert good.agree == good.queries

    class Broken(type(model)):
        def stream(self, batch_size):
            live = super().stream(batch_size)
            live.step = lambda token, first=None, step=live.step: step(token)  # never resets
            return live

    model.__class__ = Broken
    bad = stream(model, config, 2000)
    assert bad.largest_difference > 100 * good.largest_difference


@pytest.mark.slow
def test_the_real_demo(tmp_path):
    shown = demo(tmp_path, steps=100_000)
    assert shown.memory.score > 0.95
    assert shown.memoryless.low <= shown.memoryless.chance <= shown.memoryless.high
    assert shown.streamed.agree == shown.streamed.queries
    assert shown.streamed.late_us < 1.1 * shown.streamed.early_us
    assert shown.streamed.seconds < 60


def test_the_ablation_differs_in_nothing_but_memory():
    ours, ablation = demo_config(), demo_config("memoryless")
    assert (ours.task, ours.agent, ours.optimizer) == (ablation.task, ablation.agent, ablation.optimizer)
    assert ours.core.memory_len < ours.task.min_blank + ours.task.max_blank, "the window alone does not do it"
