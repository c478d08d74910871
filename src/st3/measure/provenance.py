"""From which parameter do the numbers in a tensor come?

A layer rarely multiplies by its parameter as it stands: it transposes it, takes a slice, casts it to half
precision, multiplies it with a mask. Views share memory with the parameter and are found by that. Results
computed from parameters and buffers alone are remembered as the parameter's.
"""

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

__all__ = ["Provenance", "tensors_in"]


class _Span(NamedTuple):
    """A stretch of memory, in bytes from the start of its storage, and the parameter that it holds."""

    start: int
    stop: int
    owner: nn.Parameter | None  # None: a buffer


class Provenance:
    """Answers for one forward pass; it holds on to derived tensors, so that no memory is used twice meanwhile."""

    def __init__(self, model: nn.Module) -> None:
        self._spans: dict[int, list[_Span]] = {}
        self._kept: list[Tensor] = []
        for parameter in model.parameters():
            self._file(parameter, parameter)
        for buffer in model.buffers():
            self._file(buffer, None)

    def owner(self, tensor: Tensor) -> nn.Parameter | None:
        """Return the parameter that `tensor` shows or was computed from, if there is one."""
        span = self._find(tensor)
        return span.owner if span else None

    def is_constant(self, tensor: Tensor) -> bool:
        """Whether `tensor` depends on parameters and buffers only, not on the model's input."""
        return self._find(tensor) is not None

    def inherit(self, inputs: Iterable[Tensor], results: Iterable[Tensor]) -> nn.Parameter | None:
        """File `results` under the owner of the largest of their constant `inputs`, and return that owner."""
        owned = [tensor for tensor in inputs if self.owner(tensor) is not None]
        heir = self.owner(max(owned, key=Tensor.numel)) if owned else None
        for tensor in results:
            if not self.is_constant(tensor):
                self._file(tensor, heir)
                self._kept.append(tensor)
        return heir

    def _file(self, tensor: Tensor, owner: nn.Parameter | None) -> None:
        if tensor.layout == torch.strided:
            self._spans.setdefault(_storage(tensor), []).append(_Span(*_stretch(tensor), owner))

    def _find(self, tensor: Tensor) -> _Span | None:
        if tensor.layout != torch.strided:
            return None
        # Several parameters may lie in one storage, so the same storage is not enough.
        start, stop = _stretch(tensor)
        spans = self._spans.get(_storage(tensor), ())
        return next((span for span in spans if start < span.stop and span.start < stop), None)


def _storage(tensor: Tensor) -> int:
    """Identify the storage. Its data pointer would not do: it is 0 for every tensor on the meta device."""
    address: int = tensor.untyped_storage()._cdata
    return address


def _stretch(tensor: Tensor) -> tuple[int, int]:
    first = int(tensor.storage_offset())
    steps = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    stop = first + steps + 1 if tensor.numel() else first
    return first * tensor.itemsize, stop * tensor.itemsize


def tensors_in(nested: Any) -> Iterator[Tensor]:
    """Yield every tensor in a nest of tuples, lists and dictionaries."""
    if isinstance(nested, Tensor):
        yield nested
    elif isinstance(nested, list | tuple):
        for item in nested:
            yield from tensors_in(item)
    elif isinstance(nested, dict):
        yield from tensors_in(list(nested.values()))
