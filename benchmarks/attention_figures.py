"""Figures of the attention agents' pages: what is asked, and which places of which frames answer.

    python benchmarks/attention_figures.py                  writes docs/assets/attention-*.svg

The numbers in the boxes are those of the agents as they are built for Pong. Maps are drawn with 6 x 6 places and the
last four frames of the window.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
import torch
from matplotlib.axes import Axes

import source_tree  # noqa: F401
from recollect.recipes.attention_agents import attention_agent
from recollect.recipes.attention_agents.study import game

ASSETS = Path(__file__).parents[1] / "docs" / "assets"
SIDE, FRAMES, PLACE = 6, 4, (2, 3)
NOTHING, SPACE, TIME, BOTH, ASKS = range(5)
COLOURS = np.array([[0.95, 0.95, 0.95], [0.99, 0.75, 0.44], [0.55, 0.72, 0.87], [0.72, 0.62, 0.82], [0.2, 0.2, 0.2]])
WORDS = {
    SPACE: "attention to places",
    TIME: "attention to the past",
    BOTH: "to both at once",
    ASKS: "the place that asks",
}


@dataclass(frozen=True, kw_only=True)
class Figure:
    """One agent."""

    agent: str
    """Its name."""
    past: int
    """What is attended to in earlier frames, and where."""
    everywhere: bool
    """In all places of an earlier frame, or at the place that asks."""
    present: int
    """What is attended to in the present frame."""
    asks: bool
    """Whether a place asks; else it is a vector."""
    boxes: tuple[str, ...]
    """The way of a frame; names in braces are filled in from the agent."""


FIGURES = (
    Figure(
        agent="mott", past=NOTHING, everywhere=False, present=SPACE, asks=False,
        boxes=("frame\n{frame}", "residual network\n{map}", "ConvLSTM\n{map_dim} channels",
               "{heads} queries\nfrom the LSTM", "LSTM\n{dim}", "policy, value"),
    ),
    Figure(
        agent="adaptive", past=TIME, everywhere=True, present=TIME, asks=False,
        boxes=("frame\n{frame}", "residual network\n{map}", "linear, ReLU\n{image_dim}",
               "Transformer-XL\n{memory_len} steps, {heads} heads", "policy, value"),
    ),
    Figure(
        agent="spatio-temporal-sequential", past=TIME, everywhere=True, present=SPACE, asks=False,
        boxes=("frame\n{frame}", "residual network\n{map}", "2 convolutions\n{map_dim} channels",
               "{heads} queries\nfrom its output", "Transformer-XL\n{memory_len} steps", "policy, value"),
    ),
    Figure(
        agent="timesformer-divided", past=TIME, everywhere=False, present=SPACE, asks=True,
        boxes=("frame\n{frame}", "residual network\n{map}", "tokens of {token_dim}\n+ place, time",
               "over {memory_len} frames,\nthen its own", "linear\n{dim}", "policy, value"),
    ),
    Figure(
        agent="timesformer-joint", past=BOTH, everywhere=True, present=BOTH, asks=True,
        boxes=("frame\n{frame}", "residual network\n{map}", "tokens of {token_dim}\n+ place, time",
               "all places of\n{memory_len} frames", "linear\n{dim}", "policy, value"),
    ),
)  # fmt: skip


def numbers(agent: str) -> dict[str, str]:
    """What the boxes say of an agent."""
    config = attention_agent(agent, game("Pong"))
    with torch.device("meta"):
        encoder = config.build_agent().encoder.encoders["observation"]
    core = vars(config.core)
    rows, columns, channels = *encoder.map_sides, encoder.channels[-1]  # type: ignore[misc]
    shape = config.world.spec.observation_space.shape or ()
    return {
        **{name: str(core.get(name)) for name in ("dim", "map_dim", "memory_len", "token_dim")},
        "heads": str(core["num_heads"]),
        "frame": " x ".join(map(str, shape)),
        "map": f"{rows} x {columns} x {channels}",
        "image_dim": str(config.agent.encoders.image_dim),
    }


def pictures(figure: Figure) -> list[np.ndarray]:
    """Frames t - 3 ... t as colours, ``[y, x, 3]``."""
    kinds = np.full((FRAMES, SIDE, SIDE), NOTHING)
    kinds[:-1] = figure.past if figure.everywhere else NOTHING
    kinds[:-1, *PLACE] = figure.past
    kinds[-1] = figure.present
    if figure.asks:
        kinds[-1, *PLACE] = ASKS
    return list(COLOURS[kinds])


def draw(figure: Figure) -> None:
    """Write one picture."""
    chart, (above, below) = plt.subplots(2, 1, figsize=(8.6, 3.6), height_ratios=(1.2, 2))
    said = numbers(figure.agent)
    draw_boxes(above, [box.format(**said) for box in figure.boxes])
    for index, picture in enumerate(pictures(figure)):
        left = index * (SIDE + 1.5)
        below.imshow(picture, extent=(left, left + SIDE, 0, SIDE))
        for line in range(SIDE + 1):
            below.plot([left, left + SIDE], [line, line], color="white", linewidth=0.8)
            below.plot([left + line, left + line], [0, SIDE], color="white", linewidth=0.8)
        age = FRAMES - 1 - index
        below.text(left + SIDE / 2, -0.9, f"frame t - {age}" if age else "frame t", ha="center", fontsize=9)
    shown = {figure.present, *([figure.past] if figure.past else []), *([ASKS] if figure.asks else [])}
    for row, kind in enumerate(sorted(shown)):
        right = FRAMES * (SIDE + 1.5)
        below.add_patch(plt.Rectangle((right, SIDE - 1.5 - 1.3 * row), 0.8, 0.8, color=COLOURS[kind]))
        below.text(right + 1.2, SIDE - 1.4 - 1.3 * row, WORDS[kind], fontsize=9)
    below.set(xlim=(-0.5, FRAMES * (SIDE + 1.5) + 10), ylim=(-1.8, SIDE + 0.3), aspect="equal")
    for axes in (above, below):
        axes.axis("off")
    chart.subplots_adjust(0.01, 0.01, 0.99, 0.98, hspace=0.05)
    chart.savefig(ASSETS / f"attention-{figure.agent}.svg", metadata={"Date": None})
    plt.close(chart)


def draw_boxes(axes: Axes, boxes: Sequence[str]) -> None:
    """From left to right, with arrows between them."""
    for index, box in enumerate(boxes):
        at = (index + 0.5) / len(boxes)
        style = {"boxstyle": "round,pad=0.5", "facecolor": "white", "edgecolor": "#555555"}
        axes.text(at, 0.5, box, ha="center", va="center", fontsize=8, bbox=style)
        if index:
            middle = index / len(boxes)
            axes.annotate("", (middle + 0.012, 0.5), (middle - 0.012, 0.5), arrowprops={"arrowstyle": "->"})
    axes.set(xlim=(0, 1), ylim=(0, 1))


def main() -> None:
    """Write all pictures."""
    matplotlib.rcParams["svg.hashsalt"] = "recollect"
    for figure in FIGURES:
        draw(figure)


if __name__ == "__main__":
    main()
