"""Draw the mechanism of every core: ``python docs/mechanisms.py`` writes ``docs/assets/mechanisms/*.svg``.

One family: squares are steps or tokens, filled shapes are memory, an arrow goes from what is read to who reads. Lines
and text have the colour of the page (``currentColor``), memory has one more, so that a drawing follows light and dark.
"""

from pathlib import Path

FOLDER = Path(__file__).parent / "assets" / "mechanisms"
STYLE = "svg{color:#1f2328;--memory:#2f6fd6}@media(prefers-color-scheme:dark){svg{color:#e6edf3;--memory:#6ea8fe}}"
WIDTH, SIDE, GAP = 720, 22, 8
PITCH = SIDE + GAP


class Drawing:
    """Shapes on a canvas of 720 units, from the top left."""

    def __init__(self, height: int) -> None:
        self.height, self.parts = height, []

    def box(self, x: float, y: float, wide: float = SIDE, high: float = SIDE, *, memory: float = 0) -> None:
        """Add a rectangle; ``memory`` is how strongly it is filled."""
        fill = f'fill="var(--memory)" fill-opacity="{memory:g}"' if memory else 'fill="none"'
        self.parts.append(f'<rect x="{x:g}" y="{y:g}" width="{wide:g}" height="{high:g}" rx="3" {fill}/>')

    def row(self, x: float, y: float, number: int, *, memory: float = 0) -> list[float]:
        """Add a row of squares; return the middles."""
        for place in range(number):
            self.box(x + place * PITCH, y, memory=memory)
        return [x + place * PITCH + SIDE / 2 for place in range(number)]

    def grid(self, x: float, y: float, cell: float, strong: dict[tuple[int, int], float], number: int = 4) -> None:
        """Add a square of cells, some of them filled."""
        for r in range(number):
            for c in range(number):
                self.box(x + c * cell, y + r * cell, cell, cell, memory=strong.get((r, c), 0))

    def arrow(self, x: float, y: float, to_x: float, to_y: float, *, strong: float = 1) -> None:
        """Add a line with a head."""
        self.parts.append(
            f'<path d="M{x:g} {y:g}L{to_x:g} {to_y:g}" stroke-opacity="{strong:g}" marker-end="url(#head)"/>'
        )

    def text(self, x: float, y: float, words: str, *, anchor: str = "middle") -> None:
        """Add words."""
        self.parts.append(f'<text x="{x:g}" y="{y:g}" text-anchor="{anchor}">{words}</text>')

    def svg(self) -> str:
        """Return the file."""
        head = (
            '<defs><marker id="head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" '
            'orient="auto"><path d="M0 0L8 4L0 8z" fill="currentColor" stroke="none"/></marker></defs>'
        )
        lines = "\n".join(self.parts).replace("<text ", '<text fill="currentColor" stroke="none" ')
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {self.height}" font-family="sans-serif" '
            f'font-size="14" fill="none" stroke="currentColor" stroke-width="1.5"><style>{STYLE}</style>{head}\n'
            f"{lines}\n</svg>\n"
        )


def memoryless() -> Drawing:
    """Every step alone."""
    d = Drawing(130)
    for x in d.row(200, 80, 10):
        d.arrow(x, 76, x, 42)
    d.text(350, 28, "outputs: each sees its own step only")
    d.text(190, 96, "steps", anchor="end")
    return d


def recurrent() -> Drawing:
    """A vector that every step rewrites."""
    d = Drawing(170)
    for place in range(6):
        x = 170 + place * 75
        d.box(x, 50, 44, 26, memory=0.35 + 0.1 * place)
        d.box(x + 11, 116)
        d.arrow(x + 22, 112, x + 22, 82)
        d.arrow(x + 22, 46, x + 22, 24)
        if place:
            d.arrow(x - 31, 63, x - 4, 63)
    d.text(160, 68, "one vector per layer", anchor="end")
    d.text(160, 132, "steps", anchor="end")
    d.text(380, 162, "gates decide what a step keeps; the rest is gone")
    return d


def window(words: str) -> Drawing:
    """The last steps, one by one."""
    d = Drawing(170)
    xs = d.row(130, 90, 15)
    for place in range(6, 14):
        d.box(130 + place * PITCH, 90, memory=0.55)
        d.arrow(xs[place], 86, xs[14] - 3, 46, strong=0.35 + 0.05 * (place - 6))
    d.box(xs[14] - 16, 16, 32, 26)
    d.text(xs[14], 34, "t")
    d.text(xs[3] - 15, 140, "forgotten")
    d.text(xs[10] - 15, 140, f"window: {words}")
    d.text(120, 106, "steps", anchor="end")
    return d


