"""The pure maths of sharing sparsity among layers: ERK's densities, LAMP's scores, fair rounding."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

__all__ = ["apportion", "erk_densities", "lamp_scores"]


def erk_densities(
    shapes: Sequence[Sequence[int]], sparsity: float, *, power: float = 1.0
) -> tuple[float, list[float]]:
    """Return ERK's epsilon and the density of each layer for a total of `sparsity`.

    Layers that would need more than all their weights become dense, and the others make up for it.

    >>> epsilon, densities = erk_densities([(16, 3, 3, 3), (64, 64, 3, 3)], 0.8)
    >>> round(epsilon, 3), [round(d, 3) for d in densities]
    (52.448, [1.0, 0.191])
    """
    counts = [math.prod(shape) for shape in shapes]
    if sparsity <= 0.0:
        return math.inf, [1.0] * len(shapes)
    ratios = [(sum(shape) / count) ** power for shape, count in zip(shapes, counts, strict=True)]
    dense: set[int] = set()
    while True:
        free = [i for i in range(len(shapes)) if i not in dense]
        # Rounded as in the RigL program, so that its published densities come out to the last weight.
        budget = sum(counts[i] - math.floor(sparsity * counts[i]) for i in free)
        budget -= sum(math.floor(sparsity * counts[i]) for i in dense)
        if not free or budget <= 0:
            return 0.0, [1.0 if i in dense else 0.0 for i in range(len(shapes))]
        epsilon = budget / sum(ratios[i] * counts[i] for i in free)
        largest = max(ratios[i] for i in free)
        if epsilon * largest <= 1.0:
            return epsilon, [1.0 if i in dense else epsilon * ratios[i] for i in range(len(shapes))]
        dense |= {i for i in free if ratios[i] == largest}


def lamp_scores(ascending: Tensor) -> Tensor:
    """Return the LAMP score of each of a layer's magnitudes, given in ascending order.

    >>> lamp_scores(torch.tensor([1.0, 2.0, 3.0])) * 182
    tensor([ 13.,  56., 182.], dtype=torch.float64)
    """
    squares = ascending.double() ** 2
    rest = squares.flip(0).cumsum(0).flip(0)
    return torch.where(rest > 0, squares / rest, torch.zeros_like(rest))


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
