"""The sparsifier: what a user holds while a model trains sparse."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

from ..measure import Report
from .allocations import Allocation
from .conductor import Conductor
from .errors import TargetMissedError
from .groups import in_groups, n_largest
from .inspection import CollapseWatch, count_all, require_numbers
from .layers import Layers, named_weights
from .method import FixedMask, GroupMethod, HardThreshold, Method
from .ramps import Ramp
from .reporting import build_report
from .selection import quota
from .shards import local, reshard
from .writing import break_ties, write_sparse

__all__ = ["Sparsifier"]

# Steps between two looks for collapsed layers and NaN; each look reads counts back from the device.
LOOK_EVERY = 20


class Sparsifier:
    """Keeps a model sparse while it trains; made by `st3.sparsify` or `st3.keep_mask`.

    The model holds the sparse weights at every moment outside `optimizer.step`, the optimizer state the raw ones.
    """

    def __init__(self, model: nn.Module, layers: Layers, conductor: Conductor, watch: CollapseWatch) -> None:
        self.model = model
        self.layers = layers
        self.is_finalized = False
        self._conductor = conductor
        self._exchange = conductor.exchange
        self._watch = watch
        self._is_detached = False
        self._last_step = 0
        conductor.on_step = self._after_step
        conductor.on_no_gradient = self._require_own_weights

    # ---------------------------------------------------------------- questions

    @property
    def step(self) -> int:
        """How many optimizer steps have been counted (until finalized or detached)."""
        return self._exchange.step if self.is_attached else self._last_step

    @property
    def sparsity(self) -> float:
        """The target sparsity."""
        return self._exchange.plan.sparsity

    @property
    def ramp(self) -> Ramp:
        """The sparsity asked for after that many optimizer steps, as a function."""
        return self._exchange.plan.ramp

    @property
    def method(self) -> Method:
        """The method at work; `FixedMask` once frozen."""
        return self._exchange.method

    @property
    def allocation(self) -> Allocation:
        """How the sparsity is shared among the layers."""
        return self._exchange.plan.allocation

    @property
    def at_target(self) -> bool:
        """Whether the target is reached: from then on a checkpoint may count as the best."""
        if self._is_detached and not self.is_finalized:
            return False
        if self._exchange.method.keeps != "raw":
            return not self._shortfalls()  # masks change when the method says so, not with the ramp
        return self._exchange.plan.reached(self.step) and (self.is_finalized or self._exchange.all_joined())

    @property
    def optimizers(self) -> list[Optimizer]:
        """The optimizers whose steps it follows."""
        return self._exchange.optimizers

    @property
    def is_attached(self) -> bool:
        """Whether it still follows the optimizer's steps."""
        return not self.is_finalized and not self._is_detached

    @property
    def is_frozen(self) -> bool:
        """Whether the masks are fixed."""
        return isinstance(self._exchange.method, FixedMask)

    @property
    def thresholds(self) -> dict[str, float]:
        """The threshold of each layer at the last step; 0 where a layer is dense, or every N:M group has its own."""
        return {layer.name: self._exchange.threshold(layer) for layer in self.layers}

    def report(self, example_input: Any = None) -> Report:
        """Return what the model holds now, layer by layer; with an example input also its multiply-adds."""
        self._exchange.settle()
        plan, cuts = self._exchange.plan, self._exchange.cuts
        return build_report(
            self.model,
            self.layers,
            cuts,
            self.sparsity,
            self.step,
            example_input,
            is_final=plan.reached(self.step),
        )

    def __repr__(self) -> str:
        plan = self._exchange.plan
        state = "finalized" if self.is_finalized else "detached" if self._is_detached else f"step {self.step}"
        head = f"Sparsifier({self.method}, {plan.allocation}, {plan.ramp}, {state})"
        if any(layer.shards.counts for layer in self.layers):
            return head  # counting zeros takes all processes, and a repr may be asked of one
        return f"{head}\n{self.report()}"

    # ---------------------------------------------------------------- the life of a run

    def freeze(self) -> None:
        """Fix the masks from here on: active weights train as usual, zeroed ones stay 0. Idempotent."""
        self._require_attached("freeze")
        self._exchange.freeze()
        self._conductor.hang_gradients()

    def adopt(self) -> None:
        """Take the weights that the model holds now as the new raw weights (after loading some into it)."""
        self._require_attached("adopt")
        self._exchange.adopt()
        self._exchange.refresh()
        reshard(self.model)

    def map_gradients(self) -> None:
        """Turn gradients into those of the raw weights before clipping; needed with sharded weights only.

        Does nothing for straight-through methods. Elsewhere tensor hooks do it; `fully_shard` never calls those, and
        without this call it happens inside `optimizer.step`, after clipping.
        """
        self._require_attached("map_gradients")
        self._conductor.gradients.map_sharded()

    def finalize(self) -> nn.Module:
        """Count the zeros, raise if the target was missed; then let go: the model is plain and stays sparse.

        The raw weights leave the optimizer. A further `optimizer.step` would fill the zeros, so it raises until
        `st3.keep_mask` (to fine-tune) or `detach` says what is meant. Idempotent.
        """
        if self.is_finalized:
            return self.model
        self._require_attached("finalize")
        conductor, exchange = self._conductor, self._exchange
        exchange.settle()
        if len(exchange.optimizers) > 1 and self.at_target and not exchange.was_replaced():
            exchange.refresh()  # optimizers that step at different rates leave the others' weights a step behind
        held = [local(layer.parameter.detach()) for layer in self.layers]
        require_numbers(list(self.layers), held, "at the end of training")
        self._require_target()
        self._watch.look(list(self.layers), self.step, is_last=True)
        self._last_step = self.step
        conductor.unhook()
        exchange.forget()
        self.is_finalized = True
        conductor.guard()
        return self.model

    def detach(self) -> None:
        """Put the raw weights back into the model (unless finalized) and remove every hook. Idempotent."""
        if self.is_attached:
            self._exchange.settle()
            self._last_step = self.step
            self._exchange.restore_raw()
            reshard(self.model)
            self._exchange.forget()
            self._exchange.cuts.clear()
        self._conductor.unhook()
        self._is_detached = True

    @torch.no_grad()
    def apply_to(self, other_model: nn.Module) -> float:
        """Make a copy of the model with weights of its own (an average of past weights) as sparse as asked now.

        An average of sparse weights is less sparse than each of them. It gets thresholds of its own: the largest
        magnitudes stay as they are, the others become 0; once frozen, it gets the masks instead. Returns the sparsity
        reached over the layers.
        """
        others = dict(named_weights(other_model))
        missing = [layer.name for layer in self.layers if layer.name not in others]
        if missing:
            raise LookupError(
                f"the other model has no weight {', '.join(map(repr, missing[:5]))}: it is no copy of this one"
            )
        twins = [replace(layer, parameter=others[layer.name]) for layer in self.layers]
        raws = [local(twin.parameter.detach()).clone() for twin in twins]
        if self._exchange.method.keeps != "raw":
            for layer, twin in zip(self.layers, twins, strict=True):
                local(twin.parameter).masked_fill_(local(layer.parameter) == 0, 0.0)
        elif isinstance(method := self._exchange.method, GroupMethod):
            for twin, raw in zip(twins, raws, strict=True):
                groups = in_groups(raw, twin, method.m)
                in_groups(local(twin.parameter), twin, method.m).mul_(n_largest(groups.abs(), method.n))
        else:
            cuts = self._exchange.plan.cuts(twins, raws, self.step)
            for twin, raw, cut in zip(twins, raws, cuts, strict=True):
                write_sparse(HardThreshold(), twin, cut, raw, fresh=False)
            break_ties(twins, cuts, raws)
        return sum(found.zeros for found in count_all(twins).values()) / sum(twin.weights for twin in twins)

    def _require_attached(self, what: str) -> None:
        if not self.is_attached:
            state = "finalized" if self.is_finalized else "detached"
            raise RuntimeError(
                f"cannot {what}: this sparsifier is {state}; call sparsify or keep_mask for a new one"
            )

    def _shortfalls(self) -> list[str]:
        """Say where fewer weights are zero than the target asks for."""
        plan, layers = self._exchange.plan, list(self.layers)
        found = {name: counted.zeros for name, counted in count_all(layers).items()}
        common = [layer for layer in layers if layer.sparsity is None]
        zeros, asked = sum(found[layer.name] for layer in common), plan.zeros_asked(layers)
        total = sum(layer.weights for layer in common)
        short = []
        if zeros < asked:
            share = f"{zeros:,} of {total:,} weights are zero, a sparsity of {zeros / total:.6f}"
            short.append(f"{share}; {asked:,} were asked for")
        for layer in layers:
            own = 0 if layer.sparsity is None else quota(layer.weights, layer.sparsity).zeros
            if found[layer.name] < own:
                short.append(f"layer {layer.name!r} has {found[layer.name]:,} zeros, {own:,} were asked for")
        return short

    def _require_target(self) -> None:
        why = self._shortfalls()
        if not why:
            return
        never = [layer.name for layer in self.layers if not self._exchange.store.has_joined(layer)]
        if self.is_frozen:
            why.append("the masks were frozen before the target was reached: freeze later")
        elif not self._exchange.plan.reached(self.step):
            why.append(
                f"training stopped at step {self.step}, before the ramp's end: train longer or lower total_steps (it "
                f"counts calls of optimizer.step: with gradient accumulation there are fewer of them than batches)"
            )
        if never and not self.is_frozen:
            why.append(f"no gradient ever reached {', '.join(map(repr, never[:5]))}: exclude such layers")
        raise TargetMissedError(f"target sparsity {self.sparsity} was missed: " + "; ".join(why))

    def _require_own_weights(self) -> None:
        """Raise where the model has got other weights than those that were sparsified: no gradient will reach them."""
        held = {id(parameter) for parameter in self.model.parameters()}
        lost = [layer.name for layer in self.layers if id(layer.parameter) not in held]
        if lost:
            raise RuntimeError(
                f"the model no longer holds the weight {lost[0]!r} that was sparsified ({len(lost)} of "
                f"{len(self.layers)} layers), so no gradient reaches it: call fully_shard (or replace layers) first, "
                f"then build the optimizer, then call sparsify"
            )

    def _after_step(self, step: int) -> None:
        if step % LOOK_EVERY == 0:
            layers = list(self.layers)
            require_numbers(layers, [self._exchange.raw(layer) for layer in layers], f"at step {step}")
            self._watch.look(layers, step)

    def __deepcopy__(self, memo: Mapping[int, Any]) -> "Sparsifier":
        raise TypeError(
            "a sparsifier cannot be copied: copy model and optimizer together, then call sparsify on the copies"
        )

    def __reduce__(self) -> str:
        raise TypeError(
            "a sparsifier cannot be pickled: save model.state_dict() and optimizer.state_dict(), which hold everything"
        )
