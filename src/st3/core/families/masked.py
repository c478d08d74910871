"""Methods whose masks change in the course of training (GMP, RigL, GraNet, ...).

before a step   in which masks change by gradient: the dense gradients are set aside; the optimizer gets those of
                active weights or, where the change replaces the step, none
after a step    the method chooses; what was zeroed or has grown loses its momentum, and all weights do where the
                method begins anew
"""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import ClassVar, final

import torch
from torch import Tensor
from torch.optim import Optimizer

from ..budget.plan import Plan
from ..layers.layer import Layer
from ..layers.shards import local
from ..method import Method
from ..state.store import ACTIVE, Store, is_ours
from ..step.call import Call
from .family import Replaced, clear_momentum
from .fixed_mask import MaskFamily
from .mask_view import MaskView, Moment, moment_of

__all__ = ["MaskMethod", "Masked"]


class MaskMethod(Method):
    """A method that chooses new masks now and then. Zeroed weights are exactly 0 and, usually, get no gradient."""

    grows: ClassVar[bool] = False  # needs the gradients of zeroed weights whenever the masks change
    replaces_step: ClassVar[bool] = False  # the optimizer does nothing in a step that changes the masks
    trains_zeroed: ClassVar[bool] = (
        False  # zeroed weights get gradients too, and are zeroed again after the step
    )
    restores: ClassVar[bool] = False  # all weights, when the ramp falls back to 0

    @property
    def clears_momentum(self) -> bool:
        """Whether weights that were zeroed, or have grown, lose their momentum."""
        return True

    @property
    def needs_whole_layers(self) -> bool:
        """Whether it compares weights within a layer, which must not be sharded then."""
        return self.grows

    def check(self, views: Sequence[MaskView], moment: Moment) -> None:
        """Raise where the weights cannot meet the target in the way of the method; `moment` is the end of the run."""

    @abstractmethod
    def is_due(self, moment: Moment) -> bool:
        """Whether the masks change in this step."""

    @abstractmethod
    def next_masks(self, views: Sequence[MaskView], moment: Moment) -> Sequence[Tensor]:
        """Return the new mask of every layer, from weights (0 where zeroed), masks and, if it `grows`, gradients."""

    def prune_first(self, views: Sequence[MaskView], moment: Moment) -> Sequence[Tensor] | None:
        """Return masks to be applied before `next_masks` sees the weights: what it grows again starts at 0."""
        return None

    def restarts(self, moment: Moment) -> bool:
        """Whether the optimizer's momentum is forgotten with the change of this step, for all its weights."""
        return False

    def first_masks(self, views: Sequence[MaskView], moment: Moment) -> Sequence[Tensor]:
        """Return the masks to begin with: the largest weights, as many as the ramp leaves at step 0."""
        return moment.largest([view.weight for view in views], moment.asked)


