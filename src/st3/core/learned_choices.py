"""What methods that learn variables of their own can be asked for, and where they can learn."""

from collections.abc import Sequence

from torch.optim import Optimizer

from .layers import Layer
from .learned import LearnedMethod, LearnedThreshold, RandomMask
from .learned_thresholds import RULES, rule_of
from .method import Method
from .ramps import Ramp
from .shards import is_sharded
from .writing import HALF

__all__ = ["check_learnable", "check_no_target", "check_search"]


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
