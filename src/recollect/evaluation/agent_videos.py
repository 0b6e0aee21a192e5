"""Videos of an agent's observations, actions and values: MP4 and GIF.

    record_video(agent, BalletConfig(), "videos/ballet", episodes=4)         videos/ballet.mp4 and .gif

Every frame is a picture of the world (of an environment with ``render_mode="rgb_array"`` its own) above the step, the
action, the reward of this step, the return so far, the agent's value and, in worlds with language, the sentence. Each
episode ends with a pause on the last frame, which shows the score.
"""

import sys
from collections.abc import Iterator, Sequence
from os import PathLike
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np
from torch import Tensor

from recollect.agents.contract import Agent
from recollect.config import require
from recollect.evaluation.agents import evaluation_mode, play
from recollect.evaluation.world_guard import GuardedWorld
from recollect.files import new_file
from recollect.runs.progress import ProgressReporter
from recollect.tasks.worlds.contract import Observation, World, WorldConfig
from recollect.tasks.worlds.pictures import picture

WIDTH = 384  # least width of a frame in pixels
LINE = 22  # height of a caption line in pixels
PAPER, INK, SOFT = (20, 23, 27), (232, 234, 237), (160, 168, 179)
WAIT = 100_000  # most steps of an episode
PAUSE = 0.8  # seconds that the last frame of an episode is shown


class Video(NamedTuple):
    """Files and scores of a recorded video."""

    mp4: Path
    gif: Path
    frames: int  # frames, pauses included
    scores: list[float]  # score of every episode that ended
    returns: list[float]  # sum of rewards of every episode, or of its recorded part


class Frame(NamedTuple):
    """One recorded step."""

    picture: np.ndarray  # uint8 [y, x, 3]
    episode: int
    step: int
    action: str  # next action; empty at the end
    reward: float
    sum_reward: float
    value: float
    words: str  # sentence of the world; empty without one
    score: float | None  # at the last step, None before
    over: bool  # last recorded frame of its episode


def record_video(
    agent: Agent,
    world_config: WorldConfig,
    target: str | PathLike[str],
    *,
    episodes: int = 4,
    seed: int = 0,
    greedy: bool = True,
    fps: int = 8,
    longest: int = 1000,
) -> Video:
    """Record a video of an agent; its modes and the global generators are restored afterwards.

    Args:
        agent: plays in ``eval`` mode.
        world_config: of the world.
        target: path of the files, without an ending.
        episodes: number of consecutive episodes.
        seed: of the world and of sampled actions.
        greedy: take the most probable action; False samples from the policy.
        fps: steps per second.
        longest: most recorded steps of an episode, from its beginning.

    Raises:
        ValueError: imageio or pillow is missing; a number below 1.
    """
    for name, number in (("episodes", episodes), ("fps", fps), ("longest", longest)):
        require(number >= 1, name, number, "give at least 1")
    imageio, pillow = load_imageio(), load_pillow()
    mp4, gif = (Path(f"{target}.{ending}") for ending in ("mp4", "gif"))
    mp4.parent.mkdir(parents=True, exist_ok=True)
    scores, returns, stills = [], [], []
    count = ProgressReporter(episodes, "episodes filmed")
    options = {"fps": fps, "codec": "libx264", "quality": 8, "macro_block_size": 2}
    with (
        evaluation_mode(agent, seed),
        new_file(mp4) as unfinished,
        imageio.get_writer(unfinished, format="FFMPEG", **options) as writer,
    ):
        for frame in episode_frames(agent, world_config, episodes=episodes, seed=seed, greedy=greedy, longest=longest):
            still = _compose(frame, pillow, stills[0][0].size if stills else None)
            stays = 1 + round(PAUSE * fps) * frame.over
            for _ in range(stays):
                writer.append_data(np.asarray(still))
            stills.append((still.quantize(128), stays))
            count.update(lambda: len(returns))
            if frame.over:
                returns.append(frame.sum_reward)
                scores += [] if frame.score is None else [frame.score]
    # GIF durations are hundredths of a second.
    times = [max(2, round(100 * stays / fps)) * 10 for _, stays in stills]
    images = [still for still, _ in stills]
    with new_file(gif) as unfinished:
        images[0].save(
            unfinished, "gif", save_all=True, append_images=images[1:], duration=times, loop=0, optimize=False
        )
    return Video(mp4, gif, sum(stays for _, stays in stills), scores, returns)


def write_frame(agent: Agent, world_config: WorldConfig, path: str | PathLike[str], *, seed: int = 0) -> Path:
    """Write the last frame of an episode as a small PNG.

    Args:
        agent: plays in ``eval`` mode, and takes the most probable actions.
        world_config: of the world.
        path: of the file.
        seed: of the world.

    Raises:
        ValueError: pillow is missing.
    """
    pillow, path = load_pillow(), Path(path)
    with evaluation_mode(agent, seed):
        *_, last = episode_frames(agent, world_config, episodes=1, seed=seed)
    with new_file(path) as unfinished:
        _compose(last, pillow).quantize(64).save(unfinished, "png", optimize=True)
    return path


