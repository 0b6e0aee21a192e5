"""Returns-to-go: the undiscounted sum of later rewards at every step of an episode."""

import numpy as np


def returns_to_go(reward: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """Return the sum of the later rewards at each step of recorded episodes.

    Every episode is summed separately: a NaN stays in its episode, and no return is the difference of two large sums.

    Args:
        reward: float ``[n]``, received *with* each step; episodes one after the other.
        lengths: ``[e]``, steps of each episode.

    Returns:
        float32 ``[n]``: at step t of an episode of k steps, the sum of its rewards t + 1 .. k - 1.
    """
    returns, begin = np.zeros(len(reward)), 0
    for end in np.cumsum(lengths).tolist():
        returns[begin : end - 1] = np.cumsum(reward[begin + 1 : end][::-1], dtype=np.float64)[::-1]
        begin = end
    return returns.astype(np.float32)
