"""Families that keep a raw weight for every sparse one, and what their methods' backward equations see.

between steps   p holds the sparse weight; optimizer.state[p]["st3_raw"] the raw one
lift            raw -> p, for the optimizer to move
write           p -> raw; then the sparse weight -> p, in place
"""

from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar, TypeVar

import torch
from torch import Tensor
from torch.optim import Optimizer

from ..budget.plan import Plan
from ..layers.layer import Layer
from ..layers.shards import local
from ..method import Method
from ..selection.select import Scalar
from ..state.store import RAW, Store
from ..step.call import Call
from .family import Family, Replaced, all_agree

__all__ = ["RawFamily", "RawMethod", "WeightView", "write_in_pieces"]

PIECE = 1 << 17  # weights per piece and thread: raw, sparse and scratch fit the second-level cache


@dataclass(slots=True, eq=False)
class WeightView:
    """One weight as the equations of a method see it: the local part where it is sharded, some rows where it is large.

    The forward equation reads `raw` and `threshold`, writes `sparse` and may set `scale`. The backward equation sees
    the same view with everything that the forward one has written.
    """

    raw: Tensor
    sparse: Tensor
    threshold: Scalar  # weights at or below it are zeroed
    sparsity: float  # the target of the run
    filter_means: Callable[[Tensor], Tensor]  # the mean over each filter, in a form that broadcasts
    scale: Tensor | None = None  # one factor per filter, if the forward equation has set it

    @property
    def active(self) -> Tensor:
        """The mask of the sparse weight."""
        return self.sparse != 0


class RawMethod(Method):
    """A method that trains all raw weights; its backward equation says which gradient they get."""

    def is_straight_through(self, sparsity: float) -> bool:
        """Whether the raw weight's gradient is the sparse weight's, unchanged, for this target sparsity."""
        return True

    def raw_gradient(self, grad: Tensor, view: WeightView) -> Tensor:
        """Return dL/draw from `grad` = dL/dsparse.

        Linear in `grad`: so it may be applied to every micro-batch, and clipping, accumulation and data-parallel
        averaging see the gradient that will be applied.
        """
        return grad

    def own_gradient(self, view: WeightView) -> Tensor | None:
        """Return what the method adds to dL/draw by itself, as weight decay does: once per step, after clipping."""
        return None


R = TypeVar("R", bound=RawMethod)


class RawFamily(Family[R]):
    """Keeps the raw weights in the optimizer's state, and exchanges them with the sparse ones around every step."""

    key: ClassVar[str] = RAW
    keeps: ClassVar[str] = f"the raw weight of every sparsified parameter `p`, `optimizer.state[p]['{RAW}']`"

    def __init__(self, method: R, layers: Sequence[Layer], store: Store, plan: Plan) -> None:
        super().__init__(method, layers, store, plan)
        self._lifted: set[str] = set()  # layers whose parameters hold the raw weight now
        self._scales: dict[str, Tensor | None] = {}  # of the last step, per filter
        self._adds_gradient = type(method).own_gradient is not RawMethod.own_gradient

    def initial(self, layer: Layer) -> Tensor:
        return layer.parameter.detach().clone()

    @property
    def maps_gradients(self) -> bool:
        return not self.method.is_straight_through(self.plan.sparsity)

    def raw(self, layer: Layer) -> Tensor:
        return layer.weight if layer.name in self._lifted else self.store.get_local(layer, RAW)

    def is_dense(self, layer: Layer) -> bool:
        return self.cuts.get(layer.name) is None

    def view(self, layer: Layer) -> WeightView:
        """Return the layer as the backward equation sees it."""
        cut = self.cuts.get(layer.name)
        threshold = 0.0 if cut is None else cut.threshold
        return WeightView(
            self.raw(layer),
            layer.weight,
            threshold,
            self.plan.sparsity,
            layer.filter_means,
            self._scales.get(layer.name),
        )

    def raw_gradient(self, layer: Layer, grad: Tensor) -> Tensor:
        if self.is_dense(layer):
            return grad
        return self.method.raw_gradient(grad, self.view(layer)).to(grad.dtype)

    @torch.no_grad()
    def before_step(self, call: Call) -> Sequence[Replaced]:
        """Add what the method itself adds to the gradients; the user gets back what was there before."""
        if not self._adds_gradient or not call.counts:
            return ()
        replaced: list[Replaced] = []
        for layer in call.layers:
            grad = layer.parameter.grad
            own = None if grad is None or self.is_dense(layer) else self.method.own_gradient(self.view(layer))
            if grad is not None and own is not None:
                total = grad.clone()
                local(total).add_(own if call.loss_scale is None else own * call.loss_scale)
                replaced.append((layer.parameter, total))
        return replaced

    @torch.no_grad()
    def lift(self, layers: Sequence[Layer]) -> None:
        for layer in layers:
            self.store.withdraw(layer)
            layer.weight.copy_(self.store.get_local(layer, RAW))
            self._lifted.add(layer.name)

    @torch.no_grad()
    def settle(self) -> None:
        for layer in self.layers:
            if layer.name in self._lifted:  # what lies in the parameter is the raw weight
                self.store.get_local(layer, RAW).copy_(layer.weight)
        if self._lifted or self.store.withdrawn:
            self._lifted.clear()
            self.write(self.layers)

    @torch.no_grad()
    def holds(self, layer: Layer) -> bool:
        found = layer.weight
        return all_agree(layer, self.is_expected(layer, found) or torch.equal(found, self.raw(layer)))

    @abstractmethod
    def is_expected(self, layer: Layer, found: Tensor) -> bool:
        """Whether `found` is what `write` makes of the layer's raw weight."""

    def follow_loaded_state(self, optimizer: Optimizer) -> None:
        self._lifted.clear()
        super().follow_loaded_state(optimizer)

    @torch.no_grad()
    def release(self) -> None:
        for layer in self.layers:
            layer.weight.copy_(self.store.get_local(layer, RAW))


T = TypeVar("T")


def write_in_pieces(
    layer: Layer,
    raw: Tensor,
    sparse: Tensor,
    write: Callable[[Tensor, Tensor], T] | None,
    *,
    is_lifted: bool,
) -> list[T]:
    """Call `write(raw, sparse)` for some rows at a time, so that they stay in the cache; return its answers.

    `is_lifted` says that `sparse` holds the raw weight that the optimizer has just moved: it is copied into `raw` on
    the way. Should anything interrupt this, `raw` is complete all the same. Without `write` the layer is dense.
    """
    answers: list[T] = []
    copied = 0
    try:
        for start, end in _pieces(sparse, layer):
            source, target = raw[start:end], sparse[start:end]
            if is_lifted:
                source.copy_(target)
                copied = end
            elif write is None:
                target.copy_(source)
            if write is not None:
                answers.append(write(source, target))
    except BaseException:
        if is_lifted:
            raw[copied:].copy_(sparse[copied:])
        raise
    return answers


def _pieces(sparse: Tensor, layer: Layer) -> Sequence[tuple[int, int]]:
    rows = sparse.shape[0]
    if sparse.numel() <= 2 * PIECE or sparse.device.type != "cpu":
        return [(0, rows)]
    if 0 not in layer.filters.axes or layer.shards.filters:  # filters are not whole rows
        return [(0, rows)]
    step = max(1, PIECE * torch.get_num_threads() * rows // sparse.numel())
    return [(start, min(start + step, rows)) for start in range(0, rows, step)]
