"""Methods with a threshold: all raw weights train, and the threshold decides what the forward pass sees (ST-3, ...).

After every step the raw weights of all layers say where each layer is cut, and the method says what a weight becomes.
With blocks (blocks.py), the magnitudes of blocks take the place of raw weights in both.
"""

from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TypeVar, final

import torch
from torch import Tensor

from ..budget.allocation import Cut
from ..budget.ties import HALF, spare_ties, tied_at_cut, zero_ties
from ..layers.layer import Layer
from ..operators import hard
from ..state.store import RAW
from .blocks import block_gradient, block_magnitudes, scale_blocks
from .raw import RawFamily, RawMethod, WeightView, write_in_pieces

__all__ = ["CutFamily", "ThresholdMethod", "Thresholded", "cut_copies"]


class ThresholdMethod(RawMethod):
    """A method whose forward equation takes a threshold."""

    @abstractmethod
    def sparse_weight(self, view: WeightView) -> None:
        """Write the sparse weight of `view.raw` into `view.sparse`; set `view.scale` if there is a factor per filter.

        A weight at or below `view.threshold` must become exactly 0. Rows of a weight may come in pieces: a filter's
        result must depend on that filter alone. With blocks, `view.raw` holds their magnitudes.
        """

    def why_not_in_blocks(self, sparsity: float) -> str:
        adds_gradient = type(self).own_gradient is not RawMethod.own_gradient
        is_plain = self.is_straight_through(sparsity) and not adds_gradient
        return "" if is_plain else "has gradients for single weights only"


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

        write = (
            None
            if cut is None
            else partial(_write_sparse, layer, cut, self.method.sparse_weight, self.plan.sparsity)
        )
        scales = write_in_pieces(layer, raw, target, write, is_lifted=is_lifted)
        whole = [scale for scale in scales if scale is not None]
        return torch.cat(whole) if len(whole) > 1 else (whole[0] if whole else None)

    def is_expected(self, layer: Layer, found: Tensor) -> bool:
        expected = torch.empty_like(found)
        self._write_layer(layer, expected)
        is_close = torch.isclose(found, expected, rtol=1e-3, atol=0.0)
        if layer.block == 1:
            is_close |= tied_at_cut(self.cuts[layer.name], self.raw(layer))
        return bool(is_close.all())


@final
class Thresholded(CutFamily[ThresholdMethod]):
    """Thresholds from the plan: ramp and allocation."""

    def find_cuts(self) -> Sequence[Cut | None]:
        raws = [self.raw(layer) for layer in self.layers]
        if self.layers[0].block > 1:
            raws = [block_magnitudes(raw, layer) for raw, layer in zip(raws, self.layers, strict=True)]
        return self.plan.cuts(self.layers, raws, self.store.step)

    def raw_gradient(self, layer: Layer, grad: Tensor) -> Tensor:
        if layer.block == 1 or self.is_dense(layer):
            return super().raw_gradient(layer, grad)
        view = self.view(layer)
        raw, sparse = view.raw, view.sparse
        blocks = replace(view, raw=block_magnitudes(raw, layer), sparse=block_magnitudes(sparse, layer))
        through = partial(self.method.raw_gradient, view=blocks)
        return block_gradient(grad, raw, blocks.raw, blocks.sparse, layer, through).to(grad.dtype)

    def sparsify_copy(self, copies: Sequence[Layer], step: int) -> None:
        """Give the copies thresholds of their own: the largest magnitudes stay as they are."""
        raws = [copied.weight.clone() for copied in copies]
        magnitudes = [block_magnitudes(raw, copied) for raw, copied in zip(raws, copies, strict=True)]
        cut_copies(copies, raws, self.plan.cuts(copies, magnitudes, step))


def cut_copies(copies: Sequence[Layer], raws: Sequence[Tensor], cuts: Sequence[Cut | None]) -> None:
    """Zero the weights of `copies` at or below their cuts; `raws` are the same weights, as they were."""

    def keep_as_is(view: WeightView) -> None:
        hard(view.raw, view.threshold, out=view.sparse)

    for copied, raw, cut in zip(copies, raws, cuts, strict=True):
        if cut is not None:
            _write_sparse(copied, cut, keep_as_is, 0.0, raw, copied.weight)
    zero_ties(copies, cuts, raws)


def _write_sparse(
    layer: Layer, cut: Cut, equation: Callable[[WeightView], None], target: float, raw: Tensor, sparse: Tensor
) -> Tensor | None:
    """Write the sparse weight of (some rows of) a layer; return the factor per filter, if the equation sets one.

    Half precision is computed in float32.
    """
    is_half, in_blocks = raw.dtype in HALF, layer.block > 1
    source = raw.float() if is_half else raw
    source = block_magnitudes(source, layer) if in_blocks else source
    out = torch.empty_like(source) if is_half or in_blocks else sparse
    threshold = spare_ties(cut) if is_half and not in_blocks else cut.threshold
    view = WeightView(source, out, threshold, target, layer.filter_means)
    equation(view)
    if in_blocks:
        scale_blocks(raw, source, out, layer, out=sparse)
    elif is_half:
        sparse.copy_(out)
    return view.scale


ThresholdMethod.family = Thresholded
