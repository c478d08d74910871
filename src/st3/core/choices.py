"""What the arguments of `sparsify` may be: checked one by one, with a sentence for each fault."""

from collections.abc import Sequence
from numbers import Integral, Real

from torch.optim import Optimizer

from .allocations import ALLOCATIONS, Allocation
from .layers import Layer
from .learned import LearnedMethod, LearnedThreshold, RandomMask
from .learned_thresholds import RULES, rule_of
from .method import METHODS, FixedMask, MaskMethod, Method, ThresholdMethod
from .ramps import Ramp
from .shards import is_sharded
from .writing import HALF

__all__ = [
    "check_allocation_fits",
    "check_count",
    "check_learnable",
    "check_no_target",
    "check_ramp_fits",
    "check_search",
    "check_sparsity",
    "resolve_allocation",
    "resolve_method",
]


def check_sparsity(sparsity: float, name: str, *, ramped: bool = True) -> None:
    if isinstance(sparsity, bool) or not isinstance(sparsity, Real):
        raise TypeError(f"{name} must be a number from 0 up to 1, got {sparsity!r}")
    if not 0.0 <= sparsity < 1.0:
        percentage = f" (a percentage? try {sparsity / 100:g})" if 1.0 < sparsity < 100.0 else ""
        raise ValueError(f"{name} must be at least 0 and below 1, got {sparsity!r}{percentage}")
    if not ramped:
        raise ValueError(f"{name} has no ramp to follow with sparsity=0: include that layer alone instead")


def check_count(number: int, name: str, *, least: int) -> None:
    if isinstance(number, bool) or not isinstance(number, Integral) or number < least:
        raise ValueError(f"{name} must be a whole number of at least {least}, got {number!r}")


def resolve_allocation(allocation: str | Allocation) -> Allocation:
    if isinstance(allocation, str):
        return ALLOCATIONS[allocation]()
    if isinstance(allocation, type) or not callable(allocation):
        raise TypeError(
            f"allocation must be a name ({', '.join(ALLOCATIONS)}) or an allocation object such as st3.Sigma(), "
            f"got {allocation!r}"
        )
    return allocation


def resolve_method(method: str | Method) -> Method:
    if isinstance(method, str):
        return METHODS[method]()
    if not isinstance(method, ThresholdMethod | MaskMethod | LearnedMethod | FixedMask):
        raise TypeError(
            f"method must be a name ({', '.join(METHODS)}) or an object such as st3.ST3(), got {method!r}"
        )
    return method


def check_ramp_fits(method: Method, ramp: str | Ramp | None) -> None:
    if ramp is None or not method.only_ramps or ramp in method.only_ramps:
        return
    raise ValueError(
        f"{type(method).__name__} keeps one sparsity from the first step to the last, so ramp={ramp!r} means nothing "
        f"to it: leave ramp out, or take a gradual method such as 'gmp' or 'granet'"
    )


def check_allocation_fits(method: Method, allocation: str | Allocation | None) -> None:
    named = type(allocation).__name__.lower() if allocation is not None else None
    only = method.only_allocations
    if allocation is None or not only or allocation in only or named in only:
        return
    raise ValueError(
        f"{type(method).__name__} learns how the sparsity is shared among the layers, within one budget for all of "
        f"them, so allocation={allocation!r} means nothing to it: leave allocation out"
    )


def check_no_target(method: Method, **given: object) -> None:
    """Raise where a target, or how to get there, is given to a method that cannot be asked for one."""
    if names := [name for name, value in given.items() if value is not None]:
        raise ValueError(
            f"{type(method).__name__} learns its thresholds, so that no sparsity can be asked of it: leave "
            f"{', '.join(names)} out; its settings and the weight decay decide, and report() tells what was reached"
        )


def check_search(method: Method, ramp: Ramp, sparsity: float, total_steps: int) -> None:
    """Raise where masks would be fixed before the ramp has reached its target."""
    if not isinstance(method, RandomMask):
        return
    last = method.search_steps(total_steps)
    if ramp(last) < sparsity * (1 - 1e-9):
        raise ValueError(
            f"{type(method).__name__} fixes its masks after step {last} of {total_steps}, where the ramp asks for "
            f"{ramp(last):.4g} of {sparsity:g} only: let the ramp end earlier, or lower finetune"
        )


def check_learnable(method: Method, layers: Sequence[Layer], optimizers: Sequence[Optimizer]) -> None:
    """Raise where a method cannot learn its variables: in this precision, with this optimizer, sharded like this."""
    if not isinstance(method, LearnedMethod):
        return
    name = type(method).__name__
    half = [layer.name for layer in layers if layer.parameter.dtype in HALF]
    if half:
        raise ValueError(
            f"{name} learns a {method.learns} in steps too small for {layers[0].parameter.dtype} ({half[0]!r} and "
            f"{len(half) - 1} more layers): keep the weights in float32 and use torch.autocast"
        )
    strangers = [type(o).__name__ for o in optimizers if rule_of(o) is None]
    if isinstance(method, LearnedThreshold) and strangers:
        known = ", ".join(kind.__name__ for kind in RULES)
        raise ValueError(
            f"{name} moves its thresholds by the optimizer's own rule and knows those of {known}, not of "
            f"{strangers[0]}: use one of these"
        )
    if isinstance(method, RandomMask) and any(is_sharded(layer.parameter) for layer in layers):
        raise ValueError(
            f"{name} needs every gradient at the mask it was taken with, which fully_shard does not show: train it "
            f"with DistributedDataParallel instead"
        )
