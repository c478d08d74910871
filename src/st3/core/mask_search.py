"""The search for masks by learned probabilities: for any method but a `RandomMask` nothing happens here.

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

from random import Random
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.optim import Adam, Optimizer

from .layers import Layer
from .learned import RandomMask
from .projection import project
from .shards import all_reduce
from .variables import advance

if TYPE_CHECKING:
    from .exchange import Exchange

__all__ = ["MaskSearch"]


class MaskSearch:
    """The masks, drawn and most probable, of all layers of an exchange."""

    def __init__(self, exchange: "Exchange") -> None:
        self.group: Any = None  # the processes that average their gradients
        self._exchange = exchange
        self._passes = 0  # since the last step
        self._drawn: dict[str, Tensor] = {}  # the relaxed masks that the parameters hold
        self._best: dict[str, Tensor] = {}  # the masks of the most probable weights
        self._undrawn: set[str] = set()  # layers with a gradient from a pass without masks
        self._gradients: dict[str, Tensor] = {}  # of the probabilities, summed over passes
        self._passed_on: dict[str, Tensor] = {}  # those of the raw weights, summed likewise
        self._arrived: dict[str, Tensor] = {}  # of the probabilities, in the step under way

    @property
    def method(self) -> RandomMask | None:
        """The method, as long as it searches."""
        method = self._exchange.method
        return method if isinstance(method, RandomMask) and self._exchange.plan.sparsity else None

    @property
    def is_over(self) -> bool:
        """Whether the step just made was the last of the search."""
        return self.method is not None and self._exchange.step >= self._steps(self.method)

    def _steps(self, method: RandomMask) -> int:
        return method.search_steps(self._exchange.plan.total_steps)

    def _progress(self, method: RandomMask) -> float:
        return min(1.0, self._exchange.step / self._steps(method))

    # ---------------------------------------------------------------- passes

    @torch.no_grad()
    def draw(self) -> None:
        """Draw new masks and write the weights under them into the parameters."""
        method, exchange = self.method, self._exchange
        if method is None:
            return
        progress = self._progress(method)
        for layer, uniform in zip(exchange.layers, self._uniforms(self._passes), strict=True):
            probability = exchange.variables.of(layer)["probability"]
            mask = method.relaxed_mask(probability, uniform, progress)
            raw = exchange.raw(layer)
            torch.mul(raw, mask, out=layer.parameter.detach())
            self._drawn[layer.name] = mask
            exchange.store.remember(layer, exchange.store.get(layer))
        self._passes += 1

    def before_forward(self, *, is_training: bool) -> None:
        """Let the parameters hold what this forward pass is to see."""
        if is_training:
            self.draw()
        else:
            self.rest()

    def rest(self) -> None:
        """Let the parameters hold the plain sparse weights."""
        if self._drawn:
            self._drawn = {}
            self._exchange.refresh()

    def forget(self) -> None:
        """Forget the passes since the last step: the weights or the state came from elsewhere."""
        self._passes, self._drawn, self._undrawn = 0, {}, set()
        self._gradients, self._passed_on = {}, {}

    def _uniforms(self, number: int) -> list[Tensor]:
        """Return random numbers between 0 and 1, apart from torch's own, for the pass of that number in this step."""
        method = self.method
        assert method is not None
        seed = Random(f"{method.seed} {self._exchange.step} {number}").getrandbits(62)
        generators: dict[torch.device, torch.Generator] = {}
        found = []
        for layer in self._exchange.layers:
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
        method = self.method
        assert method is not None
        if layer.name not in self._drawn:
            self._undrawn.add(layer.name)
            return grad
        mask = self._drawn[layer.name]
        probability = self._exchange.variables.of(layer)["probability"]
        slope = method.slope(mask, probability, self._progress(method))
        own, passed = grad * self._exchange.raw(layer) * slope, grad * mask
        if layer.parameter.grad is None or layer.name not in self._gradients:
            self._gradients[layer.name], self._passed_on[layer.name] = own, passed.clone()
        else:
            self._gradients[layer.name] += own
            self._passed_on[layer.name] += passed
        return passed

    # ---------------------------------------------------------------- steps

    @torch.no_grad()
    def before_step(self, optimizer: Optimizer) -> None:
        """Do to the probabilities' gradients what was done to the weights' since their backward pass."""
        self._arrived = {}
        if self.method is None:
            return
        self._require_masks()
        for layer in self._exchange.of(optimizer):
            grad = layer.parameter.grad
            if grad is None or layer.name not in self._gradients:
                if grad is not None:
                    self._arrived[layer.name] = torch.zeros_like(grad)
                continue
            # Averaged, unscaled, clipped: one factor, found by comparing what left the hook with what arrived here.
            overlap = self._mean((self._passed_on[layer.name].double() * grad.double()).sum())
            factor = grad.double().square().sum() / overlap
            own = self._mean(self._gradients[layer.name].clone())
            own *= factor.nan_to_num(nan=1.0).to(own.dtype)
            self._arrived[layer.name] = own.nan_to_num(nan=0.0, posinf=0.0, neginf=0.0)

    def _mean(self, values: Tensor) -> Tensor:
        if self.group is None:
            return values
        mean: Tensor = all_reduce(values, [self.group]) / self.group.size()
        return mean

    def _require_masks(self) -> None:
        if not self._undrawn:
            return
        name = next(iter(self._undrawn))
        self.forget()
        raise RuntimeError(
            f"layer {name!r} got a gradient from a forward pass without a random mask: masks are drawn when the model "
            f"given to sparsify is called in training mode; call that model, or resample() before each forward pass"
        )

    @torch.no_grad()
    def after_step(self, optimizer: Optimizer) -> None:
        """Move the probabilities of the layers that had a gradient."""
        method, exchange = self.method, self._exchange
        gradients, self._arrived = self._arrived, {}
        self.forget()
        if method is None:
            return
        progress = min(1.0, max(0, exchange.step - 1) / self._steps(method))
        layers = [layer for layer in exchange.of(optimizer) if layer.name in gradients]
        values = [exchange.variables.of(layer) for layer in layers]
        if layers:
            own = [gradients[layer.name] for layer in layers]
            advance(Adam, method.settings(progress), "probability", values, own)
        for layer, each in zip(layers, values, strict=True):
            exchange.variables.put(layer, each, join=False)  # until the step is over

    @torch.no_grad()
    def project(self) -> None:
        """Project the probabilities onto what the ramp leaves of the common budget, and of layers with their own."""
        if self.method is None:
            return
        plan, layers = self._exchange.plan, self._exchange.layers
        asked = plan.asked(self._exchange.step)
        pools = [[layer for layer in layers if layer.sparsity is None]]
        pools += [[layer] for layer in layers if layer.sparsity is not None]
        for pool in filter(None, pools):
            own = asked if pool[0].sparsity is None else pool[0].sparsity * asked / plan.sparsity
            parts = [self._exchange.variables.of(layer)["probability"] for layer in pool]
            project(parts, (1.0 - own) * sum(layer.weights for layer in pool))

    def masks(self) -> list[Tensor]:
        """Return the masks of the most probable weights, as many as the ramp leaves; of equal ones the largest."""
        exchange = self._exchange
        scores = []
        for layer in exchange.layers:
            magnitude = exchange.raw(layer).abs().double()
            probability = exchange.variables.of(layer)["probability"].double()
            scores.append(probability + 1e-9 * magnitude / magnitude.max().clamp(min=1e-30))
        moment = exchange.plan.moment(exchange.layers, exchange.step)
        found = moment.largest(scores, moment.asked)
        self._best = {layer.name: mask for layer, mask in zip(exchange.layers, found, strict=True)}
        return found

    def expected(self, layer: Layer) -> Tensor:
        """Return what the parameter was left with."""
        mask = self._drawn.get(layer.name, self._best.get(layer.name))
        raw = self._exchange.raw(layer)
        return raw if mask is None else raw * mask

    @torch.no_grad()
    def finish(self) -> None:
        """Write the weights under the masks to be fixed."""
        method, exchange = self.method, self._exchange
        assert method is not None
        for layer, uniform in zip(exchange.layers, self._uniforms(-1), strict=True):
            probability = exchange.variables.of(layer)["probability"]
            mask = method.final_mask(probability, self._best[layer.name], uniform)
            layer.parameter.detach().copy_(exchange.raw(layer)).masked_fill_(~mask, 0.0)
