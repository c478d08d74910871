"""The geometries in which a windowed step (convolution or pooling) reads its input and writes its output."""

from dataclasses import dataclass
from typing import TypeAlias

from ..program import AveragePool, Conv, MaxPool, Shape
from .layout import NO_BORDER, Border, Geometry, best_geometry

MAX_WASTE = 1.1  # keep the input's geometry up to this factor over the fewest vectors possible

Windowed: TypeAlias = Conv | MaxPool | AveragePool


@dataclass(frozen=True)
class Windows:
    """The windows of a convolution or a pooling."""

    kernel: tuple[int, int]
    stride: tuple[int, int]
    padding: tuple[int, int]
    dilation: tuple[int, int]

    @property
    def is_pointwise(self) -> bool:
        return self.kernel == (1, 1) and self.padding == (0, 0)

    def reach_outside(self, source: Shape, target: Shape) -> bool:
        """Whether some window reaches beyond the image."""
        ends = zip(source[2:], target[2:], self.kernel, self.stride, self.padding, self.dilation, strict=True)
        return any(p > 0 or (out - 1) * s + (k - 1) * d - p >= size for size, out, k, s, p, d in ends)


def windows_of(step: Windowed) -> Windows:
    if isinstance(step, Conv):
        high, wide = step.weight.shape[2:]
        return Windows((high, wide), step.stride, step.padding, step.dilation)
    dilation = step.dilation if isinstance(step, MaxPool) else (1, 1)
    return Windows(step.kernel, step.stride, step.padding, dilation)


@dataclass(frozen=True)
class Route:
    """The geometries of input and output, the border that is read, and the input step between outputs.

    `subsample` is the stride that the input's layout already applies: for a 1×1 window it keeps only the pixels read.
    """

    source: Geometry
    border: Border
    target: Geometry
    step: tuple[int, int]
    subsample: tuple[int, int] = (1, 1)

    @classmethod
    def pixelwise(cls, geometry: Geometry) -> "Route":
        """Return the route of a pixelwise step."""
        return cls(geometry, NO_BORDER, geometry, (1, 1))


def route(windows: Windows, target: Shape, have: Geometry | None, lanes: int) -> Route:
    """Keep the input's geometry `have` if it wastes little; else use the best one for the output."""
    images, _, height, width = target
    best = best_geometry(images, height, width, lanes)
    (sy, sx) = windows.stride
    if have and have.height % sy == 0 and have.width % sx == 0:
        kept = Geometry(have.grid, have.height // sy, have.width // sx)
        least = best.vectors * (images // best.grid.images)
        if kept.covers(height, width) and kept.vectors * (images // kept.grid.images) <= MAX_WASTE * least:
            return Route(have, reach(windows, have, kept), kept, windows.stride)
    if windows.is_pointwise:
        return Route(best, Border(), best, (1, 1), subsample=windows.stride)
    source = best.scaled(sy, sx)
    return Route(source, reach(windows, source, best), best, windows.stride)


def reach(windows: Windows, source: Geometry, target: Geometry) -> Border:
    """Return the border that the windows of a patch read beyond the input's patch."""

    def after(index: int, patch: int, out: int) -> int:
        reached = (out - 1) * windows.stride[index] + (windows.kernel[index] - 1) * windows.dilation[index]
        return max(0, reached - windows.padding[index] - (patch - 1))

    down, right = after(0, source.height, target.height), after(1, source.width, target.width)
    return Border(windows.padding[0], windows.padding[1], down, right)
