"""Methods that learn one probability per weight and draw masks by it (ProbMask), until the search is over.

    a forward pass in training   fresh masks are drawn; the parameters hold raw weight * relaxed mask from here on
    its backward pass            per mask: the raw weight's gradient goes on, the probability's is summed up here
    before the step              that sum is averaged over the processes and scaled as the weights' gradients were
    after the step               Adam moves the probabilities; they are projected onto the ramp's budget; the parameters
                                 hold plain sparse weights again: raw weight * mask of the most probable weights
    the end of the search        that mask is fixed

A pass is one in training if the model is in training mode and gradients are recorded; any other pass finds the plain
sparse weights. So do checkpoints between steps. Random numbers depend on seed, step and pass alone: processes draw the
same masks, and a resumed run those of the run that was not interrupted.
"""

from abc import abstractmethod
from collections.abc import Sequence
from random import Random
from typing import Any, ClassVar, final

import torch
from torch import Tensor, nn
from torch.optim import Adam, Optimizer

from ..budget.plan import Plan
from ..layers.layer import Layer
from ..layers.shards import all_reduce, is_sharded
from ..projection import project
from ..state.store import RAW, Store
from ..state.variables import advance, require_precision
from ..step.call import Call
from ..step.forward_pass import averaging_processes
from .family import Replaced
from .mask_view import moment_of
from .raw import RawFamily, RawMethod

__all__ = ["RandomMask", "RandomMasks"]


class RandomMask(RawMethod):
    """A method with one learned probability per weight to be active; every forward pass of training draws masks.

    The masks are relaxed, numbers between 0 and 1, so that probabilities get a gradient. At `search_end` the masks
    become fixed, and the weights train on.
    """

    only_allocations: ClassVar[tuple[str, ...]] = ("global",)
    why_only_allocations: ClassVar[str] = (
        "learns how the sparsity is shared among the layers, within one budget"
    )
    learns: ClassVar[str | None] = "probability"
    seed: int

    @abstractmethod
    def first_variable(self, raw: Tensor) -> Tensor:
        """Return the probabilities of a layer to begin with."""

    @abstractmethod
    def search_end(self, total_steps: int) -> int:
        """Return the step after which the masks are fixed."""

    @abstractmethod
    def relaxed_mask(self, probability: Tensor, uniform: Tensor, progress: float) -> Tensor:
        """Return a mask drawn by these uniform random numbers; `progress` is the part of the search that is over."""

    @abstractmethod
    def slope(self, mask: Tensor, probability: Tensor, progress: float) -> Tensor:
        """Return d mask / d probability of a mask that `relaxed_mask` has returned."""

    @abstractmethod
    def adam_settings(self, progress: float) -> dict[str, float]:
        """Return the settings of Adam, which moves the probabilities."""

    def final_mask(self, probability: Tensor, best: Tensor, uniform: Tensor) -> Tensor:
        """Return the mask to be fixed; `best` is that of the most probable weights, as many as the target leaves."""
        return best

    def is_straight_through(self, sparsity: float) -> bool:
        return sparsity == 0.0


