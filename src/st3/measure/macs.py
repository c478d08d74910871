"""Count the multiply-adds of one forward pass and attribute each of them to a parameter.

The model is run, and products are counted where torch executes them, below all layer classes. This covers functional
calls, slices of a packed weight, tied weights and layer classes unknown to this library.
"""

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor, nn

from .counter import Counter
from .side_effects import without_side_effects

__all__ = ["CONVENTION", "MacCount", "count_macs"]

CONVENTION = (
    "one MAC is one multiply-add of a convolution, linear layer or matrix product; norms, activations, "
    "pooling, biases and embedding look-ups are not counted; one forward pass, not divided by the batch size"
)


@dataclass(frozen=True, eq=False)
class MacCount:
    """The multiply-adds of one forward pass; see CONVENTION."""

    by_parameter: tuple[tuple[nn.Parameter, int], ...] = field(repr=False)  # see `of`
    activation_macs: int  # products of two activations, such as attention's Q·Kᵀ
    uncounted: tuple[str, ...]  # in plain words: operations that were not counted but may contain products
    input_shape: str

    def of(self, parameter: Tensor) -> int | None:
        """Return the multiply-adds that `parameter` takes part in, or None if none were counted."""
        return next((macs for counted, macs in self.by_parameter if counted is parameter), None)

    @property
    def total(self) -> int:
        """The multiply-adds of the whole model."""
        return self.activation_macs + sum(macs for _, macs in self.by_parameter)


def count_macs(model: nn.Module, example_input: Any) -> MacCount:
    """Run `model` once on `example_input` and count its multiply-adds, parameter by parameter.

    A tuple holds the model's positional arguments, a mapping its keyword arguments; anything else is the only
    argument. One MAC is one multiply-add of a convolution, linear layer or matrix product; norms, activations,
    pooling, biases and embedding look-ups are not counted. The count is for the whole input: a batch of eight costs
    eight times as much. The model is not changed.

    >>> import torch
    >>> layer = nn.Linear(20, 10)
    >>> count_macs(layer, torch.zeros(1, 20)).of(layer.weight)
    200
    """
    if isinstance(model, nn.parallel.DistributedDataParallel):
        model = model.module  # the wrapper's forward pass would wait for the other processes
    _refuse_lazy(model)
    shape = _describe(example_input)
    weights = {name: parameter for name, parameter in model.named_parameters() if parameter.dim() >= 2}
    if any(map(_is_sharded, weights.values())):  # a forward pass would need all processes
        return MacCount((), 0, tuple(f"{name} (sharded: not counted)" for name in weights), shape)
    counter = Counter(model)
    with without_side_effects(model), counter:
        try:
            _call(model, example_input)
        except Exception as error:
            error.add_note(f"while counting the MACs of {type(model).__name__} for the input {shape}")
            raise
    notes = [note for name, weight in weights.items() for note in counter.notes(name, weight)]
    uncounted = (*notes, *counter.unknown_operations)
    return MacCount(tuple(counter.macs.items()), counter.activation_macs, uncounted, shape)


def _refuse_lazy(model: nn.Module) -> None:
    """Refuse lazy modules: running them would create their weights, and counting must not change the model."""
    for name, parameter in model.named_parameters():
        if nn.parameter.is_lazy(parameter):
            raise ValueError(
                f"parameter {name!r} has no shape yet: run the model once before counting its MACs"
            )


def _is_sharded(parameter: nn.Parameter) -> bool:
    # Importing DTensor takes a second. If nobody has imported it, no parameter can be one.
    module = sys.modules.get("torch.distributed.tensor")
    return module is not None and isinstance(parameter, module.DTensor)


def _call(model: nn.Module, example_input: Any) -> None:
    if isinstance(example_input, tuple):
        model(*example_input)
    elif isinstance(example_input, Mapping):
        model(**example_input)
    else:
        model(example_input)


def _describe(example_input: Any) -> str:
    if isinstance(example_input, Tensor):
        return str(tuple(example_input.shape))
    if isinstance(example_input, Mapping):
        return ", ".join(f"{name} {_describe(value)}" for name, value in example_input.items())
    if isinstance(example_input, tuple | list):
        return ", ".join(map(_describe, example_input))
    return type(example_input).__name__
