"""The sparsifier: what a user holds while a model trains sparse."""

import math
import warnings
from dataclasses import replace
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

from ..measure import Report
from .budget.allocation import Allocation
from .budget.ramp import Ramp
from .counting import CollapseWatch, count_all, require_numbers
from .errors import CoverageWarning, TargetMissedError, name_some
from .layers.find import named_weights
from .layers.layer import Layers
from .layers.shards import reshard
from .method import Method
from .report import build_report
from .selection.select import quota
from .step.conductor import Conductor

__all__ = ["Sparsifier"]


class Sparsifier:
    """Keeps a model sparse while it trains; made by `st3.sparsify` or `st3.keep_mask`.

    The model holds the sparse weights at every moment outside `optimizer.step`, the optimizer state the raw ones. (With
    random or soft masks, ProbMask and PDP: from a forward pass in training to the next step, the masked weights.)
    """

    def __init__(self, model: nn.Module, layers: Layers, conductor: Conductor, watch: CollapseWatch) -> None:
        self.model = model
        self.layers = layers
        self.is_finalized = False
        self._conductor = conductor
        self._watch = watch
        self._plan = conductor.plan
        self._is_detached = False
        self._last_step = 0
        conductor.on_look = self._look
        conductor.on_no_gradient = self._require_own_weights

    # ---------------------------------------------------------------- questions

    @property
    def step(self) -> int:
        """How many optimizer steps have been counted (until finalized or detached)."""
        return self._conductor.store.step if self.is_attached else self._last_step

    @property
    def sparsity(self) -> float | None:
        """The target sparsity; None for a method that finds its own."""
        return self._plan.sparsity if self._plan.has_target else None

    def asked(self, step: int | None = None) -> float:
        """Return the sparsity that the ramp asks for after that many optimizer steps; by default, after those made."""
        return self._plan.asked(self.step if step is None else step)

    @property
    def method(self) -> Method:
        """The method at work; `FixedMask` once frozen."""
        method: Method = self._conductor.family.method
        return method

    @property
    def ramp(self) -> Ramp:
        """How the sparsity rises."""
        return self._plan.ramp

    @property
    def allocation(self) -> Allocation:
        """How the sparsity is shared among the layers."""
        return self._plan.allocation

    @property
    def block(self) -> int:
        """How many weights are zeroed together."""
        block: int = self.layers[0].block
        return block

    @property
    def at_target(self) -> bool:
        """Whether the target is reached: from then on a checkpoint may count as the best.

        Without a target, whether the run is over: a model from before is denser, and no fair comparison.
        """
        if self._is_detached and not self.is_finalized:
            return False
        if not self._plan.has_target:
            return self._plan.is_reached(self.step)
        family = self._conductor.family
        if not family.follows_ramp or self.is_finalized or self._replaced_layers():
            return not self._shortfalls()
        return self._plan.is_reached(self.step)

    @property
    def optimizers(self) -> list[Optimizer]:
        """The optimizers whose steps it follows."""
        return self._conductor.store.optimizers

    @property
    def is_attached(self) -> bool:
        """Whether it still follows the optimizer's steps."""
        return not self.is_finalized and not self._is_detached

    @property
    def is_frozen(self) -> bool:
        """Whether the masks are fixed."""
        return self._conductor.family.is_fixed

    @property
    def thresholds(self) -> dict[str, float]:
        """The threshold of each layer at the last step; 0 where a layer is dense, or every N:M group has its own."""
        return {layer.name: self._conductor.family.threshold(layer) or 0.0 for layer in self.layers}

    @property
    def threshold(self) -> float | None:
        """The largest threshold (with allocation "global" all layers share it); None if training has diverged."""
        largest = max(self.thresholds.values())
        return largest if math.isfinite(largest) else None

    def metrics(self) -> dict[str, float]:
        """Return what a logger should follow, as plain numbers; with sharded weights, call it in every process.

        sparsity, sparsity_asked (by the ramp now), threshold (the largest), at_target (0 or 1), collapsed_layers (how
        many have no active weight). Left out: `sparsity_asked` if the method has no target, `threshold` if it is
        not finite.
        """
        counts = count_all(list(self.layers))
        numbers = {
            "sparsity": sum(found.zeros for found in counts.values()) / sum(x.numel for x in self.layers),
            "sparsity_asked": None if self.sparsity is None else float(self.asked()),
            "threshold": self.threshold,
            "at_target": float(self.at_target),
            "collapsed_layers": float(sum(counts[x.name].zeros == x.numel for x in self.layers)),
        }
        return {name: number for name, number in numbers.items() if number is not None}

    def report(self, example_input: Any = None) -> Report:
        """Return what the model holds now, layer by layer; with an example input also its multiply-adds."""
        family = self._conductor.family
        if self.is_attached:
            family.settle()
        targets = {}
        if self._plan.is_reached(self.step):  # before, the allocation's counts are those of the ramp
            targets = {layer.name: family.layer_target(layer) for layer in self.layers}
        return build_report(
            self.model,
            self.layers,
            example_input,
            target=self.sparsity,
            step=self.step,
            thresholds={
                layer.name: family.threshold(layer) if family.cuts.get(layer.name) else None
                for layer in self.layers
            },
            layer_targets=targets,
        )

    def __repr__(self) -> str:
        plan = self._plan
        state = "finalized" if self.is_finalized else "detached" if self._is_detached else f"step {self.step}"
        aims = f"{plan.allocation}, {plan.ramp}, " if plan.has_target else ""
        aims += f"blocks of {self.block}, " if self.block > 1 else ""
        head = f"Sparsifier({self.method}, {aims}{state})"
        if any(layer.shards.counts for layer in self.layers):
            return head  # counting zeros takes all processes, and a repr may be asked of one
        return f"{head}\n{self.report()}"

    # ---------------------------------------------------------------- the life of a run

    def freeze(self) -> None:
        """Fix the masks from here on: active weights train as usual, zeroed ones stay 0. Idempotent."""
        self._require_attached("freeze")
        self._conductor.freeze()

    def adopt(self) -> None:
        """Take the weights that the model holds now as the new raw weights (after loading some into it)."""
        self._require_attached("adopt")
        self._conductor.adopt()
        reshard(self.model)

    def finalize(self) -> nn.Module:
        """Count the zeros and raise if the target was missed; then end sparse training. The model stays sparse.

        The raw weights leave the optimizer. A further `optimizer.step` would fill the zeros, so it raises until
        `st3.keep_mask` (to fine-tune with the zeros fixed), `st3.sparsify` or `detach` is called. Idempotent.
        """
        if self.is_finalized:
            return self.model
        self._require_attached("finalize")
        conductor, family = self._conductor, self._conductor.family
        conductor.require_raw_weights()
        self._require_own_weights()
        family.settle()
        family.rest()
        if len(self.optimizers) > 1 and self.at_target and not self._replaced_layers():
            # Optimizers that step at different rates leave the others' weights behind.
            family.write(family.layers)
        require_numbers(list(self.layers), [layer.weight for layer in self.layers], "at the end of training")
        self._require_target()
        self._watch.look(list(self.layers), self.step, is_last=True)
        self._warn_of_untrained()
        self._last_step = self.step
        conductor.unhook()
        conductor.forget()
        self.is_finalized = True
        conductor.guard()
        return self.model

    def detach(self) -> None:
        """Put the raw weights back into the model (unless finalized) and remove every hook. Idempotent."""
        if self.is_attached:
            family = self._conductor.family
            family.settle()
            self._last_step = self.step
            family.release()
            reshard(self.model)
            self._conductor.forget()
            family.cuts.clear()
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
                f"the other model has no weight {name_some(missing)}: it is not a copy of this one"
            )
        copies = [replace(layer, parameter=others[layer.name]) for layer in self.layers]
        self._conductor.family.sparsify_copy(copies, self.step)
        return sum(found.zeros for found in count_all(copies).values()) / sum(x.numel for x in copies)

    def _require_attached(self, what: str) -> None:
        if not self.is_attached:
            state = "finalized" if self.is_finalized else "detached"
            raise RuntimeError(
                f"cannot {what}: this sparsifier is {state}; call sparsify or keep_mask for a new one"
            )

    def _replaced_layers(self) -> list[str]:
        """Return the layers that hold other weights than the last step has left."""
        if not self.is_attached:
            return []
        family = self._conductor.family
        return [x.name for x in self.layers if family.was_replaced(x) and not family.holds(x)]

    def _shortfalls(self) -> list[str]:
        """Return a sentence for everything that has fewer zeros than the target asks for."""
        layers = list(self.layers)
        found = {name: counted.zeros for name, counted in count_all(layers).items()}
        common = [layer for layer in layers if layer.sparsity is None]
        zeros, asked = sum(found[layer.name] for layer in common), self._plan.zeros_asked(layers)
        total = sum(layer.numel for layer in common)
        short = []
        if zeros < asked - self._conductor.chosen_method.slack(total, self._plan.sparsity):
            share = f"{zeros:,} of {total:,} weights are zero, a sparsity of {zeros / total:.6f}"
            short.append(f"{share}; {asked:,} were asked for")
        for layer in layers:
            own = 0 if layer.sparsity is None else quota(layer.numel, layer.sparsity).zeros
            if found[layer.name] < own:
                short.append(f"layer {layer.name!r} has {found[layer.name]:,} zeros, {own:,} were asked for")
        return short

    def _require_target(self) -> None:
        why = self._shortfalls()
        if not why:
            return
        if replaced := self._replaced_layers():
            why.append(
                f"these are not the weights of the last step: {name_some(replaced)} changed since then; load weights "
                f"that were saved at the target, or call adopt() and train on"
            )
        elif self.is_frozen:
            why.append("the masks were frozen before the target was reached: freeze later")
        elif not self._plan.is_reached(self.step):
            why.append(
                f"training stopped at step {self.step}, before the ramp's end: train longer or lower total_steps (it "
                f"counts calls of optimizer.step: with gradient accumulation there are fewer of them than batches)"
            )
        raise TargetMissedError(f"target sparsity {self.sparsity} was missed: " + "; ".join(why))

    def _warn_of_untrained(self) -> None:
        """Warn of layers that no gradient has ever reached, where others were trained."""
        never = [layer.name for layer in self.layers if self._conductor.store.is_waiting(layer)]
        if never and len(never) < len(self.layers):
            warnings.warn(
                f"no gradient ever reached {name_some(never)}, whose zeros count towards the target: exclude such "
                f"layers",
                CoverageWarning,
                stacklevel=3,
            )

    def _require_own_weights(self) -> None:
        """Raise where the model holds other parameters than those that were sparsified."""
        reshard(self.model)
        held = {id(parameter) for parameter in self.model.parameters()}
        lost = [layer.name for layer in self.layers if id(layer.parameter) not in held]
        if lost:
            raise RuntimeError(
                f"the model no longer holds {name_some(lost)} as sparsified ({len(lost)} of {len(self.layers)} "
                f"layers): other weights are in their place, which nobody keeps sparse; call fully_shard (or replace "
                f"layers) first, then build the optimizer, then call sparsify"
            )

    def _look(self, step: int) -> None:
        """Look for weights that are not finite, and for collapsed layers."""
        layers = list(self.layers)
        require_numbers(layers, [self._conductor.family.raw(layer) for layer in layers], f"at step {step}")
        self._watch.look(layers, step)

    def __getstate__(self) -> dict[str, Any]:
        if self.is_attached:
            raise TypeError(
                "a sparsifier at work cannot be copied or pickled: copy model and optimizer together and call sparsify "
                "on the copies, or save model.state_dict() and optimizer.state_dict(), which hold everything"
            )
        return {**self.__dict__, "_conductor": self._conductor.retire()}
