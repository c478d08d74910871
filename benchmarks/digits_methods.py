"""Every method on the 8x8 digits: test accuracy at two sparsities, several seeds, beside the dense network.

    python benchmarks/digits_methods.py --folder runs/digits-methods --output results/digits-methods.json

The recipe is `digits` (30 epochs) for all of them. A run that is interrupted goes on where it was.
"""

import argparse
import warnings
from pathlib import Path
from statistics import mean, stdev
from typing import Any

from timing import record

import st3
from st3.core.method import METHODS
from st3.experiments.run import train
from st3.experiments.spec import compose

# name -> what `compose` is told; every registered method, and choices of theirs that papers use
CHOICES: dict[str, dict[str, Any]] = {
    name: {"method": name}
    for name in METHODS
    if METHODS[name]().own_sparsity is None and METHODS[name]().has_target
} | {
    "st3, sigma": {"method": "st3", "allocation": "sigma"},
    "rigl, erk": {"method": "rigl", "allocation": "erk"},
    "topk, erk": {"method": "topk", "allocation": "erk"},
    # Its own temperature is for weights a tenth as large.
    "pdp, tau=0.001": {"method": "pdp", "arguments": {"tau": 1e-3}},
    "hard, straight-through": {"method": "st3", "arguments": {"soft": False, "rescale": False}},
    # Its own rate of the probabilities is for a hundred times as many steps.
    "probmask": {"method": "probmask", "arguments": {"lr": 0.1}},
}
# Methods that imply their sparsity: what it is, they say by themselves.
GROUPED = [name for name in METHODS if METHODS[name]().own_sparsity is not None]
IMPLIED: dict[str, dict[str, Any]] = {
    f"{name}, {n}:{m}": {"method": name, "arguments": {"n": n, "m": m}}
    for name in GROUPED
    for n, m in ((2, 4), (1, 8), (1, 16))
}


# Methods that find their own sparsity: the settings that come near the one wished for, in 30 epochs.
NEAR: dict[str, dict[float, dict[str, Any]]] = {
    "str": {
        0.9: {"method": "str", "arguments": {"init": -8.0, "weight_decay": 0.035}},
        0.98: {"method": "str", "arguments": {"init": -8.0, "weight_decay": 0.07}},
    }
}


def results(
    name: str, sparsity: float, sparse: dict[str, Any], folder: Path, seeds: int, epochs: int | None
) -> list[tuple[float, float]]:
    """Return test accuracy and sparsity of every seed."""
    found = []
    for seed in range(seeds):
        place = folder / f"{name.replace(', ', '-').replace(':', '-')}-{sparsity}-seed{seed}"
        settings = {"seeds": {"init": seed, "data": seed}, "machine": {"device": "cpu"}, "protocol": "single"}
        summary = train(compose(sparse=sparse, epochs=epochs, **settings), place, resume=place.exists())
        found.append((summary["test"]["accuracy"], summary["sparsity"]))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--folder", type=Path, default=Path("runs/digits-methods"))
    parser.add_argument("--sparsity", type=float, nargs="+", default=[0.9, 0.98])
    parser.add_argument("--rounds", type=int, default=3, help="seeds (default 3)")
    parser.add_argument("--epochs", type=int, help="default: the recipe's 30")
    parser.add_argument(
        "--only", nargs="+", metavar="NAME", help="these methods; rows of others stay as they are"
    )
    parser.add_argument("--output", help="write the rows to this JSON file")
    given = parser.parse_args()
    warnings.simplefilter("ignore", st3.errors.LayerCollapseWarning)
    cases: list[tuple[str, float, dict[str, Any]]] = [("dense", 0.0, {"method": "dense", "sparsity": 0.0})]
    for wish in given.sparsity:
        cases += [(name, wish, {**sparse, "sparsity": wish}) for name, sparse in CHOICES.items()]
        cases += [(name, wish, settings[wish]) for name, settings in NEAR.items() if wish in settings]
    for name, sparse in IMPLIED.items():
        own = compose(sparse=sparse).sparse.sparsity
        cases.append((name, own, {**sparse, "sparsity": own}))
    if given.only:
        cases = [case for case in cases if case[0].split(", ")[0] in given.only]
    rows = []
    for name, wish, sparse in cases:
        pairs = results(name, wish, sparse, given.folder, given.rounds, given.epochs)
        found = [accuracy for accuracy, _ in pairs]
        spread = stdev(found) if len(found) > 1 else 0.0
        row = {"method": name, "sparsity": wish, "test accuracy": round(mean(found), 4)}
        row |= {"standard deviation": round(spread, 4), "seeds": found}
        if name in NEAR:
            row |= {"arguments": sparse["arguments"], "sparsity reached": [round(s, 4) for _, s in pairs]}
        rows.append(row)
        print(row, flush=True)
    spec = {"data": "digits", "recipe": "digits", "epochs": given.epochs or 30, "seeds": given.rounds}
    record(given.output, spec, rows, methods={row["method"] for row in rows} if given.only else ())


if __name__ == "__main__":
    main()
