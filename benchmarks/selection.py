"""The exact k-th magnitude: how fast against torch, how much memory, and is its time linear?

speed    the 25.5 M weights of ResNet-50 at sparsity 0.9: st3 without and with a hint from the last step, against
         torch.kthvalue and torch.sort on magnitudes that are already in one tensor (their copy is not timed)
memory   the most that numpy held at once, as a multiple of all magnitudes
linear   nanoseconds per weight from 1 M to 200 M, relative to those at 1 M
"""

import argparse
import tracemalloc
from typing import Any

import torch
from timing import ratio, record, take_turns
from torch import Tensor

from st3.core.layers.find import find_layers
from st3.core.selection.select import Hint, quota, select
from st3.models import MODELS

SPARSITY = 0.9
MILLION = 1_000_000


def weights() -> list[Tensor]:
    torch.manual_seed(0)
    return [layer.parameter.detach() for layer in find_layers(MODELS["resnet50"]())]


def speed(rounds: int) -> dict[str, Any]:
    tensors = weights()
    together = torch.cat([tensor.flatten() for tensor in tensors]).abs()
    k = quota(together.numel(), SPARSITY).zeros
    hint = Hint()
    expected = together.kthvalue(k).values.item()
    assert select(tensors, k).low == select(tensors, k, hint=hint).low == expected

    def warm() -> None:
        for tensor in tensors:
            tensor.mul_(
                1.0003
            )  # not part of the search, but of what moves the threshold: counted against st3
        select(tensors, k, hint=hint)

    seconds = take_turns(
        {
            "cold": lambda: select(tensors, k),
            "warm": warm,
            "kthvalue": lambda: together.kthvalue(k),
            "sort": lambda: together.sort(),
        },
        rounds,
    )
    return {
        "case": "speed",
        "weights": together.numel(),
        "kthvalue over st3 cold": ratio(seconds, "kthvalue", "cold"),
        "kthvalue over st3 warm": ratio(seconds, "kthvalue", "warm"),
        "sort over st3 cold": ratio(seconds, "sort", "cold"),
        "sort over st3 warm": ratio(seconds, "sort", "warm"),
        "at least": {"kthvalue": 5, "sort": 40},
        "rounds": rounds,
    }


def memory() -> list[dict[str, Any]]:
    tensors = weights()
    tied = [
        torch.ones_like(tensor) for tensor in tensors
    ]  # the worst case: every weight lies in every bracket
    rows = []
    for name, pool in (("random weights", tensors), ("all weights equal", tied)):
        total = sum(tensor.numel() for tensor in pool)
        tracemalloc.start()
        select(pool, quota(total, SPARSITY).zeros)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        rows.append(
            {"case": f"memory, {name}", "peak over magnitudes": round(peak / (4 * total), 3), "at most": 1}
        )
    return rows


def linear(rounds: int) -> dict[str, Any]:
    sizes = [1, 5, 25, 100, 200]
    pools = {size: [torch.randn(MILLION) for _ in range(size)] for size in sizes}
    ks = {size: quota(size * MILLION, SPARSITY).zeros for size in sizes}
    seconds = take_turns(
        {str(size): lambda size=size: select(pools[size], ks[size]) for size in sizes}, rounds
    )
    each = {size: ratio(seconds, str(size), "1") for size in sizes}
    return {
        "case": "linear",
        "time per weight relative to 1 M": {
            f"{size} M": {kind: round(value / size, 3) for kind, value in each[size].items()}
            for size in sizes
        },
        "rounds": rounds,
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--output", help="write the rows to this JSON file")
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    rows = [speed(given.rounds), *memory(), linear(given.rounds)]
    record(given.output, {"rounds": given.rounds, "sparsity": SPARSITY}, rows)


if __name__ == "__main__":
    main()
