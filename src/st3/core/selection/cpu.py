"""Selection on the CPU: numpy, a bracket around the answer, one pass over the weights.

Sorting 25 million weights takes seconds. Instead: guess a narrow bracket that should hold the k-th score (from the
last answer, else from a sample), count what lies below it, collect what lies inside (about one per cent), partition
that. The counts prove the answer; where the bracket missed, a wider one is tried, at last all scores at once.
"""

import itertools
import math
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import torch
from torch import Tensor

from .select import Hint, Selected

__all__ = ["select"]

CHUNK = 1 << 17  # weights per piece of work: the scratch arrays stay in the cache
SAMPLE = 1 << 16  # weights looked at to guess a bracket
PARALLEL_FROM = 1 << 22  # weights from which another thread pays
MOST_THREADS = 8  # beyond, memory is the limit
MOST_KEPT = 0.4  # a bracket that holds a larger part of the weights is given up
MOST_INSIDE = 0.005  # a bracket that holds a larger part of the weights is narrowed next time

Piece = tuple[np.ndarray, float]  # some weights of one layer, and the layer's factor


def select(tensors: Sequence[Tensor], k: int, factors: Sequence[float] | None, hint: Hint) -> Selected:
    """Return the k-th smallest score and the next one; see `select.select`."""
    pieces = list(_pieces(tensors, factors))
    total = sum([weights.size for weights, _ in pieces])
    if not 1 <= k <= total:
        raise ValueError(f"asked for the {k}-th smallest of {total} weights")
    for low_edge, high_edge in _brackets(pieces, total, k, hint):
        below, inside = _scan(pieces, total, low_edge, high_edge)
        if below < k < below + inside.size:
            break
    else:
        below, inside = 0, _all_scores(pieces, total)
    rank = k - below - 1
    ranks = [rank, rank + 1] if rank + 1 < inside.size else [rank]
    inside.partition(ranks)
    low = float(inside[rank])
    high = float(inside[rank + 1]) if len(ranks) == 2 else math.inf
    # Inside the partition everything left of `rank` is <= low, so ties beyond it stand on the right.
    surplus = _count_equal(inside[rank + 1 :], inside[rank]) if high == low else 0
    _remember(hint, low, inside.size / total)
    return Selected(low, high, surplus)


def _pieces(tensors: Sequence[Tensor], factors: Sequence[float] | None) -> Iterator[Piece]:
    for i, tensor in enumerate(tensors):
        weights = _memory_order(tensor.detach())
        for start in range(0, weights.size, CHUNK):
            yield weights[start : start + CHUNK], 1.0 if factors is None else factors[i]


def _memory_order(tensor: Tensor) -> np.ndarray:
    """Return all entries in one dimension, in the order they lie in memory: a view for any dense layout."""
    if tensor.is_contiguous():
        flat = tensor.reshape(-1)
    else:
        strides = tensor.stride()
        flat = tensor.permute(sorted(range(tensor.dim()), key=lambda axis: -strides[axis])).reshape(-1)
    if flat.dtype in (torch.bfloat16, torch.float16):
        flat = flat.float()  # numpy knows no bfloat16
    array: np.ndarray = flat.numpy()
    return array


def _scores(piece: Piece, out: np.ndarray | None = None) -> np.ndarray:
    weights, factor = piece
    scores: np.ndarray = np.abs(weights, out=None if out is None else out[: weights.size])
    if factor != 1.0:
        scores *= scores.dtype.type(factor)
    return scores


def _all_scores(pieces: list[Piece], total: int) -> np.ndarray:
    """Return all scores in one array: the only copy of them that is ever made."""
    together = np.empty(total, np.result_type(*{weights.dtype for weights, _ in pieces}))
    end = 0
    for piece in pieces:
        start, end = end, end + piece[0].size
        together[start:end] = _scores(piece)
    return together


def _count_equal(scores: np.ndarray, value: np.generic) -> int:
    return sum(int(np.count_nonzero(scores[i : i + CHUNK] == value)) for i in range(0, scores.size, CHUNK))


def _brackets(pieces: list[Piece], total: int, k: int, hint: Hint) -> Iterator[tuple[float, float]]:
    """Yield brackets (low, high], each a better bet than the one before it."""
    if isinstance(hint.low, float) and 0.0 < hint.low < math.inf and total > SAMPLE:
        drift = 0.0 if hint.previous is None else hint.low - hint.previous
        yield (hint.low + drift) * (1 - hint.width), (hint.low + drift) * (1 + hint.width)
        hint.width = min(4 * hint.width, 0.25)  # reached only if that one missed
    if total > 4 * SAMPLE:
        yield _sampled_bracket(pieces, total, k)


def _sampled_bracket(pieces: list[Piece], total: int, k: int) -> tuple[float, float]:
    stride = total // SAMPLE
    sample = np.concatenate(
        [_scores((weights[i % stride :: stride], f)) for i, (weights, f) in enumerate(pieces)]
    )
    sample.sort()
    share = k / total
    centre = share * sample.size
    margin = 5.0 * math.sqrt(sample.size * share * (1 - share)) + 5.0  # five standard deviations of the rank
    low, high = int(centre - margin), int(centre + margin)
    return (float(sample[low]) if low >= 0 else -1.0, float(sample[high]) if high < sample.size else math.inf)


def _scan(pieces: list[Piece], total: int, low: float, high: float) -> tuple[int, np.ndarray]:
    """Return how many scores are at most `low`, and those that lie in (low, high]."""
    threads = min(torch.get_num_threads(), MOST_THREADS, total // PARALLEL_FROM + 1)
    if threads == 1:
        parts = [_scan_some(pieces, low, high)]
    else:
        shares = [pieces[i::threads] for i in range(threads)]
        with ThreadPoolExecutor(threads) as pool:  # numpy lets other threads run while it works
            parts = list(pool.map(_scan_some, shares, itertools.repeat(low), itertools.repeat(high)))
    found = [part for part in parts if part is not None]
    if len(found) < len(parts):
        return 0, np.empty(0)  # a bracket that was given up holds no answer
    return sum(below for below, _ in found), np.concatenate([inside for _, inside in found])


def _scan_some(pieces: list[Piece], low: float, high: float) -> tuple[int, np.ndarray] | None:
    below, found = 0, []
    dtype = np.result_type(*{weights.dtype for weights, _ in pieces})
    scratch = {dtype: np.empty(CHUNK, dtype)}
    for piece in pieces:
        scores = _scores(piece, scratch.get(piece[0].dtype))
        is_below = scores <= scores.dtype.type(low)
        below += int(np.count_nonzero(is_below))
        inside = scores <= scores.dtype.type(high)
        inside ^= is_below  # a NaN is neither below nor inside: it counts as large, as in a sort
        found.append(scores[inside])
        if len(found) % 64 == 0 and sum(part.size for part in found) > MOST_KEPT * CHUNK * len(found):
            return None  # nearly half of these weights are tied in here: better taken together
    return below, np.concatenate(found)


def _remember(hint: Hint, low: float, inside: float) -> None:
    hint.previous = hint.low if isinstance(hint.low, float) else None
    hint.low = low
    if inside > MOST_INSIDE:
        hint.width = max(hint.width / 2, 1e-4)
