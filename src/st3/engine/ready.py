"""One shape of a compiled model: its program, ready to run, and how its outputs become the model's answers."""

from threading import Lock
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_unflatten

from .carried import carried
from .checks import describe
from .direct import Direct, direct
from .executor import Executor
from .torch_call import Read, TorchCall
from .translation import Translated

__all__ = ["Ready"]


class Ready:
    """Answers the leaves of some arguments, one call at a time: a program has one memory."""

    def __init__(self, translated: Translated, executor: Executor, leaves: list[Any]) -> None:
        self.executor, self.out_spec, self.leaves = executor, translated.out_spec, translated.leaves
        self.is_single = self.out_spec.is_leaf()
        self.lock = Lock()
        self.shapes = ", ".join(describe(leaf) for leaf in leaves if isinstance(leaf, Tensor))
        self.direct = self._direct(leaves)

    def _direct(self, leaves: list[Any]) -> Direct | None:
        """Return the program as one call, where tensors are its inputs as they are and its outputs are the answers."""
        is_taken = all(isinstance(leaf, Tensor) and leaf.dtype is torch.float32 for leaf in leaves)
        read = tuple(leaf.name for leaf in self.leaves if isinstance(leaf, Read))
        is_given = len(read) == len(self.leaves) and read == self.executor.program.outputs
        return direct(self.executor) if is_taken and is_given else None

    def fits(self, args: tuple[Any, ...]) -> bool:
        """Return whether `directly` may be called with these arguments."""
        return self.direct is not None and self.direct.fits(args)

    def directly(self, args: tuple[Tensor, ...]) -> Any:
        """Answer the usual call, in which nothing but the kernels should take time."""
        assert self.direct is not None
        with self.lock:
            answers = self.direct(args)
        return answers[0] if self.is_single else tree_unflatten(answers, self.out_spec)

    def __call__(self, leaves: list[Any]) -> Any:
        tensors = [carried(_as_it_lies(leaf)) for leaf in leaves if isinstance(leaf, Tensor)]
        with torch.no_grad(), self.lock:
            made = dict(zip(self.executor.program.outputs, self.executor.run(*tensors), strict=True))
            answers = [_answer(leaf, made) for leaf in self.leaves]
        taken = {leaf.untyped_storage().data_ptr() for leaf in leaves if isinstance(leaf, Tensor)}
        for place, answer in enumerate(answers):
            # An answer must not change when the caller's input does, or another answer.
            if isinstance(answer, Tensor):
                answers[place] = answer.clone() if answer.untyped_storage().data_ptr() in taken else answer
                taken.add(answers[place].untyped_storage().data_ptr())
        return answers[0] if self.is_single else tree_unflatten(answers, self.out_spec)


def _as_it_lies(tensor: Tensor) -> Tensor:
    """Return the same numbers one after the other in memory, with their own signs."""
    return tensor.detach().resolve_conj().resolve_neg().contiguous()


def _answer(leaf: Any, made: dict[str, Tensor]) -> Any:
    match leaf:
        case Read(name):
            return made[name]
        case TorchCall():
            return leaf.evaluate(made)
        case Tensor():
            return leaf.clone()
    return leaf
