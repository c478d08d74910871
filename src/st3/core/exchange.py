"""Raw and sparse weights of all layers, and how they change places between parameter and optimizer state.

    between steps   p holds the sparse weight; optimizer.state[p]["raw"] the raw one
    lift            raw -> p, for the optimizer to move
    write           p -> raw; cuts from all raw weights; sparse weight -> p, in place

A method that keeps only a mask needs no exchange: `write` sets its zeroed weights to 0 again. When these things happen
is the conductor's business.
"""

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.optim import Optimizer

from .allocations import Cut
from .errors import WeightsReplacedError
from .groups import FixedScales
from .layers import Layer
from .mask_changes import MaskChanges
from .method import FixedMask, GroupMethod, Method, ThresholdMethod
from .plan import Plan
from .shards import all_reduce, local
from .store import KEYS, Store, is_ours, read_step, write_step
from .writing import break_ties, tied_at_cut, write_sparse

__all__ = ["Exchange"]


class Exchange:
    """The weights of some layers, sparse in their parameters and raw in the state of their optimizers."""

    def __init__(
        self, layers: Sequence[Layer], owners: dict[str, Optimizer], method: Method, plan: Plan
    ) -> None:
        self.layers = list(layers)
        self.plan = plan
        self.method = method
        self.cuts: dict[str, Cut | None] = {}  # of the last step
        self.optimizers = list({id(o): o for o in owners.values()}.values())
        self.had_gradient: set[str] = set()  # layers, in the step under way
        self.store = Store(owners, method.keeps)
        self.fixed_scales = FixedScales(owners)
        self.changes = MaskChanges(self)
        self._chosen_method = method
        self._owners = owners
        self._scales: dict[str, Tensor | None] = {}  # of the last step, per filter
        self._in_flight: dict[str, Tensor] = {}  # raw buffers of parameters that hold the raw weight now

    # ---------------------------------------------------------------- begin and end

    def begin(self, *, anew: bool) -> None:
        """Find or make the raw weights, make the model sparse; `anew` forgets masks that an earlier run has fixed."""
        if anew and self.method.keeps == "raw":
            for layer in self.layers:
                if self.store.has_mask(layer):
                    self.store.drop(layer, "mask")
                    write_step(self.store.owner(layer), None)
        self.follow_saved_kind()
        step = self.step
        for optimizer in self.optimizers:
            write_step(optimizer, step)
        absent = [layer for layer in self.layers if self.store.find(layer) is None]
        for layer in absent:
            self.store.put(layer, self._initial(layer), join=False)
        if absent:
            self.changes.begin(step)
        self.refresh()

    @torch.no_grad()
    def restore_raw(self) -> None:
        """Put the raw weights back into the parameters."""
        if self.method.keeps == "raw":
            for layer in self.layers:
                local(layer.parameter).copy_(local(self.store.get(layer)))

    def forget(self) -> None:
        """Take everything of ours out of the optimizers' state."""
        for layer in self.layers:
            self.fixed_scales.drop(layer)
            self.store.drop(layer)
        for optimizer in self.optimizers:
            write_step(optimizer, None)

    def _initial(self, layer: Layer) -> Tensor:
        weight = layer.parameter.detach()
        if self.method.keeps == "active":
            return torch.ones_like(weight, dtype=torch.bool)
        return weight.clone() if self.method.keeps == "raw" else weight != 0

    # ---------------------------------------------------------------- questions

    @property
    def step(self) -> int:
        """Optimizer steps counted so far; with several optimizers, of the one that made the most."""
        return max(read_step(optimizer) or 0 for optimizer in self.optimizers)

    def of(self, optimizer: Optimizer) -> list[Layer]:
        """Return the layers that `optimizer` updates."""
        return [layer for layer in self.layers if self.store.owner(layer) is optimizer]

    def raw(self, layer: Layer) -> Tensor:
        """Return the local part of the layer's raw weight, wherever it is just now."""
        if layer.name in self._in_flight or self.method.keeps != "raw":
            return local(layer.parameter.detach())
        return local(self.store.get(layer))

    def threshold(self, layer: Layer) -> float:
        """Return the threshold at the last step; 0 where the layer is dense."""
        cut = self.cuts.get(layer.name)
        return 0.0 if cut is None else float(cut.threshold)

    def all_joined(self) -> bool:
        """Tell whether every layer has had a gradient and its tensor lies in the optimizer's state."""
        return all(self.store.has_joined(layer) for layer in self.layers)

    def was_replaced(self) -> bool:
        """Tell whether somebody has written any layer since the last step."""
        return any(self.store.was_replaced(layer) for layer in self.layers)

    def raw_gradient(self, layer: Layer, grad: Tensor) -> Tensor:
        """Return the gradient of the raw weight from that of the sparse one."""
        if self.method.keeps == "raw":
            if self.cuts.get(layer.name) is None:
                return grad  # dense so far
            active = local(layer.parameter.detach()) != 0
        elif self.changes.are_by_gradient(self.step + 1):
            return grad
        else:
            active = local(self.store.get(layer))
        mapped = self.method.raw_gradient(grad, active, self._scales.get(layer.name), self.plan.sparsity)
        return mapped.to(grad.dtype)

    @torch.no_grad()
    def own_gradient(self, layer: Layer) -> Tensor | None:
        """Return what the method itself adds to the gradient of the raw weight in this step; None if nothing."""
        if self.method.keeps != "raw" or self.cuts.get(layer.name) is None:
            return None
        return self.method.own_gradient(self.raw(layer), local(layer.parameter.detach()))

    # ---------------------------------------------------------------- the exchange

    @torch.no_grad()
    def lift(self, layers: Sequence[Layer]) -> None:
        """Move raw weights into the parameters."""
        if self.method.keeps != "raw":
            return
        for layer in layers:
            raw = self.store.take(layer)
            try:
                local(layer.parameter).copy_(local(raw))
            except BaseException:
                self.store.put(layer, raw, join=bool(self.store.owner(layer).state.get(layer.parameter)))
                raise
            self._in_flight[layer.name] = raw

    @torch.no_grad()
    def write(self, layers: Sequence[Layer]) -> None:
        """Write the sparse weights of `layers`; where lifted, keep the raw ones as the optimizer left them."""
        if self.method.keeps != "raw":
            self._write_masked(layers)
        else:
            self._write_thresholded(layers)

    def _write_masked(self, layers: Sequence[Layer]) -> None:
        for layer in layers:
            mask = self.store.get(layer)
            local(layer.parameter).masked_fill_(~local(mask), 0.0)
            self.store.put(layer, mask, join=self.may_join(layer))
            self.store.remember(layer, mask)

    def _write_thresholded(self, layers: Sequence[Layer]) -> None:
        """Write raw and sparse weights of `layers`, with cuts from the raw weights of all layers."""
        method = self.method
        assert isinstance(method, ThresholdMethod | GroupMethod)
        by_name = self._cuts()
        for layer in layers:
            self.cuts[layer.name] = by_name[layer.name]
            fresh = layer.name in self._in_flight
            raw = self._in_flight[layer.name] if fresh else self.store.get(layer)
            if not self.may_join(layer) and not self.plan.ramp(0):
                # Without a first gradient the raw weight could not be saved: the layer stays dense until then.
                self.cuts[layer.name] = None
            try:
                fixed = self.fixed_scales.of(method, layer, self.raw(layer), join=self.may_join(layer))
                self._scales[layer.name] = write_sparse(
                    method, layer, self.cuts[layer.name], local(raw), fresh=fresh, fixed_scale=fixed
                )
            finally:
                self._in_flight.pop(layer.name, None)
                self.store.put(layer, raw, join=self.may_join(layer))
        raws = [self.raw(layer) for layer in layers]
        break_ties(layers, [self.cuts[layer.name] for layer in layers], raws)
        for layer in layers:
            self.store.remember(layer, self.store.get(layer))

    def _cuts(self) -> dict[str, Cut | None]:
        """Return where each layer is cut after this step; a method with groups finds their thresholds as it writes."""
        if isinstance(self.method, GroupMethod):
            share = self.method.own_sparsity
            return {
                layer.name: Cut(0.0, zeros=round(share * layer.weights), in_groups=True)
                for layer in self.layers
            }
        cuts = self.plan.cuts(self.layers, [self.raw(layer) for layer in self.layers], self.step)
        return {layer.name: cut for layer, cut in zip(self.layers, cuts, strict=True)}

    def may_join(self, layer: Layer) -> bool:
        """Tell whether the optimizer has keys of its own for the layer, or needs none."""
        has_keys = any(not is_ours(key) for key in self.store.owner(layer).state.get(layer.parameter, {}))
        return has_keys or self.store.has_joined(layer) or layer.name in self.had_gradient

    @torch.no_grad()
    def settle(self) -> None:
        """Put things right after an exception inside a step: what lies in the parameters is the raw weight."""
        if not self._in_flight:
            return
        for layer in self.layers:
            raw = self._in_flight.pop(layer.name, None)
            if raw is not None:
                local(raw).copy_(local(layer.parameter))
                self.store.put(layer, raw, join=self.may_join(layer))
        self.write(self.layers)

    def refresh(self) -> None:
        """Make the parameters what the raw weights and the step ask for."""
        self.write(self.layers)

    # ---------------------------------------------------------------- weights that come from outside

    @torch.no_grad()
    def notice_replacement(self, layer: Layer) -> None:
        """Raise if somebody has written the parameter and its raw weight would undo that."""
        if not self.store.was_replaced(layer):
            return
        if self.method.keeps == "raw" and self.cuts.get(layer.name) is None:
            self.adopt([layer])  # dense so far, so the parameter is the raw weight: nothing is lost
            return
        if not self._fits(layer):
            raise WeightsReplacedError(
                f"layer {layer.name!r} was changed from outside since the last step (weights loaded into the model "
                f"alone, or DistributedDataParallel wrapped around it after sparsify), which its raw weight in the "
                f"optimizer state would undo: load the optimizer's state as well, sparsify after wrapping, or call "
                f"adopt() to go on from the new weights"
            )

    def _fits(self, layer: Layer) -> bool:
        """Tell whether the parameter holds its raw weight, or what that and the last cut (or its mask) ask for."""
        found = local(layer.parameter.detach()).clone()
        if self.method.keeps != "raw":
            return _agreed(layer, not bool(found[~local(self.store.get(layer))].any()))
        assert isinstance(self.method, ThresholdMethod | GroupMethod)
        raw = self.raw(layer)
        fixed = self.fixed_scales.of(self.method, layer, raw, join=self.may_join(layer))
        write_sparse(self.method, layer, self.cuts[layer.name], raw, fresh=False, fixed_scale=fixed)
        expected = local(layer.parameter.detach())
        differs = ~torch.isclose(found, expected, rtol=1e-3, atol=0.0) & ~tied_at_cut(
            self.cuts[layer.name], self.raw(layer)
        )
        same = not bool(differs.any()) or torch.equal(found, self.raw(layer))
        same = _agreed(layer, same)
        if not same:
            expected.copy_(found)
        return same

    @torch.no_grad()
    def adopt(self, layers: Sequence[Layer] | None = None) -> None:
        """Take the parameters as they are now for the raw weights (or masks) of `layers`, by default of all."""
        for layer in self.layers if layers is None else layers:
            tensor = self._initial(layer)
            self.fixed_scales.drop(layer)  # a new start
            self.store.put(layer, tensor, join=self.store.has_joined(layer))
            self.store.remember(layer, tensor)

    def adopt_loaded(self, optimizer: Optimizer) -> None:
        """Follow a state that was just loaded into `optimizer`."""
        self._in_flight = {}
        self.follow_saved_kind()
        # A layer that the checkpoint has no tensor for was dense when it was saved: its parameter is its raw weight.
        for layer in self.layers:
            absent = self.store.owner(layer) is optimizer and not self.store.has_joined(layer)
            if absent or (self.cuts.get(layer.name) is None and self.store.was_replaced(layer)):
                self.adopt([layer])
        self.refresh()

    def follow_saved_kind(self) -> None:
        """Follow a loaded state from frozen to unfrozen or back: it holds masks or raw weights."""
        saved = {
            key
            for layer in self.layers
            for key in KEYS
            if key in self._owners[layer.name].state.get(layer.parameter, {})
        }
        self.method = FixedMask() if saved == {"mask"} else self._chosen_method
        if self.method.keeps == "mask":
            for layer in self.layers:
                self.fixed_scales.drop(layer)
                for key in saved - {"mask"}:
                    self.store.drop(layer, key)  # keep_mask goes on from the sparse weights
        if self.store.key != self.method.keeps:
            self.store = Store(self._owners, self.method.keeps)

    @torch.no_grad()
    def freeze(self) -> None:
        """Fix the masks as they are: from here on sparse weights are ordinary weights, zeroed ones stay 0."""
        self.settle()
        if self.method.keeps == "mask":
            return
        is_raw = self.method.keeps == "raw"
        masks = {x.name: x.parameter.detach() != 0 if is_raw else self.store.get(x) for x in self.layers}
        joined = {layer.name: self.store.has_joined(layer) for layer in self.layers}
        for layer in self.layers:
            self.fixed_scales.drop(layer)
            self.store.drop(layer)
        self.method = FixedMask()
        self.store = Store(self._owners, self.method.keeps)
        for layer in self.layers:
            mask = masks[layer.name]
            for value in self.store.owner(layer).state.get(layer.parameter, {}).values():
                if isinstance(value, Tensor) and value.shape == layer.parameter.shape:
                    local(value).masked_fill_(~local(mask), 0.0)  # momentum must not push zeroed weights
            self.store.put(layer, mask, join=joined[layer.name])
            self.store.remember(layer, mask)


def _agreed(layer: Layer, verdict: bool) -> bool:
    """Return whether the verdict is true on every process that holds a part of the layer: all raise, or none."""
    objections = torch.tensor(0 if verdict else 1, device=local(layer.parameter).device)
    return not bool(all_reduce(objections, layer.shards.counts))
