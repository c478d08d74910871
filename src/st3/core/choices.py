"""What the arguments of `sparsify` may be: checked one by one, with a sentence for each fault."""

from numbers import Integral, Real

from .allocations import ALLOCATIONS, Allocation
from .method import METHODS, FixedMask, MaskMethod, Method, ThresholdMethod
from .ramps import Ramp

__all__ = ["check_count", "check_ramp_fits", "check_sparsity", "resolve_allocation", "resolve_method"]


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
    if not isinstance(method, ThresholdMethod | MaskMethod | FixedMask):
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
