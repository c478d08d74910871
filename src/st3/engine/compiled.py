"""`compile`: a finished sparse network, made fast for inputs of one shape at a time."""

import copy
from collections import OrderedDict
from threading import Lock
from typing import Any, NoReturn

import torch
from torch import Tensor, nn
from torch.utils._pytree import TreeSpec, tree_flatten, tree_unflatten

from ..core.layers.find import unwrap
from .capture import capture
from .checks import arguments, check_input, check_model, describe
from .executor import executor
from .optimise import optimise
from .program import Program
from .ready import Ready
from .reporting import report_text
from .translation import Translated, translate

__all__ = ["Compiled", "compile"]

MOST_THREADS = 1024  # more is a mistake: each has a buffer of its own
SHAPES = 8  # programs that are kept; the one that was used longest ago makes room


def compile(
    model: nn.Module, example_input: Any, *, threads: int | None = None, tune: bool = True
) -> "Compiled":
    """Compile a model in eval mode for inputs like the example: a tensor, a tuple of arguments, or a dict of them.

    The model is not changed, and later changes to it do not matter. `threads` is torch's number by default. With `tune`
    every layer's kernel is chosen by measurement; without, by rules.

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
        raise ValueError(f"threads must be a whole number from 1 to {MOST_THREADS}, got {threads!r}")
    args, kwargs = arguments(example_input)
    return Compiled(model, args, kwargs, threads or torch.get_num_threads(), tune)


class Compiled:
    """A compiled model. Call it as the model; other sizes than the example's are compiled when they first come."""

    def __init__(
        self, model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], threads: int, tune: bool
    ) -> None:
        self._name = type(model).__name__
        self._model = _own(model)
        self._threads, self._tune = threads, tune
        self._example, self._spec = tree_flatten((args, kwargs))
        self._is_plain = self._spec == tree_flatten((tuple(self._example), {}))[1]
        check_input(self._example)
        self._ready: OrderedDict[Any, Ready] = OrderedDict()
        self._lock = Lock()  # of what is ready; each program has one of its own
        self._last = self._for(self._example, self._spec)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Return what the model returns, in the same structure, without gradients."""
        last = self._last
        if self._is_plain and not kwargs and last.fits(args):
            return last.directly(args)
        leaves, spec = self._flat(args, kwargs)
        if spec is not self._spec and spec != self._spec:
            raise ValueError(
                f"{self._name} was compiled for arguments of the form {_form(self._spec)}, got {_form(spec)}"
            )
        check_input(leaves, self._example)
        with self._lock:
            ready = self._last = self._for(leaves, spec)
        return ready(leaves)

    def _flat(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[list[Any], TreeSpec]:
        """Flatten the arguments; the usual call, tensors one after the other, without the time that trees take."""
        usual = self._is_plain and not kwargs and len(args) == len(self._example)
        if usual and all(isinstance(each, Tensor) for each in args):
            return list(args), self._spec
        return tree_flatten((args, kwargs))

    def report(self) -> str:
        """Return a table of the steps of the shape that was used last: kernels, times, zeros, what runs in torch."""
        ready = self._last
        with ready.lock:  # steps are timed where calls compute
            return report_text(self._name, ready.shapes, ready.executor, self._threads)

    @property
    def program(self) -> Program:
        """The steps for the shape that was used last."""
        return self._last.executor.program

    def _for(self, leaves: list[Any], spec: TreeSpec) -> Ready:
        # With the type: 1, True and 1.0 are equal, but a model may tell them apart.
        key = tuple(tuple(leaf.shape) if isinstance(leaf, Tensor) else (type(leaf), leaf) for leaf in leaves)
        if key in self._ready:
            self._ready.move_to_end(key)
            return self._ready[key]
        args, kwargs = tree_unflatten(leaves, spec)
        translated = _translated(self._model, args, kwargs)
        made = Ready(translated, executor(optimise(translated.program), self._threads, self._tune), leaves)
        self._ready[key] = made
        if len(self._ready) > SHAPES:
            self._ready.popitem(last=False)
        return made

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            f"{self._name}, compiled, holds memory of this process and cannot be copied or pickled: copy the model and "
            f"compile it where it is used"
        )

    def __repr__(self) -> str:
        return f"Compiled({self._name}, {self._last.shapes}, threads={self._threads})"


def _own(model: nn.Module) -> nn.Module:
    """Return a copy, so that shapes compiled later get the weights of now; without gradients."""
    with torch.no_grad():
        own = copy.deepcopy(model)
    return own.requires_grad_(False)


def _translated(model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Translated:
    try:
        return translate(capture(model, args, kwargs))
    except ValueError:
        _check_runs(model, args, kwargs)
        raise


def _check_runs(model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Raise if the model itself fails on such an input: then that is what the user wants to know."""
    try:
        with torch.no_grad():
            model(*args, **kwargs)
    except Exception as error:
        shapes = ", ".join(
            describe(leaf) for leaf in tree_flatten((args, kwargs))[0] if isinstance(leaf, Tensor)
        )
        raise ValueError(
            f"{type(model).__name__} itself fails on an input of {shapes}: {type(error).__name__}: {error}"
        ) from error


def _form(spec: TreeSpec) -> str:
    """Return a structure of arguments in a few words."""
    args, kwargs = tree_unflatten([...] * spec.num_leaves, spec)
    words = [_words(each) for each in args] + [f"{name}={_words(each)}" for name, each in kwargs.items()]
    return f"({', '.join(words)})"


def _words(structure: Any) -> str:
    match structure:
        case list() | tuple():
            inside = ", ".join(map(_words, structure))
            return f"[{inside}]" if isinstance(structure, list) else f"({inside},)"
        case dict():
            return "{" + ", ".join(f"{key!r}: {_words(each)}" for key, each in structure.items()) + "}"
    return "..." if structure is ... else type(structure).__name__
