"""Two 1x1 convolutions as one, tile by tile: what the first writes, the second reads from the cache."""

from ctypes import Structure
from dataclasses import dataclass, replace

from . import plan
from .config import Alternative, Config
from .convolution import Convolution
from .guesses import sparse_guesses
from .planned import Binding
from .structures import scratch, structure

FRONT = 1024 * 1024  # bytes of a value from which its next reader should follow at once


@dataclass(frozen=True, eq=False)
class Tilewise:
    """Two 1×1 convolutions, tile by tile: what the first writes, the second reads from the cache."""

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
        for cost, config in sparse_guesses(second):
            best.setdefault((config.down, config.across), (cost, config))
        for cost, config in sparse_guesses(first):
            key = (config.down, config.across)
            if key not in best:
                continue
            cost_after, after = best[key]
            if first.cuts(config)[0].variant.outputs != second.cuts(after)[0].variant.outputs:
                continue
            label = f"sparse tilewise {tuple(config)} {tuple(after)}"
            floats = max(scratch(first, config), scratch(second, after))
            found.append(
                Alternative(
                    label, cost + cost_after, PairMaker(first, config, second, after), floats, "sparse"
                )
            )
        apart = self.apart()
        return sorted(found[:6], key=lambda each: each.cost) + apart

    def apart(self) -> list[Alternative]:
        """Return one after the other, as the alternative."""
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
class PairMaker:
    """Makes the structures of the two."""

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
            made, _ = structure(part, binding, config, bounds)
            parts.append(binding.hold(made))
        tiles = len(self.first.cuts(self.config))
        return [(plan.Tilewise(first=parts[0], second=parts[1]), tiles * self.first.target.field.groups)]
