"""Two 1x1 convolutions as one operation, tile by tile: the second reads from the cache what the first writes."""

from ctypes import Structure
from dataclasses import dataclass, replace

from . import plan
from .config import Alternative, Config
from .convolution import Convolution
from .cost_model import sparse_candidates
from .operation import Binding
from .structures import make_structure, scratch

LARGE_VALUE_BYTES = 1024 * 1024  # a larger value between two convolutions leaves the cache


@dataclass(frozen=True, eq=False)
class Tilewise:
    """Two 1×1 convolutions, tile by tile or one after the other."""

    first: Convolution
    second: Convolution

    @property
    def signature(self) -> str:
        return f"{self.first.signature} & {self.second.signature}"

    def alternatives(self) -> list[Alternative]:
        flat = self.first.is_flat and self.second.is_flat
        first, second = replace(self.first, flat=flat), replace(self.second, flat=flat)
        found = []
        best: dict[tuple[int, int], tuple[float, Config]] = {}
        for cost, config in sparse_candidates(second):
            best.setdefault((config.down, config.across), (cost, config))
        for cost, config in sparse_candidates(first):
            key = (config.down, config.across)
            if key not in best:
                continue
            cost_after, after = best[key]
            if first.tiles(config)[0].variant.outputs != second.tiles(after)[0].variant.outputs:
                continue
            label = f"sparse tilewise {tuple(config)} {tuple(after)}"
            floats = max(scratch(first, config), scratch(second, after))
            found.append(
                Alternative(
                    label, cost + cost_after, TilewiseMaker(first, config, second, after), floats, "sparse"
                )
            )
        separate = self.separate()
        return sorted(found[:6], key=lambda each: each.cost) + separate

    def separate(self) -> list[Alternative]:
        """Return the alternatives that compute one convolution after the other."""
        pairs = zip(self.first.alternatives()[:2], self.second.alternatives()[:2], strict=False)
        return [
            Alternative(
                f"sparse apart {a.label} {b.label}",
                a.cost + b.cost,
                lambda binding, a=a, b=b: [*a.make(binding), *b.make(binding)],  # type: ignore[misc]
                max(a.scratch, b.scratch),
                b.kernel,
            )
            for a, b in pairs
        ]


@dataclass(frozen=True)
class TilewiseMaker:
    """Builds the structure of the pair."""

    first: Convolution
    config: Config
    second: Convolution
    after: Config

    def __call__(self, binding: Binding) -> list[tuple[Structure, int]]:
        parts = []
        for part, config in ((self.first, self.config), (self.second, self.after)):
            outputs = len(part.weight)
            size = config.outputs_per_group
            bounds = [*range(0, outputs, size), outputs]
            made, _ = make_structure(part, binding, config, bounds)
            parts.append(binding.hold(made))
        tiles = len(self.first.tiles(self.config))
        return [(plan.Tilewise(first=parts[0], second=parts[1]), tiles * self.first.target.field.groups)]
