"""A compiled model for one input shape: runs its program, or torch's own way, and assembles the model's outputs."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import TreeSpec, tree_flatten, tree_unflatten

from .checks import shape_text
from .frontend import Read, TorchCall, Translation, to_float_bits
from .process_state import plain_torch, torch_threads
from .run import Runner, Runtime

__all__ = ["OwnWay", "Specialisation", "float_bits"]

FLOAT_BYTES = 4


class Specialisation:
    """Runs a program on the leaves of the arguments. Any number of calls may run at once."""

    def __init__(self, translation: Translation, runner: Runner, leaves: list[Any]) -> None:
        self.runner, self.out_spec, self.leaves = runner, translation.out_spec, translation.leaves
        self.outputs = translation.program.results
        self.is_single = self.out_spec.is_leaf()
        self.given, self.shapes = leaves, shapes_text(leaves)
        # The fast path: the arguments are the program's inputs, and its outputs the model's, unchanged.
        is_taken = all(isinstance(leaf, Tensor) and leaf.nbytes % FLOAT_BYTES == 0 for leaf in leaves)
        self.expected = [(leaf.shape, leaf.dtype) for leaf in leaves if isinstance(leaf, Tensor)]
        read = tuple(leaf.name for leaf in self.leaves if isinstance(leaf, Read))
        is_given = len(read) == len(self.leaves) and read == self.outputs
        self.fast: Runtime | None = None
        if isinstance(runner, Runtime) and runner.planned.is_whole and is_taken and is_given:
            self.fast = runner

    def fits_fast_path(self, args: tuple[Any, ...]) -> bool:
        """Return whether these are plain tensors that kernels can read in place, for `run_fast_path`."""
        if self.fast is None or len(args) != len(self.expected):
            return False
        for each, (shape, dtype) in zip(args, self.expected, strict=True):
            if not (
                type(each) is Tensor
                and each.shape == shape
                and each.dtype is dtype
                and each.is_cpu
                and each.layout is torch.strided
                and each.is_contiguous()
                and not each.is_neg()  # memory then holds the opposite sign
            ):
                return False
        return True

    def run_fast_path(self, args: tuple[Tensor, ...]) -> Any:
        """Return the model's output with as little overhead as possible."""
        assert self.fast is not None
        outputs = self.fast.run_fitting(args)
        return outputs[0] if self.is_single else tree_unflatten(outputs, self.out_spec)

    def __call__(self, leaves: list[Any]) -> Any:
        with plain_torch():
            values = dict(zip(self.outputs, self.runner.run(*float_bits(leaves)), strict=True))
            outputs = [_output(leaf, values) for leaf in self.leaves]
        separate(outputs, leaves)
        return outputs[0] if self.is_single else tree_unflatten(outputs, self.out_spec)


class OwnWay:
    """Runs the model itself in torch, for a shape for which the program is slower."""

    def __init__(self, model: Callable[..., Any], spec: TreeSpec, threads: int, leaves: list[Any]) -> None:
        self.model, self.spec, self.threads = model, spec, threads
        self.given, self.shapes = leaves, shapes_text(leaves)

    def __call__(self, leaves: list[Any]) -> Any:
        args, kwargs = tree_unflatten([_detach(leaf) for leaf in leaves], self.spec)
        with plain_torch(), torch_threads(self.threads):
            found = self.model(*args, **kwargs)
        flat, spec = tree_flatten(found)
        separate(flat, leaves)
        return tree_unflatten(flat, spec)


def float_bits(leaves: list[Any]) -> list[Tensor]:
    """Return the tensors among the leaves as a program reads them."""
    return [to_float_bits(_materialise(leaf)) for leaf in leaves if isinstance(leaf, Tensor)]


def shapes_text(leaves: list[Any]) -> str:
    return ", ".join(shape_text(leaf) for leaf in leaves if isinstance(leaf, Tensor))


def separate(outputs: list[Any], inputs: list[Any]) -> None:
    """Copy outputs that share memory with the caller's inputs or with another output."""
    taken = {leaf.untyped_storage().data_ptr() for leaf in inputs if isinstance(leaf, Tensor)}
    for place, output in enumerate(outputs):
        if isinstance(output, Tensor):
            outputs[place] = output.clone() if output.untyped_storage().data_ptr() in taken else output
            taken.add(outputs[place].untyped_storage().data_ptr())


def _detach(leaf: Any) -> Any:
    return leaf.detach() if isinstance(leaf, Tensor) else leaf


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
