"""The performance profile of Agarwal et al. (2021) as a picture: share of runs above each score."""

from collections.abc import Mapping
from html import escape

import numpy as np

COLOURS = ("#0b6bcb", "#d1540a", "#0f8a5f", "#a43aa0", "#b58900", "#c2255c", "#3c3f9e")
"""Of the methods that stand highest on the whole; the others are grey, and dashed."""
LEFT, TOP, WIDTH, HEIGHT = 52, 44, 520, 300
STYLE = """
text { font: 12.5px system-ui, -apple-system, "Segoe UI", sans-serif; fill: #5b6470; }
.title { font-size: 16px; font-weight: 650; fill: #1b1f24; } .end { text-anchor: end; } .middle { text-anchor: middle; }
.grid { stroke: #e5e7ea; } polyline { fill: none; stroke-width: 2; } .rest { stroke: #9aa3ad; stroke-dasharray: 5 3; }
"""


def profile_svg(title: str, thresholds: np.ndarray, curves: Mapping[str, np.ndarray]) -> str:
    """The picture.

    Args:
        title: above it.
        thresholds: scores from 0 to 1, ``[n]``.
        curves: share of runs above each, ``[n]`` by method.
    """
    order = sorted(curves, key=lambda name: -float(curves[name].mean()))
    parts = [f'<text class="title" x="16" y="28">{escape(title)}</text>']
    for share in (0.0, 0.25, 0.5, 0.75, 1.0):
        x, y = LEFT + WIDTH * share, TOP + HEIGHT * (1 - share)
        parts.append(f'<line class="grid" x1="{LEFT}" x2="{LEFT + WIDTH}" y1="{y:.1f}" y2="{y:.1f}"/>')
        parts.append(f'<text class="end" x="{LEFT - 8}" y="{y + 4:.1f}">{100 * share:.0f} %</text>')
        parts.append(f'<text class="middle" x="{x:.1f}" y="{TOP + HEIGHT + 20}">{100 * share:.0f}</text>')
    for place, name in enumerate(order):
        points = " ".join(
            f"{LEFT + WIDTH * at:.1f},{TOP + HEIGHT * (1 - share):.1f}"
            for at, share in zip(thresholds.tolist(), curves[name].tolist(), strict=True)
        )
        named = place < len(COLOURS)
        look = f'style="stroke:{COLOURS[place]}"' if named else 'class="rest"'
        y = TOP + 10 + 22 * place
        x = LEFT + WIDTH + 24
        parts.append(f'<polyline {look} points="{points}"><title>{escape(name)}</title></polyline>')
        parts.append(
            f'<polyline {look} points="{x},{y} {x + 22},{y}"/><text x="{x + 30}" y="{y + 4}">{escape(name)}</text>'
        )
    height = max(TOP + HEIGHT + 36, TOP + 22 * len(order) + 20)
    width = LEFT + WIDTH + 64 + 7.2 * max(map(len, order))
    words = "... per cent of the way from chance to the oracle"
    below = f'<text class="middle" x="{LEFT + WIDTH / 2}" y="{TOP + HEIGHT + 38}">{words}</text>'
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height + 14}" width="{width:.0f}" '
        f'height="{height + 14}" role="img" aria-label="{escape(title)}"><style>{STYLE}</style>'
        f'<rect width="{width:.0f}" height="{height + 14}" fill="#fff" rx="8"/>{"".join(parts)}{below}</svg>\n'
    )
