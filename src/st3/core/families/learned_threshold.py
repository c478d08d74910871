"""Methods that learn one threshold per layer (STR): there is no ramp and no target.

before the step   the thresholds' gradients, from p.grad as the optimizer will see it: averaged over processes,
                  unscaled, clipped
after it          one step of the same kind of optimizer, with the settings of the layer's group
"""

from abc import abstractmethod
from collections.abc import Sequence
from typing import ClassVar, final

import torch
from torch import Tensor
from torch.optim import SGD, Adam, AdamW, Optimizer

from ..budget.allocation import Cut
from ..budget.plan import Plan
from ..layers.layer import Layer
from ..layers.shards import all_reduce, local
from ..state.store import OWN_GROUP_KEYS, RAW, Store
from ..state.variables import advance, require_precision
from ..step.call import Call
from .family import Replaced
from .thresholded import CutFamily, ThresholdMethod

__all__ = ["LearnedThreshold", "LearnedThresholds"]

RULES = (SGD, Adam, AdamW)
_NOT_SETTINGS = ("params", "param_names", *OWN_GROUP_KEYS)
# Which of torch's implementations to use: the plainest, since there are few numbers, on any device.
_PLAIN = {"foreach": False, "fused": None, "capturable": False, "differentiable": False}


class LearnedThreshold(ThresholdMethod):
    """A method that learns one number per layer, from which the layer's threshold follows."""

    has_target: ClassVar[bool] = False
    learns: ClassVar[str | None] = "threshold"
    why_not_in_cycles: ClassVar[str] = "it learns its thresholds, so that a cycle cannot ask for a sparsity"
    weight_decay: float | None  # of the learned number; None: that of the layer's weights

    @abstractmethod
    def first_variable(self, raw: Tensor) -> Tensor:
        """Return the number of a layer to begin with."""

    @abstractmethod
    def learned_threshold(self, variable: Tensor) -> Tensor:
        """Return the threshold, a 0-dim tensor."""

    @abstractmethod
    def variable_gradient(self, grad: Tensor, sparse: Tensor, variable: Tensor) -> Tensor:
        """Return dL/dvariable from the gradient of the raw weight and the sparse weight: a sum over all weights."""

    def is_straight_through(self, sparsity: float) -> bool:
        return False


@final
class LearnedThresholds(CutFamily[LearnedThreshold]):
    """Thresholds from learned numbers, which the optimizer's own rule moves."""

    keeps: ClassVar[str] = (
        f"{CutFamily.keeps}; the learned threshold and its moments beside it, under keys that begin with `st3_`"
    )

    def __init__(self, method: LearnedThreshold, layers: Sequence[Layer], store: Store, plan: Plan) -> None:
        super().__init__(method, layers, store, plan)
        self._gradients: dict[str, Tensor] = {}  # in the step under way

    @classmethod
    def check(
        cls, method: LearnedThreshold, layers: Sequence[Layer], optimizers: Sequence[Optimizer], plan: Plan
    ) -> None:
        require_precision(method, layers)
        strangers = [type(o).__name__ for o in optimizers if _rule_of(o) is None]
        if strangers:
            known = ", ".join(kind.__name__ for kind in RULES)
            raise ValueError(
                f"{type(method).__name__} moves its thresholds by the optimizer's own rule and knows those of {known}, "
                f"not of {strangers[0]}: use one of these"
            )

    def begin(self) -> None:
        for layer in self.layers:
            if self.store.find(layer, RAW) is None:
                self.store.put(layer, RAW, self.initial(layer))
            if "threshold" not in self.store.variables(layer):
                first = self.method.first_variable(self.store.get_local(layer, RAW))
                self.store.put_variables(layer, {"threshold": first})
        self.write(self.layers)

    def find_cuts(self) -> Sequence[Cut | None]:
        return [
            Cut(self.method.learned_threshold(self.store.variables(layer)["threshold"]))
            for layer in self.layers
        ]

    @torch.no_grad()
    def before_step(self, call: Call) -> Sequence[Replaced]:
        """Take the thresholds' gradients while the parameters still hold the sparse weights."""
        self._gradients = {}
        for layer in call.layers:
            grad = layer.parameter.grad
            if grad is None:
                continue
            variable = self.store.variables(layer)["threshold"]
            own = self.method.variable_gradient(local(grad), layer.weight, variable)
            own = all_reduce(own, layer.shards.counts)
            self._gradients[layer.name] = own if call.loss_scale is None else own / call.loss_scale
        return super().before_step(call)

    @torch.no_grad()
    def after_step(self, call: Call, *, is_complete: bool) -> None:
        """Move the thresholds by the optimizer's own rule."""
        gradients, self._gradients = self._gradients, {}
        kind = _rule_of(call.optimizer)
        assert kind is not None
        layers = {id(layer.parameter): layer for layer in call.layers if layer.name in gradients}
        for group in call.optimizer.param_groups:
            mine = [layers[id(p)] for p in group["params"] if id(p) in layers]
            if not mine:
                continue
            settings = {key: value for key, value in group.items() if key not in _NOT_SETTINGS}
            settings |= {key: value for key, value in _PLAIN.items() if key in group}
            if self.method.weight_decay is not None:
                settings["weight_decay"] = self.method.weight_decay
            values = [self.store.variables(layer) for layer in mine]
            advance(kind, settings, "threshold", values, [gradients[layer.name] for layer in mine])
            for layer, each in zip(mine, values, strict=True):
                self.store.put_variables(layer, each)


LearnedThreshold.family = LearnedThresholds


def _rule_of(optimizer: Optimizer) -> type[Optimizer] | None:
    """Return the kind of optimizer whose rule moves the thresholds; None if it is not one of those known."""
    return next((kind for kind in type(optimizer).__mro__ if kind in RULES), None)
