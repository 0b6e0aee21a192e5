"""Synthetic episodes whose heads are known by construction; nothing here was heard of an agent."""

from dataclasses import replace

import numpy as np

from recollect.interpret.record import EpisodeInfo, EpisodeRecord, Event, Head, Pair, Removal, Saliency

DANCES = ("circle cw", "up-down", "zee", "plus ccw", "times cw", "chevron up")
CHUNK = 8
COLOURS = np.array(
    [[203, 75, 60], [66, 133, 220], [168, 85, 190], [230, 177, 60], [60, 190, 190], [80, 170, 90]], np.uint8
)


def ballet_like(steps=200, *, layers=1, seed=0, grid=(12, 12), spatial=True, saliency=True, side=84):
    """Six dances of 16 steps with delays of 16; the cue at the end asks for the third.

    Heads: recency, content, diffuse, offset.
    """
    rng = np.random.default_rng(seed)
    starts = [int(i * 32 * steps / 200) for i in range(6)]
    spans = [(start, min(start + max(int(16 * steps / 200), 1), steps)) for start in starts]
    cue = (int(176 * steps / 200), steps)
    key = spans[2]
    temporal = np.stack([_known_heads(t, steps, key, cue, rng) for t in range(steps)])
    temporal = np.concatenate([temporal] * layers, 1).astype(np.float32)
    chunks = tuple((start, min(start + CHUNK, steps)) for start in range(0, steps, CHUNK))
    events = [
        Event(t=start, t1=stop, kind="dance", label=name, id=f"dance {name}")
        for (start, stop), name in zip(spans, DANCES, strict=True)
    ]
    events.append(Event(t=cue[0], t1=cue[1], kind="cue", label="zee", id="cue"))
    return EpisodeRecord(
        info=EpisodeInfo(
            task="Ballet",
            core="synthetic",
            agent="made by hand",
            seed=seed,
            score=1.0,
            success=True,
            total_reward=1.0,
            provenance={"synthetic": "numbers made for a test, not heard of an agent"},
        ),
        actions=("N", "NE", "E", "SE", "S", "SW", "W", "NW"),
        frames=_frames(steps, side, spans),
        observations={},
        action=rng.integers(0, 8, steps),
        reward=np.eye(1, steps, steps - 1, dtype=np.float32)[0],
        value=(0.3 + 0.3 * (np.arange(steps) > 180 * steps / 200) + 0.03 * rng.standard_normal(steps)).astype(
            np.float32
        ),
        logits=(
            rng.standard_normal((steps, 8)) + 3 * (np.arange(steps) > 180 * steps / 200)[:, None] * (np.arange(8) == 7)
        ).astype(np.float32),
        done=np.arange(steps) == steps - 1,
        heads=tuple(Head(layer=layer, head=head, kind="window") for layer in range(layers) for head in range(4)),
        temporal=temporal,
        chunks=chunks,
        chunk_rel=_by_chunk(temporal, chunks),
        chunk_read=None,
        spatial=_spatial(steps, 4 * layers, grid, rng) if spatial else None,
        saliency=(_saliency(steps, rng),) if saliency else (),
        removal=_removal(temporal, chunks, key, cue, rng),
        events=tuple(events),
        pairs=(Pair(query=cue, key=key),),
    )


def _known_heads(t, steps, key, cue, rng):
    back = t - np.arange(steps)
    recency = np.exp(-back / 4.0)
    content = np.exp(-back / 40.0) + 0.2
    if t >= cue[0]:
        inside = (np.arange(steps) >= key[0]) & (np.arange(steps) < key[1])
        content = 0.02 + 4.0 * inside * (1 + np.cos(np.arange(steps)))
    diffuse = 1 + 0.1 * rng.random(steps)
    offset = 0.004 + np.exp(-((back - 16) ** 2) / 8) + np.exp(-((back - 32) ** 2) / 8)
    rows = np.where(back >= 0, np.stack((recency, content, diffuse, offset)), np.nan)
    return rows / np.nansum(rows, 1, keepdims=True)


def _by_chunk(temporal, chunks):
    parts = [np.nansum(temporal[..., a:b], -1) for a, b in chunks]
    reach = [np.isfinite(temporal[..., a:b]).any(-1) for a, b in chunks]
    return np.where(np.stack(reach, -1), np.stack(parts, -1), np.nan).astype(np.float32)


def _spatial(steps, heads, grid, rng):
    y, x = np.mgrid[: grid[0], : grid[1]]
    t = np.arange(steps)[:, None, None, None]
    at_y = grid[0] / 2 + grid[0] / 3 * np.sin(t / 19 + np.arange(heads)[:, None, None])
    at_x = grid[1] / 2 + grid[1] / 3 * np.cos(t / 23 + 2 * np.arange(heads)[:, None, None])
    maps = np.exp(-((y - at_y) ** 2 + (x - at_x) ** 2) / 3) + 0.01 * rng.random((steps, heads, *grid))
    return (maps / maps.sum((2, 3), keepdims=True)).astype(np.float32)


def _saliency(steps, rng):
    at = np.arange(0, steps, 2, dtype=np.int32)
    maps = rng.random((2, len(at), 17, 17)).astype(np.float32) ** 8
    return Saliency(steps=at, actor=maps[0], critic=maps[1])


def _removal(temporal, chunks, key, cue, rng):
    steps = len(temporal)
    kl = 0.01 * rng.random((steps, len(chunks))).astype(np.float32)
    for c, (a, b) in enumerate(chunks):
        if a < key[1] and key[0] < b:
            kl[cue[0] :, c] = 0.9
        kl[:a, c] = np.nan
    logits = rng.standard_normal((steps, len(chunks), 8)).astype(np.float32)
    logits[np.isnan(kl)] = np.nan
    return Removal(kl=kl, dv=-0.2 * kl, logits=logits, method="keys masked")


def _frames(steps, side, spans):
    frames = np.full((steps, side, side, 3), 28, np.uint8)
    edge = side // 12
    frames[:, :edge] = frames[:, -edge:] = frames[:, :, :edge] = frames[:, :, -edge:] = 64
    places = np.array([[0.2, 0.2], [0.2, 0.75], [0.75, 0.2], [0.75, 0.75], [0.1, 0.5], [0.85, 0.45]])
    for t in range(steps):
        for i, (a, b) in enumerate(spans):
            moving = a <= t < b
            y, x = (places[i] * side + (3 * np.array([np.sin(t), np.cos(t)]) if moving else 0)).astype(int)
            frames[t, y : y + edge, x : x + edge] = COLOURS[i]
        frames[t, side // 2 : side // 2 + edge // 2 + 1, side // 2 : side // 2 + edge // 2 + 1] = 240
    return frames


def without_attention(steps=20):
    """A core that keeps nothing to show."""
    record = ballet_like(steps, spatial=False, saliency=False)
    info = replace(record.info, core="gru", notes=("a GRU has no attention: only its state is kept",))
    return replace(record, info=info, heads=(), temporal=None, chunks=(), chunk_rel=None, removal=None)
