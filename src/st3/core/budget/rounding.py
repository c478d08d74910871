"""Fair rounding: whole numbers of weights per layer that add up to the total."""

import math
from collections.abc import Sequence

__all__ = ["apportion"]


def apportion(ideal: Sequence[float], total: int, most: Sequence[int]) -> list[int]:
    """Round `ideal` to whole numbers that add up to `total`, largest remainders first, none above `most`.

    >>> apportion([1.5, 2.5, 3.0], 7, most=[10, 10, 10])
    [2, 2, 3]
    """
    if total > sum(most):
        raise ValueError(
            f"{total} weights are to be zeroed, but the layers can lose only {sum(most)} together"
        )
    counts = [min(math.floor(value), limit) for value, limit in zip(ideal, most, strict=True)]
    order = sorted(range(len(counts)), key=lambda i: (math.floor(ideal[i]) - ideal[i], -most[i]))
    while missing := total - sum(counts):
        if missing > 0:
            able = [i for i in order if counts[i] < most[i]]
            # A layer that is to lose nothing at all comes last, however the others are rounded.
            able = [i for i in able if ideal[i] > 0] or able
        else:
            able = [i for i in reversed(order) if counts[i] > 0]
        share = max(1, abs(missing) // len(able))  # more than one each only where limits were hit
        for i in able[: abs(missing)]:
            counts[i] += min(share, most[i] - counts[i]) if missing > 0 else -min(share, counts[i])
    return counts
