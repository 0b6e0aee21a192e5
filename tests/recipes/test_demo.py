import io
import signal
from dataclasses import replace

import pytest
import torch
from rich.console import Console

from recollect.cores import CORES
from recollect.recipes.demo import demo, demo_config, longer, stream
from recollect.training import FitConfig, evaluate_run
from recollect.training.impala.trainer import ImpalaTrainer


def tiny(key):
    config = demo_config(key)
    sizes = {"dim": 8, "num_layers": 1, "num_heads": 2, "hidden_dim": 8, "memory_len": 4, "chunk_len": 4}
    core = CORES[key](**{name: value for name, value in sizes.items() if name in CORES[key].__dataclass_fields__})
    world = replace(config.world, length=3, slack=5)
    return replace(config, core=core, world=world, batch_size=4, unroll=8, fit=FitConfig(steps=3, evaluate_every=3))


@pytest.mark.long
def test_the_demo_shows_what_it_says(tmp_path):
    console = Console(file=io.StringIO(), record=True, width=200)
    settings = {"steps": 2000, "memory": tiny("hcam"), "ablation": tiny("memoryless"), "episodes": 8}
    shown = demo(tmp_path / "runs [bold]", **settings, console=console)
    text = console.export_text()
    for words in ("length 3", "length 30", "memoryless", "chance", "step 1 000", "bytes", "whole-sequence"):
        assert words in text
    assert text.strip().splitlines()[-1].startswith("Try next: recollect ")
    assert shown.streamed.steps == shown.streamed.agree == 2000
    assert shown.streamed.largest_difference < 1e-4
    assert shown.streamed.early_bytes == shown.streamed.late_bytes
    assert shown.streamed.episodes >= 2000 // (3 * 10 + 1 + 5 + 1)
    assert shown.video.mp4.stat().st_size > 1000
    page = shown.explored.files["explorer"]
    assert page.read_text().startswith("<!doctype html>") and f"See for yourself: {page}" in text
    assert shown.explored.verdict in text and len(shown.explored.episodes) == 8
    assert f"Film: {shown.video.mp4}" in text
    assert evaluate_run(shown.directory, samples=4).chance == shown.memory[0].chance
    again = demo(tmp_path / "runs [bold]", **settings)
    assert again.directory != shown.directory, "a second demo leaves the first alone"


def test_a_stream_without_steps_is_refused_before_training(tmp_path):
    with pytest.raises(ValueError, match=r"steps=-1: give at least 1"):
        demo(tmp_path / "runs", steps=-1, memory=tiny("hcam"), ablation=tiny("memoryless"))
    assert not (tmp_path / "runs").exists()


def test_an_interrupted_demo_names_no_flag_that_it_does_not_have(tmp_path, monkeypatch):
    original = ImpalaTrainer.step

    def stepping(self):
        signal.raise_signal(signal.SIGTERM)
        return original(self)

    monkeypatch.setattr(ImpalaTrainer, "step", stepping)
    with pytest.raises(KeyboardInterrupt, match=r"saved in .*; the same command begins anew, in another folder$"):
        demo(tmp_path / "runs", memory=tiny("hcam"), ablation=tiny("memoryless"))


@pytest.mark.long
def test_a_stream_that_differs_is_told():
    config = tiny("gru")
    torch.manual_seed(0)
    agent = config.build_agent().eval()
    good = stream(agent, config.world, 2000)
    assert good.agree == good.steps

    class Broken(type(agent)):
        def stream(self, batch_size):
            live = super().stream(batch_size)
            never = torch.zeros(batch_size, dtype=torch.bool)
            live.step = lambda inputs, first, step=live.step: step(inputs, never)  # never resets
            return live

    agent.__class__ = Broken
    bad = stream(agent, config.world, 2000)
    assert bad.largest_difference > 100 * good.largest_difference


@pytest.mark.slow
def test_the_real_demo(tmp_path):
    shown = demo(tmp_path)
    assert all(score.score > 0.95 for score in shown.memory)
    assert all(score.low <= score.chance <= score.high for score in shown.memoryless)
    assert shown.streamed.agree == shown.streamed.steps
    assert shown.streamed.late_us < 1.1 * shown.streamed.early_us
    assert shown.streamed.seconds < 60


def test_the_ablation_differs_in_nothing_but_memory_and_time():
    ours, ablation = demo_config(), demo_config("memoryless")
    assert (ours.world, ours.agent, ours.optimizer) == (ablation.world, ablation.agent, ablation.optimizer)
    assert ours.core.reach < ours.world.length, "the window alone does not do it"
    assert longer(ours.world, 10).spec.max_steps <= ours.core.num_chunks * ours.core.chunk_len