@final
class RandomMasks(RawFamily[RandomMask]):
    """Draws masks for forward passes; between steps the most probable weights are active."""

    draws_masks: ClassVar[bool] = True
    keeps: ClassVar[str] = (
        f"{RawFamily.keeps}; the learned probability and its moments beside it, under keys that begin with `st3_`"
    )

    def __init__(self, method: RandomMask, layers: Sequence[Layer], store: Store, plan: Plan) -> None:
        super().__init__(method, layers, store, plan)
        self._group: Any = None  # the processes that average their gradients
        self._passes = 0  # since the last step
        self._drawn: dict[str, Tensor] = {}  # the relaxed masks that the parameters hold
        self._best: dict[str, Tensor] = {}  # the masks of the most probable weights
        self._undrawn: set[str] = set()  # layers with a gradient from a pass without masks
        self._gradients: dict[str, Tensor] = {}  # of the probabilities, summed over passes
        self._mapped: dict[str, Tensor] = {}  # those of the raw weights, summed likewise
        self._arrived: dict[str, Tensor] = {}  # of the probabilities, in the step under way

    @classmethod
    def check(
        cls, method: RandomMask, layers: Sequence[Layer], optimizers: Sequence[Optimizer], plan: Plan
    ) -> None:
        require_precision(method, layers)
        if any(is_sharded(layer.parameter) for layer in layers):
            raise ValueError(
                f"{type(method).__name__} needs every gradient at the mask it was taken with, which fully_shard does "
                f"not show: train it with DistributedDataParallel instead"
            )

    def begin(self) -> None:
        for layer in self.layers:
            if self.store.find(layer, RAW) is None:
                self.store.put(layer, RAW, self.initial(layer))
            if "probability" not in self.store.variables(layer):
                first = self.method.first_variable(self.store.get(layer, RAW))
                self.store.put_variables(layer, {"probability": first})
        self.write(self.layers)

    def probability(self, layer: Layer) -> Tensor:
        """Return the probabilities of the layer's weights to be active."""
        return self.store.variables(layer)["probability"]

    def is_dense(self, layer: Layer) -> bool:
        return False

    @property
    def is_over(self) -> bool:
        return bool(self.plan.sparsity) and self.store.step >= self._search_end

    @property
    def _search_end(self) -> int:
        return self.method.search_end(self.plan.total_steps)

    def _progress(self, step: int) -> float:
        return min(1.0, max(0, step) / self._search_end)

    # ---------------------------------------------------------------- passes

    def before_forward(self, model: nn.Module) -> None:
        self._group = averaging_processes(model)
        if model.training and torch.is_grad_enabled():
            self._draw()
        else:
            self.rest()

    @torch.no_grad()
    def _draw(self) -> None:
        """Draw new masks and write the weights under them into the parameters."""
        if not self.plan.sparsity:
            return
        self.refuse_replaced(self.layers)
        progress = self._progress(self.store.step)
        for layer, uniform in zip(self.layers, self._uniforms(self._passes), strict=True):
            mask = self.method.relaxed_mask(self.probability(layer), uniform, progress)
            torch.mul(self.raw(layer), mask, out=layer.weight)
            self._drawn[layer.name] = mask
            self.store.note(layer, self.store.get(layer, RAW))
        self._passes += 1

    def rest(self) -> None:
        if self._drawn:
            self.refuse_replaced(self.layers)
            self._drawn = {}
            self.write(self.layers)

    def _forget_passes(self) -> None:
        """Forget the passes since the last step: it is over, or the weights or the state came from elsewhere."""
        self._passes, self._drawn, self._undrawn = 0, {}, set()
        self._gradients, self._mapped = {}, {}

    def _uniforms(self, number: int) -> list[Tensor]:
        """Return random numbers between 0 and 1, apart from torch's own, for the pass of that number in this step."""
        seed = Random(f"{self.method.seed} {self.store.step} {number}").getrandbits(62)
        generators: dict[torch.device, torch.Generator] = {}
        found = []
        for layer in self.layers:
            weight = layer.parameter
            if weight.device not in generators:
                generators[weight.device] = torch.Generator(weight.device).manual_seed(seed)
            generator = generators[weight.device]
            found.append(
                torch.rand(weight.shape, generator=generator, device=weight.device, dtype=weight.dtype)
            )
        return found

    @torch.no_grad()
    def raw_gradient(self, layer: Layer, grad: Tensor) -> Tensor:
        """Return the raw weight's gradient; keep the probability's."""
        if layer.name not in self._drawn:
            self._undrawn.add(layer.name)
            return grad
        mask = self._drawn[layer.name]
        slope = self.method.slope(mask, self.probability(layer), self._progress(self.store.step))
        own, mapped = grad * self.raw(layer) * slope, grad * mask
        if layer.parameter.grad is None or layer.name not in self._gradients:
            self._gradients[layer.name], self._mapped[layer.name] = own, mapped.clone()
        else:
            self._gradients[layer.name] += own
            self._mapped[layer.name] += mapped
        return mapped

    # ---------------------------------------------------------------- steps

    @torch.no_grad()
    def before_step(self, call: Call) -> Sequence[Replaced]:
        """Do to the probabilities' gradients what was done to the weights' since their backward pass."""
        self._arrived = {}
        if not self.plan.sparsity:
            return ()
        self._require_masks()
        for layer in call.layers:
            grad = layer.parameter.grad
            if grad is None or layer.name not in self._gradients:
                if grad is not None:
                    self._arrived[layer.name] = torch.zeros_like(grad)
                continue
            # Averaged, unscaled, clipped: one factor, found by comparing what left the hook with what arrived here.
            overlap = _mean((self._mapped[layer.name].double() * grad.double()).sum(), self._group)
            factor = grad.double().square().sum() / overlap
            own = _mean(self._gradients[layer.name].clone(), self._group)
            own *= factor.nan_to_num(nan=1.0).to(own.dtype)
            self._arrived[layer.name] = own.nan_to_num(nan=0.0, posinf=0.0, neginf=0.0)
        return ()

    def _require_masks(self) -> None:
        if not self._undrawn:
            return
        name = next(iter(self._undrawn))
        self._forget_passes()
        raise RuntimeError(
            f"layer {name!r} got a gradient from a forward pass without a random mask: masks are drawn when the model "
            f"given to sparsify is called in training mode; call that model"
        )

    @torch.no_grad()
    def after_step(self, call: Call, *, is_complete: bool) -> None:
        """Move the probabilities of the layers that had a gradient; project them onto the budget."""
        gradients, self._arrived = self._arrived, {}
        self._forget_passes()
        layers = [layer for layer in call.layers if layer.name in gradients]
        values = [self.store.variables(layer) for layer in layers]
        if layers:
            settings = self.method.adam_settings(self._progress(self.store.step - 1))
            advance(Adam, settings, "probability", values, [gradients[layer.name] for layer in layers])
        for layer, each in zip(layers, values, strict=True):
            self.store.put_variables(layer, each)
        if is_complete and call.counts and self.plan.sparsity:
            self._project()

    def _project(self) -> None:
        """Project the probabilities onto what the ramp leaves of the common budget, and of layers with their own."""
        asked = self.plan.asked(self.store.step)
        pools = [[layer for layer in self.layers if layer.sparsity is None]]
        pools += [[layer] for layer in self.layers if layer.sparsity is not None]
        for pool in filter(None, pools):
            own = asked if pool[0].sparsity is None else pool[0].sparsity * asked / self.plan.sparsity
            project([self.probability(layer) for layer in pool], (1.0 - own) * sum(x.numel for x in pool))

    @torch.no_grad()
    def write(self, layers: Sequence[Layer]) -> None:
        best = self._find_best()
        for layer in layers:
            self._best[layer.name] = best[layer.name]
            raw = self.store.get_local(layer, RAW)
            if layer.name in self._lifted:
                raw.copy_(layer.weight)
                self._lifted.discard(layer.name)
            else:
                layer.weight.copy_(raw)
            layer.weight.masked_fill_(~self._best[layer.name], 0.0)
            self.store.join(layer, RAW)

    def _find_best(self) -> dict[str, Tensor]:
        """Return the masks of the most probable weights, as many as the ramp leaves; of equal ones the largest."""
        scores = []
        for layer in self.layers:
            magnitude = self.raw(layer).abs().double()
            scores.append(
                self.probability(layer).double() + 1e-9 * magnitude / magnitude.max().clamp(min=1e-30)
            )
        moment = moment_of(self.plan, self.layers, self.store.step)
        found = moment.largest(scores, moment.asked)
        return {layer.name: mask for layer, mask in zip(self.layers, found, strict=True)}

    @torch.no_grad()
    def masks(self) -> dict[str, Tensor]:
        """Return the masks to be fixed; at the end of the search, as the method says, and the weights under them."""
        if self.is_over:
            for layer, uniform in zip(self.layers, self._uniforms(-1), strict=True):
                mask = self.method.final_mask(self.probability(layer), self._best[layer.name], uniform)
                layer.weight.copy_(self.raw(layer)).masked_fill_(~mask, 0.0)
        return super().masks()

    def is_expected(self, layer: Layer, found: Tensor) -> bool:
        mask = self._drawn.get(layer.name, self._best.get(layer.name))
        return mask is not None and torch.equal(found, self.raw(layer) * mask)

    def adopt(self, layers: Sequence[Layer]) -> None:
        self._forget_passes()
        super().adopt(layers)

    def follow_loaded_state(self, optimizer: Optimizer) -> None:
        self._forget_passes()
        super().follow_loaded_state(optimizer)


RandomMask.family = RandomMasks


def _mean(values: Tensor, group: Any) -> Tensor:
    if group is None:
        return values
    mean: Tensor = all_reduce(values, [group]) / group.size()
    return mean
