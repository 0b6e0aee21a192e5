"""A record of a Ballet-like episode with heads whose kinds are known."""

import numpy as np

from recollect.interpret.record import EpisodeInfo, EpisodeRecord, Event, Head, Pair, Removal

DANCE, GAP, DANCES, CUED = 16, 8, 7, 3
CUE = DANCES * (DANCE + GAP) + 22
STEPS = CUE + 23
CHUNK = 16
KINDS = ("recency", "content", "diffuse", "offset")


def heads(generator: np.random.Generator, cued: int = CUED) -> np.ndarray:
    """Maps ``[T, 4, T]`` of the four kinds."""
    maps = np.full((STEPS, 4, STEPS), np.nan, np.float32)
    for t in range(STEPS):
        lag = t - np.arange(t + 1)
        content = generator.uniform(0.5, 1.5, t + 1)
        start = cued * (DANCE + GAP)
        if t >= CUE:
            content *= 0.26 / content.sum()
            content[start : start + DANCE] += 0.74 / DANCE
        rows = [
            np.exp(-lag / 4.3),
            content,
            generator.uniform(0.7, 1.3, t + 1),
            np.exp(-0.5 * ((lag - 16) / 2) ** 2) + 0.8 * np.exp(-0.5 * ((lag - 32) / 2) ** 2) + 1e-3,
        ]
        maps[t, :, : t + 1] = [row / row.sum() for row in rows]
    return maps


def synthetic_record(seed: int = 0, cued: int = CUED, success: bool = True) -> EpisodeRecord:
    """What such an agent would leave behind; its policy uses the cued dance."""
    generator = np.random.default_rng(seed)
    maps = heads(generator, cued)
    chunks = tuple((start, start + CHUNK) for start in range(0, STEPS - CHUNK, CHUNK))
    rel = np.stack(
        [np.where(np.isnan(maps[:, :, a:b]).all(-1), np.nan, np.nansum(maps[:, :, a:b], -1)) for a, b in chunks], -1
    )
    key = (cued * (DANCE + GAP), cued * (DANCE + GAP) + DANCE)
    share = np.array([max(0, min(b, key[1]) - max(a, key[0])) / DANCE for a, b in chunks])
    kl = np.where(np.isnan(rel[:, 0]), np.nan, 0.9 * share + 0.01 * generator.random(rel[:, 0].shape))
    events = [
        Event(
            t=i * (DANCE + GAP), t1=i * (DANCE + GAP) + DANCE, kind=f"dance {i + 1}", label=f"dance {i + 1}", id=f"e{i}"
        )
        for i in range(DANCES)
    ]
    nothing = np.zeros(STEPS, np.float32)
    return EpisodeRecord(
        info=EpisodeInfo(task="synthetic", core="none", success=success, score=float(success)),
        actions=("a", "b"),
        frames=np.zeros((STEPS, 4, 4, 3), np.uint8),
        observations={"observation": np.zeros((STEPS, 2), np.float32)},
        action=np.zeros(STEPS, int),
        reward=nothing,
        value=nothing,
        logits=np.zeros((STEPS, 2), np.float32),
        done=np.arange(STEPS) == STEPS - 1,
        heads=tuple(Head(layer=0, head=i, kind="window") for i in range(4)),
        temporal=maps,
        chunks=chunks,
        chunk_rel=rel.astype(np.float32),
        chunk_read=~np.isnan(rel),
        chunk_tail=np.zeros((STEPS, 4), np.float32),
        removal=Removal(
            kl=kl.astype(np.float32), dv=kl.astype(np.float32), logits=np.zeros((*kl.shape, 2), np.float32)
        ),
        events=tuple(events),
        pairs=(Pair(query=(CUE, STEPS), key=key),),
    )
