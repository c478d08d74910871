"""Variables that are learned beside the weights: thresholds, probabilities. One step of the rule that moves them."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from ..layers.layer import Layer
from ..method import Method

__all__ = ["advance", "require_precision"]


@torch.no_grad()
def advance(
    kind: type[Optimizer],
    settings: Mapping[str, Any],
    name: str,
    values: Sequence[dict[str, Tensor]],
    gradients: Sequence[Tensor],
) -> None:
    """Move the variables `name` among `values` by one step of an optimizer of that `kind`, in place.

    What it remembers (momentum, moments) is read from the same dicts and put back there, as `name_momentum_buffer` and
    so on: the rule is torch's own, the memory ours.
    """
    variables = [each[name] for each in values]
    optimizer = kind([{"params": variables, **settings}])  # type: ignore[call-arg]
    for variable, each, gradient in zip(variables, values, gradients, strict=True):
        memory = {key.removeprefix(f"{name}_"): value for key, value in each.items() if key != name}
        if memory:
            optimizer.state[variable] = memory
        variable.grad = gradient.to(variable.dtype)
    optimizer.step()
    for variable, each in zip(variables, values, strict=True):
        variable.grad = None
        memory = {key: value for key, value in optimizer.state[variable].items() if value is not None}
        each.update({f"{name}_{key}": torch.as_tensor(value) for key, value in memory.items()})


def require_precision(method: Method, layers: Sequence[Layer]) -> None:
    """Raise where weights are in half precision, too coarse for the steps of a learned variable."""
    half = [layer.name for layer in layers if layer.parameter.dtype in (torch.bfloat16, torch.float16)]
    if half:
        raise ValueError(
            f"{type(method).__name__} learns a {method.learns} in steps too small for {layers[0].parameter.dtype} "
            f"({half[0]!r} and {len(half) - 1} more layers): keep the weights in float32 and use torch.autocast"
        )
