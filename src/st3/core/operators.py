"""The pure maths: threshold operators and the filter rescale.

Every function depends on its arguments only. A threshold is a number or a 0-dim tensor and is never negative;
weights whose magnitude equals it are zeroed. `out` may be given to write into an existing tensor, not `raw` itself.
"""

import torch
from torch import Tensor

__all__ = ["BOUND", "MASS_EPSILON", "bounded_scale", "exact_scale", "feather", "hard", "keep_above", "soft"]

BOUND = 0.01  # the bounded rescale is (1 + BOUND) / (r + BOUND): at most 101 for an empty filter
MASS_EPSILON = 1e-6  # added to both mean magnitudes, so that an all-zero filter gives 1 and not 0/0


def hard(raw: Tensor, threshold: Tensor | float, *, out: Tensor | None = None) -> Tensor:
    """Keep what lies above the threshold as it is: raw * [|raw| > threshold].

    >>> hard(torch.tensor([0.5, -0.4, 0.1]), 0.2)
    tensor([ 0.5000, -0.4000,  0.0000])
    """
    return torch.where(raw.abs() > threshold, raw, raw.new_zeros(()), out=out)


def soft(raw: Tensor, threshold: Tensor | float, *, out: Tensor | None = None) -> Tensor:
    """Shrink every magnitude by the threshold, down to zero: sign(raw) * max(|raw| - threshold, 0).

    Computed as raw minus its projection onto [-threshold, threshold]: the same number, and the zeros are exact. Clipped
    rather than masked: with a stale mask, (raw - sign * threshold) * mask would change signs.

    >>> soft(torch.tensor([0.5, -0.4, 0.1]), 0.2)
    tensor([ 0.3000, -0.2000,  0.0000])
    """
    return torch.sub(raw, torch.clamp(raw, -threshold, threshold, out=out), out=out)  # type: ignore[arg-type]


def feather(raw: Tensor, threshold: Tensor | float, power: float, *, out: Tensor | None = None) -> Tensor:
    """Shrink less the larger the weight: sign(raw) * max(|raw|^p - threshold^p, 0)^(1/p).

    p = 1 is soft, p towards infinity hard (Glentis Georgoulakis et al., Feather, BMVC 2023). Written with d, the part
    of the magnitude above the threshold, as raw * (1 - (1 - d)^p)^(1/p): no power over- or underflows, and a weight
    just above the threshold stays active.

    >>> feather(torch.tensor([0.5, -0.4, 0.1]), 0.2, 3.0)
    tensor([ 0.4891, -0.3826,  0.0000])
    """
    if power == 1.0:
        return soft(raw, threshold, out=out)
    magnitude = raw.abs()
    active = magnitude > threshold
    above = torch.where(active, (magnitude - threshold) / magnitude, 0.0)
    shrunk = raw * (-torch.expm1(power * torch.log1p(-above))) ** (1.0 / power)
    return torch.where(active, shrunk, raw.new_zeros(()), out=out)


def keep_above(magnitude: Tensor, threshold: Tensor | float) -> Tensor:
    """Zero the magnitudes at or below the threshold, in place."""
    if isinstance(threshold, Tensor):
        return magnitude.mul_(magnitude > threshold)
    return torch.nn.functional.threshold(magnitude, threshold, 0.0, inplace=True)


def bounded_scale(mean: Tensor, kept_mean: Tensor) -> Tensor:
    """Return the rescale per filter from its mean magnitude before and after zeroing: 1.01 / (r + 0.01).

    1 for a full filter, at most 101 for an empty one, finite for an all-zero one. The paper's formula is
    `exact_scale`; this is the form of the authors' program (docs/decisions/0003-rescale.md).
    """
    mean, kept_mean = mean + MASS_EPSILON, kept_mean + MASS_EPSILON  # r = kept_mean / mean
    return mean.mul(1.0 + BOUND).div_(kept_mean.add_(mean, alpha=BOUND))


def exact_scale(mean: Tensor, kept_mean: Tensor) -> Tensor:
    """Return the paper's rescale per filter, 1 / r (sec. 3, "Weight rescaling"); 1 for an empty filter."""
    return torch.where(kept_mean > 0, mean / kept_mean, torch.ones_like(mean))
