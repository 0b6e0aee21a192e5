"""What a record must be before anything is written of it: errors name the array, the step and the remedy."""

import numpy as np

from recollect.config import require
from recollect.interpret.packing import ABSENT_STEP
from recollect.interpret.record import EpisodeRecord


def check_record(record: EpisodeRecord) -> None:
    """Raise ``ValueError`` where a record has no steps, has broken frames, or claims to remember the future."""
    steps = record.num_steps
    require(steps >= 1, "num_steps", steps, "record at least one step")
    require(steps < ABSENT_STEP, "num_steps", steps, f"record fewer than {ABSENT_STEP} steps")
    _check_frames(record)
    for name, curve in (("value", record.value), ("logits", record.logits), ("action", record.action)):
        require(len(curve) == steps, name, list(curve.shape), f"give one entry for each of {steps} steps")
    _check_shapes(record)
    _check_causality(record)


def _check_frames(record: EpisodeRecord) -> None:
    frames = record.frames
    if not frames.size:
        return
    if np.issubdtype(frames.dtype, np.floating) and not np.isfinite(frames).all():
        step = int(np.flatnonzero(~np.isfinite(frames).reshape(len(frames), -1).all(1))[0])
        raise ValueError(f"frames: NaN or infinite pixels at step {step}; give uint8 pictures [T, H, W, 3]")
    form = f"{frames.dtype} {list(frames.shape)}"
    fits = frames.dtype == np.uint8 and frames.ndim == 4 and frames.shape[-1] == 3 and len(frames) == record.num_steps
    require(fits, "frames", form, f"give uint8 [{record.num_steps}, H, W, 3]")


def _check_shapes(record: EpisodeRecord) -> None:
    steps, heads, chunks = record.num_steps, len(record.heads), len(record.chunks)
    expected = {
        "temporal": (record.temporal, (steps, heads, steps)),
        "chunk_rel": (record.chunk_rel, (steps, heads, chunks)),
        "chunk_read": (record.chunk_read, (steps, heads, chunks)),
        "chunk_tail": (record.chunk_tail, (steps, heads)),
    }
    for name, (array, shape) in expected.items():
        if array is not None:
            require(array.shape == shape, name, list(array.shape), f"give {list(shape)}")
    for name, array in (("spatial", record.spatial), ("what_where", record.what_where)):
        if array is not None:
            fits = array.ndim == 4 and array.shape[:2] == (steps, heads)
            require(fits, name, list(array.shape), f"give [{steps}, {heads}, rows, columns]")
    if record.chunk_rel is not None and record.temporal is None:
        raise ValueError("chunk_rel: without temporal there is nothing to draw by step; give both")
    removal = record.removal
    if removal is not None and removal.unit == "chunk":
        require(removal.kl.shape == (steps, chunks), "removal.kl", list(removal.kl.shape), f"give {[steps, chunks]}")


def _check_causality(record: EpisodeRecord) -> None:
    """Maps of step t may speak of steps up to t; later ones are NaN: absent, which is not zero."""
    starts = np.array([start for start, _ in record.chunks], int)
    for t in range(record.num_steps):
        if record.temporal is not None:
            _require_absent("temporal", t, record.temporal[t, :, t + 1 :], "steps")
        later = starts > t
        if record.chunk_rel is not None:
            _require_absent("chunk_rel", t, record.chunk_rel[t][:, later], "chunks")
        if record.removal is not None and record.removal.unit == "chunk":
            _require_absent("removal.kl", t, record.removal.kl[t][None, later], "chunks")
    past = record.spacetime
    if past is not None:
        ahead = past.step > np.arange(record.num_steps)[:, None, None]
        if ahead.any():
            t, head = (int(axis[0]) for axis in np.nonzero(ahead)[:2])
            raise ValueError(f"spacetime: head {head} at step {t} is on the later step {past.step[t, head].max()}")


def _require_absent(name: str, t: int, numbers: np.ndarray, what: str) -> None:
    wrong = ~np.isnan(numbers)
    if wrong.any():
        head, ahead = (int(axis[0]) for axis in np.nonzero(wrong))
        raise ValueError(
            f"{name}: head {head} at step {t} has {numbers[head, ahead]:.3g} for {what} of the future; a memory of "
            "the future cannot be: give NaN there (absent, which is not zero)"
        )