def hcam() -> Drawing:
    """Summaries first, then the steps of the most relevant chunks."""
    d = Drawing(230)
    for chunk in range(4):
        x, is_read = 60 + chunk * 135, chunk == 1
        d.row(x, 160, 4, memory=0.6 if is_read else 0.18)
        d.box(x + 25, 92, 62, 26, memory=0.85 if is_read else 0.3)
        d.text(x + 56, 206, f"chunk {chunk + 1}")
        d.arrow(x + 56, 156, x + 56, 122, strong=0.4)
        d.arrow(x + 56, 88, 588, 46, strong=1 if is_read else 0.25)
    d.arrow(250, 156, 600, 62)
    d.row(600, 160, 2)
    d.box(594, 26, 60, 30)
    d.text(624, 46, "step t")
    d.text(56, 40, "1. compare with the summary of every chunk", anchor="start")
    d.text(56, 62, "2. attend to the steps of the most relevant ones", anchor="start")
    d.text(627, 206, "window")
    return d


def tlb(instruction: bool = False) -> Drawing:
    """Fast inside a chunk, slow from chunk to chunk."""
    d = Drawing(220)
    for chunk in range(3):
        x = 150 + chunk * 190
        d.row(x, 150, 5)
        d.box(x - 6, 142, 5 * PITCH + 4, 38)
        d.row(x + 30, 44, 3, memory=0.45 + 0.2 * chunk)
        d.arrow(x + 40, 70, x + 40, 136)
        if chunk < 2:
            d.arrow(x + 110, 138, x + 200, 74)
    if instruction:
        d.box(24, 92, 92, 24)
        d.text(70, 109, "instruction")
        d.arrow(118, 110, 156, 138)
    d.text(135, 60, "slow: slots", anchor="end")
    d.text(135, 166, "fast: a chunk", anchor="end")
    d.text(196, 104, "read", anchor="start")
    d.text(290, 104, "write", anchor="end")
    past = "slots are written once per chunk; the past comes through them alone"
    d.text(400, 208, "every chunk begins with the words of the instruction" if instruction else past)
    return d


def ttm() -> Drawing:
    """Read, process, write."""
    d = Drawing(210)
    for place in range(4):
        d.box(90, 24 + place * 24, memory=0.6)
    for place in range(3):
        d.box(90, 132 + place * 22, high=18)
    d.text(80, 76, "memory", anchor="end")
    d.text(80, 166, "n tokens", anchor="end")
    d.arrow(118, 72, 176, 98)
    d.arrow(118, 160, 176, 112)
    d.box(182, 88, 76, 36)
    d.text(220, 111, "read")
    d.arrow(262, 106, 308, 106)
    d.box(314, 88, 90, 36)
    d.text(359, 111, "process")
    d.arrow(408, 106, 454, 106)
    d.box(460, 88, 76, 36)
    d.text(498, 111, "write")
    d.arrow(359, 128, 359, 168)
    d.text(359, 188, "output tokens")
    d.arrow(540, 106, 588, 76)
    for place in range(4):
        d.box(594, 24 + place * 24, memory=0.85)
    d.text(622, 76, "next memory", anchor="start")
    d.text(300, 40, "a summary picks r of m + n tokens;")
    d.text(300, 60, "another writes m of m + r + n")
    return d


def recurrent_transformer() -> Drawing:
    """State tokens in, state tokens out."""
    d = Drawing(190)
    for place in range(3):
        d.box(150, 24 + place * 24, memory=0.6)
        d.box(150, 108 + place * 24)
        d.box(500, 24 + place * 24, memory=0.85)
        d.box(500, 108 + place * 24)
        d.arrow(178, 35 + place * 24, 250, 80 + place * 6, strong=0.6)
        d.arrow(178, 119 + place * 24, 250, 104 + place * 4, strong=0.6)
        d.arrow(432, 80 + place * 6, 494, 35 + place * 24, strong=0.6)
        d.arrow(432, 104 + place * 4, 494, 119 + place * 24, strong=0.6)
    d.box(256, 66, 172, 60)
    d.text(342, 101, "Transformer layers")
    d.text(140, 66, "state tokens", anchor="end")
    d.text(140, 150, "input tokens", anchor="end")
    d.text(532, 66, "next state", anchor="start")
    d.text(532, 150, "outputs", anchor="start")
    return d


def feedback() -> Drawing:
    """All layers of a step become one memory, which every later layer reads."""
    d = Drawing(220)
    for step in range(4):
        x = 190 + step * 110
        for layer in range(3):
            d.box(x, 130 - layer * 36, 40, 24)
            if step < 3:
                d.arrow(x + 42, 142 - layer * 36, x + 62, 104, strong=0.5)
        if step < 3:
            d.box(x + 64, 90, 22, 26, memory=0.7)
        d.text(x + 20, 182, f"step {step + 1}")
    for layer in range(3):
        for step in range(3):
            d.arrow(278 + step * 110, 100, 516, 140 - layer * 36, strong=0.3)
    d.text(180, 146, "layer 1", anchor="end")
    d.text(180, 74, "layer 3", anchor="end")
    d.text(360, 30, "one memory per step, a mix of all layers; every layer of a later step reads it")
    return d


