"""In which geometry a step that looks at windows reads its input and writes its output."""

from dataclasses import dataclass
from typing import TypeAlias

from .layout import NO_BORDER, Border, Geometry, best_geometry
from .program import AveragePool, Conv, MaxPool, Shape

WASTE = 1.1  # vectors against the fewest possible, before the input is laid out anew

Windowed: TypeAlias = Conv | MaxPool | AveragePool  # the steps that look at windows


@dataclass(frozen=True)
class Windows:
    """What a convolution or a pooling looks at."""

    kernel: tuple[int, int]
    stride: tuple[int, int]
    padding: tuple[int, int]
    dilation: tuple[int, int]

    @property
    def is_pointwise(self) -> bool:
        return self.kernel == (1, 1) and self.padding == (0, 0)

    def look_outside(self, source: Shape, target: Shape) -> bool:
        """Whether some window reaches beyond the picture."""
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
    """Geometries of input and output, the border that is read, and the steps from output to output.

    `every` is what the input's new layout leaves out already: a 1×1 window with a stride reads every so many-th pixel.
    """

    source: Geometry
    border: Border
    target: Geometry
    step: tuple[int, int]
    every: tuple[int, int] = (1, 1)

    @classmethod
    def pixelwise(cls, geometry: Geometry) -> "Route":
        """Return the route of a step that reads and writes pixel by pixel."""
        return cls(geometry, NO_BORDER, geometry, (1, 1))


def route(windows: Windows, target: Shape, have: Geometry | None, lanes: int) -> Route:
    """Keep the geometry the input has, if it serves; else take the best one for the output."""
    images, _, height, width = target
    best = best_geometry(images, height, width, lanes)
    (sy, sx) = windows.stride
    if have and have.height % sy == 0 and have.width % sx == 0:
        kept = Geometry(have.grid, have.height // sy, have.width // sx)
        least = best.vectors * (images // best.grid.images)
        if kept.covers(height, width) and kept.vectors * (images // kept.grid.images) <= WASTE * least:
            return Route(have, reach(windows, have, kept), kept, windows.stride)
    if windows.is_pointwise:
        return Route(best, Border(), best, (1, 1), every=windows.stride)
    source = best.scaled(sy, sx)
    return Route(source, reach(windows, source, best), best, windows.stride)


def reach(windows: Windows, source: Geometry, target: Geometry) -> Border:
    """Return how far the windows of a patch reach beyond the input's patch."""

    def after(index: int, patch: int, out: int) -> int:
        reached = (out - 1) * windows.stride[index] + (windows.kernel[index] - 1) * windows.dilation[index]
        return max(0, reached - windows.padding[index] - (patch - 1))

    down, right = after(0, source.height, target.height), after(1, source.width, target.width)
    return Border(windows.padding[0], windows.padding[1], down, right)
