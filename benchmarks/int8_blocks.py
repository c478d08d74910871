"""Decide whether int8 is worth building: a sparse int8 kernel against the float32 engine and dense int8.

    python benchmarks/int8_blocks.py --output results/benchmarks/int8-blocks.json

The kernel (int8_blocks.c, AVX-512 VNNI) skips weights in blocks of four input channels. A case is eight layers of
ResNet-50 or MobileNetV1, 1x1 or 3x3, of one picture size, each with its own weights and random mask; one picture, one
thread. The contestants take turns in one process:

    int8 blocks      the kernel, from bytes to bytes: sums, bias, scale, ReLU, rounding, borders for the next layer
    int8 single      the same kernel, as many zeros, but in masks of single weights: it skips blocks that are all zero
    float32 blocks, float32 single   the engine with the same masks: its kernels, without the moves between its layout
                     and a tensor at both ends
    ONNX Runtime, OpenVINO   dense int8 from bytes to bytes, each if it is installed

All int32 sums of the kernel are compared with numpy's and must be equal, as must the bytes of the last layer. A sample
is the mean time of the calls in some milliseconds after a warm-up. Cases already in the file are skipped, except where
the machine was busy: where the median of some contestant is more than 1.25 of its minimum, the case is measured anew.
"""

import argparse
import json
import tempfile
import time
from collections.abc import Callable
from ctypes import CDLL
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch
from int8_float32 import FloatStack, convolutions
from int8_kernel import FLAGS, Stack, compile_library
from int8_layers import Layers, random_layers
from int8_rivals import dense_rivals
from int8_table import table
from timing import record

LAYERS = 8
SPARSITIES = (0.8, 0.9, 0.95)
SECONDS = 0.015  # of warm-up, and of calls in a sample
BUSY = 1.25  # median over minimum
CLOSE = 8  # most steps by which a rival's last bytes may differ after eight layers


@dataclass(frozen=True)
class Case:
    """Layers that alternate between two numbers of channels; `count` layers of the network have this picture size."""

    network: str
    kernel: int
    size: int
    channels: tuple[int, int]
    count: int

    @property
    def name(self) -> str:
        text = "-".join(map(str, dict.fromkeys(self.channels)))
        return f"{self.network}:{self.kernel}x{self.kernel}:{self.size}x{self.size}:{text}"


CASES = (
    Case("resnet50", 1, 56, (64, 256), 8),
    Case("resnet50", 1, 28, (128, 512), 9),
    Case("resnet50", 1, 14, (256, 1024), 13),
    Case("resnet50", 1, 7, (512, 2048), 6),
    Case("resnet50", 3, 56, (64, 64), 3),
    Case("resnet50", 3, 28, (128, 128), 4),
    Case("resnet50", 3, 14, (256, 256), 6),
    Case("resnet50", 3, 7, (512, 512), 3),
    Case("mobilenet_v1", 1, 112, (32, 64), 1),
    Case("mobilenet_v1", 1, 56, (128, 128), 2),
    Case("mobilenet_v1", 1, 28, (256, 256), 2),
    Case("mobilenet_v1", 1, 14, (512, 512), 6),
    Case("mobilenet_v1", 1, 7, (1024, 1024), 2),
)


def check(stack: Stack, picture: np.ndarray, wanted: Layers) -> None:
    """Raise unless all sums and the last bytes are exact."""
    sums, last = stack.answers(picture)
    for number, (mine, exact) in enumerate(zip(sums, wanted.sums, strict=True)):
        if not np.array_equal(mine, exact):
            raise AssertionError(f"layer {number}: {np.mean(mine != exact):.2%} of the int32 sums are wrong")
    if not np.array_equal(last, wanted.last):
        raise AssertionError(f"{np.mean(last != wanted.last):.2%} of the last layer's bytes are wrong")


def sample(run: Callable[[], Any]) -> float:
    """Return the mean seconds of a call, after a warm-up."""
    begin = time.perf_counter()
    while time.perf_counter() - begin < SECONDS:
        run()
    calls, begin = 0, time.perf_counter()
    while (taken := time.perf_counter() - begin) < SECONDS:
        run()
        calls += 1
    return taken / calls


