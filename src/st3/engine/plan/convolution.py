"""A convolution between two fields: the alternatives for computing it, and the structures of its kernels.

A structure is one config, with its weights packed.
"""

import math
from collections.abc import Callable
from ctypes import Structure
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from .. import native, schema
from ..program import Activation, Floats
from .assemble import Alternative, Assembly
from .configs import (
    QUANTISED,
    Config,
    Tile,
    TileSizes,
    dense_candidates,
    depthwise_candidates,
    sparse_candidates,
    tile_sizes,
)
from .lanewise import KERNEL as LANEWISE
from .lanewise import lanewise_candidates, lanewise_structure, lanewise_tiles
from .layout import Ints, part_of_row, row_parts
from .pack import Array, NonZeros, count_nonzeros, nonzeros, pack_dense, pack_sparse, tap_offsets
from .values import FieldArray

NEVER_SPARSE = 0.75  # the share of non-zero weights from which dense kernels are faster
SAMPLE_WEIGHTS = 4 << 20  # of a layer that is measured by some of its outputs: more than the caches hold
L2_BYTES = 1024 * 1024  # of the L2 cache, for the weights of a group of outputs


@dataclass(frozen=True, eq=False)
class Convolution:
    """A convolution between two fields: everything that does not depend on the config."""

    kernels: native.Kernels
    threads: int
    weight: Floats
    bias: Floats | None
    source: FieldArray
    target: FieldArray
    residual: FieldArray | None
    step: tuple[int, int]
    padding: tuple[int, int]
    dilation: tuple[int, int]
    groups: int
    activation: Activation | None
    is_masked: bool = True  # whether pixels outside the image must become zero
    flat: bool | None = None  # whether planes are treated as one row of vectors; None: if possible

    @cached_property
    def nonzeros(self) -> NonZeros:
        """The lists of non-zero weights, for sparse kernels only: those of a dense layer are long."""
        return nonzeros(self.weight, self.source.field, self.padding, self.dilation, self.groups)

    @cached_property
    def nonzero_count(self) -> int:
        return count_nonzeros(self.weight)

    @property
    def density(self) -> float:
        return self.nonzero_count / self.weight.size

    @property
    def channels(self) -> int:
        """Input channels, of all groups."""
        return int(self.weight.shape[1]) * self.groups

    @property
    def is_flat(self) -> bool:
        """Whether a plane is treated as one row of vectors: input, output and residual have no gaps between rows."""
        if self.flat is not None:
            return self.flat
        arrays = [self.source, self.target, *([self.residual] if self.residual else [])]
        return self.step == (1, 1) and all(each.field.is_flat for each in arrays)

    @property
    def plane(self) -> tuple[int, int]:
        geometry = self.target.field.geometry
        return (1, geometry.vectors) if self.is_flat else (geometry.height, geometry.width)

    def tile_sizes(self, kernel: str) -> TileSizes:
        step = self.step[1] if self.step[1] in (1, 2) else 0
        return tile_sizes(self.kernels, kernel, step)

    def tiles(self, config: Config) -> list[Tile]:
        if config.kernel == LANEWISE:
            return lanewise_tiles(self)
        found = self.tile_sizes(config.kernel).tiling(*self.plane, config.down, config.across)
        if found is None:
            raise ValueError(f"no kernel for {config}")
        return found

    @property
    def is_depthwise(self) -> bool:
        """Whether the kernel for dense 3x3 depthwise convolutions can compute it."""
        each = self.groups == len(self.weight) and self.weight.shape[1:] == (1, 3, 3)
        return each and self.dilation == (1, 1) and self.step in ((1, 1), (2, 2)) and not self.is_flat

    def alternatives(self) -> list[Alternative]:
        """Return the alternatives, kernel by kernel, each in the order of estimated cost."""
        is_sparse = self.density < NEVER_SPARSE or self.groups > 1
        found = sparse_candidates(self) if is_sparse else []
        found += [*dense_candidates(self), *lanewise_candidates(self), *depthwise_candidates(self)]
        sample = self.sample()
        return [
            Alternative(
                config.label, cost, self.maker(config), scratch(self, config), sample=sample.maker(config)
            )
            for cost, config in found
        ]

    def sample(self) -> "Convolution":
        """Return the first outputs of a large layer, such as the head of a language model: others take as long."""
        outputs = max(1, SAMPLE_WEIGHTS // self.weight[0].size // 64) * 64
        if self.groups > 1 or outputs >= len(self.weight):
            return self
        bias = None if self.bias is None else self.bias[:outputs]
        return replace(self, weight=self.weight[:outputs], bias=bias)

    def maker(self, config: Config) -> Callable[[Assembly], list[tuple[Structure, int]]]:
        return lambda assembly: [make_structure(self, assembly, config)]

    def best_config(self) -> tuple[Config, float]:
        """Return the config with the lowest estimate, for the second part of a chain."""
        cost, config = min([*sparse_candidates(self), *depthwise_candidates(self)])
        return config, cost

    def make_in_groups(
        self, assembly: Assembly, config: Config | None, bounds: list[int]
    ) -> tuple[Structure, int]:
        assert config is not None
        return make_structure(self, assembly, config, bounds)

    @property
    def signature(self) -> str:
        """Everything that a measurement depends on, as text."""
        shape = "x".join(map(str, self.weight.shape))
        geometry = self.target.field.geometry
        bucket = round(8 * math.log2(max(self.density, 1e-4)))
        rest = "+r" if self.residual else ""
        return (
            f"{shape}/{self.groups} s{self.step} d{self.dilation} {self.target.field.groups}*{tuple(geometry.grid)}"
            f"{geometry.height}x{geometry.width} flat{self.is_flat:d} 2^{bucket}/8{rest}"
        )


# ---------------------------------------------------------------- structures


def make_structure(
    convolution: Convolution, assembly: Assembly, config: Config, bounds: list[int] | None = None
) -> tuple[Structure, int]:
    """Return the structure and its number of tasks; group g has outputs bounds[g] .. bounds[g + 1]."""
    tiles = convolution.tiles(config)
    if config.kernel == "depthwise":
        return make_depthwise(convolution, assembly, tiles)
    bounds = bounds or default_bounds(convolution, config, tiles)
    make = {"sparse": make_sparse, "dense": make_dense, LANEWISE: make_lanewise}[config.kernel]
    tasks = (len(bounds) - 1) * len(tiles) * convolution.target.field.groups
    return make(convolution, assembly, config, tiles, bounds), tasks


def make_sparse(
    convolution: Convolution, assembly: Assembly, config: Config, tiles: list[Tile], bounds: list[int]
) -> Structure:
    lists = pack_sparse(convolution.nonzeros, tiles[0].variant.outputs, config.channels_per_block, bounds)
    made: Structure = schema.Sparse(
        items=assembly.keep(lists.items),
        lowest_offset=lists.lowest_offset,
        outputs=assembly.keep(lists.outputs),
        lengths=assembly.keep(lists.lengths),
        blocks=assembly.keep(lists.blocks),
        groups=assembly.keep(lists.groups),
        group_count=len(bounds) - 1,
        tile_major=is_tile_major(convolution, config, tiles),
        **common_fields(convolution, assembly, tiles),
    )
    return made


def make_dense(
    convolution: Convolution, assembly: Assembly, config: Config, tiles: list[Tile], bounds: list[int]
) -> Structure:
    taps_per_block = config.channels_per_block * int(np.prod(convolution.weight.shape[2:]))
    packed = pack_dense(convolution.weight, tiles[0].variant.outputs, taps_per_block, bounds)
    made: Structure = schema.Dense(
        weights=assembly.keep(packed.weights),
        starts=assembly.keep(packed.starts),
        taps=assembly.keep(all_taps(convolution)),
        blocks=assembly.keep(packed.blocks),
        block_count=len(packed.blocks) - 1,
        bounds=assembly.keep(np.array(bounds, np.int32)),
        group_count=len(bounds) - 1,
        tile_major=is_tile_major(convolution, config, tiles),
        **common_fields(convolution, assembly, tiles),
    )
    return made


def make_lanewise(
    convolution: Convolution, assembly: Assembly, config: Config, tiles: list[Tile], bounds: list[int]
) -> Structure:
    common = common_fields(convolution, assembly, tiles)
    for unused in ("in_row", "out_row", "mask_row", "in_column"):
        del common[unused]
    return lanewise_structure(convolution, assembly, all_taps(convolution), bounds, common)


def all_taps(convolution: Convolution) -> Ints:
    """Return the byte offsets of all inputs of an output from the output's own pixel."""
    _, inputs, high, wide = convolution.weight.shape
    dilation, padding = convolution.dilation, convolution.padding
    channel, ky, kx = (each.reshape(-1).astype(np.int32) for each in np.indices((inputs, high, wide)))
    dy, dx = ky * dilation[0] - padding[0], kx * dilation[1] - padding[1]
    return tap_offsets(convolution.source.field, channel, dy, dx)


def make_depthwise(convolution: Convolution, assembly: Assembly, tiles: list[Tile]) -> tuple[Structure, int]:
    source, images = convolution.source.field, convolution.target.field.groups
    channels = len(convolution.weight)
    per_task = max(1, min(8, channels * images // (4 * convolution.threads)))
    common = common_fields(convolution, assembly, tiles)
    del common["in_column"]
    common["in_row"] = source.pitch
    field = convolution.target.field
    parts = row_parts(field, convolution.threads)
    of_tiles = [part_of_row(tile.y, field.geometry.height, parts) for tile in tiles]
    return schema.Depthwise(
        weights=assembly.keep(convolution.weight),
        in_plane=source.plane,
        first_tap=convolution.padding[0] * source.pitch + convolution.padding[1] * source.lanes,
        channels=channels,
        channels_per_task=per_task,
        starts=assembly.keep(np.searchsorted(of_tiles, range(parts + 1)).astype(np.int32)),
        parts=parts,
        **common,
    ), -(-channels // per_task) * images * parts


def common_fields(convolution: Convolution, assembly: Assembly, tiles: list[Tile]) -> dict[str, Any]:
    """Return the fields that all these structures have in common."""
    source, target, step = convolution.source, convolution.target, convolution.step
    begin, end, flat = source.field, target.field, convolution.is_flat
    # The last bundle may reach beyond the last output.
    bias = np.zeros(len(convolution.weight) + convolution.kernels.most_outputs, np.float32)
    if convolution.bias is not None:
        bias[: len(convolution.weight)] = convolution.bias
    return {
        "in_": assembly.origin(source),
        "out": assembly.origin(target),
        "bias": assembly.keep(bias),
        "epilogue": epilogue(convolution, assembly),
        "tiles": assembly.keep(tile_table(convolution, tiles)),
        "in_image": begin.image,
        "out_image": end.image,
        "out_plane": end.plane,
        "in_row": 0 if flat else begin.pitch * step[0],
        "out_row": 0 if flat else end.pitch,
        "mask_row": end.geometry.width * end.lanes,
        "in_column": step[1] * end.lanes,
        "tile_count": len(tiles),
        "images": end.groups,
    }


def tile_table(convolution: Convolution, tiles: list[Tile]) -> Array:
    """Return for each tile its offsets in the input, the output, the residual and the mask, and its kernel."""
    source, target, step = convolution.source.field, convolution.target.field, convolution.step
    rest = convolution.residual.field if convolution.residual else None
    lanes, columns = target.lanes, target.geometry.width
    return np.array(
        [
            (
                y * step[0] * source.pitch + x * step[1] * lanes,
                y * target.pitch + x * lanes,
                y * rest.pitch + x * lanes if rest else 0,
                (y * columns + x) * lanes,
                variant.number,
            )
            for y, x, variant in tiles
        ],
        np.int32,
    )


def epilogue(convolution: Convolution, assembly: Assembly) -> Structure:
    mask = convolution.target.field.mask if convolution.is_masked else None
    made = assembly.epilogue(convolution.activation, mask)
    if residual := convolution.residual:
        field = residual.field
        made.residual = assembly.origin(residual)
        made.residual_image, made.residual_plane, made.residual_row = field.image, field.plane, field.pitch
    return made


def default_bounds(convolution: Convolution, config: Config, tiles: list[Tile]) -> list[int]:
    """Return the bounds of groups of outputs: enough tasks for all threads, weights that fit the L2 cache."""
    outputs, threads = len(convolution.weight), convolution.threads
    jobs = len(tiles) * convolution.target.field.groups
    parts = -(-outputs // config.outputs_per_group)
    if threads > 1:
        parts = max(parts, -(-4 * threads // jobs))
    if jobs > 1:
        parts = max(parts, -(-weight_bytes(convolution, config) // L2_BYTES))
    parts = max(1, min(parts, outputs // 4))
    bundle = max(tiles[0].variant.outputs, config.outputs_together)
    edges = [min(outputs, round(outputs * i / parts / bundle) * bundle) for i in range(parts)]
    return sorted({*edges, outputs})


def is_tile_major(convolution: Convolution, config: Config, tiles: list[Tile]) -> bool:
    """Whether tasks are numbered tile by tile, since all weights fit the cache, rather than group by group."""
    return convolution.threads > 1 and len(tiles) > 1 and weight_bytes(convolution, config) <= L2_BYTES


def weight_bytes(convolution: Convolution, config: Config) -> int:
    return 8 * convolution.nonzero_count if config.has_lists else 4 * convolution.weight.size


def scratch(convolution: Convolution, config: Config) -> int:
    """Return the floats of scratch memory: sums between blocks, or sums to be transposed."""
    if config.kernel == LANEWISE:
        return convolution.kernels.lanes * convolution.tiles(config)[0].variant.outputs
    if config.channels_per_block >= convolution.channels and config.kernel != QUANTISED:
        return 0
    largest = max(tile.variant.vectors for tile in convolution.tiles(config))
    return (len(convolution.weight) + convolution.kernels.most_outputs) * largest * convolution.kernels.lanes
