"""Compare the engine with ONNX Runtime, OpenVINO and torch, interleaved in one process, outputs compared.

The others run in float32 and in what else their users would pick, int8 and bfloat16, as in `st3 bench`.

    rivals      ResNet-50 and MobileNetV1, 224x224, one picture, one thread: uniform masks, and like st3's and sigma's
    bar         ResNet-50 and MobileNetV1, 224x224, uniform masks: batch 1 and 16, one thread and two
    break-even  the same at 30, 40 and 50 %, batch 1, one thread
    masks       the same with other masks: ERK, and like those of the paper's networks, st3 and sigma
    block       a transformer block as in BERT and ViT, 128 tokens of width 768
    mlp         a perceptron of 1024-4096-4096-1000, one row
    networks    every network of st3.models at 0, 50 and 90 %; the goal is at least 0.95 of the fastest dense engine

The weights are untrained (normal, standard deviation sqrt(2 / fan-in)), zeroed by st3's allocations and rescaled layer
by layer. Uniform masks keep the first layer and depthwise layers dense. "st3" and "sigma" are random masks with the
zeros and multiply-adds that the paper publishes for its trained networks (published_masks.py). A row takes less than
100 seconds. Rows that are already in the file are skipped, so the program can be interrupted. The table of the
documentation, of the rows in engine-rivals.json, is written by docs/engine_page.py:

    python benchmarks/engine.py rivals --output results/benchmarks/engine-rivals.json
    python benchmarks/engine.py --table results/benchmarks/engine-rivals.json
"""

import argparse
import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from engine_table import remarks, rivals_table, rows_table
from networks import Block
from published_masks import PUBLISHED, published_mask
from timing import record
from torch import Tensor, nn

from st3.core.layers.patterns import FIRST, is_depthwise
from st3.experiments.bench.benchmark import usual_inputs
from st3.experiments.bench.compare import PAUSE, WARM_UP, compare
from st3.experiments.bench.masking import mask
from st3.models import MODELS

RESULTS = Path(__file__).parents[1] / "results" / "benchmarks" / "engine.json"
SECONDS = 40.0  # for the rounds of one row
WARMING = {"pause seconds": PAUSE, "warm-up seconds": WARM_UP}  # before each timed call
PICTURES = [name for name in MODELS if MODELS.inputs(name).task == "classification"]
CLOCKS = {"wall": time.perf_counter, "processor": time.process_time}
PAPER = ("resnet50", "mobilenet_v1")
SPARSITIES = (0.8, 0.9, 0.95, 0.98)
AROUND_INT8 = (0.8, 0.85, 0.9, 0.95, 0.98)  # where the engine overtakes dense int8

# Batch 1, one thread, uniform masks: required and desired speed relative to the fastest dense engine.
BAR = {
    "resnet50": {0.8: (2.3, 2.8), 0.9: (3.6, 4.5), 0.95: (5.3, 7.0), 0.98: (8.0, 11.0)},
    "mobilenet_v1": {0.8: (1.9, 2.4), 0.9: (2.6, 3.5), 0.95: (3.4, 4.8), 0.98: (4.3, 6.5)},
}


@dataclass(frozen=True)
class Row:
    """One measurement."""

    part: str
    network: str
    sparsity: float
    allocation: str = "uniform"
    batch: int = 1
    threads: int = 1

    @property
    def name(self) -> str:
        return f"{self.part}:{self.network}:{self.sparsity:g}:{self.allocation}:b{self.batch}:t{self.threads}"


def rows() -> Iterator[Row]:
    for network in PAPER:
        yield from (Row("rivals", network, s) for s in AROUND_INT8)
        for method in ("st3", "sigma"):
            yield from (Row("rivals", network, s, method) for s in [*PUBLISHED[network, method]][1:3])
    for network in PAPER:
        for batch, threads in ((1, 1), (16, 1), (1, 2), (16, 2)):
            yield from (Row("bar", network, s, batch=batch, threads=threads) for s in SPARSITIES)
        yield from (Row("break-even", network, s) for s in (0.3, 0.4, 0.5))
        yield from (Row("masks", network, s, "erk") for s in SPARSITIES)
        for method in ("st3", "sigma"):
            yield from (Row("masks", network, s, method) for s in PUBLISHED[network, method])
    yield from (Row("block", "block", s) for s in (0.0, *SPARSITIES))
    yield from (Row("mlp", "mlp", s) for s in (0.0, *SPARSITIES))
    yield from (Row("networks", network, s) for network in PICTURES for s in (0.0, 0.5, 0.9))


