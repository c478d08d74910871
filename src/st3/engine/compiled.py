"""`compile` and the compiled model, which has one program per input shape."""

import copy
import os
import statistics
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, NoReturn

import torch
from torch import Tensor, nn
from torch.utils._pytree import TreeSpec, tree_flatten, tree_unflatten

from ..core.layers.find import unwrap
from .checks import (
    calibration_arguments,
    check_input,
    check_model,
    check_threads,
    example_arguments,
    shape_text,
)
from .compact import CompactModel
from .frontend import Translation, capture, from_float_bits, to_float_bits, translate
from .native import Store, give_back_memory
from .optimise import Ranges, fuse_all, optimise, optimise_in_int8
from .process_state import Lock, plain_torch, torch_threads
from .program import Program
from .report import report_text
from .run import Runtime, make_runner
from .saving import save_program
from .specialisation import OwnWay, Specialisation, float_bits

__all__ = ["Compiled", "compile"]

SHAPES = 8  # programs kept; the least recently used is dropped
RACE_ROUNDS, RACE_SECONDS = 7, 1.0  # of the comparison with torch's own way: at most so many, at most so long
CLEAR_WIN = 1.5  # a race is over when one way takes this much longer than the other


def compile(
    model: nn.Module,
    example_input: Any,
    *,
    threads: int | None = None,
    tune: bool = True,
    calibration: Iterable[Any] | None = None,
) -> "Compiled":
    """Compile a model in eval mode for inputs like the example: a tensor, a tuple of arguments, or a dict of them.

    The model is copied: it is not changed, and later changes to it have no effect. `threads` is torch's number by
    default. With `tune` every layer's kernel is chosen by measurement, otherwise by estimates.

    With `calibration`, a list of typical inputs, convolutions and linear layers are computed in int8: the ranges of
    numbers that occur for these inputs become the ranges of bytes. That changes results, usually by 1 to 3 % of the
    largest number.

    >>> import torch, st3
    >>> model = torch.nn.Sequential(torch.nn.Linear(8, 4), torch.nn.ReLU()).eval()
    >>> x = torch.randn(2, 8)
    >>> fast = st3.engine.compile(model, x)
    >>> torch.allclose(fast(x), model(x), atol=1e-6)
    True
    """
    model = unwrap(model)
    check_model(model)
    check_threads(threads)
    args, kwargs = example_arguments(example_input)
    typical = None if calibration is None else calibration_arguments(calibration)
    return Compiled(model, args, kwargs, threads or torch.get_num_threads(), tune, typical)


