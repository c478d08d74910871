"""Compare two threads with one, in the engine and in ONNX Runtime, interleaved in one process.

ResNet-50 and MobileNetV1 with 90 % zeros (uniform masks, untrained weights, 224x224), one image and 16. Before each
timed call there is a pause, in which the threads of the previous engine go to sleep, and a warm-up.
benchmarks/processor.py measures what two threads of this processor can gain at most.
"""

import argparse
import tempfile
from pathlib import Path
from statistics import median
from typing import Any

import torch
from timing import record

import st3
from engine import Row, sparse_network
from st3.experiments.bench.compare import PAUSE, WARM_UP, time_call
from st3.experiments.bench.onnx_files import write_onnx
from st3.experiments.bench.rivals import RIVALS
from st3.experiments.bench.runtimes import Run, onnx_runtime

RESULTS = Path(__file__).parents[1] / "results" / "benchmarks" / "engine-threads.json"
CASES = (("resnet50", 1), ("resnet50", 16), ("mobilenet_v1", 1), ("mobilenet_v1", 16))
SPARSITY = 0.9


def make_engines(row: Row, folder: Path) -> dict[str, Run]:
    model, inputs = sparse_network(row)
    found: dict[str, Run] = {}
    for threads in (1, 2):
        compiled = st3.engine.compile(model, inputs, threads=threads)
        found[f"engine {threads}"] = lambda compiled=compiled: [compiled(inputs)]  # type: ignore[misc]
    if not RIVALS[0].missing:
        path = write_onnx(model, [inputs], folder)
        for threads in (1, 2):
            found[f"ONNX Runtime {threads}"] = onnx_runtime(path, [inputs], threads)
    return found


def measure(network: str, batch: int, rounds: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        engines = make_engines(Row("threads", network, SPARSITY, batch=batch), Path(folder))
        taken: dict[str, list[float]] = {name: [] for name in engines}
        for _ in range(rounds):
            for name, run in engines.items():
                taken[name].append(1e3 * time_call(run))
    row: dict[str, Any] = {"row": f"{network}:{SPARSITY:g}:b{batch}", "rounds": rounds}
    for name in dict.fromkeys(name[:-2] for name in taken):
        one, two = taken[f"{name} 1"], taken[f"{name} 2"]
        row[name] = {
            "one thread ms": {"min": round(min(one), 2), "median": round(median(one), 2)},
            "two threads ms": {"min": round(min(two), 2), "median": round(median(two), 2)},
            "gain": {"min": round(min(one) / min(two), 2), "median": round(median(one) / median(two), 2)},
        }
    return row


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--rounds",
        type=int,
        default=20,
        help="timed calls for one image; a third as many for 16 (default 20)",
    )
    parser.add_argument("--output", default=str(RESULTS))
    given = parser.parse_args()
    torch.set_num_threads(1)
    record(
        given.output,
        {"sparsity": SPARSITY, "pause seconds": PAUSE, "warm-up seconds": WARM_UP},
        [
            measure(network, batch, given.rounds if batch == 1 else -(-given.rounds // 3))
            for network, batch in CASES
        ],
    )


if __name__ == "__main__":
    main()
