"""Returns-to-go: what is still gained in an episode, step by step, without a discount."""

import numpy as np


def returns_to_go(reward: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """The rewards that follow each step of recorded episodes, summed to the episode's end.

    Every episode has a sum of its own: a reward that is no number stays in its episode, and a small return is not the
    difference of two large ones.

    Args:
        reward: float ``[n]``, received *with* each step; episodes one behind the other.
        lengths: ``[e]``, steps of every episode.

    Returns:
        float32 ``[n]``: at step t of an episode of k steps, the sum of its rewards t + 1 .. k - 1.
    """
    found, begin = np.zeros(len(reward)), 0
    for end in np.cumsum(lengths).tolist():
        found[begin : end - 1] = np.cumsum(reward[begin + 1 : end][::-1], dtype=np.float64)[::-1]
        begin = end
    return found.astype(np.float32)
