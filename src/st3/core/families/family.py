"""The protocol of a family: what is kept per weight, and what happens around one optimizer step.

    begin           make what is missing: raw weights or masks, learned variables; then `write`
    before_forward  of the model, for a family that draws masks
    raw_gradient    dL/draw from dL/dsparse, as gradients arrive
    before_step     the optimizer is about to move the weights; say what it is to see in place of some gradients
    lift            what the optimizer is to move goes into the parameters
    after_step      it has moved them: learned variables follow, masks change
    write           what the model is to see goes into the parameters

A family is built with the layers, the store and the plan, and never sees the optimizer's hooks or the sparsifier. When
these things happen is the conductor's business (step/conductor.py). A new family is one file beside this one.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Generic, TypeVar

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from ..budget.allocation import Cut
from ..budget.plan import Plan
from ..errors import WeightsReplacedError
from ..layers.layer import Layer, Layers
from ..layers.shards import all_reduce
from ..method import Method
from ..state.store import Store
from ..step.call import Call

__all__ = ["Family", "all_agree", "clear_momentum"]

M = TypeVar("M", bound=Method)
Replaced = tuple[
    nn.Parameter, Tensor | None
]  # a parameter, and the gradient that the optimizer is to see in this step


class Family(ABC, Generic[M]):
    """A method at work on some layers."""

    key: ClassVar[str]  # of the tensor kept for every layer: RAW, ACTIVE or MASK
    keeps: ClassVar[str]  # the same in words, for the method's page
    draws_masks: ClassVar[bool] = False  # wants `before_forward`
    is_fixed: ClassVar[bool] = False  # the masks never change, so there is nothing to plan or to freeze

    def __init__(self, method: M, layers: Sequence[Layer], store: Store, plan: Plan) -> None:
        self.method = method
        self.layers = list(layers)
        self.names = [layer.name for layer in self.layers]
        self.store = store
        self.plan = plan
        self.cuts: dict[str, Cut | None] = {}  # of the last step

    # ---------------------------------------------------------------- before training

    @classmethod
    def fit(cls, method: Any, layers: Layers) -> Layers:
        """Return the layers that the method can cover; the others are skipped, with the reason."""
        return layers

    @classmethod
    def check(cls, method: Any, layers: Sequence[Layer], optimizers: Sequence[Optimizer], plan: Plan) -> None:
        """Raise where the method cannot train these layers: by their precision, optimizer, sharding or budget."""

    @abstractmethod
    def initial(self, layer: Layer) -> Tensor:
        """Return the tensor to keep for a layer, from its weight as it is now."""

    def begin(self) -> None:
        """Find or make what is kept for every layer, and make the model sparse."""
        for layer in self.layers:
            if self.store.find(layer, self.key) is None:
                self.store.put(layer, self.key, self.initial(layer))
        self.write(self.layers)

    # ---------------------------------------------------------------- questions

    @property
    def maps_gradients(self) -> bool:
        """Whether `raw_gradient` does anything."""
        return True

    @property
    def is_over(self) -> bool:
        """Whether the step just made was the last one before the masks are fixed."""
        return False

    @property
    def follows_ramp(self) -> bool:
        """Whether the ramp alone says how sparse the model is; otherwise masks change when the method says so."""
        return True

    def raw(self, layer: Layer) -> Tensor:
        """Return the local part of the layer's raw weight, wherever it is now."""
        return layer.weight

    def threshold(self, layer: Layer) -> float | None:
        """Return the threshold at the last step: 0 where the layer is dense, None where there is no single one."""
        cut = self.cuts.get(layer.name)
        return 0.0 if cut is None else float(cut.threshold)

    def layer_target(self, layer: Layer) -> float | None:
        """Return the sparsity that the user, the allocation or the method gives to this layer alone, if one does."""
        cut = self.cuts.get(layer.name)
        if layer.sparsity is not None or cut is None or cut.zeros is None:
            return layer.sparsity
        return cut.zeros / layer.numel

    # ---------------------------------------------------------------- one step

    def before_forward(self, model: nn.Module) -> None:
        """Make the parameters what this forward pass is to see."""

    @abstractmethod
    def raw_gradient(self, layer: Layer, grad: Tensor) -> Tensor:
        """Return the gradient of the raw weight from that of the sparse one."""

    def before_step(self, call: Call) -> Sequence[Replaced]:
        """Look at the gradients; return what the optimizer is to see in place of some of them."""
        return ()

    def lift(self, layers: Sequence[Layer]) -> None:
        """Make the parameters what the optimizer is to move; it sees none of our keys in its state."""
        for layer in layers:
            self.store.withdraw(layer)

    def after_step(self, call: Call, *, is_complete: bool) -> None:
        """Follow the optimizer's step; `is_complete` if all optimizers have made the same number of them."""

    @abstractmethod
    def write(self, layers: Sequence[Layer]) -> None:
        """Make the parameters of `layers` what the model is to see."""

    def settle(self) -> None:
        """Put things right after an exception inside a step."""
        if self.store.withdrawn:
            self.write(self.layers)

    # ---------------------------------------------------------------- weights that come from elsewhere

    def was_replaced(self, layer: Layer) -> bool:
        """Whether somebody has written the parameter since the last step, and not what is kept for it."""
        return self.store.was_replaced(layer, self.key)

    @abstractmethod
    def holds(self, layer: Layer) -> bool:
        """Whether the parameter holds what it was left with, or what was kept for it."""

    def is_dense(self, layer: Layer) -> bool:
        """Whether the parameter is its own raw weight so far, so that replacing it loses nothing."""
        return False

    def refuse_replaced(
        self,
        layers: Sequence[Layer],
        find_orphans: Callable[[Sequence[Layer]], Exception | None] | None = None,
    ) -> None:
        """Raise if somebody has written a parameter and what is kept for it would undo that.

        A layer that is dense so far loses nothing and is adopted, unless `find_orphans` has something against it.
        """
        dense = []
        for layer in layers:
            if not self.store.was_replaced(layer, self.key):
                continue
            if self.is_dense(layer):
                dense.append(layer)  # the parameter is its own raw weight
            elif not self.holds(layer):
                raise WeightsReplacedError(
                    f"layer {layer.name!r} was changed from outside since the last step (weights loaded into the model "
                    f"alone, or DistributedDataParallel wrapped around it after sparsify), which its raw weight in the "
                    f"optimizer state would undo: load the optimizer's state as well, sparsify after wrapping, or call "
                    f"adopt() to go on from the new weights"
                )
        if not dense:
            return
        if find_orphans is not None and (fault := find_orphans(dense)) is not None:
            raise fault
        self.adopt(dense)

    def undo_begin(self) -> None:
        """Put back weights that `begin` has zeroed: a state was loaded that says which of them are active."""

    def adopt(self, layers: Sequence[Layer]) -> None:
        """Take the parameters of `layers` as they are now for what is to be kept."""
        for layer in layers:
            tensor = self.initial(layer)
            self.store.put(layer, self.key, tensor)
            self.store.note(layer, tensor)

    def follow_loaded_state(self, optimizer: Optimizer) -> None:
        """Complete and follow what was just loaded into the optimizer's state."""
        for layer in self.layers:
            # A dense layer of another optimizer, whose state comes later: its parameter is its raw weight.
            if self.cuts.get(layer.name) is None and self.was_replaced(layer):
                self.adopt([layer])
        self.begin()

    # ---------------------------------------------------------------- the end

    def rest(self) -> None:
        """Make the parameters hold the plain sparse weights, if a forward pass has put something else there."""

    def masks(self) -> dict[str, Tensor]:
        """Return the mask of every layer, to be fixed."""
        return {layer.name: layer.parameter.detach() != 0 for layer in self.layers}

    def release(self) -> None:
        """Put the raw weights back into the parameters."""

    def sparsify_copy(self, copies: Sequence[Layer], step: int) -> None:
        """Make layers of a copy with weights of its own as sparse as asked now: by default, with the same zeros."""
        for layer, copied in zip(self.layers, copies, strict=True):
            copied.weight.masked_fill_(layer.weight == 0, 0.0)


def all_agree(layer: Layer, verdict: bool) -> bool:
    """Return whether the verdict is true on every process that holds a part of the layer: all raise, or none."""
    if not layer.shards.counts:
        return verdict
    objections = torch.tensor(0 if verdict else 1, device=layer.weight.device)
    return not bool(all_reduce(objections, layer.shards.counts))


def clear_momentum(store: Store, layer: Layer, stays: Tensor) -> None:
    """Set what the optimizer remembers of weights that do not stay active to 0."""
    for value in store.own_tensors(layer):
        value.masked_fill_(~stays, 0.0)