def perceptron() -> nn.Module:
    return nn.Sequential(
        nn.Linear(1024, 4096), nn.ReLU(), nn.Linear(4096, 4096), nn.ReLU(), nn.Linear(4096, 1000)
    )


OTHERS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "block": (lambda: Block(768, 12, is_causal=False), (128, 768)),
    "mlp": (perceptron, (1024,)),
}


def sparse_network(row: Row) -> tuple[nn.Module, Tensor]:
    torch.manual_seed(0)
    if row.network in OTHERS:
        make, shape = OTHERS[row.network]
        model = mask(make(), row.sparsity, row.allocation)
    else:
        shape = usual_inputs(row.network).shape
        model = MODELS[row.network](channels=shape[0])
        depthwise = [is_depthwise] if any(is_depthwise("", module) for module in model.modules()) else []
        dense = [FIRST, *depthwise] if row.allocation == "uniform" else []
        if (row.network, row.allocation) in PUBLISHED:
            published_mask(model.eval(), row.network, row.sparsity, row.allocation, torch.zeros(1, *shape))
        else:
            mask(model, row.sparsity, row.allocation, exclude=dense)
    return model.eval(), torch.randn(row.batch, *shape)


def measure(row: Row, rounds: int, clock: str) -> dict[str, Any]:
    model, inputs = sparse_network(row)
    found = compare(model, [inputs], threads=row.threads, rounds=rounds, seconds=SECONDS, clock=CLOCKS[clock])
    weights = [p.detach() for p in model.parameters() if p.dim() > 1]
    zeros = sum(int((weight == 0).sum()) for weight in weights) / sum(weight.numel() for weight in weights)
    least, aim = (
        BAR.get(row.network, {}).get(row.sparsity, (None, None)) if row.part == "bar" else (None, None)
    )
    in_torch = [step.name for step in found.compiled.program if type(step).__name__ == "InTorch"]
    return {
        "row": row.name,
        "zeros": round(zeros, 4),
        **found.to_dict(),
        "clock": clock,
        "at least": least,
        "aim": aim,
        "in torch": len(in_torch),
    }


def versions_of_rivals() -> dict[str, str]:
    return {name: version(name) for name in ("onnxruntime", "openvino") if find_spec(name)}


def print_table(found: list[dict[str, Any]]) -> None:
    """Print the rows of the part "rivals" as in the documentation, and all others one by one."""
    of_rivals = [row for row in found if row["row"].startswith("rivals:")]
    others = [row for row in found if row not in of_rivals]
    parts = [rivals_table(of_rivals), remarks(of_rivals)] if of_rivals else []
    print("\n\n".join([*parts, rows_table(others)] if others else parts))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "rows", nargs="*", help="names or prefixes of names, such as bar:resnet50 (default: all)"
    )
    parser.add_argument("--rounds", type=int, default=20, help="most timed calls of each engine (default 20)")
    parser.add_argument("--output", default=str(RESULTS), help="the JSON file to add the rows to")
    parser.add_argument("--again", action="store_true", help="also measure rows that are already in the file")
    parser.add_argument(
        "--clock",
        choices=[*CLOCKS],
        default="wall",
        help="processor: count this process alone, for one thread on a busy machine",
    )
    parser.add_argument("--list", action="store_true", help="print the names of the missing rows")
    parser.add_argument("--table", metavar="FILE", help="print the rows of a file as a table")
    given = parser.parse_args()
    if given.table:
        print_table(json.loads(Path(given.table).read_text())["rows"])
        return
    path = Path(given.output)
    old = json.loads(path.read_text())["rows"] if path.exists() else []
    done = {row["row"]: row for row in old}
    wanted = [row for row in rows() if not given.rows or row.name.startswith(tuple(given.rows))]
    wanted = [row for row in wanted if given.again or row.name not in done]
    if given.list:
        print("\n".join(row.name for row in wanted))
        return
    for row in wanted:
        done[row.name] = measure(row, given.rounds, given.clock)
        ordered = [done[each.name] for each in rows() if each.name in done]
        spec = {"seconds per row": SECONDS, **WARMING, "versions": versions_of_rivals()}
        record(given.output, spec, ordered, shown=[done[row.name]])


if __name__ == "__main__":
    main()
