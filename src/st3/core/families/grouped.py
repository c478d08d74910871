"""Methods with N:M groups: of every m consecutive inputs that one output takes from one place of the kernel, n weights
are active (SR-STE, S-STE).
"""

from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import ClassVar, final

import torch
from torch import Tensor

from ..budget.ties import HALF
from ..layers.groups import in_groups, keep_divisible
from ..layers.layer import Layer, Layers
from ..layers.shards import all_reduce
from ..state.store import RAW, SCALE
from .raw import RawFamily, RawMethod, write_in_pieces

__all__ = ["GroupMethod", "Grouped", "n_largest"]

MOST_PAIRS = 16  # group size up to which comparing all pairs is faster than sorting


class GroupMethod(RawMethod):
    """A method that keeps n weights of every group of m along the inputs. Tensors come with the group as last axis."""

    usual_allocation: ClassVar[str] = "uniform"
    only_allocations: ClassVar[tuple[str, ...]] = ("uniform",)
    why_only_allocations: ClassVar[str] = "keeps n of every m weights in every layer"
    usual_ramp: ClassVar[str] = "constant"
    only_ramps: ClassVar[tuple[str, ...]] = ("constant",)
    why_not_in_cycles: ClassVar[str] = "its pattern fixes the sparsity, which cannot rise from cycle to cycle"
    takes_floors: ClassVar[bool] = False
    has_scale: ClassVar[bool] = False  # one factor for the whole weight, fixed from the start
    n: int
    m: int

    def __post_init__(self) -> None:
        if not 0 < self.n < self.m:
            raise ValueError(
                f"of every m weights n stay: n must be at least 1 and below m, got {self.n}:{self.m}"
            )

    @final
    @property
    def own_sparsity(self) -> float:
        return 1.0 - self.n / self.m

    @abstractmethod
    def sparse_weight(self, raw: Tensor, active: Tensor, out: Tensor) -> None:
        """Write the sparse weight of `raw` into `out`; `active` is the mask of the n largest of every group."""

    def first_scale(self, raw: Tensor, sparse: Tensor, total: Callable[[Tensor], Tensor]) -> Tensor:
        """Return the factor, for a method that `has_scale`, from the first weights; `total` sums over all of them."""
        return raw.new_ones(())


@final
class Grouped(RawFamily[GroupMethod]):
    """Every group has its own threshold, found while its sparse weights are written."""

    keeps: ClassVar[str] = (
        f"{RawFamily.keeps}; where the method has a fixed factor per weight, that too, under `'{SCALE}'`"
    )

    @classmethod
    def fit(cls, method: GroupMethod, layers: Layers) -> Layers:
        pattern = f"{method.n}:{method.m}"
        return keep_divisible(layers, method.m, f"{pattern} groups", f"{pattern} sparse")

    def is_dense(self, layer: Layer) -> bool:
        return False

    def threshold(self, layer: Layer) -> float | None:
        return None

    def layer_target(self, layer: Layer) -> float | None:
        return self.method.own_sparsity

    def adopt(self, layers: Sequence[Layer]) -> None:
        for layer in layers:
            self.store.drop(layer, SCALE)  # a new start
        super().adopt(layers)

    @torch.no_grad()
    def write(self, layers: Sequence[Layer]) -> None:
        for layer in layers:
            try:
                self._write_layer(layer, layer.weight, is_lifted=layer.name in self._lifted)
            finally:
                self._lifted.discard(layer.name)
        for layer in layers:
            self.store.join(layer, RAW)

    def _write_layer(self, layer: Layer, target: Tensor, *, is_lifted: bool = False) -> None:
        """Write the sparse weight of the layer into `target`."""
        raw, scale = self.store.get_local(layer, RAW), self._scale(layer)

        def write(raw: Tensor, sparse: Tensor) -> None:
            """Write some rows of the sparse weight; half precision is computed in float32."""
            is_half = raw.dtype in HALF
            source = in_groups(raw.float() if is_half else raw, layer, self.method.m)
            out = torch.empty_like(source) if is_half else in_groups(sparse, layer, self.method.m)
            self.method.sparse_weight(source, n_largest(source.abs(), self.method.n), out)
            if scale is not None:
                out.mul_(scale)
            if is_half:
                in_groups(sparse, layer, self.method.m).copy_(out)

        write_in_pieces(layer, raw, target, write, is_lifted=is_lifted)

    def _scale(self, layer: Layer) -> Tensor | None:
        """Return the layer's factor, finding it now if there is none yet; None if the method has no such thing."""
        if not self.method.has_scale:
            return None
        if self.store.find(layer, SCALE) is None:
            self.store.put(layer, SCALE, self._first_scale(layer))
        return self.store.get(layer, SCALE)

    def _first_scale(self, layer: Layer) -> Tensor:
        """Return the factor in the weight's own precision: what a checkpoint would make of it."""
        raw, method = self.raw(layer), self.method
        source = in_groups(raw if raw.dtype == torch.float64 else raw.float(), layer, method.m)
        sparse = torch.empty_like(source)
        method.sparse_weight(source, n_largest(source.abs(), method.n), sparse)

        def total(values: Tensor) -> Tensor:
            return all_reduce(values.sum(), layer.shards.counts)

        return method.first_scale(source, sparse, total).to(raw.dtype)

    def is_expected(self, layer: Layer, found: Tensor) -> bool:
        expected = torch.empty_like(found)
        self._write_layer(layer, expected)
        return bool(torch.isclose(found, expected, rtol=1e-3, atol=0.0).all())

    def sparsify_copy(self, copies: Sequence[Layer], step: int) -> None:
        """Keep the n largest magnitudes of every group of the copies, as they are."""
        for copied in copies:
            groups = in_groups(copied.weight, copied, self.method.m)
            groups.mul_(n_largest(groups.abs(), self.method.n))


GroupMethod.family = Grouped


def n_largest(magnitude: Tensor, n: int) -> Tensor:
    """Return the mask of the n largest magnitudes of every group; of equal ones the first come first.

    >>> n_largest(torch.tensor([[0.1, 0.4, 0.4, 0.4], [3.0, 1.0, 2.0, 0.0]]), 2)
    tensor([[False,  True,  True, False],
            [ True, False,  True, False]])
    """
    m = magnitude.shape[-1]
    if m > MOST_PAIRS:
        order = magnitude.argsort(dim=-1, descending=True, stable=True)
        return torch.zeros_like(magnitude, dtype=torch.bool).scatter_(-1, order[..., :n], True)
    parts = magnitude.unbind(-1)
    before = [torch.full_like(part, i, dtype=torch.int8) for i, part in enumerate(parts)]  # if all were equal
    for i in range(m):
        for j in range(i + 1, m):
            overtakes = (parts[j] > parts[i]).view(torch.int8)
            before[i] += overtakes
            before[j] -= overtakes
    mask = torch.empty_like(magnitude, dtype=torch.bool)  # laid out in memory as the magnitudes are
    for count, part in zip(before, mask.unbind(-1), strict=True):
        torch.lt(count, n, out=part)
    return mask