def episode_frames(
    agent: Agent,
    world_config: WorldConfig,
    *,
    episodes: int,
    seed: int = 0,
    greedy: bool = True,
    longest: int = 1000,
) -> Iterator[Frame]:
    """Yield the frames of one row, episode by episode; the agent plays in its present mode."""
    guarded = GuardedWorld(world_config.with_rendering(), 1, seed=seed, device=next(agent.parameters()).device)
    world = guarded.world
    episode, clock, total = 0, 0, 0.0
    try:
        for played in play(agent, guarded, seed=seed, greedy=greedy):
            step = played.step
            first, last = bool(step.is_first[0]), bool(step.is_last[0])
            episode += first
            if episode > episodes:
                return
            clock, total = (0, 0.0) if first else (clock + 1, total + float(step.reward[0]))
            if clock > longest:
                if episode == episodes or clock > WAIT:
                    return
                continue
            yield Frame(
                picture=picture(world, step.observation, 0),
                episode=episode,
                step=clock,
                action="" if last else action_text(played.action[0], world.spec.action_names),
                reward=float(step.reward[0]),
                sum_reward=total,
                value=float(played.output.value[0]),
                words=sentence_text(world, step.observation),
                score=float(step.score[0]) if last else None,
                over=last or clock == longest,
            )
    finally:
        guarded.close()


def sentence_text(world: World, observation: Observation, row: int = 0) -> str:
    """Return the sentence of a row; numbers where the world's module has no ``WORDS``; empty without language."""
    if not isinstance(observation, dict) or "language" not in observation:
        return ""
    tokens = [token for token in observation["language"][row].tolist() if token]
    words: Any = getattr(sys.modules[type(world).__module__], "WORDS", ())
    return " ".join(words[token] if token < len(words) else str(token) for token in tokens)


def _compose(frame: Frame, pillow: Any, size: tuple[int, int] | None = None) -> Any:
    """Draw the picture above its caption, as a Pillow image with even sides, which video codecs need.

    With a ``size``, that of the video's first image, a larger picture is reduced: rooms of a world may differ in size.
    """
    y, x, _ = frame.picture.shape
    factor = max(1, round(WIDTH / max(x, y)))
    caption = 3 * LINE + 10
    if size is None:
        tall, wide = y * factor, max(x * factor, WIDTH)
        size = wide + wide % 2, tall + tall % 2 + caption
    image, tall = pillow.Image.new("RGB", size, PAPER), size[1] - caption
    scene = pillow.Image.fromarray(frame.picture).resize((x * factor, y * factor), pillow.Image.Resampling.NEAREST)
    scene.thumbnail((size[0], tall))
    image.paste(scene, ((image.width - scene.width) // 2, (tall - scene.height) // 2))
    draw = pillow.ImageDraw.Draw(image)
    font = pillow.ImageFont.load_default(size=15)
    ending = "" if not frame.over else "cut" if frame.score is None else f"score {frame.score:.3g}"
    lines = (
        (f"episode {frame.episode}", f"step {frame.step}", f"action {frame.action}" if frame.action else ending),
        (f"reward {frame.reward:+.3g}", f"return {frame.sum_reward:+.3g}", f"value {frame.value:+.2f}"),
    )
    for row, cells in enumerate(lines):
        for column, text in enumerate(cells):
            place = (10 + column * image.width // 3, tall + 6 + row * LINE)
            draw.text(place, text, font=font, fill=INK if row == 0 else SOFT)
    draw.text((10, tall + 6 + 2 * LINE), frame.words, font=font, fill=INK)
    return image


def action_text(action: Tensor, names: Sequence[str] = ()) -> str:
    """Return an action's name (``WorldSpec.action_names``), or its numbers."""
    if names and action.ndim == 0:
        return names[int(action)]
    if action.is_floating_point():
        return " ".join(f"{number:+.2f}" for number in action.flatten().tolist())
    return " ".join(str(number) for number in action.flatten().tolist())


def load_imageio() -> ModuleType:
    """Import imageio, which writes MP4; ``ValueError`` where it is missing."""
    try:
        import imageio.v2
        import imageio_ffmpeg  # noqa: F401  (imageio needs it for MP4)
    except ImportError as error:
        raise ValueError("a video needs imageio and its ffmpeg: run pip install 'imageio[ffmpeg]'") from error
    return imageio.v2


def load_pillow() -> ModuleType:
    """Import Pillow; ``ValueError`` where it is missing."""
    try:
        import PIL.Image
        import PIL.ImageDraw
        import PIL.ImageFont
    except ImportError as error:
        raise ValueError("a video needs pillow: run pip install pillow") from error
    return PIL
