"""The conductor of one optimizer step: hooks around `optimizer.step` and the order of what happens in them.

    before the step  the closure runs, once; weights replaced from outside are noticed; raw -> p
    optimizer.step   p.grad, taken at the sparse weight, moves the raw weight; decay and momentum act on it
    after the step   counter + 1; new cuts; p -> raw; sparse weight -> p

What moves where is in exchange.py.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch.optim import Optimizer
from torch.utils.hooks import RemovableHandle

from .exchange import Exchange
from .gradients import Gradients
from .step_call import begin_step, found_inf, is_initialisation, is_nested, run_closure_once
from .store import check_loadable, read_step, write_step

__all__ = ["Conductor"]


class Conductor:
    """Calls the exchange at the right moments of its optimizers' steps."""

    def __init__(self, exchange: Exchange) -> None:
        self.exchange = exchange
        self.gradients = Gradients(exchange.layers, exchange.raw_gradient)
        self.on_step: Callable[[int], None] = lambda step: None
        self.on_no_gradient: Callable[[], None] = lambda: None
        self._counts = True  # whether the step under way is a real one
        self._handles: list[RemovableHandle] = []

    def attach(self) -> None:
        """Hang the hooks."""
        never_traced: Callable[[Any], Any] = torch.compiler.disable
        for optimizer in self.exchange.optimizers:
            self._handles += [
                optimizer.register_step_pre_hook(never_traced(self._before_step)),
                optimizer.register_step_post_hook(never_traced(self._after_step)),
                optimizer.register_state_dict_pre_hook(lambda optimizer: self.exchange.settle()),
                optimizer.register_load_state_dict_pre_hook(self._before_load),
                optimizer.register_load_state_dict_post_hook(self._after_load),
            ]
        self.hang_gradients()

    def hang_gradients(self) -> None:
        """Hang the gradient hooks that the method of the moment needs."""
        exchange = self.exchange
        self.gradients.hang(active=not exchange.method.is_straight_through(exchange.plan.sparsity))

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

        self._handles += [optimizer.register_step_pre_hook(refuse) for optimizer in self.exchange.optimizers]

    def _before_step(self, optimizer: Optimizer, args: Any, kwargs: Any) -> Any:
        if is_nested(optimizer):
            return None
        exchange = self.exchange
        exchange.settle()
        args, kwargs = run_closure_once(args, kwargs, optimizer)
        mine = exchange.of(optimizer)
        self._counts = not found_inf(optimizer) and not is_initialisation(optimizer)
        exchange.had_gradient = {layer.name for layer in mine if layer.parameter.grad is not None}
        if not exchange.had_gradient:
            self.on_no_gradient()
        for layer in mine:
            exchange.notice_replacement(layer)
        self.gradients.map_sharded(mine)
        if self._counts:
            exchange.changes.before_step(optimizer, (read_step(optimizer) or 0) + 1)
            self.gradients.add_own(optimizer, mine, exchange.own_gradient)
        exchange.lift(mine)
        begin_step(args, kwargs)
        return args, kwargs

    def _after_step(self, optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        if is_nested(optimizer):
            return
        exchange = self.exchange
        if self._counts:
            write_step(optimizer, (read_step(optimizer) or 0) + 1)
        mine = exchange.of(optimizer)
        self.gradients.expect_new(mine)
        # Several optimizers: the others' weights follow when all have made the same number of steps. Between their
        # steps a graph may be waiting for its backward pass and must find its weights unchanged.
        together = len({read_step(o) for o in exchange.optimizers}) == 1
        self.gradients.give_back()
        exchange.changes.give_back()
        if together and self._counts:
            exchange.changes.after_step()
        exchange.write(exchange.layers if together else mine)
        if self._counts:
            self.on_step(exchange.step)

    def _before_load(self, optimizer: Optimizer, state_dict: dict[str, Any]) -> None:
        check_loadable(optimizer, state_dict, self.exchange.of(optimizer), self.exchange.plan.ramp(0))

    def _after_load(self, optimizer: Optimizer) -> None:
        self.exchange.adopt_loaded(optimizer)
        self.hang_gradients()