def measure(case: Case, sparsity: float, rounds: int, library: CDLL, folder: Path) -> dict[str, Any]:
    rng = np.random.default_rng(0)
    picture = rng.integers(0, 256, (case.channels[0], case.size, case.size)).astype(np.uint8)
    x = torch.from_numpy(picture[None]).float()
    channels = [case.channels[number % 2] for number in range(LAYERS + 1)]
    runs: dict[str, Callable[[], Any]] = {}
    engines, configurations = {}, {}
    for masks, block in (("blocks", 4), ("single", 1)):
        made = random_layers(channels, case.kernel, sparsity, block, picture, rng)
        stack = Stack(library, made.layers, case.size, case.size)
        check(stack, picture, made)
        engines[f"float32 {masks}"] = FloatStack(convolutions(made.floats()), x)
        configurations[f"int8 {masks}"] = [*dict.fromkeys(config.label for config in stack.configs)]
        runs |= {f"int8 {masks}": stack.run, f"float32 {masks}": engines[f"float32 {masks}"].run}
    rivals = dense_rivals(made.layers, picture, folder)
    steps = {name: int(np.abs(run().astype(int) - made.last).max()) for name, run in rivals.items()}
    if any(step > CLOSE for step in steps.values()):
        raise AssertionError(f"a rival computes something else: its bytes differ by {steps}")
    runs |= rivals
    seconds: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(rounds):
        for name, run in runs.items():
            seconds[name].append(sample(run))
    return {
        "row": f"{case.name}:{sparsity:g}",
        "count": case.count,
        "microseconds per layer": {
            name: {"min": shown(min(each)), "median": shown(median(each))} for name, each in seconds.items()
        },
        "int8 blocks are faster by": {
            name: {
                "min": round(min(each) / min(seconds["int8 blocks"]), 2),
                "median": round(median(each) / median(seconds["int8 blocks"]), 2),
            }
            for name, each in seconds.items()
            if name != "int8 blocks"
        },
        "largest difference of bytes": steps,
        "int8 configurations": configurations,
        "float32 kernels": {name: engine.kernels for name, engine in engines.items()},
        "float32 weights": {name: engine.weights for name, engine in engines.items()},
    }


def was_busy(row: dict[str, Any]) -> bool:
    return any(each["median"] > BUSY * each["min"] for each in row["microseconds per layer"].values())


def shown(seconds: float) -> float:
    return round(1e6 * seconds / LAYERS, 2)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("rows", nargs="*", help="names or prefixes, such as resnet50:1x1 (default: all)")
    parser.add_argument("--rounds", type=int, default=15, help="samples of each contestant (default 15)")
    parser.add_argument("--output", help="the JSON file to add the rows to")
    parser.add_argument("--table", action="store_true", help="print the file as a table")
    given = parser.parse_args()
    path = Path(given.output) if given.output else None
    old = json.loads(path.read_text())["rows"] if path and path.exists() else []
    if given.table:
        print(table(old))
        return
    done = {row["row"]: row for row in old}
    torch.set_num_threads(1)
    rows = {f"{case.name}:{sparsity:g}": (case, sparsity) for case in CASES for sparsity in SPARSITIES}
    spec = {"layers": LAYERS, "rounds": given.rounds, "seconds per sample": SECONDS, "flags": FLAGS}
    with tempfile.TemporaryDirectory() as folder:
        library = compile_library(Path(folder))
        for name, (case, sparsity) in rows.items():
            if (name in done and not was_busy(done[name])) or (
                given.rows and not name.startswith(tuple(given.rows))
            ):
                continue
            attempts = done.get(name, {}).get("attempts", 0) + 1
            done[name] = measure(case, sparsity, given.rounds, library, Path(folder)) | {"attempts": attempts}
            record(given.output, spec, [done[each] for each in rows if each in done], shown=[done[name]])


if __name__ == "__main__":
    main()
