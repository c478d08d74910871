"""LRR, LRR with the same pictures in every cycle, and LRR+ST-3 on the 8x8 digits, cycle after cycle to two sparsities.

    python benchmarks/digits_cycles.py --folder runs/digits-cycles --output results/digits-cycles.json

Every cycle is the whole recipe `digits` (30 epochs); each time 20 % of the remaining weights are pruned. Beside them,
ST-3 in a single cycle, and in one of 4 times the epochs. A run that is interrupted goes on where it was.
"""

import argparse
import shutil
import warnings
from pathlib import Path
from statistics import mean, stdev
from typing import Any

from timing import record

import st3
from st3.experiments.essence import differences
from st3.experiments.folder import write_spec
from st3.experiments.protocols import PROTOCOLS
from st3.experiments.run import train
from st3.experiments.spec import Spec, compose, read_spec
from st3.training.paths import SPEC, SUMMARY

# name -> what `compose` is told
SAME_PICTURES = {"name": "lrr", "arguments": {"reset_seed": True}}
CASES: dict[str, dict[str, Any]] = {
    "LRR": {"method": "gmp", "protocol": "lrr"},
    "LRR, same pictures in every cycle": {"method": "gmp", "protocol": SAME_PICTURES},
    "LRR+ST-3": {"method": "st3", "protocol": "lrr"},
    "ST-3, single cycle": {"method": "st3", "protocol": "single"},
    "ST-3, single cycle, 4 times the epochs": {"method": "st3", "protocol": "single", "times": 4},
}


def spec_of(name: str, sparsity: float, seed: int, epochs: int) -> Spec:
    case = dict(CASES[name])
    sparse = {"method": case.pop("method"), "sparsity": sparsity}
    settings = {"seeds": {"init": seed, "data": seed}, "machine": {"device": "cpu"}}
    return compose(sparse=sparse, epochs=epochs * case.pop("times", 1), **settings, **case)


def summary_of(spec: Spec, place: Path, others: list[Path]) -> dict[str, Any]:
    """Train it; cycles that one of the `others` has trained already, on its way elsewhere, are taken from there."""
    for part in PROTOCOLS[spec.protocol.name](**spec.protocol.arguments).parts(spec):
        for other in (
            other / part.folder for other in others if part.folder and not (place / part.folder).exists()
        ):
            if (other / SUMMARY).exists() and not differences(read_spec(other / SPEC), part.spec):
                shutil.copytree(other, place / part.folder)
    if place.exists():
        write_spec(spec, place)
    return train(spec, place, resume=place.exists())


def row(name: str, sparsity: float, found: list[dict[str, Any]]) -> dict[str, Any]:
    accuracies = [summary["test"]["accuracy"] for summary in found]
    figures = {
        "method": name,
        "sparsity": sparsity,
        "cycles": len(found[0].get("cycles", [0])),
        "epochs": found[0]["epochs"],
        "test accuracy": round(mean(accuracies), 4),
        "standard deviation": round(stdev(accuracies) if len(found) > 1 else 0.0, 4),
        "seeds": accuracies,
    }
    return figures | ({"every cycle": curve(found)} if "cycles" in found[0] else {})


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
    parser.add_argument("--only", nargs="+", choices=CASES, default=list(CASES), metavar="NAME")
    parser.add_argument("--rounds", type=int, default=3, help="seeds (default 3)")
    parser.add_argument("--epochs", type=int, default=30, help="of each cycle (default 30)")
    parser.add_argument("--output", help="write the rows to this JSON file")
    given = parser.parse_args()
    warnings.simplefilter("ignore", st3.errors.LayerCollapseWarning)
    cases = [(name, sparsity) for name in given.only for sparsity in given.sparsity]
    found: dict[tuple[str, float], list[dict[str, Any]]] = {case: [] for case in cases}
    for seed in range(given.rounds):
        for name, sparsity in cases:
            start = f"{name.lower().replace(', ', '-').replace(' ', '-')}-seed{seed}"
            places = {s: given.folder / f"{start}-{s}" for s in given.sparsity}
            others = [place for s, place in places.items() if s != sparsity]
            spec = spec_of(name, sparsity, seed, given.epochs)
            found[name, sparsity].append(summary_of(spec, places[sparsity], others))
            print(seed, name, sparsity, found[name, sparsity][-1]["test"]["accuracy"], flush=True)
    rows = [row(name, sparsity, summaries) for (name, sparsity), summaries in found.items()]
    spec = {"data": "digits", "recipe": "digits", "epochs of a cycle": given.epochs, "seeds": given.rounds}
    record(given.output, spec, rows)


if __name__ == "__main__":
    main()
