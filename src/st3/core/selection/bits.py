"""Selection by the bits of the float: histograms from the most to the least significant digit.

Non-negative floats sort like their bits, so the k-th score is found digit by digit: a histogram of the leading digit
says in which bin it lies, a histogram of the next digit among the members of that bin narrows it, until all bits are
known. Only counts leave a tensor. On one device nothing is read back by the host; with sharded weights the counts
are all-reduced (and whether the hint was right is read, once), never a weight.
"""

from collections.abc import Callable, Iterator, Sequence

import torch
from torch import Tensor

from ..layers.shards import Shards, all_reduce
from .select import Hint, Selected

__all__ = ["select"]

CHUNK = 1 << 22  # weights per piece: bounds the temporaries
DIGITS = {torch.int32: (11, 10, 10), torch.int64: (11, 13, 13, 13, 13)}  # bits of |float32| and |float64|
# A warm search of float32 looks at 2^21 neighbouring floats first: a quarter of the threshold's magnitude.
WINDOW = (11, 10)
SPREAD = 256


def select(
    tensors: Sequence[Tensor], k: int, factors: Sequence[float] | None, shards: Sequence[Shards], hint: Hint
) -> Selected:
    """Return the k-th smallest score, the next one and the surplus of ties as 0-dim tensors."""
    scores = _Scores(tensors, factors, shards)
    found = _warm(scores, k, hint) if any(s.counts for s in shards) else None
    bits, at_most = _cold(scores, k) if found is None else found
    low = bits.view(scores.float_dtype)
    surplus = at_most - k
    following = scores.smallest_above(bits).view(scores.float_dtype)
    hint.low = low
    return Selected(low, torch.where(surplus > 0, low, following), surplus)


def _cold(scores: "_Scores", k: int) -> tuple[Tensor, Tensor]:
    """Return the bits of the k-th score and how many scores are at most that."""
    rank = torch.full((), k, dtype=torch.int64, device=scores.device)
    prefix = torch.zeros((), dtype=scores.bits_dtype, device=scores.device)
    below = torch.zeros_like(rank)
    shift = sum(DIGITS[scores.bits_dtype])
    for width in DIGITS[scores.bits_dtype]:
        counts = scores.histogram(prefix, shift, shift - width, 1 << width)
        digit, before, here = _locate(counts, rank - below)
        shift -= width
        prefix = prefix + (digit.to(prefix.dtype) << shift)
        below = below + before
    return prefix, below + here


def _warm(scores: "_Scores", k: int, hint: Hint) -> tuple[Tensor, Tensor] | None:
    """Search a window around the last answer: two reductions instead of three; None if the answer is elsewhere."""
    if not isinstance(hint.low, Tensor) or scores.bits_dtype != torch.int32:
        return None
    first, second = WINDOW
    last = hint.low.to(scores.device, torch.float32).view(torch.int32)
    start = torch.clamp(last - (1 << (sum(WINDOW) - 1)), min=0)
    counts, below = scores.window(start, second, 1 << first)
    rank = k - below
    digit, before, _ = _locate(counts, rank)
    if not bool((rank >= 1) & (rank <= counts.sum())):
        return None
    start = start + (digit.to(start.dtype) << second)
    fine, _ = scores.window(start, 0, 1 << second)
    digit, before_fine, here = _locate(fine, rank - before)
    return start + digit.to(start.dtype), below + before + before_fine + here


