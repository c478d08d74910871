"""Quantised layers with random masks for int8_blocks.py, and their exact answers by numpy."""

from dataclasses import dataclass
from itertools import pairwise

import numpy as np


@dataclass(frozen=True)
class Layer:
    """A quantised convolution of stride 1: int8 weights (output, input, height, width), int32 bias, one scale."""

    weight: np.ndarray
    bias: np.ndarray
    scale: float


def random_weight(
    shape: tuple[int, ...], sparsity: float, block: int, rng: np.random.Generator
) -> np.ndarray:
    """Return int8 weights; blocks of that many input channels are zero or have no zero."""
    outputs, inputs, high, wide = shape
    count = outputs * inputs // block * high * wide
    mask = (rng.permutation(count) >= round(sparsity * count)).reshape(outputs, -1, 1, high, wide)
    values = rng.integers(1, 128, shape) * rng.choice((-1, 1), shape)
    kept = values.reshape(outputs, inputs // block, block, high, wide) * mask
    return np.ascontiguousarray(kept.reshape(shape).astype(np.int8))


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


@dataclass(frozen=True)
class Layers:
    """Layers one after another, the exact sums of each, and the bytes of the last."""

    layers: list[Layer]
    sums: list[np.ndarray]
    last: np.ndarray

    def floats(self) -> list[tuple[np.ndarray, np.ndarray]]:
        """Return weights and biases in float32."""
        return [(layer.weight * layer.scale, layer.bias * layer.scale) for layer in self.layers]


def random_layers(
    channels: list[int],
    kernel: int,
    sparsity: float,
    block: int,
    picture: np.ndarray,
    rng: np.random.Generator,
) -> Layers:
    """Return layers whose scales suit their inputs: one percent of the outputs are 200 or more."""
    layers, all_sums = [], []
    for inputs, outputs in pairwise(channels):
        weight = random_weight((outputs, inputs, kernel, kernel), sparsity, block, rng)
        bias = rng.integers(0, 2000, outputs).astype(np.int32)
        sums = exact_sums(Layer(weight, bias, 1.0), picture)
        scale = np.float32(200 / np.quantile(sums, 0.99))
        layers.append(Layer(weight, bias, float(scale)))
        all_sums.append(sums)
        picture = np.clip(np.rint(sums.astype(np.float32) * scale), 0, 255).astype(np.uint8)
    return Layers(layers, all_sums, picture)
