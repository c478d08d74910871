"""A copy of a model that takes little memory: large weights that are mostly zeros are kept as lists."""

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from .process_state import Lock, plain_torch

__all__ = ["CompactModel"]

LARGE = 4096  # weights of a tensor that is worth a list
TRACING = Lock()  # torch's tracer patches modules for all threads, so one model is whole and traced at a time
MOSTLY_ZERO = 0.45  # a non-zero weight takes eight bytes in a list, a weight of a tensor four


@dataclass(frozen=True)
class _List:
    """The non-zero weights of a tensor."""

    positions: Tensor
    values: Tensor
    shape: torch.Size

    @classmethod
    def of(cls, tensor: Tensor) -> "_List":
        flat = tensor.contiguous().reshape(-1)
        positions = flat.nonzero().squeeze(1)
        return cls(positions.int(), flat[positions], tensor.shape)

    def dense(self) -> Tensor:
        flat = torch.zeros(self.shape.numel(), dtype=self.values.dtype, device="cpu")
        flat[self.positions.long()] = self.values
        return flat.view(self.shape)


class CompactModel:
    """Gives the model whole while it is used; shapes compiled later have the weights of now."""

    def __init__(self, model: nn.Module) -> None:
        self.name = type(model).__name__
        self._lists: dict[nn.Parameter, _List] = {}
        with plain_torch():
            self._model = copy.deepcopy(model).requires_grad_(False)
            for parameter in self._model.parameters():
                if (
                    parameter.numel() >= LARGE
                    and int(parameter.count_nonzero()) < MOSTLY_ZERO * parameter.numel()
                ):
                    self._lists[parameter] = _List.of(parameter.data)
        self._pack()

    @contextmanager
    def whole(self) -> Iterator[nn.Module]:
        """Yield the model with all its weights, to one thread at a time."""
        with TRACING, plain_torch():
            for parameter, weights in self._lists.items():
                parameter.data = weights.dense()
            try:
                yield self._model
            finally:
                self._pack()

    def keep_whole(self) -> nn.Module:
        """Return the model, whole from now on."""
        with TRACING, plain_torch():
            for parameter, weights in self._lists.items():
                parameter.data = weights.dense()
            self._lists = {}
        return self._model

    def _pack(self) -> None:
        for parameter in self._lists:
            parameter.data = torch.empty(0, dtype=parameter.dtype, device="cpu")
