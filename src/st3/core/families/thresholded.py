"""Methods with a threshold: all raw weights train, and the threshold decides what the forward pass sees (ST-3, ...).

After every step the raw weights of all layers say where each layer is cut, and the method says what a weight becomes.
"""

from abc import abstractmethod
from collections.abc import Sequence
from typing import TypeVar, final

import torch
from torch import Tensor

from ..budget.allocation import Cut
from ..budget.ties import HALF, spare_ties, tied_at_cut, zero_ties
from ..layers.layer import Layer
from ..operators import hard
from ..state.store import RAW
from .raw import RawFamily, RawMethod, WeightView, write_in_pieces

__all__ = ["CutFamily", "ThresholdMethod", "Thresholded", "cut_copies"]


class ThresholdMethod(RawMethod):
    """A method whose forward equation takes a threshold."""

    @abstractmethod
    def sparse_weight(self, view: WeightView) -> None:
        """Write the sparse weight of `view.raw` into `view.sparse`; set `view.scale` if there is a factor per filter.

        A weight at or below `view.threshold` must become exactly 0. Rows of a weight may come in pieces: a filter's
        result must depend on that filter alone.
        """


T = TypeVar("T", bound=ThresholdMethod)


class CutFamily(RawFamily[T]):
    """Writes sparse weights by one threshold per layer, wherever that comes from."""

    @abstractmethod
    def find_cuts(self) -> Sequence[Cut | None]:
        """Return where each layer is cut after this step."""

    @torch.no_grad()
    def write(self, layers: Sequence[Layer]) -> None:
        found = dict(zip(self.names, self.find_cuts(), strict=True))
        # Layers of optimizers that step later still hold what their last cuts have left.
        for layer in layers:
            self.cuts[layer.name] = found[layer.name]
            try:
                is_lifted = layer.name in self._lifted
                self._scales[layer.name] = self._write_layer(layer, layer.weight, is_lifted=is_lifted)
            finally:
                self._lifted.discard(layer.name)
        if not {layer.parameter.dtype for layer in layers}.isdisjoint(HALF):
            cuts = [self.cuts[layer.name] for layer in layers]
            zero_ties(layers, cuts, [self.raw(layer) for layer in layers])
        for layer in layers:
            self.store.join(layer, RAW)

    def _write_layer(self, layer: Layer, target: Tensor, *, is_lifted: bool = False) -> Tensor | None:
        """Write the sparse weight of the layer into `target`; return the factor per filter, if there is one."""
        raw, cut = self.store.get_local(layer, RAW), self.cuts[layer.name]

        def write(raw: Tensor, sparse: Tensor) -> Tensor | None:
            """Write some rows of the sparse weight; half precision is computed in float32."""
            assert cut is not None
            if raw.dtype not in HALF:
                view = WeightView(raw, sparse, cut.threshold, self.plan.sparsity, layer.filter_means)
                self.method.sparse_weight(view)
                return view.scale
            wide = torch.empty_like(raw, dtype=torch.float32)
            view = WeightView(raw.float(), wide, spare_ties(cut), self.plan.sparsity, layer.filter_means)
            self.method.sparse_weight(view)
            sparse.copy_(wide)
            return view.scale

        scales = write_in_pieces(layer, raw, target, None if cut is None else write, is_lifted=is_lifted)
        whole = [scale for scale in scales if scale is not None]
        return torch.cat(whole) if len(whole) > 1 else (whole[0] if whole else None)

    def is_expected(self, layer: Layer, found: Tensor) -> bool:
        expected = torch.empty_like(found)
        self._write_layer(layer, expected)
        is_close = torch.isclose(found, expected, rtol=1e-3, atol=0.0)
        return bool((is_close | tied_at_cut(self.cuts[layer.name], self.raw(layer))).all())


@final
class Thresholded(CutFamily[ThresholdMethod]):
    """Thresholds from the plan: ramp and allocation."""

    def find_cuts(self) -> Sequence[Cut | None]:
        return self.plan.cuts(self.layers, [self.raw(layer) for layer in self.layers], self.store.step)

    def sparsify_copy(self, copies: Sequence[Layer], step: int) -> None:
        """Give the copies thresholds of their own: the largest magnitudes stay as they are."""
        raws = [copied.weight.clone() for copied in copies]
        cut_copies(copies, raws, self.plan.cuts(copies, raws, step))


def cut_copies(copies: Sequence[Layer], raws: Sequence[Tensor], cuts: Sequence[Cut | None]) -> None:
    """Zero the weights of `copies` at or below their cuts; `raws` are the same weights, as they were."""
    for copied, raw, cut in zip(copies, raws, cuts, strict=True):
        if cut is not None:
            wide = raw.float() if raw.dtype in HALF else raw
            copied.weight.copy_(hard(wide, spare_ties(cut) if raw.dtype in HALF else cut.threshold))
    zero_ties(copies, cuts, raws)


ThresholdMethod.family = Thresholded
