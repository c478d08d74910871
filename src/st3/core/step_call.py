"""What a call of `optimizer.step` brings along: a closure, a scaler's verdict, or no real step at all."""

import sys
from typing import Any

import torch
from torch.optim import Optimizer

from .shards import all_reduce, local, shards_of

__all__ = ["begin_step", "found_inf", "is_initialisation", "is_nested", "run_closure_once"]

_WRAPPER = Optimizer.profile_hook_step.__code__  # its inner function `wrapper` calls the hooks


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


def found_inf(optimizer: Optimizer) -> bool:
    """Tell whether GradScaler has found an overflow and lets a fused optimizer skip by itself."""
    found = getattr(optimizer, "found_inf", None)
    return found is not None and bool(found)


def is_initialisation(optimizer: Optimizer) -> bool:
    """Tell whether this is the empty step by which torch.distributed.checkpoint creates an optimizer's state."""
    if any(optimizer.state.values()) or any(
        float(group.get("lr", 1.0)) != 0.0 for group in optimizer.param_groups
    ):
        return False
    grads = [p.grad for group in optimizer.param_groups for p in group["params"] if p.grad is not None]
    # Over all processes: one that holds nothing of any weight sees no gradient, and must count like the others.
    return not any(int(all_reduce(local(grad).any().long(), shards_of(grad, 0, "").counts)) for grad in grads)


def is_nested(optimizer: Optimizer) -> bool:
    """Tell whether this hook belongs to a step that the optimizer's own step makes, as of its base class.

    torch wraps hooks around both, but it is one step. Read off the stack, because nothing else forgets an outer call
    that ended with an exception.
    """
    calls, frame = 0, sys._getframe(1)
    while frame.f_back is not None and calls < 2:
        frame = frame.f_back
        code = frame.f_code
        if code.co_filename == _WRAPPER.co_filename and code.co_name == "wrapper":
            calls += frame.f_locals.get("self") is optimizer
    return calls > 1
