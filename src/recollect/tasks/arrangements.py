"""How many bits it takes to say which thing is where."""

import math


def arrangement_bits(n: int, k: int) -> float:
    """Bits of an ordered choice of k of n things without repetition: log2(n! / (n - k)!)."""
    return (math.lgamma(n + 1) - math.lgamma(n - k + 1)) / math.log(2)
