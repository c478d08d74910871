"""Which parameter does a tensor come from?

A layer often multiplies not by its parameter but by something made from it: a transpose, a slice, a cast to half
precision, a product with a mask. Views are recognised by the memory that they share with the parameter. A tensor
computed from parameters and buffers alone is recorded as belonging to the parameter.
"""

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

__all__ = ["Provenance", "tensors_in"]


class _Span(NamedTuple):
    """A range of memory, in bytes from the start of its storage, and the parameter that it belongs to."""

    start: int
    stop: int
    owner: nn.Parameter | None  # None: a buffer


class Provenance:
    """The origin of every tensor in one forward pass. It keeps derived tensors alive, so that no memory is reused."""

    def __init__(self, model: nn.Module) -> None:
        self._spans: dict[int, list[_Span]] = {}
        self._kept: list[Tensor] = []
        for parameter in model.parameters():
            self._add(parameter, parameter)
        for buffer in model.buffers():
            self._add(buffer, None)

    def owner(self, tensor: Tensor) -> nn.Parameter | None:
        """Return the parameter that `tensor` is a view of or was computed from, if there is one."""
        span = self._find(tensor)
        return span.owner if span else None

    def is_constant(self, tensor: Tensor) -> bool:
        """Whether `tensor` depends on parameters and buffers only, not on the model's input."""
        return self._find(tensor) is not None

    def inherit(self, inputs: Iterable[Tensor], results: Iterable[Tensor]) -> nn.Parameter | None:
        """Let `results` belong to the owner of the largest of their constant `inputs`, and return that owner."""
        owned = [tensor for tensor in inputs if self.owner(tensor) is not None]
        heir = self.owner(max(owned, key=Tensor.numel)) if owned else None
        for tensor in results:
            if not self.is_constant(tensor):
                self._add(tensor, heir)
                self._kept.append(tensor)
        return heir

    def _add(self, tensor: Tensor, owner: nn.Parameter | None) -> None:
        if tensor.layout == torch.strided:
            self._spans.setdefault(_storage(tensor), []).append(_Span(*_byte_range(tensor), owner))

    def _find(self, tensor: Tensor) -> _Span | None:
        if tensor.layout != torch.strided:
            return None
        # Several parameters may share a storage, so the ranges are compared too.
        start, stop = _byte_range(tensor)
        spans = self._spans.get(_storage(tensor), ())
        return next((span for span in spans if start < span.stop and span.start < stop), None)


def _storage(tensor: Tensor) -> int:
    """Return a number that identifies the storage. (The data pointer does not: on the meta device it is always 0.)"""
    address: int = tensor.untyped_storage()._cdata
    return address


def _byte_range(tensor: Tensor) -> tuple[int, int]:
    first = int(tensor.storage_offset())
    steps = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    stop = first + steps + 1 if tensor.numel() else first
    return first * tensor.itemsize, stop * tensor.itemsize


def tensors_in(nested: Any) -> Iterator[Tensor]:
    """Yield every tensor in nested tuples, lists and dictionaries."""
    if isinstance(nested, Tensor):
        yield nested
    elif isinstance(nested, list | tuple):
        for item in nested:
            yield from tensors_in(item)
    elif isinstance(nested, dict):
        yield from tensors_in(list(nested.values()))
