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
from st3.engine import native
from st3.engine.plan.assemble import Alternative, Assembly
from st3.engine.plan.make import Choice, make_plan
from st3.engine.plan.tune import Tuner
from st3.engine.program import Conv, Linear, Program, Step
from st3.engine.run import Runtime

RESULTS = Path(__file__).parents[1] / "results" / "benchmarks" / "engine-layers.json"
NETWORKS = (("resnet50", 0.8), ("resnet50", 0.95), ("mobilenet_v1", 0.8), ("mobilenet_v1", 0.95))
# input channels, outputs, rows of 16 pixels, density
LAYERS = ((64, 16, 7, 0.5), (64, 256, 7, 0.5), (64, 256, 7, 0.2), (64, 256, 7, 0.1), (112, 256, 4, 0.2))


def kind_of(choice: Choice, steps: dict[str, Step]) -> str:
    """Return the kind of a step, and of the one that is computed with it, as text."""
    own = name_of(steps[choice.name])
    return f"{own}, then {name_of(steps[choice.fused])}" if choice.fused else own


def name_of(step: Step) -> str:
    if not isinstance(step, Conv):
        return "matrix" if isinstance(step, Linear) else "other"
    high, wide = step.weight.shape[2:]
    return f"depthwise {high}x{wide}" if step.groups > 1 else f"{high}x{wide}"


def in_network(network: str, sparsity: float, rounds: int) -> dict[str, Any]:
    """Time the steps of a network in order and add them up by kind."""
    model, inputs = sparse_network(Row("bar", network, sparsity))
    program = st3.engine.compile(model, inputs, threads=1, tune=False).program
    runtime = Runtime(program, threads=1)
    outputs = [torch.empty(shape) for shape in runtime.planned.outputs]
    (session,) = runtime.sessions
    for slot, tensor in enumerate((inputs, *outputs)):
        session.slots[slot] = tensor.data_ptr()
    (whole,) = runtime.planned.segments
    assert isinstance(whole, range)
    best = [math.inf] * len(whole)
    for _ in range(rounds):
        for number in whole:
            begin = time.perf_counter()
            session.run(number, 1)
            best[number] = min(best[number], 1e3 * (time.perf_counter() - begin))
    return {"row": f"network:{network}:{sparsity:g}", **by_kind(runtime, program, best)}


def by_kind(runtime: Runtime, program: Program, milliseconds: list[float]) -> dict[str, Any]:
    steps = {step.name: step for step in program}
    macs = {choice.name: choice.macs for choice in runtime.choices()}
    kinds = ["moves and borders"] * len(milliseconds)
    work: dict[str, int] = defaultdict(int)
    for choice in runtime.choices():
        for number in choice.steps:
            kinds[number] = kind_of(choice, steps)
        if choice.steps:
            work[kind_of(choice, steps)] += 2 * (choice.macs + macs.get(choice.fused, 0))
    times: dict[str, float] = defaultdict(float)
    for kind, spent in zip(kinds, milliseconds, strict=True):
        times[kind] += spent
    return {
        "milliseconds": round(sum(milliseconds), 2),
        "kinds": {
            kind: {"share": round(spent / sum(milliseconds), 3), "gflops": round(work[kind] / spent / 1e6, 1)}
            for kind, spent in sorted(times.items(), key=lambda each: -each[1])
        },
    }


class Recorder(Tuner):
    """Keeps the alternatives that it is offered, and chooses the cheapest."""

    def __init__(self) -> None:
        super().__init__(None)
        self.offered: list[Alternative] = []

    def choose(
        self, key: str, alternatives: list[Alternative], time: Any
    ) -> tuple[Alternative, dict[str, float]]:
        self.offered += alternatives
        return min(alternatives, key=lambda each: each.cost), {}


def kernel_alone(inputs: int, outputs: int, rows: int, density: float, rounds: int) -> dict[str, Any]:
    """Time the sparse and the dense kernel on one tile whose inputs stay in the L1 cache."""
    torch.manual_seed(0)
    layer = nn.Conv2d(inputs, outputs, 1, bias=False).eval()
    with torch.no_grad():
        layer.weight.mul_(torch.rand_like(layer.weight) < density)
    x = torch.randn(1, inputs, rows, 16)
    program = st3.engine.compile(layer, x, threads=1, tune=False).program
    recorder = Recorder()
    plan = make_plan(program, 1, recorder).plan
    session = native.Session(native.kernels(), plan)
    left = int((layer.weight != 0).sum())
    found: dict[str, Any] = {"row": f"kernel:{inputs}x{outputs}:{rows} vectors:{density:g}"}
    for each in recorder.offered:
        if not each.label.endswith(f"(1, 1, {inputs}, {outputs})"):
            continue
        assembly = Assembly()
        for structure, tasks in each.make(assembly):
            assembly.add_step(structure, tasks)
        alone = assembly.finish()
        milliseconds = min(session.time(alone) for _ in range(rounds))
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
