"""A compiled model for one input shape: runs its program and assembles the model's outputs."""

from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_unflatten

from .checks import shape_text
from .executor import Executor
from .fast_path import FastPath, make_fast_path
from .frontend import Read, TorchCall, Translation, to_float_bits
from .locks import Lock
from .torch_state import plain_torch

__all__ = ["Specialisation"]


class Specialisation:
    """Runs a program on the leaves of the arguments, one call at a time, since all calls share its memory."""

    def __init__(self, translation: Translation, executor: Executor, leaves: list[Any]) -> None:
        self.executor, self.out_spec, self.leaves = executor, translation.out_spec, translation.leaves
        self.is_single = self.out_spec.is_leaf()
        self.lock = Lock()
        self.shapes = ", ".join(shape_text(leaf) for leaf in leaves if isinstance(leaf, Tensor))
        self.fast_path = self._make_fast_path(leaves)

    def _make_fast_path(self, leaves: list[Any]) -> FastPath | None:
        """Return a fast path if the arguments are the program's inputs and its outputs are the model's, unchanged."""
        is_taken = all(isinstance(leaf, Tensor) and leaf.dtype is torch.float32 for leaf in leaves)
        read = tuple(leaf.name for leaf in self.leaves if isinstance(leaf, Read))
        is_given = len(read) == len(self.leaves) and read == self.executor.program.outputs
        return make_fast_path(self.executor) if is_taken and is_given else None

    def fits_fast_path(self, args: tuple[Any, ...]) -> bool:
        """Return whether `run_fast_path` may be called with these arguments."""
        return self.fast_path is not None and self.fast_path.fits(args)

    def run_fast_path(self, args: tuple[Tensor, ...]) -> Any:
        """Return the model's output with as little overhead as possible."""
        assert self.fast_path is not None
        with self.lock:
            outputs = self.fast_path(args)
        return outputs[0] if self.is_single else tree_unflatten(outputs, self.out_spec)

    def __call__(self, leaves: list[Any]) -> Any:
        with plain_torch(), self.lock:
            tensors = [to_float_bits(_materialise(leaf)) for leaf in leaves if isinstance(leaf, Tensor)]
            values = dict(zip(self.executor.program.outputs, self.executor.run(*tensors), strict=True))
            outputs = [_output(leaf, values) for leaf in self.leaves]
        taken = {leaf.untyped_storage().data_ptr() for leaf in leaves if isinstance(leaf, Tensor)}
        for place, output in enumerate(outputs):
            # An output must not share memory with the caller's input or another output.
            if isinstance(output, Tensor):
                outputs[place] = output.clone() if output.untyped_storage().data_ptr() in taken else output
                taken.add(outputs[place].untyped_storage().data_ptr())
        return outputs[0] if self.is_single else tree_unflatten(outputs, self.out_spec)


def _materialise(tensor: Tensor) -> Tensor:
    """Return the tensor contiguous in memory, with lazy conjugation and negation applied."""
    return tensor.detach().resolve_conj().resolve_neg().contiguous()


def _output(leaf: Any, values: dict[str, Tensor]) -> Any:
    match leaf:
        case Read(name):
            return values[name]
        case TorchCall():
            return leaf.evaluate(values)
        case Tensor():
            return leaf.clone()
    return leaf
