import subprocess
import sys
from pathlib import Path

import imageio_ffmpeg
import numpy as np
import pytest
import torch
from PIL import Image

from recollect.agents.config import ActorCriticConfig
from recollect.cores import CORES
from recollect.evaluation import agent_videos
from recollect.evaluation.agent_videos import action_text, episode_frames, record_video, sentence_text
from recollect.tasks.worlds.ballet.world import WORDS as DANCE_WORDS
from recollect.tasks.worlds.ballet.world import BalletConfig
from recollect.tasks.worlds.t_maze import TMazeConfig

MAZE = TMazeConfig(length=3, slack=1)


def agent(world=MAZE):
    torch.manual_seed(0)
    spec = world.spec
    config = ActorCriticConfig(width=8, policy_gain=1.0)
    return config.build(CORES["gru"](dim=6, num_layers=1), spec.observation_space, spec.action_space).eval()


def test_frames_are_the_steps_of_the_world():
    frames = list(episode_frames(agent(), MAZE, episodes=3, seed=2, greedy=False))
    world = MAZE.build(1, seed=2)
    step, total = world.reset(), 0.0
    for index, frame in enumerate(frames):
        total = 0.0 if step.is_first else total + float(step.reward)
        assert frame.reward == float(step.reward) and frame.sum_reward == pytest.approx(total)
        assert frame.over == bool(step.is_last) and (frame.score is not None) == frame.over
        assert (frame.step == 0) == bool(step.is_first)
        assert frame.picture.dtype == np.uint8 and frame.picture.shape[2] == 3
        if index + 1 < len(frames):
            names = world.spec.action_names
            step = world.step(torch.tensor([names.index(frame.action) if frame.action else 0]))
    assert [frame.episode for frame in frames if frame.over] == [1, 2, 3]


def test_a_video_is_written_and_can_be_read(tmp_path):
    one = agent().train()
    before = torch.get_rng_state()
    video = record_video(one, MAZE, tmp_path / "new" / "maze", episodes=2, fps=5)
    assert one.training and torch.equal(before, torch.get_rng_state())
    with Image.open(video.gif) as gif:
        assert 2 <= gif.n_frames <= video.frames
        width, height = gif.size
    assert width % 2 == height % 2 == 0
    # imageio's own reader leaves its process to the garbage collector.
    command = [imageio_ffmpeg.get_ffmpeg_exe(), "-i", video.mp4, "-f", "rawvideo", "-pix_fmt", "rgb24", "-"]
    read = subprocess.run(command, capture_output=True, check=True, stdin=subprocess.DEVNULL)
    pictures = np.frombuffer(read.stdout, np.uint8).reshape(-1, height, width, 3)
    assert b" 5 fps" in read.stderr and len(pictures) == video.frames
    assert pictures[0].std() > 5  # not a black picture
    assert len(video.scores) == len(video.returns) == 2
    assert [path.name for path in sorted((tmp_path / "new").iterdir())] == ["maze.gif", "maze.mp4"]


def test_pictures_of_several_sizes_are_fitted_into_the_first(tmp_path, monkeypatch):
    frames = list(episode_frames(agent(), MAZE, episodes=1))
    sizes = [(40, 41), (90, 30), (400, 900), (7, 7)]
    drawn = [np.full((*size, 3), 250, np.uint8) for size in sizes]
    several = [frame._replace(picture=one) for frame, one in zip(frames, drawn, strict=False)]
    monkeypatch.setattr(agent_videos, "episode_frames", lambda *_, **__: iter(several))
    video = record_video(agent(), MAZE, tmp_path / "rooms", fps=10)
    assert video.frames == len(sizes) == len(several)
    with Image.open(video.gif) as gif:
        assert gif.n_frames == len(sizes)
        for number in range(len(sizes)):
            gif.seek(number)
            bright = np.asarray(gif.convert("L")) > 240
            assert bright.sum(1).max() > 100 and bright[:, gif.width // 2].any()  # whole, and in the middle


def test_a_film_that_breaks_off_leaves_the_one_before_it(tmp_path, monkeypatch):
    before = record_video(agent(), MAZE, tmp_path / "maze", episodes=1).gif.read_bytes()

    def fill_the_disk(self, target, *given, **more):
        Path(target).write_bytes(b"GIF8")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Image.Image, "save", fill_the_disk)
    with pytest.raises(OSError, match="No space left"):
        record_video(agent(), MAZE, tmp_path / "maze", episodes=1)
    assert (tmp_path / "maze.gif").read_bytes() == before
    assert [path.name for path in sorted(tmp_path.iterdir())] == ["maze.gif", "maze.mp4"]


def test_long_episodes_are_cut():
    world = TMazeConfig(length=30, slack=0)
    frames = list(episode_frames(agent(world), world, episodes=2, longest=4))
    assert [frame.step for frame in frames] == [0, 1, 2, 3, 4] * 2
    assert [frame.over for frame in frames] == [False, False, False, False, True] * 2
    assert frames[-1].score is None


def test_actions_have_names_where_the_world_says_them():
    assert action_text(torch.tensor(2), ("up", "down", "stay")) == "stay"
    assert action_text(torch.tensor(2)) == "2" and action_text(torch.tensor([2, 0]), ("a", "b", "c")) == "2 0"
    assert action_text(torch.tensor([0.5, -1.0])) == "+0.50 -1.00"


def test_words_are_spoken():
    world = BalletConfig().build(1)
    step = world.reset()
    assert sentence_text(world, step.observation) == "watch"
    assert sentence_text(world, {"language": torch.tensor([[0, 2, 0]])}) == DANCE_WORDS[2]
    assert sentence_text(world, {"image": torch.zeros(1)}) == ""
    assert sentence_text(MAZE.build(1), {"language": torch.tensor([[7, 9]])}) == "7 9"


def test_mistakes_are_named(tmp_path, monkeypatch):
    with pytest.raises(ValueError, match="episodes=0"):
        record_video(agent(), MAZE, tmp_path / "x", episodes=0)
    monkeypatch.setitem(sys.modules, "imageio_ffmpeg", None)
    with pytest.raises(ValueError, match=r"pip install 'imageio"):
        record_video(agent(), MAZE, tmp_path / "x")
