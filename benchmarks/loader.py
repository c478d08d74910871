"""What pictures cost: the time to make one augmented batch over the time of the training step that uses it.

The pictures are random bytes of CIFAR's shape, 128 to a batch, cropped after padding, mirrored and normalised in the
process that trains, without workers. The step is that of a dense ResNet-20 with SGD-momentum.
"""

import argparse
from collections.abc import Iterator
from typing import Any

import torch
from timing import ratio, record, take_turns
from torch import Tensor
from torch.nn import functional as F

from st3.data import Batches
from st3.data.in_memory import InMemory, Padding
from st3.models import MODELS

PICTURES = 45_000
BATCH_SIZE = 128
AT_MOST = 0.05  # of a step


def pictures(padding: Padding) -> InMemory:
    generator = torch.Generator().manual_seed(0)
    pixels = torch.randint(256, (PICTURES, 3, 32, 32), dtype=torch.uint8, generator=generator)
    labels = torch.randint(10, (PICTURES,), generator=generator)
    half = (0.5, 0.5, 0.5)
    return InMemory(pixels, labels, mean=half, std=half, shift=4, flip=True, padding=padding)


def without_end(batches: Batches) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield full batches, epoch after epoch."""
    epoch = 0
    while True:
        for batch in batches.epoch(epoch):
            if len(batch[1]) == BATCH_SIZE:
                yield batch
        epoch += 1


def measure(rounds: int) -> list[dict[str, Any]]:
    """Time loaders with either padding and the step in turn; every step takes the batch that was made before it."""
    torch.manual_seed(0)
    model = MODELS["resnet20"]()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9, weight_decay=1e-4)
    loaders = {
        padding: without_end(Batches(pictures(padding), BATCH_SIZE, seed=0)) for padding in ("zero", "edge")
    }
    made: list[tuple[Tensor, Tensor]] = []

    def load(padding: str) -> None:
        made[:] = [next(loaders[padding])]

    def step() -> None:
        x, y = made[0]
        F.cross_entropy(model(x), y).backward()
        optimizer.step()
        optimizer.zero_grad()

    seconds = take_turns(
        {"zero": lambda: load("zero"), "edge": lambda: load("edge"), "step": step}, rounds, warm_up=2
    )
    return [
        {
            "case": f"padding {padding}",
            "milliseconds per batch": round(1e3 * min(seconds[padding]), 3),
            "milliseconds per step": round(1e3 * min(seconds["step"]), 1),
            "loader over step": ratio(seconds, padding, "step"),
            "at most": AT_MOST,
            "rounds": rounds,
        }
        for padding in loaders
    ]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=20, help="batches of each loader (default 20)")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--output", "--out", help="write the rows to this JSON file")
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    spec = {"rounds": given.rounds, "batch_size": BATCH_SIZE, "pictures": PICTURES, "model": "resnet20"}
    record(given.output, spec, measure(given.rounds))


if __name__ == "__main__":
    main()
