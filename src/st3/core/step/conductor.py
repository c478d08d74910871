"""The conductor of one optimizer step: hooks around `optimizer.step` and the order of what happens in them.

    before the step  the closure runs, once; weights replaced from outside are noticed; gradients that no hook has seen
                     are mapped; the family looks at the gradients; raw -> p
    optimizer.step   p.grad, taken at the sparse weight, moves the raw weight; decay and momentum act on it
    after the step   counter + 1; the family follows; p -> raw; sparse weight -> p

What is kept and what moves is the family's business (families/).
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer
from torch.utils.hooks import RemovableHandle

from ..budget.plan import Plan
from ..families.family import Family, clear_momentum
from ..families.fixed_mask import FixedMask, FixedMasks
from ..layers.layer import Layer
from ..layers.shards import local
from ..method import Method
from ..state.checks import check_loadable
from ..state.store import Store, read_step, write_step
from .call import Call, begin_step, is_nested, read_call, run_closure_once
from .forward_pass import BeforeForward
from .gradients import Gradients

__all__ = ["LOOK_EVERY", "Conductor"]

LOOK_EVERY = (
    20  # steps between two looks for collapsed layers and NaN; each look reads counts back from the device
)


class Conductor:
    """Calls a family at the right moments of its optimizers' steps."""

    def __init__(
        self, model: nn.Module, layers: Sequence[Layer], store: Store, method: Method, plan: Plan
    ) -> None:
        self.store = store
        self.plan = plan
        self.layers = list(layers)
        self.chosen_method = method
        self.family: Family[Any] = self._family_of(method)
        self.gradients = Gradients()
        self.on_look: Callable[[int], None] | None = None
        self.on_no_gradient: Callable[[], None] | None = None
        self.refusal: Exception | None = None  # raised by a step: the raw weights have not come
        # Says why a step must not take new weights; None: it may.
        self.find_orphans: Callable[[Sequence[Layer]], Exception | None] | None = None
        self._model = model
        self._call: Call | None = None  # the step under way
        self._handles: list[RemovableHandle] = []
        self._pass_handle: RemovableHandle | None = None  # as long as masks are drawn

    def _family_of(self, method: Method) -> Family[Any]:
        return method.family(method, self.layers, self.store, self.plan)

    # ---------------------------------------------------------------- begin and end

    def begin(self, *, anew: bool) -> None:
        """Make the model sparse and hang the hooks; `anew` forgets masks that an earlier run has fixed."""
        if anew and not self.family.is_fixed:
            for layer in self.layers:
                if self.store.find(layer, FixedMasks.key) is not None:
                    self.store.drop(layer, FixedMasks.key)
                    write_step(self.store.owner(layer), None)
        self._follow_saved_kind()
        step = self.store.step
        for optimizer in self.store.optimizers:
            write_step(optimizer, step)
        self.family.begin()
        never_traced: Callable[[Any], Any] = torch.compiler.disable
        for optimizer in self.store.optimizers:
            self._handles += [
                optimizer.register_step_pre_hook(never_traced(self._before_step)),
                optimizer.register_step_post_hook(never_traced(self._after_step)),
                optimizer.register_state_dict_pre_hook(lambda optimizer: self.family.settle()),
                optimizer.register_load_state_dict_pre_hook(self._before_load),
                optimizer.register_load_state_dict_post_hook(self._after_load),
            ]
        self._hang()

    def _hang(self) -> None:
        """Hang the hooks that the family needs: on gradients, and on forward passes."""
        self.gradients.hang(self.layers, self.family.raw_gradient if self.family.maps_gradients else None)
        self._unhook_passes()
        if self.family.draws_masks:
            never_traced: Callable[[Any], Any] = torch.compiler.disable
            hook = BeforeForward(self._model, never_traced(self.family.before_forward))
            self._pass_handle = self._model.register_forward_pre_hook(hook)

    def _unhook_passes(self) -> None:
        if self._pass_handle is not None:
            self._pass_handle.remove()
        self._pass_handle = None

    def freeze(self) -> None:
        """Fix the masks as they are: from here on sparse weights are ordinary weights, zeroed ones stay 0."""
        self.family.settle()
        self.family.rest()
        if self.family.is_fixed:
            return
        masks = self.family.masks()
        self.family = self._family_of(FixedMask())
        for layer in self.layers:
            clear_momentum(self.store, layer, local(masks[layer.name]))  # it must not push zeroed weights
            self.store.put(layer, self.family.key, masks[layer.name])
            self.store.drop(layer, *(key for key in self.store.keys_of(layer) if key != self.family.key))
        self.family.write(self.layers)
        self._hang()

    def unhook(self) -> None:
        """Remove every hook."""
        self.gradients.unhook()
        self._unhook_passes()
        for handle in self._handles:
            handle.remove()
        self._handles = []

    def forget(self) -> None:
        """Take everything of ours out of the optimizers' state."""
        for layer in self.layers:
            self.store.drop(layer, *self.store.keys_of(layer))
        for optimizer in self.store.optimizers:
            write_step(optimizer, None)

    def retire(self) -> "Conductor":
        """Return a conductor without hooks and optimizers, which can be copied and pickled."""
        retired = Conductor(self._model, self.layers, Store(self.layers, {}), self.chosen_method, self.plan)
        retired.family = retired._family_of(self.family.method)
        retired.family.cuts = dict(self.family.cuts)
        return retired

    def guard(self) -> None:
        """Let further steps raise: they would fill the zeros again."""

        def refuse(optimizer: Optimizer, args: Any, kwargs: Any) -> None:
            raise RuntimeError(
                "this model was finalized, and a plain optimizer step would fill its zeros: call st3.keep_mask to "
                "fine-tune it, st3.sparsify to train on, or detach() on the sparsifier if that is what you want"
            )

        self._handles += [optimizer.register_step_pre_hook(refuse) for optimizer in self.store.optimizers]

    # ---------------------------------------------------------------- one step

    def _before_step(self, optimizer: Optimizer, args: Any, kwargs: Any) -> Any:
        if is_nested(optimizer):
            return None
        self.require_raw_weights()
        if self.gradients.shown:
            self.gradients.recover()
        self.family.settle()
        args, kwargs = run_closure_once(args, kwargs, optimizer)
        call = self._call = read_call(optimizer, self.store.layers_of(optimizer))
        self.store.moved = set()
        if self.on_no_gradient is not None and all(x.parameter.grad is None for x in call.layers):
            self.on_no_gradient()
        # A call that creates the state makes room for one that is about to be loaded.
        self.family.refuse_replaced(call.layers, None if call.creates_state else self.find_orphans)
        if self.gradients.is_mapping:
            self.gradients.map_missing(call.layers)
        if (call.counts or call.creates_state) and (replaced := self.family.before_step(call)):
            self.gradients.show(replaced)
        self.family.lift(call.layers)
        begin_step(args, kwargs)
        return args, kwargs

    def _after_step(self, optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        if is_nested(optimizer):
            return
        call = self._call
        assert call is not None
        if call.counts:
            write_step(optimizer, call.number)
        self.store.moved = {x.name for x in call.layers if x.parameter.grad is not None}
        if self.gradients.shown:
            self.gradients.give_back()
        if self.gradients.is_mapping:
            self.gradients.expect_new(call.layers)
        # Several optimizers: the others' weights follow when all have made the same number of steps. Between their
        # steps a graph may be waiting for its backward pass and must find its weights unchanged.
        is_complete = len(self.store.optimizers) == 1 or len(set(map(read_step, self.store.optimizers))) == 1
        if call.counts or call.creates_state:
            self.family.after_step(call, is_complete=is_complete)
        self.family.write(self.layers if is_complete else call.layers)
        if is_complete and self.family.is_over:
            self.freeze()
        if call.counts and call.number % LOOK_EVERY == 0 and self.on_look is not None:
            self.on_look(call.number)

    def require_raw_weights(self) -> None:
        """Raise if the model came full of zeros and the raw weights have not been loaded since."""
        if self.refusal is not None:
            raise self.refusal

    # ---------------------------------------------------------------- weights that come from elsewhere

    def adopt(self) -> None:
        """Take the weights that the model holds now for the new raw weights, or masks."""
        self.refusal = None
        self.family.adopt(self.layers)
        self.family.write(self.layers)

    def _before_load(self, optimizer: Optimizer, state_dict: dict[str, Any]) -> None:
        layers = self.store.layers_of(optimizer)
        check_loadable(optimizer, state_dict, layers, learns=self.chosen_method.learns)

    def _after_load(self, optimizer: Optimizer) -> None:
        self.refusal = None
        self.family.undo_begin()
        self.store.follow_loading()
        self._follow_saved_kind()
        self.family.follow_loaded_state(optimizer)
        self._hang()

    def _follow_saved_kind(self) -> None:
        """Follow a saved state from frozen to unfrozen or back: it holds masks or what the chosen method keeps."""
        saved = self.store.saved_keys()
        method = FixedMask() if saved == {FixedMasks.key} else self.chosen_method
        if self.family.method != method:
            self.family = self._family_of(method)
        for layer in self.layers:
            held = self.store.keys_of(layer) if self.family.is_fixed else saved
            # What another method has left there does not belong to the last step.
            self.store.drop(layer, *(key for key in held if key != self.family.key))
