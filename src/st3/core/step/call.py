"""One call of `optimizer.step`: its closure, whether a gradient scaler skips it, and whether it counts as a step."""

import sys
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from ..layers.layer import Layer
from ..layers.shards import all_reduce, local, shards_of
from ..state.store import read_step

__all__ = ["Call", "begin_step", "is_nested", "read_call", "run_closure_once"]

_WRAPPER = Optimizer.profile_hook_step.__code__  # its inner function `wrapper` calls the hooks


@dataclass(frozen=True, eq=False)
class Call:
    """One call of an optimizer's step, as a family sees it."""

    optimizer: Optimizer
    layers: list[Layer]  # those that it updates
    number: int  # of this step, from 1
    counts: bool  # a real step: not skipped because of an overflow, not there to create the optimizer's state
    creates_state: bool  # an empty step, by which torch.distributed.checkpoint makes a state to load into
    loss_scale: Tensor | None  # factor of the gradients, if a fused optimizer will unscale them


def read_call(optimizer: Optimizer, layers: list[Layer]) -> Call:
    """Return what kind of step the optimizer is about to make."""
    creates_state = not any(optimizer.state.values()) and _is_empty_step(optimizer)
    overflow = getattr(optimizer, "found_inf", None)  # a GradScaler lets a fused optimizer skip by itself
    counts = not creates_state and (overflow is None or not bool(overflow))
    scale = getattr(optimizer, "grad_scale", None)
    return Call(optimizer, layers, (read_step(optimizer) or 0) + 1, counts, creates_state, scale)


def run_closure_once(args: Any, kwargs: Any, optimizer: Optimizer) -> tuple[Any, Any]:
    """Run the closure, if there is one, while the parameters still hold the sparse weights."""
    closure = args[1] if len(args) > 1 else kwargs.get("closure")
    if closure is None:
        return args, kwargs
    with torch.enable_grad():
        loss = closure()
    versions: list[int] = []
    losses = [loss]

    def result() -> Any:
        if not losses:
            raise RuntimeError(
                "this optimizer evaluates its closure several times per step; between the evaluations the model would "
                "hold raw weights instead of sparse ones: use an optimizer that evaluates it once"
            )
        if versions != _versions(optimizer):
            raise RuntimeError(
                "this optimizer moves the weights before it evaluates its closure, which had to be evaluated before "
                "the step, at the sparse weights: use an optimizer that evaluates it first"
            )
        return losses.pop()

    result.begin = lambda: versions.extend(_versions(optimizer))  # type: ignore[attr-defined]

    if len(args) > 1:
        return (args[0], result, *args[2:]), kwargs
    return args, {**kwargs, "closure": result}


def begin_step(args: Any, kwargs: Any) -> None:
    """Tell the closure of `run_closure_once` that the raw weights are in place."""
    closure = args[1] if len(args) > 1 else kwargs.get("closure")
    if closure is not None:
        closure.begin()


def _versions(optimizer: Optimizer) -> list[int]:
    return [local(p.detach())._version for group in optimizer.param_groups for p in group["params"]]


def _is_empty_step(optimizer: Optimizer) -> bool:
    """Whether the learning rate and all gradients are 0: torch.distributed.checkpoint's way to create a state."""
    if any(float(group.get("lr", 1.0)) != 0.0 for group in optimizer.param_groups):
        return False
    grads = [p.grad for group in optimizer.param_groups for p in group["params"] if p.grad is not None]
    # Over all processes: one that holds nothing of any weight sees no gradient, and must count like the others.
    return not any(
        int(all_reduce(local(grad).any().long(), shards_of(grad, (0,), "").counts)) for grad in grads
    )


def is_nested(optimizer: Optimizer) -> bool:
    """Whether this hook belongs to a step inside the optimizer's own step, such as its base class's.

    torch calls hooks around both, but it is one step. The call stack tells: a flag would stay set after an exception
    in the outer call.
    """
    calls, frame = 0, sys._getframe(1)
    while frame.f_back is not None and calls < 2:
        frame = frame.f_back
        code = frame.f_code
        if code.co_filename == _WRAPPER.co_filename and code.co_name == "wrapper":
            calls += frame.f_locals.get("self") is optimizer
    return calls > 1
