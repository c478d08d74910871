"""Decide whether int8 is worth building: a sparse int8 kernel against the float32 engine and dense int8.

    python benchmarks/int8_blocks.py --output results/benchmarks/int8-blocks.json

The kernel (int8_blocks.c, AVX-512 VNNI) skips weights in blocks of four input channels. A case is eight layers of
ResNet-50 or MobileNetV1, 1x1 or 3x3, of one picture size, each with its own weights and random mask; one picture, one
thread. The contestants take turns in one process:

    int8 blocks      the kernel, from bytes to bytes: sums, bias, scale, ReLU, rounding, borders for the next layer
    float32          the engine with random masks of single weights and as many zeros: its kernels, without the moves
                     between its layout and a tensor at both ends
    float32 blocks   the engine with the kernel's own masks
    ONNX Runtime, OpenVINO   dense int8 from bytes to bytes, each if it is installed

All int32 sums of the kernel are compared with numpy's and must be equal, as must the bytes of the last layer. A sample
is the mean time of the calls in some milliseconds after a warm-up. Cases already in the file are skipped.
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
from int8_kernel import FLAGS, Layer, Stack, compile_library
from int8_rivals import dense_rivals
from timing import record

LAYERS = 8
SPARSITIES = (0.8, 0.9, 0.95)
SECONDS = 0.015  # of warm-up, and of calls in a sample
CLOSE = 8  # most steps of 1/255 by which a rival's last bytes may differ after eight layers


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


def random_mask(count: int, sparsity: float, rng: np.random.Generator) -> np.ndarray:
    return rng.permutation(count) >= round(sparsity * count)


def block_weight(shape: tuple[int, ...], sparsity: float, rng: np.random.Generator) -> np.ndarray:
    """Return int8 weights; blocks of four input channels are zero or have no zero."""
    outputs, inputs, high, wide = shape
    mask = random_mask(outputs * inputs // 4 * high * wide, sparsity, rng)
    values = rng.integers(1, 128, shape) * rng.choice((-1, 1), shape)
    blocks = values.reshape(outputs, inputs // 4, 4, high, wide) * mask.reshape(outputs, -1, 1, high, wide)
    return np.ascontiguousarray(blocks.reshape(shape).astype(np.int8))


def exact_sums(layer: Layer, picture: np.ndarray) -> np.ndarray:
    """Return the int32 sums; in float64 all of these integers are exact."""
    outputs, inputs, high, _ = layer.weight.shape
    around = ((0, 0), (high // 2, high // 2), (high // 2, high // 2))
    windows = np.lib.stride_tricks.sliding_window_view(
        np.pad(picture.astype(float), around), (high, high), (1, 2)
    )
    columns = windows.transpose(0, 3, 4, 1, 2).reshape(inputs * high * high, -1)
    sums = layer.weight.reshape(outputs, -1).astype(float) @ columns + layer.bias[:, None]
    return sums.astype(np.int32).reshape(outputs, *picture.shape[1:])


def quantised_layers(
    case: Case, sparsity: float, picture: np.ndarray, rng: np.random.Generator
) -> tuple[list[Layer], list[np.ndarray], np.ndarray]:
    """Return layers whose scales suit their inputs, the exact sums of each, and the bytes of the last."""
    layers, all_sums = [], []
    for number in range(LAYERS):
        inputs, outputs = case.channels[number % 2], case.channels[(number + 1) % 2]
        weight = block_weight((outputs, inputs, case.kernel, case.kernel), sparsity, rng)
        bias = rng.integers(0, 2000, outputs).astype(np.int32)
        sums = exact_sums(Layer(weight, bias, 1.0), picture)
        scale = np.float32(200 / np.quantile(sums, 0.99))
        layers.append(Layer(weight, bias, float(scale)))
        all_sums.append(sums)
        picture = np.clip(np.rint(sums.astype(np.float32) * scale), 0, 255).astype(np.uint8)
    return layers, all_sums, picture


def check(stack: Stack, picture: np.ndarray, sums: list[np.ndarray], last: np.ndarray) -> None:
    found, bytes_ = stack.answers(picture)
    for number, (mine, wanted) in enumerate(zip(found, sums, strict=True)):
        if not np.array_equal(mine, wanted):
            raise AssertionError(f"layer {number}: {np.mean(mine != wanted):.2%} of the int32 sums are wrong")
    if not np.array_equal(bytes_, last):
        raise AssertionError(f"{np.mean(bytes_ != last):.2%} of the last layer's bytes are wrong")


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
    layers, sums, last = quantised_layers(case, sparsity, picture, rng)
    stack = Stack(library, layers, case.size, case.size)
    check(stack, picture, sums, last)
    blocks = [(layer.weight * layer.scale, layer.bias * layer.scale) for layer in layers]
    single = []
    for weight, bias in blocks:
        mask = random_mask(weight.size, sparsity, rng).reshape(weight.shape)
        single.append((rng.normal(size=weight.shape) * mask * np.abs(weight).max() / 3, bias))
    x = torch.from_numpy(picture[None]).float()
    runs: dict[str, Callable[[], Any]] = {"int8 blocks": stack.run}
    engines = {
        "float32": FloatStack(convolutions(single), x),
        "float32 blocks": FloatStack(convolutions(blocks), x),
    }
    runs |= {name: engine.run for name, engine in engines.items()}
    rivals = dense_rivals(layers, picture, folder)
    steps = {name: int(np.abs(run().astype(int) - last).max()) for name, run in rivals.items()}
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
        "configurations": [*dict.fromkeys(config.label for config in stack.configs)],
        "float32 kernels": {name: engine.kernels for name, engine in engines.items()},
        "float32 weights": {name: engine.weights for name, engine in engines.items()},
    }


def shown(seconds: float) -> float:
    return round(1e6 * seconds / LAYERS, 2)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("rows", nargs="*", help="names or prefixes, such as resnet50:1x1 (default: all)")
    parser.add_argument("--rounds", type=int, default=25, help="samples of each contestant (default 25)")
    parser.add_argument("--output", help="the JSON file to add the rows to")
    given = parser.parse_args()
    path = Path(given.output) if given.output else None
    old = json.loads(path.read_text())["rows"] if path and path.exists() else []
    done = {row["row"]: row for row in old}
    torch.set_num_threads(1)
    rows = {f"{case.name}:{sparsity:g}": (case, sparsity) for case in CASES for sparsity in SPARSITIES}
    spec = {"layers": LAYERS, "rounds": given.rounds, "seconds per sample": SECONDS, "flags": FLAGS}
    with tempfile.TemporaryDirectory() as folder:
        library = compile_library(Path(folder))
        for name, (case, sparsity) in rows.items():
            if name in done or (given.rows and not name.startswith(tuple(given.rows))):
                continue
            done[name] = measure(case, sparsity, given.rounds, library, Path(folder))
            record(given.output, spec, [done[each] for each in rows if each in done], shown=[done[name]])


if __name__ == "__main__":
    main()