class Compiled:
    """A compiled model, to be called like the model. A new input shape is compiled at its first call.

    Several threads may call it at once. For a shape for which torch is faster, it calls the model in torch. It has its
    own copy of buffers that the model changes, such as a cache of keys and values (`state`): calls change it, one at a
    time, and `reset` brings it back.
    """

    def __init__(
        self,
        model: nn.Module,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        threads: int,
        tune: bool,
        calibration: Sequence[tuple[tuple[Any, ...], dict[str, Any]]] | None = None,
    ) -> None:
        self._name = type(model).__name__
        self._model = CompactModel(model)  # shapes compiled later have the weights of now
        self._store = Store()
        self._threads, self._tune = threads, tune
        self._example, self._spec = tree_flatten((args, kwargs))
        self._is_plain = self._spec == tree_flatten((tuple(self._example), {}))[1]
        check_input(self._example)
        self._specialisations: OrderedDict[Any, Specialisation | OwnWay] = OrderedDict()
        self._lock = Lock()  # for the specialisations, and for the states while a call changes them
        self._states: dict[str, _State] = {}  # by the buffer's name; all shapes share them
        self._ranges: Ranges | None = None if calibration is None else self._measure_ranges(calibration)
        self._last = self._for(self._example, self._spec)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Return what the model returns, in the same structure, without gradients."""
        last = self._last
        if self._is_plain and not kwargs and isinstance(last, Specialisation) and last.fits_fast_path(args):
            if not self._states:
                return last.run_fast_path(args)
            with self._lock:
                return last.run_fast_path(args)
        leaves, spec = self._flatten(args, kwargs)
        self._check_structure(spec)
        check_input(leaves, self._example)
        with self._lock:
            specialisation = self._last = self._for(leaves, spec)
            if self._states:
                return specialisation(leaves)
        return specialisation(leaves)

    @property
    def state(self) -> dict[str, Tensor]:
        """The buffers that calls change, such as a cache of keys and values: the tensors themselves."""
        return {name: state.tensor for name, state in self._states.items()}

    def reset(self) -> None:
        """Give every buffer that calls change the contents that it had when the model was compiled."""
        buffers = dict(self._model.buffers())
        with self._lock, plain_torch():
            for name, state in self._states.items():
                state.tensor.copy_(buffers[name])

    def _measure_ranges(self, calibration: Sequence[tuple[tuple[Any, ...], dict[str, Any]]]) -> Ranges:
        """Return the ranges of what layers read and compute, over the calibration inputs."""
        found, programs = Ranges(), dict[Any, Program]()  # inputs of one shape have one program
        for number, (args, kwargs) in enumerate(calibration):
            try:
                leaves, spec = self._flatten(args, kwargs)
                self._check_structure(spec)
                check_input(leaves, self._example)
                with self._model.whole() as model, torch_threads(self._threads):
                    key = _key(leaves)
                    if key not in programs:
                        programs[key] = fuse_all(self._without_states(_translate(model, args, kwargs, ())))
                    found.measure(programs[key], float_bits(leaves))
            except (TypeError, ValueError) as error:
                has_more = len(tree_flatten((args, kwargs))[0]) > len(self._example)
                hint = "; leave labels out, as in calibration=[x for x, _ in loader]" if has_more else ""
                raise type(error)(f"calibration input {number}: {error}{hint}") from error
        return found

    def _without_states(self, translation: Translation) -> Program:
        if translation.states:
            raise ValueError(f"{self._name} changes its own buffers, so it cannot be computed in int8")
        return translation.program

    def _check_structure(self, spec: TreeSpec) -> None:
        if spec is not self._spec and spec != self._spec:
            raise ValueError(
                f"{self._name} was compiled for arguments of the form {_describe_structure(self._spec)}, "
                f"got {_describe_structure(spec)}"
            )

    def _flatten(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[list[Any], TreeSpec]:
        """Flatten the arguments; positional tensors, the usual case, without the cost of `tree_flatten`."""
        usual = self._is_plain and not kwargs and len(args) == len(self._example)
        if usual and all(isinstance(each, Tensor) for each in args):
            return list(args), self._spec
        return tree_flatten((args, kwargs))

    def report(self) -> str:
        """Return a table of the steps for the last shape used: kernels, times, zeros, what runs in torch."""
        last = self._last
        translation, program = self._translated(last.given)
        with torch_threads(self._threads):
            in_float32 = None if self._ranges is None else fuse_all(translation.program)
            return report_text(self._name, last, program, in_float32, self._threads)

    @property
    def program(self) -> Program:
        """The steps for the last shape used, made anew: a compiled model keeps its weights as kernels read them."""
        return self._translated(self._last.given)[1]

    def save(self, path: str | os.PathLike[str], *, instruction_sets: Sequence[str] | None = None) -> Path:
        """Write the engine's program for the last shape used to a file, for `st3.engine.load` and for C (c/st3.h).

        The file has a plan for each instruction set, by default all that this processor can run: the best one as it
        was tuned, the others by estimates. A model with steps in torch cannot be saved; the error names them. Buffers
        that calls change are saved as they were when the model was compiled.
        """
        last, target = self._last, Path(path)
        translation, program = self._translated(last.given)
        runner = last.runner if isinstance(last, Specialisation) else None
        planned = runner.planned if isinstance(runner, Runtime) else None
        buffers = dict(self._model.buffers())
        states = {name: buffers[name] for name in translation.states}
        save_program(
            target,
            self._name,
            last.given,
            translation,
            program,
            states,
            self._threads,
            planned,
            instruction_sets,
        )
        return target

    def _translated(self, leaves: list[Any]) -> tuple[Translation, Program]:
        args, kwargs = tree_unflatten(leaves, self._spec)
        with self._model.whole() as model:
            translation = _translate(model, args, kwargs, self._states)
            return translation, self._optimise(translation.program)

    def _optimise(self, program: Program) -> Program:
        return optimise(program) if self._ranges is None else optimise_in_int8(program, self._ranges)

    def _for(self, leaves: list[Any], spec: TreeSpec) -> Specialisation | OwnWay:
        key = _key(leaves)
        if key in self._specialisations:
            self._specialisations.move_to_end(key)
            return self._specialisations[key]
        self._specialisations[key] = made = self._compile(leaves, spec)
        give_back_memory()
        if len(self._specialisations) > SHAPES:
            self._specialisations.popitem(last=False)
        return made

    def _compile(self, leaves: list[Any], spec: TreeSpec) -> Specialisation | OwnWay:
        args, kwargs = tree_unflatten(leaves, spec)
        with self._model.whole() as model:
            translation = _translate(model, args, kwargs, self._states)
            program = self._optimise(translation.program)
            for name in set(translation.states) - set(self._states):
                self._states[name] = _State(dict(model.named_buffers())[name])
                self._specialisations.clear()  # they have it as a constant
            states = [self._states[name].bits for name in translation.states]
            runner = make_runner(program, self._threads, self._tune, self._store, states)
            made = Specialisation(translation, runner, leaves)
            # Without kernels both ways are torch; and a call of a model with states cannot be tried.
            if not self._tune or not isinstance(runner, Runtime) or self._states:
                return made
            own = OwnWay(model, spec, self._threads, leaves)
            engine_ms, torch_ms = _race(lambda: made(leaves), lambda: own(leaves))
        if engine_ms <= torch_ms:
            return made
        own.model = self._model.keep_whole()
        return own

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            f"a compiled {self._name} holds memory of this process and cannot be copied or pickled: copy the model and "
            f"compile it where it is used"
        )

    def __repr__(self) -> str:
        return f"Compiled({self._name}, {self._last.shapes}, threads={self._threads})"


def _key(leaves: list[Any]) -> Any:
    """Return what inputs of one program have in common: shapes, and arguments that are not tensors."""
    # The type is part of the key: 1, True and 1.0 are equal, but a model may distinguish them.
    return tuple(tuple(leaf.shape) if isinstance(leaf, Tensor) else (type(leaf), leaf) for leaf in leaves)


class _State:
    """A buffer that calls change: its bits, which kernels read and write, and the tensor that they are."""

    def __init__(self, buffer: Tensor) -> None:
        bits = to_float_bits(buffer.detach().contiguous())
        self.bits = bits.clone()
        self.tensor = from_float_bits(self.bits.view(-1), buffer.dtype, tuple(buffer.shape))


def _translate(
    model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], known_states: Iterable[str]
) -> Translation:
    try:
        captured = capture(model, args, kwargs, known_states)
    except ValueError:
        _check_runs(model, args, kwargs)
        raise
    return translate(captured)


def _race(*calls: Callable[[], object]) -> list[float]:
    """Return the median milliseconds of each call, from interleaved runs."""
    taken: list[list[float]] = [[] for _ in calls]
    begin = time.perf_counter()
    for turn in range(1 + RACE_ROUNDS):
        for call, times in zip(calls, taken, strict=True):
            start = time.perf_counter()
            call()
            if turn:  # the first call of each warms up
                times.append(1e3 * (time.perf_counter() - start))
        if turn > 1:
            medians = [statistics.median(times) for times in taken]
            if max(medians) > CLEAR_WIN * min(medians) or time.perf_counter() - begin > RACE_SECONDS:
                break
    return medians


def _check_runs(model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Raise the model's own error if it fails on such an input."""
    try:
        copy.deepcopy(model)(*args, **kwargs)  # a call may change buffers, whose contents `reset` brings back
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
