"""LRR, LRR with the same pictures in every cycle, and LRR+ST-3 on the 8x8 digits, cycle after cycle to two sparsities.

    python benchmarks/digits_cycles.py --folder runs/digits-cycles --output results/digits-cycles.json

Every cycle is the whole recipe `digits` (30 epochs); each time 20 % of the remaining weights are pruned. Beside them,
ST-3 in a single cycle of 30 epochs, and of as many epochs as all cycles of LRR together. A run that is interrupted goes
on where it was.
"""

import argparse
import warnings
from pathlib import Path
from statistics import mean, stdev
from typing import Any

from timing import record

import st3
from st3.experiments.cycles import cycle_sparsities
from st3.experiments.run import train
from st3.experiments.spec import compose

# name -> what `compose` is told
CYCLES: dict[str, dict[str, Any]] = {
    "LRR": {"method": "gmp", "cycles": {}},
    "LRR, same pictures in every cycle": {"method": "gmp", "cycles": {"reset_seed": True}},
    "LRR+ST-3": {"method": "st3", "cycles": {}},
}
SINGLE = "ST-3, single cycle"
LONG = "ST-3, single cycle, as many epochs as LRR"


def summaries(name: str, spec: dict[str, Any], folder: Path, seeds: int) -> list[dict[str, Any]]:
    found = []
    for seed in range(seeds):
        place = folder / f"{name.lower().replace(', ', '-').replace(' ', '-')}-{spec['sparse']['sparsity']}-seed{seed}"
        settings = {"seeds": {"init": seed, "data": seed}, "machine": {"device": "cpu"}, "dense_twin": False}
        found.append(train(compose(**spec, **settings), place, resume=place.exists()))
    return found


def row(name: str, sparsity: float, found: list[dict[str, Any]]) -> dict[str, Any]:
    accuracies = [summary["test"]["accuracy"] for summary in found]
    return {
        "method": name,
        "sparsity": sparsity,
        "cycles": len(found[0].get("cycles", [0])),
        "epochs": found[0]["epochs"],
        "test accuracy": round(mean(accuracies), 4),
        "standard deviation": round(stdev(accuracies) if len(found) > 1 else 0.0, 4),
        "seeds": accuracies,
    }


def curve(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the mean test accuracy of every cycle."""
    return [
        {
            "sparsity": cycles[0]["target"] or 0.0,
            "test accuracy": round(mean(cycle["test"]["accuracy"] for cycle in cycles), 4),
        }
        for cycles in zip(*(summary["cycles"] for summary in found), strict=True)
    ]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--folder", type=Path, default=Path("runs/digits-cycles"))
    parser.add_argument("--sparsity", type=float, nargs="+", default=[0.9, 0.98])
    parser.add_argument("--rounds", type=int, default=3, help="seeds (default 3)")
    parser.add_argument("--epochs", type=int, default=30, help="of each cycle (default 30)")
    parser.add_argument("--output", help="write the rows to this JSON file")
    given = parser.parse_args()
    warnings.simplefilter("ignore", st3.LayerCollapseWarning)
    rows = []
    for sparsity in given.sparsity:
        epochs = given.epochs * len(cycle_sparsities(sparsity))
        cases = {name: {**asked, "epochs": given.epochs} for name, asked in CYCLES.items()}
        cases |= {name: {"method": "st3", "epochs": e} for name, e in ((SINGLE, given.epochs), (LONG, epochs))}
        for name, case in cases.items():
            sparse = {"method": case.pop("method"), "sparsity": sparsity}
            found = summaries(name, {"sparse": sparse, **case}, given.folder, given.rounds)
            rows.append(row(name, sparsity, found))
            print(rows[-1], flush=True)
            if "cycles" in found[0]:
                rows[-1]["every cycle"] = curve(found)
    spec = {"data": "digits", "recipe": "digits", "epochs of a cycle": given.epochs, "seeds": given.rounds}
    record(given.output, spec, rows)


if __name__ == "__main__":
    main()
