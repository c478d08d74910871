"""Compare the engine with ONNX Runtime, OpenVINO and torch, interleaved in one process, outputs compared.

The others run in float32 and in what else their users would pick, int8 and bfloat16, as in `st3 bench`.

    rivals      ResNet-50 and MobileNetV1, 224x224, one picture, one thread: uniform masks, like st3's and sigma's, and
                uniform in blocks of four channels, which the engine's int8 skips
    bar         ResNet-50 and MobileNetV1, 224x224, uniform masks: batch 1 and 16, one thread and two
    break-even  the same at 30, 40 and 50 %, batch 1, one thread
    masks       the same with other masks: ERK, and like those of the paper's networks, st3 and sigma
    block       a transformer block as in BERT and ViT, 128 tokens of width 768
    mlp         a perceptron of 1024-4096-4096-1000, one row
    networks    every network of st3.models at 0, 50 and 90 %; the goal is at least 0.95 of the fastest dense engine
    published   EfficientNet-B0, MobileNetV3, ConvNeXt-T, BERT and GPT-2 (published_networks.py), one input, one thread

The weights are untrained (normal, standard deviation sqrt(2 / fan-in)), zeroed by st3's allocations and rescaled layer
by layer. Uniform masks keep the first convolution and depthwise ones dense. "st3" and "sigma" are random masks with the
zeros and multiply-adds that the paper publishes for its trained networks (published_masks.py). All masks of a network
are measured in the same rounds, with the dense engines measured once for all of them. A network takes 1 to 4 minutes.
Rows that are already in the file are skipped, so the program can be interrupted. The tables of the documentation, of
the rows in engine-rivals*.json and engine-networks.json, are written by docs/engine_page.py:

    python benchmarks/engine.py rivals --output results/benchmarks/engine-rivals.json
    python benchmarks/engine.py published --seconds 15 --output results/benchmarks/engine-networks.json
    python benchmarks/engine.py --table results/benchmarks/engine-rivals.json
"""

import argparse
import json
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.metadata import version
from importlib.util import find_spec
from itertools import groupby
from pathlib import Path
from typing import Any

import torch
from engine_table import remarks, rivals_table, rows_table
from networks import Block, perceptron
from published_masks import PUBLISHED, published_mask
from published_networks import PUBLISHED_NETWORKS
from timing import record
from torch import Tensor, nn

from st3.core.batch_norm import reestimate_batch_norm
from st3.core.layers.patterns import FIRST, Pattern, is_depthwise
from st3.engine.program import InTorch
from st3.engine.report import operators_text
from st3.experiments.bench.benchmark import usual_inputs
from st3.experiments.bench.compare import PAUSE, WARM_UP, compare
from st3.experiments.bench.masking import mask
from st3.models import MODELS

RESULTS = Path(__file__).parents[1] / "results" / "benchmarks" / "engine.json"
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
        yield from (Row("rivals", network, s, "blocks") for s in (0.8, 0.9, 0.95))
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
    for network in PUBLISHED_NETWORKS:
        yield from (Row("published", network, s) for s in (0.8, 0.9, 0.95))
        yield from (Row("published", network, s, "blocks") for s in (0.8, 0.9, 0.95))


OTHERS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "block": (lambda: Block(768, 12, is_causal=False), (128, 768)),
    "mlp": (perceptron, (1024,)),
}


def sparse_network(row: Row) -> tuple[nn.Module, Tensor]:
    """Return the network and its inputs, which are the same for all masks."""
    torch.manual_seed(0)
    model, inputs = dense_network(row)
    if (row.network, row.allocation) in PUBLISHED:
        published_mask(model.eval(), row.network, row.sparsity, row.allocation, torch.zeros_like(inputs[:1]))
    else:
        is_uniform = row.allocation in ("uniform", "blocks")
        allocation = "uniform" if is_uniform else row.allocation
        dense = kept_dense(model) if is_uniform else []
        mask(model, row.sparsity, allocation, exclude=dense, block=4 if row.allocation == "blocks" else 1)
    if row.part == "published":  # without statistics their many gates would leave nothing of the input
        reestimate_batch_norm(model, [inputs])
    return model.eval(), inputs


def dense_network(row: Row) -> tuple[nn.Module, Tensor]:
    if row.part == "published":
        make, make_inputs = PUBLISHED_NETWORKS[row.network]
        return make(), make_inputs()
    if row.network in OTHERS:
        make, shape = OTHERS[row.network]
        return make(), torch.randn(row.batch, *shape)
    shape = usual_inputs(row.network).shape
    return MODELS[row.network](channels=shape[0]), torch.randn(row.batch, *shape)


def kept_dense(model: nn.Module) -> list[Pattern]:
    """Return the layers that uniform masks leave out: the first convolution and depthwise ones."""
    modules = [*model.modules()]
    first: list[Pattern] = [FIRST] if any(isinstance(module, nn.Conv2d) for module in modules) else []
    return [*first, is_depthwise] if any(is_depthwise("", module) for module in modules) else first


def measure(rows: list[Row], rounds: int, seconds: float, clock: str) -> Iterator[dict[str, Any]]:
    """Measure rows that differ in their masks alone, in the same rounds."""
    models, inputs = zip(*map(sparse_network, rows), strict=True)
    found = compare(
        models, inputs[:1], threads=rows[0].threads, rounds=rounds, seconds=seconds, clock=CLOCKS[clock]
    )
    for row, model, each in zip(rows, models, found, strict=True):
        weights = [p.detach() for p in model.parameters() if p.dim() > 1]
        zeros = sum(int((weight == 0).sum()) for weight in weights)
        bar = BAR.get(row.network, {}).get(row.sparsity) if row.part == "bar" else None
        least, aim = bar or (None, None)
        steps = [step for step in each.compiled.program if isinstance(step, InTorch)]
        yield {
            "row": row.name,
            "zeros": round(zeros / sum(weight.numel() for weight in weights), 4),
            **each.to_dict(),
            "clock": clock,
            "at least": least,
            "aim": aim,
            "in torch": dict(Counter(map(operators_text, steps))),
        }


def versions_of_rivals() -> dict[str, str]:
    return {name: version(name) for name in ("onnxruntime", "openvino") if find_spec(name)}


def print_table(found: list[dict[str, Any]]) -> None:
    """Print the rows of the parts "rivals" and "published" as in the documentation, and all others one by one."""
    of_rivals = [row for row in found if row["row"].startswith(("rivals:", "published:"))]
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
    parser.add_argument(
        "--seconds",
        type=float,
        default=100.0,
        help="most seconds for the rounds of one network (default 100)",
    )
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
    for _, together in groupby(wanted, lambda row: (row.part, row.network, row.batch, row.threads)):
        new = {row["row"]: row for row in measure([*together], given.rounds, given.seconds, given.clock)}
        done |= new
        ordered = [done[each.name] for each in rows() if each.name in done]
        spec = {"seconds per network": given.seconds, **WARMING, "versions": versions_of_rivals()}
        record(given.output, spec, ordered, shown=[*new.values()])


if __name__ == "__main__":
    main()
