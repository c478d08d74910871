"""The conductor of one optimizer step: hooks around `optimizer.step` and the order of what happens in them.

    between steps    p holds the sparse weight; optimizer.state[p]["raw"] the raw one
    before the step  the closure runs, once; weights replaced from outside are noticed; raw -> p
    optimizer.step   p.grad, taken at the sparse weight, moves the raw weight; decay and momentum act on it
    after the step   counter + 1; cuts from all raw weights; p -> raw; sparse weight -> p, in place

A method that keeps only a mask needs no exchange: after the step its zeroed weights are set to 0 again.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer
from torch.utils.hooks import RemovableHandle

from .allocations import Cut
from .errors import WeightsReplacedError
from .gradients import Gradients
from .layers import Layer
from .method import FixedMask, Method, ThresholdMethod
from .plan import Plan
from .shards import all_reduce, local
from .step_call import begin_step, found_inf, is_initialisation, is_nested, run_closure_once
from .store import KEYS, Store, check_loadable, read_step, write_step
from .writing import break_ties, tied_at_cut, write_sparse

__all__ = ["Conductor"]


class Conductor:
    """Keeps the layers sparse around every step of their optimizers."""

    def __init__(
        self, layers: Sequence[Layer], owners: dict[str, Optimizer], method: Method, plan: Plan
    ) -> None:
        self.layers = list(layers)
        self.plan = plan
        self.method = method
        self.cuts: dict[str, Cut | None] = {}
        self.on_step: Callable[[int], None] = lambda step: None
        self.on_no_gradient: Callable[[], None] = lambda: None
        self.optimizers = list({id(o): o for o in owners.values()}.values())
        self._chosen_method = method
        self._owners = owners
        self._scales: dict[str, Tensor | None] = {}
        self._in_flight: dict[str, Tensor] = {}  # raw buffers of parameters that hold the raw weight now
        self._had_gradient: set[str] = set()
        self._counts = True  # whether the step under way is a real one
        self._handles: list[RemovableHandle] = []
        self.store = Store(owners, method.keeps)
        self.gradients = Gradients(self.layers, self._raw_gradient)

    # ---------------------------------------------------------------- attaching and detaching

    def attach(self, *, anew: bool = False) -> None:
        """Take over: find or make the raw weights, make the model sparse, hang the hooks.

        `anew` forgets masks that an earlier run has fixed.
        """
        if anew and self.method.keeps == "raw":
            for layer in self.layers:
                if self.store.has_mask(layer):
                    self.store.drop(layer, "mask")
                    write_step(self.store.owner(layer), None)
        self._adopt_saved_kind()
        steps = [read_step(optimizer) for optimizer in self.optimizers]
        step = max((s for s in steps if s is not None), default=0)
        for optimizer in self.optimizers:
            write_step(optimizer, step)
        for layer in self.layers:
            if self.store.find(layer) is None:
                self.store.put(layer, self._initial(layer), join=False)
        self.refresh()
        never_traced: Callable[[Any], Any] = torch.compiler.disable
        for optimizer in self.optimizers:
            self._handles += [
                optimizer.register_step_pre_hook(never_traced(self._before_step)),
                optimizer.register_step_post_hook(never_traced(self._after_step)),
                optimizer.register_state_dict_pre_hook(lambda optimizer: self.settle()),
                optimizer.register_load_state_dict_pre_hook(self._before_load),
                optimizer.register_load_state_dict_post_hook(self._after_load),
            ]
        self._hang_gradients()

    def unhook(self) -> None:
        """Remove every hook."""
        self.gradients.unhook()
        for handle in self._handles:
            handle.remove()
        self._handles = []

    def guard(self) -> None:
        """Let further steps raise: they would fill the zeros again."""

        def refuse(optimizer: Optimizer, args: Any, kwargs: Any) -> None:
            raise RuntimeError(
                "this model was finalized, and a plain optimizer step would fill its zeros: call st3.keep_mask to "
                "fine-tune it, st3.sparsify to train on, or detach() on the sparsifier if that is what you want"
            )

        self._handles += [optimizer.register_step_pre_hook(refuse) for optimizer in self.optimizers]

    def forget(self) -> None:
        """Take everything of ours out of the optimizers' state."""
        for layer in self.layers:
            self.store.drop(layer)
        for optimizer in self.optimizers:
            write_step(optimizer, None)

    @torch.no_grad()
    def restore_raw(self) -> None:
        """Put the raw weights back into the parameters."""
        if self.method.keeps == "raw":
            for layer in self.layers:
                local(layer.parameter).copy_(local(self.store.get(layer)))

    def _initial(self, layer: Layer) -> Tensor:
        weight = layer.parameter.detach()
        return weight.clone() if self.method.keeps == "raw" else weight != 0

    # ---------------------------------------------------------------- questions

    @property
    def step(self) -> int:
        """Optimizer steps counted so far; with several optimizers, of the one that made the most."""
        return max(read_step(optimizer) or 0 for optimizer in self.optimizers)

    def raw(self, layer: Layer) -> Tensor:
        """Return the local part of the layer's raw weight, wherever it is just now."""
        if layer.name in self._in_flight or self.method.keeps == "mask":
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

    # ---------------------------------------------------------------- one step

    def _before_step(self, optimizer: Optimizer, args: Any, kwargs: Any) -> Any:
        if is_nested(optimizer):
            return None
        self.settle()
        args, kwargs = run_closure_once(args, kwargs, optimizer)
        mine = [layer for layer in self.layers if self.store.owner(layer) is optimizer]
        self._counts = not found_inf(optimizer) and not is_initialisation(optimizer)
        self._had_gradient = {layer.name for layer in mine if layer.parameter.grad is not None}
        if not self._had_gradient:
            self.on_no_gradient()
        for layer in mine:
            self._notice_replacement(layer)
        self.gradients.map_sharded(mine)
        if self.method.keeps == "raw":
            self._lift(mine)
        begin_step(args, kwargs)
        return args, kwargs

    @torch.no_grad()
    def _lift(self, layers: Sequence[Layer]) -> None:
        """Move raw weights into the parameters."""
        for layer in layers:
            raw = self.store.take(layer)
            try:
                local(layer.parameter).copy_(local(raw))
            except BaseException:
                self.store.put(layer, raw, join=bool(self.store.owner(layer).state.get(layer.parameter)))
                raise
            self._in_flight[layer.name] = raw

    @torch.no_grad()
    def _after_step(self, optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        if is_nested(optimizer):
            return
        if self._counts:
            write_step(optimizer, (read_step(optimizer) or 0) + 1)
        mine = [layer for layer in self.layers if self.store.owner(layer) is optimizer]
        self.gradients.expect_new(mine)
        if self.method.keeps == "mask":
            self._mask(mine)
        else:
            steps = {read_step(o) for o in self.optimizers}
            # Several optimizers: the others' weights follow when all have made the same number of steps. Between
            # their steps a graph may be waiting for its backward pass and must find its weights unchanged.
            self._write(self.layers if len(steps) == 1 else mine)
        if self._counts:
            self.on_step(self.step)

    def _mask(self, layers: Sequence[Layer]) -> None:
        for layer in layers:
            mask = self.store.get(layer)
            local(layer.parameter).masked_fill_(~local(mask), 0.0)
            self.store.put(layer, mask, join=self._may_join(layer))
            self.store.remember(layer, mask)

    def _write(self, layers: Sequence[Layer]) -> None:
        """Write raw and sparse weights of `layers`, with cuts from the raw weights of all layers."""
        method = self.method
        assert isinstance(method, ThresholdMethod)
        cuts = self.plan.cuts(self.layers, [self.raw(layer) for layer in self.layers], self.step)
        by_name = {layer.name: cut for layer, cut in zip(self.layers, cuts, strict=True)}
        for layer in layers:
            self.cuts[layer.name] = by_name[layer.name]
            fresh = layer.name in self._in_flight
            raw = self._in_flight[layer.name] if fresh else self.store.get(layer)
            if not self._may_join(layer) and not self.plan.ramp(0):
                # Without a first gradient the raw weight could not be saved: the layer stays dense until then.
                self.cuts[layer.name] = None
            try:
                self._scales[layer.name] = write_sparse(
                    method, layer, self.cuts[layer.name], local(raw), fresh=fresh
                )
            finally:
                self._in_flight.pop(layer.name, None)
                self.store.put(layer, raw, join=self._may_join(layer))
        raws = [self.raw(layer) for layer in layers]
        break_ties(layers, [self.cuts[layer.name] for layer in layers], raws)
        for layer in layers:
            self.store.remember(layer, self.store.get(layer))

    def _may_join(self, layer: Layer) -> bool:
        """Tell whether the optimizer has keys of its own for the layer, or needs none."""
        has_keys = any(key not in KEYS for key in self.store.owner(layer).state.get(layer.parameter, {}))
        return has_keys or self.store.has_joined(layer) or layer.name in self._had_gradient

    @torch.no_grad()
    def settle(self) -> None:
        """Put things right after an exception inside a step: what lies in the parameters is the raw weight."""
        if not self._in_flight:
            return
        for layer in self.layers:
            raw = self._in_flight.pop(layer.name, None)
            if raw is not None:
                local(raw).copy_(local(layer.parameter))
                self.store.put(layer, raw, join=self._may_join(layer))
        self._write(self.layers)

    @torch.no_grad()
    def refresh(self) -> None:
        """Make the parameters what the raw weights and the step ask for."""
        if self.method.keeps == "mask":
            self._mask(self.layers)
        else:
            self._write(self.layers)

    def _hang_gradients(self) -> None:
        self.gradients.hang(active=not self.method.is_straight_through(self.plan.sparsity))

    def _raw_gradient(self, layer: Layer, grad: Tensor) -> Tensor:
        if self.method.keeps == "raw":
            if self.cuts.get(layer.name) is None:
                return grad  # dense so far
            active = local(layer.parameter.detach()) != 0
        else:
            active = local(self.store.get(layer))
        mapped = self.method.raw_gradient(grad, active, self._scales.get(layer.name), self.plan.sparsity)
        return mapped.to(grad.dtype)

    # ---------------------------------------------------------------- weights that come from outside

    @torch.no_grad()
    def _notice_replacement(self, layer: Layer) -> None:
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
        if self.method.keeps == "mask":
            return _agreed(layer, not bool(found[~local(self.store.get(layer))].any()))
        assert isinstance(self.method, ThresholdMethod)
        write_sparse(self.method, layer, self.cuts[layer.name], self.raw(layer), fresh=False)
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
            self.store.put(layer, tensor, join=self.store.has_joined(layer))
            self.store.remember(layer, tensor)

    def _before_load(self, optimizer: Optimizer, state_dict: dict[str, Any]) -> None:
        mine = [layer for layer in self.layers if self.store.owner(layer) is optimizer]
        check_loadable(optimizer, state_dict, mine, self.plan.ramp(0))

    def _after_load(self, optimizer: Optimizer) -> None:
        self._in_flight = {}
        self._adopt_saved_kind()
        # A layer that the checkpoint has no tensor for was dense when it was saved: its parameter is its raw weight.
        for layer in self.layers:
            absent = self.store.owner(layer) is optimizer and not self.store.has_joined(layer)
            if absent or (self.cuts.get(layer.name) is None and self.store.was_replaced(layer)):
                self.adopt([layer])
        self.refresh()
        self._hang_gradients()

    def _adopt_saved_kind(self) -> None:
        """Follow a loaded state from frozen to unfrozen or back: it holds masks or raw weights."""
        saved = {
            key
            for layer in self.layers
            for key in KEYS
            if key in self._owners[layer.name].state.get(layer.parameter, {})
        }
        self.method = FixedMask() if saved == {"mask"} else self._chosen_method
        if self.method.keeps == "mask" and "raw" in saved:
            for layer in self.layers:
                self.store.drop(layer, "raw")  # keep_mask goes on from the sparse weights
        if self.store.key != self.method.keeps:
            self.store = Store(self._owners, self.method.keeps)

    @torch.no_grad()
    def freeze(self) -> None:
        """Fix the masks as they are: from here on sparse weights are ordinary weights, zeroed ones stay 0."""
        self.settle()
        if self.method.keeps == "mask":
            return
        masks = {layer.name: layer.parameter.detach() != 0 for layer in self.layers}
        joined = {layer.name: self.store.has_joined(layer) for layer in self.layers}
        for layer in self.layers:
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
        self._hang_gradients()


def _agreed(layer: Layer, verdict: bool) -> bool:
    """Return whether the verdict is true on every process that holds a part of the layer: all raise, or none."""
    objections = torch.tensor(0 if verdict else 1, device=local(layer.parameter).device)
    return not bool(all_reduce(objections, layer.shards.counts))