def _locate(counts: Tensor, rank: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return the bin that holds the rank-th entry, the number of entries before that bin, and in it."""
    upto = counts.cumsum(0)
    digit = torch.clamp(torch.searchsorted(upto, rank.reshape(1)).squeeze(0), max=counts.numel() - 1)
    here = counts.gather(0, digit.reshape(1)).squeeze(0)
    return digit, upto.gather(0, digit.reshape(1)).squeeze(0) - here, here


def _spread(bits: Tensor) -> Tensor:
    """Return one of `SPREAD` bins for a score that is not of interest: a single one would be hit by all at once."""
    return (bits ^ (bits >> 16)) & (SPREAD - 1)


class _Scores:
    """The bits of all scores of a pool, piece by piece, and counts of them over all processes."""

    def __init__(
        self, tensors: Sequence[Tensor], factors: Sequence[float] | None, shards: Sequence[Shards]
    ) -> None:
        self.device = tensors[0].device  # where counts meet; layers may lie on several devices
        wide = any(tensor.dtype == torch.float64 for tensor in tensors)
        self.float_dtype = torch.float64 if wide else torch.float32
        self.bits_dtype = torch.int64 if wide else torch.int32
        self._by_groups: dict[Shards, list[tuple[Tensor, float]]] = {}
        for i, tensor in enumerate(tensors):
            factor = 1.0 if factors is None else factors[i]
            key = Shards(counts=shards[i].counts)
            self._by_groups.setdefault(key, []).append((tensor.detach(), factor))

    def histogram(self, prefix: Tensor, above: int, shift: int, bins: int) -> Tensor:
        """Count the digit `bits >> shift` of every score whose bits from `above` on equal those of `prefix`."""

        def digits(bits: Tensor) -> Tensor:
            is_member = (bits >> above) == (prefix.to(bits.device) >> above)
            return torch.where(is_member, (bits >> shift) & (bins - 1), bins + _spread(bits))

        return self._count(digits, bins)[0]

    def window(self, start: Tensor, shift: int, bins: int) -> tuple[Tensor, Tensor]:
        """Count (bits - start) >> shift in `bins` bins, and how many scores lie below `start`."""

        def digits(bits: Tensor) -> Tensor:
            offset = (bits - start.to(bits.device)) >> shift  # both are non-negative, so this cannot overflow
            beyond = bins + SPREAD + _spread(bits)
            return torch.where(offset < 0, bins + _spread(bits), torch.where(offset < bins, offset, beyond))

        return self._count(digits, bins)

    def smallest_above(self, bits: Tensor) -> Tensor:
        """Return the smallest score's bits above `bits`; those of infinity if there is none."""
        infinity = torch.full((), torch.inf, dtype=self.float_dtype, device=self.device).view(self.bits_dtype)
        best = infinity
        for shards, members in self._by_groups.items():
            here = infinity.clone()
            for piece in self._bits(members):
                if piece.numel():
                    top = infinity.to(piece.device)
                    smallest = torch.where(piece > bits.to(piece.device), piece, top).amin()
                    here = torch.minimum(here, smallest.to(self.device))
            best = torch.minimum(best, all_reduce(here, shards.counts, minimum=True))
        return best

    def _count(self, digits: Callable[[Tensor], Tensor], bins: int) -> tuple[Tensor, Tensor]:
        """Count how often each of `bins` digits occurs, and how often one of the `SPREAD` that follow them."""
        total = torch.zeros(bins + 1, dtype=torch.int64, device=self.device)
        for shards, members in self._by_groups.items():
            here = torch.zeros_like(total)
            for piece in self._bits(members):
                index = digits(piece).long()
                counts = torch.zeros(bins + 2 * SPREAD, dtype=torch.int64, device=piece.device)
                counts.scatter_add_(0, index, counts.new_ones(1).expand_as(index))
                here[:bins] += counts[:bins].to(self.device)
                here[bins] += counts[bins : bins + SPREAD].sum().to(self.device)
            total += all_reduce(here, shards.counts)
        return total[:bins], total[bins]

    def _bits(self, members: list[tuple[Tensor, float]]) -> Iterator[Tensor]:
        for tensor, factor in members:
            for piece in tensor.reshape(-1).split(CHUNK):
                own = torch.float64 if piece.dtype == torch.float64 else torch.float32  # as on the CPU
                yield (piece.to(own).abs() * factor).to(self.float_dtype).view(self.bits_dtype)