@final
class Masked(MaskFamily[MaskMethod]):
    """Asks the method for masks."""

    key: ClassVar[str] = ACTIVE
    keeps: ClassVar[str] = f"the mask of every sparsified parameter `p`, `optimizer.state[p]['{ACTIVE}']`"

    def __init__(self, method: MaskMethod, layers: Sequence[Layer], store: Store, plan: Plan) -> None:
        super().__init__(method, layers, store, plan)
        self._answer = (-1, False)  # whether masks change by gradient in the step of that number
        self._gradients: dict[str, Tensor] = {}  # dense, in such a step
        self._unmasked: dict[str, Tensor] = {}  # weights before the first masks, until the first step

    @classmethod
    def check(
        cls, method: MaskMethod, layers: Sequence[Layer], optimizers: Sequence[Optimizer], plan: Plan
    ) -> None:
        if method.needs_whole_layers and any(layer.shards.counts for layer in layers):
            raise ValueError(
                f"{type(method).__name__} exchanges weights within a layer, which must be whole for that: train it "
                f"with DistributedDataParallel instead of fully_shard"
            )
        views = [MaskView(x, x.weight, torch.ones_like(x.weight, dtype=torch.bool)) for x in layers]
        method.check(views, moment_of(plan, layers, plan.total_steps))

    def initial(self, layer: Layer) -> Tensor:
        return torch.ones_like(layer.parameter.detach(), dtype=torch.bool)

    @torch.no_grad()
    def begin(self) -> None:
        """Let the method choose the masks to begin with, for layers that have none yet."""
        absent = [layer for layer in self.layers if self.store.find(layer, self.key) is None]
        for layer in absent:
            self.store.put(layer, self.key, self.initial(layer))
        if absent and self.plan.sparsity:
            masks = self.method.first_masks(self._views({}), self._moment(self.store.step))
            for layer, mask in zip(self.layers, masks, strict=True):
                if layer in absent:
                    self._unmasked[layer.name] = layer.weight.clone()
                    self.mask(layer).copy_(mask)
                    clear_momentum(self.store, layer, mask)
        self.write(self.layers)

    @property
    def maps_gradients(self) -> bool:
        return not self.method.trains_zeroed

    def raw_gradient(self, layer: Layer, grad: Tensor) -> Tensor:
        if self._change_by_gradient(self.store.step + 1):
            return grad
        return super().raw_gradient(layer, grad)

    @torch.no_grad()
    def before_step(self, call: Call) -> Sequence[Replaced]:
        """Set the dense gradients aside, if masks will change by them in this step."""
        if not call.counts or not self._change_by_gradient(call.number):
            return ()
        for layer in call.layers:
            grad = layer.parameter.grad
            if grad is not None:
                self._gradients[layer.name] = local(grad).clone()
                local(grad).masked_fill_(~self.mask(layer), 0.0)
        if not self.method.replaces_step:
            return ()
        return [(parameter, None) for group in call.optimizer.param_groups for parameter in group["params"]]

    @torch.no_grad()
    def after_step(self, call: Call, *, is_complete: bool) -> None:
        """Let the method choose new masks, if they are due."""
        if not is_complete or not call.counts:
            return
        self._unmasked = {}
        gradients, self._gradients = self._gradients, {}
        moment = self._moment(self.store.step)
        if not self.plan.sparsity or not self.method.is_due(moment):
            return
        views = self._views(gradients)
        pruned = self.method.prune_first(views, moment)
        if pruned is not None:
            self._change(pruned)
        self._change(self.method.next_masks(views, moment))
        if self.method.restarts(moment):
            for optimizer in self.store.optimizers:
                _restart(optimizer)

    @torch.no_grad()
    def undo_begin(self) -> None:
        for layer in self.layers:
            weight = self._unmasked.pop(layer.name, None)
            if weight is not None and not self.store.was_written(layer):
                layer.weight.copy_(weight)

    def _change_by_gradient(self, step: int) -> bool:
        """Whether the masks change in the step of that number, and by the gradients of zeroed weights."""
        if not self.method.grows or not self.plan.sparsity:
            return False
        if self._answer[0] != step:
            self._answer = (step, self.method.is_due(self._moment(step)))
        return self._answer[1]

    def _moment(self, step: int) -> Moment:
        return moment_of(self.plan, self.layers, step)

    def _views(self, gradients: Mapping[str, Tensor]) -> list[MaskView]:
        return [
            MaskView(layer, layer.weight, self.mask(layer), gradients.get(layer.name))
            for layer in self.layers
        ]

    @torch.no_grad()
    def adopt(self, layers: Sequence[Layer]) -> None:
        """Take the weights as they are now; the largest stay active, as many as the ramp leaves."""
        self._unmasked = {}
        super().adopt(layers)
        moment = self._moment(self.store.step)
        masks = moment.largest([layer.weight for layer in self.layers], moment.asked)
        self._change(masks, layers)

    def _change(self, masks: Sequence[Tensor], only: Sequence[Layer] | None = None) -> None:
        for layer, mask in zip(self.layers, masks, strict=True):
            if only is not None and layer not in only:
                continue
            held = self.mask(layer)
            if self.method.clears_momentum:
                clear_momentum(self.store, layer, held & mask)
            held.copy_(mask)
            layer.weight.masked_fill_(~mask, 0.0)


MaskMethod.family = Masked


def _restart(optimizer: Optimizer) -> None:
    """Set everything that the optimizer remembers of its weights to 0, as it was before the first step."""
    for parameter, state in optimizer.state.items():
        for key, value in state.items():
            if is_ours(key) or not isinstance(value, Tensor):
                continue
            if value.shape == parameter.shape or key == "step":  # Adam's count, which corrects for its zeros
                local(value).zero_()
