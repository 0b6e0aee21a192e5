"""Returns-to-go: what is still gained in an episode, step by step, without a discount."""

import numpy as np


def returns_to_go(reward: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """The rewards that follow each step of recorded episodes, summed to the episode's end.

    Args:
        reward: float ``[n]``, received *with* each step; episodes one behind the other.
        lengths: ``[e]``, steps of every episode.

    Returns:
        float32 ``[n]``: at step t of an episode of k steps, the sum of its rewards t + 1 .. k - 1.
    """
    total = np.concatenate(([0.0], np.cumsum(reward, dtype=np.float64)))  # [n + 1], up to each step
    ends = np.repeat(np.cumsum(lengths), lengths)
    return (total[ends] - total[1:]).astype(np.float32)
