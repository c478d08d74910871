"""Compare the engines of two source trees, each with its own library: processes take turns, on the same networks.

    python benchmarks/two_versions.py OLD NEW resnet50:0.9:1:1 ...     rows are network:sparsity:batch:threads

OLD and NEW are checkouts whose library is built. Every turn warms up and then takes the shortest of three calls.
"""

import argparse
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from timing import ratio, record

RESULTS = Path(__file__).parents[1] / "results" / "benchmarks" / "engine-two-versions.json"
CHILD = """
import importlib, os, sys, time, torch, st3
from st3.core.layers import patterns
from st3.models import MODELS

network, sparsity, batch, threads = sys.argv[1].split(":")
try:
    masking = importlib.import_module("st3.experiments.bench.masking")
except ImportError:  # an earlier version
    masking = importlib.import_module("st3.engine.masking")

def is_depthwise(name, module):
    return isinstance(module, torch.nn.Conv2d) and module.groups == module.in_channels > 1

torch.set_num_threads(int(threads))
torch.manual_seed(0)
model = MODELS[network](channels=3).eval()
dense = [patterns.FIRST] + [is_depthwise] * any(is_depthwise("", module) for module in model.modules())
masking.mask(model, float(sparsity), "uniform", exclude=dense)
x = torch.randn(int(batch), 3, 224, 224)
fast = st3.engine.compile(model, x, threads=int(threads))
print("ready", flush=True)
for _ in sys.stdin:
    begin = time.perf_counter()
    while time.perf_counter() - begin < 0.05:
        fast(x)
    best = float("inf")
    for _ in range(3):
        begin = time.perf_counter()
        fast(x)
        best = min(best, time.perf_counter() - begin)
    print(best, flush=True)
"""


def start(tree: str, row: str, tuning: Path) -> subprocess.Popen[str]:
    """Start a process that compiles a network and waits for its turns."""
    environment = {
        **os.environ,
        "PYTHONPATH": str(Path(tree).resolve() / "src"),
        "OMP_NUM_THREADS": row.split(":")[3],
        "ST3_TUNING": str(tuning),
    }
    process = subprocess.Popen(
        [sys.executable, "-c", CHILD, row],
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout
    if process.stdout.readline().strip() != "ready":
        raise SystemExit(f"{tree} could not compile {row}: its own message is above")
    return process


def turn(process: subprocess.Popen[str]) -> float:
    assert process.stdin
    assert process.stdout
    process.stdin.write("go\n")
    process.stdin.flush()
    return float(process.stdout.readline())


def measure(row: str, trees: dict[str, str], rounds: int, tuning: Path) -> dict[str, Any]:
    processes = {name: start(tree, row, tuning / f"tuning-{name}.json") for name, tree in trees.items()}
    seconds: dict[str, list[float]] = {name: [] for name in trees}
    for _ in range(rounds):
        for name, process in processes.items():
            seconds[name].append(turn(process))
    for process in processes.values():
        process.communicate()
    milliseconds = {name: round(1e3 * min(each), 3) for name, each in seconds.items()}
    return {"row": row, "min ms": milliseconds, "old / new": ratio(seconds, "old", "new")}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("old", help="a checkout with its library built")
    parser.add_argument("new", help="another one")
    parser.add_argument("rows", nargs="+", help="network:sparsity:batch:threads")
    parser.add_argument("--rounds", type=int, default=10, help="default 10")
    parser.add_argument("--tuning", type=Path, default=Path("build"), help="folder of the tuning caches")
    parser.add_argument("--output", default=str(RESULTS))
    given = parser.parse_args()
    trees = {"old": given.old, "new": given.new}
    given.tuning.mkdir(parents=True, exist_ok=True)
    found = [measure(row, trees, given.rounds, given.tuning) for row in given.rows]
    record(given.output, {"rounds": given.rounds}, found)


if __name__ == "__main__":
    main()
