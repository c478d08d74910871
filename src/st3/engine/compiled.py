"""`compile` and the compiled model, which has one program per input shape."""

import copy
from collections import OrderedDict
from typing import Any, NoReturn

import torch
from torch import Tensor, nn
from torch.utils._pytree import TreeSpec, tree_flatten, tree_unflatten

from ..core.layers.find import unwrap
from .checks import check_input, check_model, example_arguments, shape_text
from .executor import make_executor
from .frontend import Translation, capture, translate
from .locks import Lock
from .optimise import optimise
from .program import Program
from .reporting import report_text
from .specialisation import Specialisation
from .torch_state import plain_torch

__all__ = ["Compiled", "compile"]

MOST_THREADS = 1024  # more is surely a mistake: each thread has a scratch buffer
SHAPES = 8  # programs kept; the least recently used is dropped
TRACING = Lock()  # torch's tracer patches modules for all threads, so one model is traced at a time


def compile(
    model: nn.Module, example_input: Any, *, threads: int | None = None, tune: bool = True
) -> "Compiled":
    """Compile a model in eval mode for inputs like the example: a tensor, a tuple of arguments, or a dict of them.

    The model is copied: it is not changed, and later changes to it have no effect. `threads` is torch's number by
    default. With `tune` every layer's kernel is chosen by measurement, otherwise by estimates.

    >>> import torch, st3
    >>> model = torch.nn.Sequential(torch.nn.Linear(8, 4), torch.nn.ReLU()).eval()
    >>> x = torch.randn(2, 8)
    >>> fast = st3.engine.compile(model, x)
    >>> torch.allclose(fast(x), model(x), atol=1e-6)
    True
    """
    model = unwrap(model)
    check_model(model)
    if threads is not None and (type(threads) is not int or not 1 <= threads <= MOST_THREADS):
        raise ValueError(f"threads must be an integer from 1 to {MOST_THREADS}, got {threads!r}")
    args, kwargs = example_arguments(example_input)
    return Compiled(model, args, kwargs, threads or torch.get_num_threads(), tune)


class Compiled:
    """A compiled model, to be called like the model. A new input shape is compiled at its first call."""

    def __init__(
        self, model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], threads: int, tune: bool
    ) -> None:
        self._name = type(model).__name__
        with plain_torch():
            self._model = copy.deepcopy(model).requires_grad_(
                False
            )  # shapes compiled later have the weights of now
        self._threads, self._tune = threads, tune
        self._example, self._spec = tree_flatten((args, kwargs))
        self._is_plain = self._spec == tree_flatten((tuple(self._example), {}))[1]
        check_input(self._example)
        self._specialisations: OrderedDict[Any, Specialisation] = OrderedDict()
        self._lock = Lock()  # for the specialisations; each of them has a lock too
        self._last = self._for(self._example, self._spec)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Return what the model returns, in the same structure, without gradients."""
        last = self._last
        if self._is_plain and not kwargs and last.fits_fast_path(args):
            return last.run_fast_path(args)
        leaves, spec = self._flatten(args, kwargs)
        if spec is not self._spec and spec != self._spec:
            raise ValueError(
                f"{self._name} was compiled for arguments of the form {_describe_structure(self._spec)}, "
                f"got {_describe_structure(spec)}"
            )
        check_input(leaves, self._example)
        with self._lock:
            specialisation = self._last = self._for(leaves, spec)
        return specialisation(leaves)

    def _flatten(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[list[Any], TreeSpec]:
        """Flatten the arguments; positional tensors, the usual case, without the cost of `tree_flatten`."""
        usual = self._is_plain and not kwargs and len(args) == len(self._example)
        if usual and all(isinstance(each, Tensor) for each in args):
            return list(args), self._spec
        return tree_flatten((args, kwargs))

    def report(self) -> str:
        """Return a table of the steps for the last shape used: kernels, times, zeros, what runs in torch."""
        specialisation = self._last
        with plain_torch(), specialisation.lock:  # timing uses the same memory as calls
            return report_text(self._name, specialisation.shapes, specialisation.executor, self._threads)

    @property
    def program(self) -> Program:
        """The steps for the last shape used."""
        return self._last.executor.program

    def _for(self, leaves: list[Any], spec: TreeSpec) -> Specialisation:
        # The type is part of the key: 1, True and 1.0 are equal, but a model may distinguish them.
        key = tuple(tuple(leaf.shape) if isinstance(leaf, Tensor) else (type(leaf), leaf) for leaf in leaves)
        if key in self._specialisations:
            self._specialisations.move_to_end(key)
            return self._specialisations[key]
        args, kwargs = tree_unflatten(leaves, spec)
        with plain_torch():
            translation = _translate(self._model, args, kwargs)
            executor = make_executor(optimise(translation.program), self._threads, self._tune)
            self._specialisations[key] = made = Specialisation(translation, executor, leaves)
        if len(self._specialisations) > SHAPES:
            self._specialisations.popitem(last=False)
        return made

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            f"a compiled {self._name} holds memory of this process and cannot be copied or pickled: copy the model and "
            f"compile it where it is used"
        )

    def __repr__(self) -> str:
        return f"Compiled({self._name}, {self._last.shapes}, threads={self._threads})"


def _translate(model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Translation:
    with TRACING:
        try:
            captured = capture(model, args, kwargs)
        except ValueError:
            _check_runs(model, args, kwargs)
            raise
    return translate(captured)


def _check_runs(model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Raise the model's own error if it fails on such an input."""
    try:
        model(*args, **kwargs)
    except Exception as error:
        shapes = ", ".join(
            shape_text(leaf) for leaf in tree_flatten((args, kwargs))[0] if isinstance(leaf, Tensor)
        )
        raise ValueError(
            f"{type(model).__name__} itself fails on an input of {shapes}: {type(error).__name__}: {error}"
        ) from error


def _describe_structure(spec: TreeSpec) -> str:
    """Return the structure of the arguments as text."""
    args, kwargs = tree_unflatten([...] * spec.num_leaves, spec)
    parts = [_describe(each) for each in args] + [
        f"{name}={_describe(each)}" for name, each in kwargs.items()
    ]
    return f"({', '.join(parts)})"


def _describe(structure: Any) -> str:
    match structure:
        case list() | tuple():
            inside = ", ".join(map(_describe, structure))
            return f"[{inside}]" if isinstance(structure, list) else f"({inside},)"
        case dict():
            return "{" + ", ".join(f"{key!r}: {_describe(each)}" for key, each in structure.items()) + "}"
    return "..." if structure is ... else type(structure).__name__