def long_short() -> Drawing:
    """Landmarks of old segments and a window, in one softmax."""
    d = Drawing(210)
    for segment in range(3):
        x = 60 + segment * 140
        d.row(x, 150, 4)
        for mark in range(2):
            d.box(x + 26 + mark * 34, 90, memory=0.6)
            d.arrow(x + 56, 146, x + 37 + mark * 34, 116, strong=0.5)
            d.arrow(x + 37 + mark * 34, 86, 596, 44, strong=0.4)
        d.text(x + 56, 196, f"segment {segment + 1}")
    for place, x in enumerate(d.row(490, 150, 5, memory=0.35)):
        d.arrow(x, 146, 618, 56, strong=0.3 + 0.1 * place)
    d.box(600, 22, 60, 30)
    d.text(630, 42, "step t")
    d.text(560, 196, "window")
    d.text(60, 40, "landmarks: a few learned averages of each segment", anchor="start")
    return d


def linear() -> Drawing:
    """A matrix that decays and gains the product of a key and a value."""
    d = Drawing(220)
    for place in range(3):
        x = 120 + place * 200
        strong = {(r, c): 0.2 + 0.2 * place + 0.1 * ((r * 3 + c * 5 + place) % 3) for r in range(4) for c in range(4)}
        d.grid(x, 50, 20, strong)
        d.box(x + 29, 166)
        d.arrow(x + 40, 162, x + 40, 138)
        d.arrow(x + 40, 46, x + 40, 24)
        if place:
            d.arrow(x - 112, 90, x - 8, 90)
            d.text(x - 60, 80, "decay, add")
    d.text(110, 94, "memory", anchor="end")
    d.text(110, 182, "steps", anchor="end")
    d.text(612, 82, "write v k", anchor="start")
    d.text(612, 102, "read with q", anchor="start")
    d.text(360, 212, "linear in the memory, so that all steps of a call are computed at once")
    return d


def mott() -> Drawing:
    """Queries of the memory attend to places of a map."""
    d = Drawing(200)
    d.grid(130, 40, 26, {(1, 2): 0.9, (1, 1): 0.35, (2, 2): 0.4}, 5)
    d.text(195, 190, "map of features")
    d.arrow(266, 100, 384, 100)
    d.text(325, 90, "what they read")
    d.box(390, 74, 90, 52, memory=0.6)
    d.text(435, 146, "LSTM")
    d.arrow(430, 70, 250, 40)
    d.text(372, 36, "queries of the next step")
    d.arrow(484, 100, 556, 100)
    d.text(564, 105, "output", anchor="start")
    return d


def spatio_temporal() -> Drawing:
    """Attention in a frame, then over the frames of a window."""
    d = Drawing(200)
    for frame in range(4):
        x = 120 + frame * 112
        d.grid(x, 100, 18, {(1, 1 + frame % 3): 0.7})
        d.arrow(x + 36, 96, x + 36, 66)
        d.box(x + 24, 38, 24, 24, memory=0.35 + 0.15 * frame)
        d.arrow(x + 50, 50, 596, 50 + 2 * frame, strong=0.3 + 0.2 * frame)
    d.box(602, 36, 60, 30)
    d.text(632, 56, "step t")
    d.text(110, 54, "2. over time", anchor="end")
    d.text(110, 140, "1. in a frame", anchor="end")
    d.text(320, 192, "a window of steps, oldest first")
    return d


def timesformer() -> Drawing:
    """A window of maps: the same place at other times, then other places of a frame."""
    d = Drawing(210)
    for frame in range(4):
        x = 120 + frame * 140
        is_last = frame == 3
        d.grid(x, 60, 22, {(1, 2): 0.85} if not is_last else {(1, 2): 0.85, (0, 2): 0.3, (1, 1): 0.3, (2, 2): 0.3})
        if not is_last:
            d.arrow(x + 60, 93, 580, 93, strong=0.3 + 0.25 * frame)
        d.text(x + 44, 172, "now" if is_last else f"t - {3 - frame}")
    d.text(110, 108, "window", anchor="end")
    d.text(10, 36, "1. time: the same place in earlier frames", anchor="start")
    d.text(710, 36, "2. space: the other places of this frame", anchor="end")
    d.text(330, 202, "divided attention; joint attention reads all places of all frames at once")
    return d


DRAWINGS = {
    "memoryless": memoryless(),
    "recurrent": recurrent(),
    "causal-transformer": window("keys and values"),
    "transformer-xl": window("inputs of each layer"),
    "hcam": hcam(),
    "tlb": tlb(),
    "instructed": tlb(instruction=True),
    "ttm": ttm(),
    "recurrent-transformer": recurrent_transformer(),
    "feedback-transformer": feedback(),
    "long-short-transformer": long_short(),
    "linear": linear(),
    "mott": mott(),
    "spatio-temporal": spatio_temporal(),
    "timesformer": timesformer(),
}


def main() -> None:
    """Write all drawings."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name, drawing in DRAWINGS.items():
        (FOLDER / f"{name}.svg").write_text(drawing.svg())


if __name__ == "__main__":
    main()
