"""Layers of the int8 kernel (int8_blocks.c): compile it, pack weights kept in blocks of four channels, tune, run.

The layout, the lists and the tiles are the engine's: a word of 32 bits, which is a float there, is one pixel of four
channels here, and a weight of a list is the word with a block's four weights.
"""

import ctypes
import subprocess
import time
from ctypes import c_int32, c_int64, c_void_p
from pathlib import Path
from typing import Any

import numpy as np
from int8_configs import Config, configs, known_tiles
from int8_layers import Layer

from st3.engine import native
from st3.engine.plan.layout import NO_BORDER, Border, Field, Strides, best_geometry, gather_index
from st3.engine.plan.moves import border_copies
from st3.engine.plan.pack import NonZeros, pack_sparse, tap_offsets

LANES = 16
SOURCE = Path(__file__).parent / "int8_blocks.c"
FLAGS = ["-O3", "-march=native", "-shared", "-fPIC", "-Wall", "-Werror"]


class CLayer(ctypes.Structure):
    """`Layer` of int8_blocks.c."""

    _fields_ = [
        *((name, c_void_p) for name in ("in_", "out", "items", "outputs", "lengths", "blocks", "bounds")),
        *((name, c_void_p) for name in ("bias", "scale", "tiles", "mask", "border", "shuffles", "sums")),
        ("all_sums", c_void_p),
        *((name, c_int64) for name in ("lowest_offset", "in_row", "out_row", "out_plane", "out_origin")),
        *((name, c_int32) for name in ("group_count", "block_count", "tile_count", "border_count")),
        *((name, c_int32) for name in ("planes", "vectors", "width")),
    ]


def compile_library(folder: Path) -> ctypes.CDLL:
    """Compile the kernel for this processor; it must have AVX-512 VNNI."""
    subprocess.run(["cc", *FLAGS, "-o", folder / "int8_blocks.so", SOURCE], check=True)
    return ctypes.CDLL(str(folder / "int8_blocks.so"))


