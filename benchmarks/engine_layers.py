"""Profile the engine: every step of a network in order, and the sparse kernel on its own.

    network   ResNet-50 and MobileNetV1, 224x224, uniform masks, one image, one thread: each step is timed separately,
              in the order of the network, so that its inputs are in the caches where the step before has left them
    kernel    a 1x1 convolution whose inputs fit the L1 cache, repeated: with few outputs, and with so many that lists
              and results stream through that cache; also the dense kernel on the same layer

GFLOP/s count the multiply-adds of non-zero weights (of all weights for the dense kernel) on pixels inside the image.
Best of all rounds.
"""

import argparse
import math
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import torch
from timing import record
from torch import nn

import st3
from engine import Row, sparse_network
from st3.engine import plan
from st3.engine.execution import Execution
from st3.engine.operation import Operation
from st3.engine.program import Conv, Linear, Program, Step
from st3.engine.tuning import Tuner, cache_file

RESULTS = Path(__file__).parents[1] / "results" / "benchmarks" / "engine-layers.json"
NETWORKS = (("resnet50", 0.8), ("resnet50", 0.95), ("mobilenet_v1", 0.8), ("mobilenet_v1", 0.95))
# input channels, outputs, rows of 16 pixels, density
LAYERS = ((64, 16, 7, 0.5), (64, 256, 7, 0.5), (64, 256, 7, 0.2), (64, 256, 7, 0.1), (112, 256, 4, 0.2))


def kind_of(operation: Operation) -> str:
    """Return the kind of an operation as text."""
    step, before = operation.step, operation.before
    if step is None:
        return "moves and borders"
    if isinstance(before, Conv):
        first = name_of(before)
        return f"{first}, then {'pooling' if not isinstance(step, Conv) else name_of(step)}"
    return name_of(step)


def name_of(step: Step) -> str:
    if not isinstance(step, Conv):
        return "matrix" if isinstance(step, Linear) else "other"
    high, wide = step.weight.shape[2:]
    return f"depthwise {high}x{wide}" if step.groups > 1 else f"{high}x{wide}"


def flops(operation: Operation, program: Program) -> int:
    total = 0
    for step in (operation.before, operation.step):
        if isinstance(step, Conv | Linear):
            pixels = math.prod(program.shapes[step.target]) // step.weight.shape[0]
            total += 2 * int((step.weight != 0).sum()) * pixels
    return total


def in_network(network: str, sparsity: float, rounds: int) -> dict[str, Any]:
    """Time the steps of a network in order and add them up by kind."""
    model, inputs = sparse_network(Row("bar", network, sparsity))
    program = st3.engine.compile(model, inputs, threads=1, tune=False).program
    tuner = Tuner(cache_file())
    execution = Execution(program, 1, tuner)
    tuner.save()
    output = execution.run(inputs)  # the last step writes to it
    compiled = [
        (op, steps) for op, steps in zip(execution.operations, execution.structures, strict=True) if steps
    ]
    arrays = [((plan.Step * len(steps))(*steps), len(steps)) for _, steps in compiled]
    best = [math.inf] * len(arrays)
    for _ in range(rounds):
        for number, (steps, count) in enumerate(arrays):
            begin = time.perf_counter()
            execution.pool.run(steps, count, execution.slots)
            best[number] = min(best[number], 1e3 * (time.perf_counter() - begin))
    del output
    times: dict[str, float] = defaultdict(float)
    work: dict[str, int] = defaultdict(int)
    for (operation, _), milliseconds in zip(compiled, best, strict=True):
        times[kind_of(operation)] += milliseconds
        work[kind_of(operation)] += flops(operation, program)
    return {
        "row": f"network:{network}:{sparsity:g}",
        "milliseconds": round(sum(best), 2),
        "kinds": {
            kind: {"share": round(spent / sum(best), 3), "gflops": round(work[kind] / spent / 1e6, 1)}
            for kind, spent in sorted(times.items(), key=lambda each: -each[1])
        },
    }


def kernel_alone(inputs: int, outputs: int, rows: int, density: float, rounds: int) -> dict[str, Any]:
    """Time the sparse and the dense kernel on one tile whose inputs stay in the L1 cache."""
    torch.manual_seed(0)
    layer = nn.Conv2d(inputs, outputs, 1, bias=False).eval()
    with torch.no_grad():
        layer.weight.mul_(torch.rand_like(layer.weight) < density)
    x = torch.randn(1, inputs, rows, 16)
    program = st3.engine.compile(layer, x, threads=1, tune=False).program
    execution = Execution(program, 1)
    execution.run(x)
    number = next(i for i, operation in enumerate(execution.operations) if operation.tune)
    whole = f"(1, 1, {inputs}, {outputs})"
    alternatives = [each for each in execution.alternatives[number] if each.label.endswith(whole)]
    made = [execution.steps(each.make(execution.binding())) for each in alternatives]
    arrays = [(plan.Step * len(steps))(*steps) for steps in made]
    times = [execution.pool.time(array, len(array), execution.slots, rounds) for array in arrays]
    left = int((layer.weight != 0).sum())
    found: dict[str, Any] = {"row": f"kernel:{inputs}x{outputs}:{rows} vectors:{density:g}"}
    for each, milliseconds in zip(alternatives, times, strict=True):
        weights = left if each.kernel == "sparse" else inputs * outputs
        found[f"{each.kernel} gflops"] = round(2 * weights * rows * 16 / milliseconds / 1e6, 1)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=30, help="default 30")
    parser.add_argument("--output", default=str(RESULTS))
    given = parser.parse_args()
    found = [kernel_alone(*layer, rounds=10 * given.rounds) for layer in LAYERS]
    found += [in_network(network, sparsity, given.rounds) for network, sparsity in NETWORKS]
    record(given.output, {"rounds": given.rounds}, found)


if __name__ == "__main__":
    main()
