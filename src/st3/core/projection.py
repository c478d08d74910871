"""Probabilities onto a budget: the pure maths.

`p <- clamp(p - v, 0, 1)` with the v >= 0 for which the probabilities add up to the budget; nothing if they add up to
less already. This is the nearest point (in the Euclidean sense) of the box cut by the budget.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

__all__ = ["project"]

ITERATIONS = 8  # a sum within rounding, in 1,500 random cases of five kinds


@torch.no_grad()
def project(parts: Sequence[Tensor], budget: float) -> None:
    """Lower the probabilities in `parts`, together, until they add up to `budget`, in place.

    The sum falls along straight lines as v grows, so Newton's step lands exactly where no probability reaches 0 or 1 on
    the way; where it leaves the bracket, the middle is taken. No number is read back from the device.

    >>> probabilities = torch.tensor([1.0, 0.9, 0.2, 0.1])
    >>> project([probabilities], 1.0)
    >>> probabilities
    tensor([0.5500, 0.4500, 0.0000, 0.0000])
    """
    values = torch.cat([part.flatten().to(parts[0].device) for part in parts])
    high = values.max().double().clamp(min=0)
    low = shift = torch.zeros_like(high)
    for _ in range(ITERATIONS):
        lowered = values - shift.to(values.dtype)
        between = ((lowered > 0) & (lowered < 1)).sum()
        excess = lowered.clamp_(0, 1).sum(dtype=torch.float64) - budget
        low, high = torch.where(excess > 0, shift, low), torch.where(excess > 0, high, shift)
        newton = shift + excess / between.clamp(min=1)
        shift = torch.where((newton >= low) & (newton <= high), newton, (low + high) / 2)
    for part in parts:
        part.sub_(shift.to(part.device, part.dtype)).clamp_(0, 1)