class Stack:
    """Layers of one picture size, one after another; each has the fastest of its configurations."""

    def __init__(self, library: ctypes.CDLL, layers: list[Layer], height: int, width: int) -> None:
        self.library, self.layers = library, layers
        self.store = native.Store(native.kernels())
        window = layers[0].weight.shape[-1] // 2
        border = Border(window, window, window, window) if window else NO_BORDER
        geometry = best_geometry(1, height, width, LANES)
        channels = [layers[0].weight.shape[1], *(len(layer.weight) for layer in layers)]
        self.fields = [Field.of((1, each // 4, height, width), geometry, border, LANES) for each in channels]
        self.plane = (geometry.height, geometry.width) if window else (1, geometry.vectors)
        size = max(field.size for field in self.fields)
        self.buffers = [self.store.keep(np.zeros(size, np.int32)) for _ in range(2)]  # read, written by turns
        self.configs = self._tune()
        self.made = (CLayer * len(layers))(*(self._make(i, each) for i, each in enumerate(self.configs)))

    def run(self) -> None:
        self.library.run(self.made, len(self.made), 1)

    def _tune(self) -> list[Config]:
        """Return the fastest configuration of each layer; layers of one shape share it."""
        sizes = known_tiles(self.library)
        found: dict[tuple[int, ...], Config] = {}
        for number, layer in enumerate(self.layers):
            shape = layer.weight.shape
            if shape not in found:
                left = configs(sizes, self.plane, *shape[1::-1])
                for repeats, best in ((3, 6), (20, 1)):
                    times = [(self._time(number, each, repeats), i) for i, each in enumerate(left)]
                    left = [left[i] for _, i in sorted(times)[:best]]
                found[shape] = left[0]
        return [found[layer.weight.shape] for layer in self.layers]

    def _time(self, number: int, config: Config, repeats: int) -> float:
        store, self.store = self.store, native.Store(native.kernels())  # freed afterwards
        made = self._make(number, config)
        taken = []
        for _ in range(repeats):
            begin = time.perf_counter()
            self.library.run(ctypes.byref(made), 1, 1)
            taken.append(time.perf_counter() - begin)
        self.store = store
        return min(taken)

    def _make(self, number: int, config: Config) -> CLayer:
        layer, source, target = self.layers[number], self.fields[number], self.fields[number + 1]
        outputs, keep = len(layer.weight), self.store.keep
        bounds = [*range(0, outputs, config.outputs_per_group), outputs]
        packed = pack_sparse(
            nonzero_blocks(layer.weight, source),
            config.tiles[0].variant.outputs,
            config.planes_per_block,
            bounds,
        )
        flat, wide = source.is_flat, target.geometry.width
        tiles = [
            (
                4 * (each.x * LANES + each.y * source.pitch),
                4 * (each.x * LANES + each.y * target.pitch),
                64 * (each.x + (0 if flat else each.y * wide)),
                each.variant.number,
            )
            for each in config.tiles
        ]
        entries, shuffles, _ = border_copies(target)
        mask = None if flat else target.mask
        buffers = [self.buffers[(number + i) % 2] for i in range(2)]
        return CLayer(
            in_=buffers[0] + 4 * source.origin,
            out=buffers[1] + 4 * target.origin,
            items=keep(packed.items),
            outputs=keep(packed.outputs),
            lengths=keep(packed.lengths),
            blocks=keep(packed.blocks),
            bounds=keep(np.array(bounds, np.int32)),
            bias=keep(layer.bias),
            scale=keep(np.full(outputs, layer.scale, np.float32)),
            tiles=keep(np.array(tiles, np.int32)),
            mask=None if mask is None else keep(mask),
            border=keep(entries),
            shuffles=keep(shuffles),
            sums=keep(np.zeros(config.outputs_per_group * config.vectors * LANES, np.int32)),
            lowest_offset=packed.lowest_offset,
            in_row=4 * source.pitch,
            out_row=4 * target.pitch,
            out_plane=4 * target.plane,
            out_origin=4 * target.origin,
            group_count=len(bounds) - 1,
            block_count=len(packed.blocks) // (len(bounds) - 1),
            tile_count=len(tiles),
            border_count=len(entries) // 3,
            planes=target.channels,
            vectors=target.geometry.vectors,
            width=wide,
        )

    def answers(self, picture: np.ndarray) -> tuple[list[np.ndarray], np.ndarray]:
        """Return all int32 sums of each layer and the bytes of the last, for uint8 inputs (channel, row, column)."""
        self._write(picture)
        sums = []
        for number, made in enumerate(self.made):
            field = self.fields[number + 1]
            kept = np.zeros((4 * field.channels, field.geometry.vectors * LANES), np.int32)
            made.all_sums = kept.ctypes.data
            self.library.run(ctypes.byref(made), 1, 1)
            made.all_sums = None
            rows, columns = np.divmod(np.arange(field.height * field.width, dtype=np.int32), field.width)
            plain = Field.of((1, 1, field.height, field.width), field.geometry, NO_BORDER, LANES)
            sums.append(kept[:, plain.positions(rows, columns)].reshape(-1, field.height, field.width))
        words = self._planes(len(self.made))[:, self.fields[-1].positions(rows, columns)]
        bytes_ = words.copy().view(np.uint8).reshape(len(words), -1, 4).transpose(0, 2, 1)
        return sums, bytes_.reshape(sums[-1].shape)

    def _planes(self, number: int) -> Any:
        field = self.fields[number]
        whole = (c_int32 * field.size).from_address(self.buffers[number % 2])
        return np.ctypeslib.as_array(whole).reshape(field.channels, field.plane)

    def _write(self, picture: np.ndarray) -> None:
        field = self.fields[0]
        pixels = field.height * field.width
        words = np.ascontiguousarray(picture.reshape(-1, 4, pixels).transpose(0, 2, 1)).view(np.int32)[..., 0]
        index = gather_index(field, Strides(0, pixels, field.width, 1))
        self._planes(0)[:, : len(index)] = np.where(index < 0, 0, words[:, index])


def nonzero_blocks(weight: np.ndarray, field: Field) -> NonZeros:
    """Return the blocks of four input channels that are not all zero, as if each were one weight."""
    outputs, inputs, high, wide = weight.shape
    blocks = np.ascontiguousarray(
        weight.reshape(outputs, inputs // 4, 4, high, wide).transpose(0, 1, 3, 4, 2)
    )
    words = blocks.view(np.int32)[..., 0]
    output, channel, ky, kx = (each.astype(np.int32) for each in np.nonzero(words))
    value = words[output, channel, ky, kx].view(np.float32)
    offsets = tap_offsets(field, channel, ky - high // 2, kx - wide // 2)
    return NonZeros(outputs, inputs // 4, output, channel, offsets, value)
