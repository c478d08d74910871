"""What blocks of four input channels cost in accuracy: the same run with single weights and with blocks, on digits.

    python benchmarks/digits_blocks.py --folder runs/digits-blocks --output results/digits-blocks.json

The first layer has one input channel and cannot be divided into blocks: it stays dense in both. ST-3 trains
`digits_cnn` (32 channels) and the same network with twice the channels; the others train the first. The recipe is
`digits`, 30 epochs. A run that is interrupted goes on where it was.
"""

import argparse
import itertools
import warnings
from pathlib import Path
from statistics import mean, stdev
from typing import Any

from timing import record
from torch import nn

import st3
from st3.experiments.evaluation import evaluate_stored
from st3.experiments.run import train
from st3.experiments.spec import compose
from st3.models import MODELS
from st3.models.initialise import initialise

# name -> network, what is asked of it, sparsities
CASES: dict[str, tuple[str, dict[str, Any], tuple[float, ...]]] = {
    "st3": ("digits_cnn", {"method": "st3"}, (0.8, 0.9, 0.95)),
    "st3, hard": ("digits_cnn", {"method": "st3", "arguments": {"soft": False}}, (0.9, 0.95)),
    "soft": ("digits_cnn", {"method": "soft"}, (0.9, 0.95)),
    "feather": ("digits_cnn", {"method": "feather"}, (0.9, 0.95)),
    "st3, lamp": ("digits_cnn", {"method": "st3", "allocation": "lamp"}, (0.9, 0.95)),
    "st3, wide": ("digits_wide", {"method": "st3"}, (0.8, 0.9, 0.95)),
    "gmp": ("digits_cnn", {"method": "gmp"}, (0.9, 0.95)),
}
BLOCKS = (1, 4)


@MODELS.register("digits_wide", shape=(1, 8, 8))
def digits_wide(classes: int = 10, channels: int = 1) -> nn.Module:
    """Build `digits_cnn` with twice the channels."""
    model = nn.Sequential(
        *_convolution(channels, 64), *_convolution(64, 64), *_convolution(64, 96, stride=2),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(96, classes, bias=False),
    )  # fmt: skip
    initialise(model)
    return model


def _convolution(inputs: int, outputs: int, stride: int = 1) -> tuple[nn.Module, ...]:
    convolution = nn.Conv2d(inputs, outputs, 3, stride=stride, padding=1, bias=False)
    return convolution, nn.BatchNorm2d(outputs), nn.ReLU()


def measure(
    case: str, sparsity: float, block: int, folder: Path, seeds: int, epochs: int | None
) -> dict[str, Any]:
    """Train with every seed, and return test accuracy and zeros; of blocks, the accuracy in int8 too."""
    network, choice, _ = CASES[case]
    in_int8: list[float] = []
    sparse = {**choice, "sparsity": sparsity, "block": block, "exclude": ["first layer"]}
    found = []
    for seed in range(seeds):
        place = folder / f"{case.replace(', ', '-')}-{sparsity}-block{block}-seed{seed}"
        spec = compose(
            model={"name": network},
            sparse=sparse,
            epochs=epochs,
            seeds={"init": seed, "data": seed},
            machine={"device": "cpu"},
            protocol="single",
        )
        found.append(train(spec, place, resume=place.exists()))
        if block > 1:
            in_int8.append(evaluate_stored(place, int8=True)["accuracy"])
    accuracies = [summary["test"]["accuracy"] for summary in found]
    more = {"in int8": round(mean(in_int8), 4), "seeds in int8": in_int8} if in_int8 else {}
    return {
        "case": case,
        "sparsity": sparsity,
        "block": block,
        "sparsity reached": [round(summary["sparsity"], 4) for summary in found],
        "test accuracy": round(mean(accuracies), 4),
        "standard deviation": round(stdev(accuracies), 4) if seeds > 1 else 0.0,
        "seeds": accuracies,
        **more,
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--folder", type=Path, default=Path("runs/digits-blocks"))
    parser.add_argument("--rounds", type=int, default=3, help="seeds (default 3)")
    parser.add_argument("--epochs", type=int, help="default: the recipe's 30")
    parser.add_argument("--output", help="write the rows to this JSON file")
    given = parser.parse_args()
    warnings.simplefilter("ignore", st3.errors.LayerCollapseWarning)
    rows = []
    for case, (_, _, sparsities) in CASES.items():
        for sparsity, block in itertools.product(sparsities, BLOCKS):
            rows.append(measure(case, sparsity, block, given.folder, given.rounds, given.epochs))
            print(rows[-1], flush=True)
    spec = {"data": "digits", "recipe": "digits", "epochs": given.epochs or 30, "seeds": given.rounds}
    record(given.output, spec, rows)


if __name__ == "__main__":
    main()
