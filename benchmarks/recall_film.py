"""Make the moving picture of README: an agent recalls a cue, and what it does where that memory is removed.

    python benchmarks/recall_film.py        a minute of one core; the agent ships with the library

The agent ``model:t-maze-hcam`` was trained in a corridor of 20 steps. It plays episodes in one of 40, each twice: as it
is, and without the chunk of memory that has the cue, from the junction on. The film shows the first episode in which
the decision differs; how often it is right is counted over all, in
``benchmarks/results/recall-film.json``. Needs Pillow.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from PIL import Image, ImageDraw, ImageFont

import source_tree  # noqa: F401
from recollect import load
from recollect.interpret.episodes import LiveEpisode, record_episode
from recollect.interpret.record import memory_heads
from recollect.runs.provenance import environment
from recollect.tasks.worlds.t_maze import TMazeConfig
from recollect.training import FRESH_SEED

ROOT = Path(__file__).parents[1]
ASSETS, OUTPUT = ROOT / "docs" / "assets", ROOT / "benchmarks" / "results" / "recall-film.json"
MODEL, LENGTH, EPISODES = "model:t-maze-hcam", 40, 100
WIDTH, MARGIN, CELL = 648, 20, 22
PANEL = 262
STILL, PAUSE, LAST = 90, 1400, 3600
"""Milliseconds of a step, of the first step and the junction, and of the last picture."""


class Theme(NamedTuple):
    """Colours of a film."""

    paper: str
    ink: str
    soft: str
    empty: str
    full: tuple[int, int, int]
    right: str
    wrong: str


LIGHT = Theme("#ffffff", "#1f2328", "#59636e", "#e6eaef", (31, 111, 235), "#1a7f37", "#c21c1c")
DARK = Theme("#0d1117", "#f0f6fc", "#a3adb8", "#262c34", (88, 166, 255), "#3fb950", "#ff7b72")


def main() -> None:
    """Play, count, draw."""
    agent = load(MODEL)
    world = TMazeConfig(length=LENGTH)
    pairs = [
        (record, record.without_memory(0))
        for record in (record_episode(agent, world, seed=FRESH_SEED + number) for number in range(EPISODES))
    ]
    scores = {
        name: [float(pair[place].info.score or 0) for pair in pairs] for place, name in enumerate(("whole", "without"))
    }
    different = [pair for pair in pairs if pair[0].info.success and not pair[1].info.success]
    data = {
        "environment": environment(),
        "model": MODEL,
        "length": LENGTH,
        "first_seed": FRESH_SEED,
        "episodes": EPISODES,
        "removed": "the chunk with the cue, from the junction on",
        "score": {name: float(np.mean(found)) for name, found in scores.items()},
        "scores": scores,
        "shown_seed": different[0][0].info.seed,
    }
    OUTPUT.write_text(json.dumps(data, indent=1) + "\n")
    for name, theme in (("light", LIGHT), ("dark", DARK)):
        write_film(different[0], theme, ASSETS / f"recall-{name}.webp")


def write_film(pair: tuple[LiveEpisode, LiveEpisode], theme: Theme, path: Path) -> None:
    """Write both episodes, one above the other, as an animated picture."""
    steps = max(one.num_steps for one in pair)
    junction = LENGTH
    stills = [still(pair, t, theme) for t in range(steps)]
    times = [LAST if t == steps - 1 else PAUSE if t in (0, junction) else STILL for t in range(steps)]
    stills[0].save(
        path, save_all=True, append_images=stills[1:], duration=times, loop=0, lossless=True, quality=100, method=6
    )


def still(pair: Sequence[LiveEpisode], t: int, theme: Theme) -> Any:
    """Return the picture of step t."""
    image = Image.new("RGB", (WIDTH, 2 * PANEL + MARGIN), theme.paper)
    draw = ImageDraw.Draw(image)
    for place, (record, title) in enumerate(
        zip(pair, ("With its memory", "The memory of the cue removed at the junction"), strict=True)
    ):
        panel(draw, image, record, min(t, record.num_steps - 1), title, MARGIN // 2 + place * PANEL, bool(place), theme)
    return image


def panel(draw: Any, image: Any, record: LiveEpisode, t: int, title: str, top: int, is_cut: bool, theme: Theme) -> None:
    """Draw one episode at step t: title, world, memory, what it does."""
    large, small = ImageFont.load_default(size=23), ImageFont.load_default(size=20)
    draw.text((MARGIN, top), title, font=large, fill=theme.ink)
    frame = record.frames[t]
    factor = (WIDTH - 2 * MARGIN) // frame.shape[1]
    scene = Image.fromarray(frame).resize((frame.shape[1] * factor, frame.shape[0] * factor), Image.Resampling.NEAREST)
    image.paste(scene, (MARGIN, top + 34))
    below = top + 34 + scene.height + 8
    is_over, hidden = t == record.num_steps - 1, is_cut and t >= LENGTH
    weights = memory(record, t)
    cell = scene.width / len(record.chunks)
    for number, (_, stop) in enumerate(record.chunks):
        left, right = MARGIN + number * cell, MARGIN + (number + 1) * cell - 3
        box = (left, below, right, below + CELL)
        is_gone = hidden and number == 0
        draw.rectangle(
            box, fill=theme.paper if is_gone else blend(theme, weights[number]) if stop <= t else theme.empty
        )
        if is_gone:
            draw.rectangle(box, outline=theme.wrong, width=2)
            draw.line((left, below, right, below + CELL), fill=theme.wrong, width=2)
            draw.line((left, below + CELL, right, below), fill=theme.wrong, width=2)
    words, colour = "memory, in chunks of 8 steps; blue: what it reads now", theme.soft
    if t == 0:
        words, colour = "the cue names the side of the goal; it is shown once", theme.ink
    elif is_over:
        words, colour = ("right", theme.right) if record.info.success else ("wrong", theme.wrong)
    elif t >= LENGTH:
        share = weights[0]
        words = "the cue is gone" if hidden else f"{share:.0%} of reading is on the cue"
        words, colour = f"junction: {words}; it turns {record.actions[int(record.action[t])]}", theme.ink
    draw.text((MARGIN, below + CELL + 6), words, font=large if is_over else small, fill=colour)
    draw.text((WIDTH - MARGIN, top), f"step {t}", font=small, fill=theme.soft, anchor="ra")


def memory(record: LiveEpisode, t: int) -> np.ndarray:
    """Return the share of each chunk in what the heads of the chunk memory read at step t."""
    relevance = record.chunk_rel
    assert relevance is not None
    found = np.nan_to_num(relevance[t, memory_heads(record)]).mean(0)
    return found / max(found.sum(), 1e-9)


def blend(theme: Theme, share: float) -> tuple[int, int, int]:
    """Return the colour of a chunk that is read with a share."""
    empty = [int(theme.empty[at : at + 2], 16) for at in (1, 3, 5)]
    low, high, _ = (round(one + (other - one) * share) for one, other in zip(empty, theme.full, strict=True))
    return low, high, round(empty[2] + (theme.full[2] - empty[2]) * share)


if __name__ == "__main__":
    main()
