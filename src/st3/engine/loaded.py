"""`load`: a model from an .st3run file, to be called like a compiled model."""

import ctypes
import math
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from . import native, schema
from .checks import check_input, check_threads, shape_text
from .process_state import Lock, plain_torch
from .run import refuse_no_storage
from .saving import DTYPES, Tensor

__all__ = ["Loaded", "load"]

ERROR_BYTES = 512  # ST3_ERROR in c/st3.h


def load(path: str | os.PathLike[str], *, threads: int | None = None, isa: str | None = None) -> "Loaded":
    """Open a file that `Compiled.save` wrote. The file must not be changed while it is in use; it may be deleted.

    `threads` is the number for which the file was made by default; `isa` is the first of the file's instruction sets
    that this processor supports.
    """
    return Loaded(Path(path), threads, isa)


class _Described(ctypes.Structure):
    """st3_tensor in c/st3.h."""

    _fields_ = (
        ("name", ctypes.c_char_p),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("dims", ctypes.c_int32),
        ("type", ctypes.c_int32),
        ("count", ctypes.c_int64),
    )


class _Model:
    """An open file; every session keeps it open."""

    def __init__(self, path: Path, isa: str | None) -> None:
        self.library = native.library()
        error = ctypes.create_string_buffer(ERROR_BYTES)
        self.handle = self.library.st3_open(os.fsencode(path), isa.encode() if isa else None, error)
        if not self.handle:
            raise FileNotFoundError(text(error)) if not path.exists() else ValueError(text(error))

    def tensors(self, which: str) -> list[Tensor]:
        count = ctypes.c_int32()
        first = getattr(self.library, which)(self.handle, ctypes.byref(count))
        found = (_Described * count.value).from_address(first)
        return [
            Tensor(each.name.decode(), tuple(each.shape[: each.dims]), DTYPES[each.type]) for each in found
        ]

    def __del__(self) -> None:
        if getattr(self, "handle", None):  # no names of modules here: they are gone when Python ends
            self.library.st3_close(self.handle)
            self.handle = None


class _Session:
    """The memory and threads of one call at a time."""

    def __init__(self, model: _Model, threads: int) -> None:
        self.model, self.library = model, model.library
        error = ctypes.create_string_buffer(ERROR_BYTES)
        self.handle = self.library.st3_start(model.handle, threads, error)
        if not self.handle:
            raise native.NativeError(text(error))

    def run(self, inputs: Sequence[torch.Tensor], outputs: Sequence[torch.Tensor]) -> None:
        addresses = [each.data_ptr() or refuse_no_storage(each) for each in (*inputs, *outputs)]
        slots = (ctypes.c_void_p * len(addresses))(*addresses)
        start = ctypes.addressof(slots)
        error = ctypes.create_string_buffer(ERROR_BYTES)
        fault = self.library.st3_run(self.handle, start, start + 8 * len(inputs), error)
        if fault:
            is_input = fault == schema.number("BAD_NUMBER")
            raise IndexError(native.BAD_NUMBER) if is_input else native.NativeError(text(error))

    def state(self, number: int, like: Tensor) -> torch.Tensor:
        """Return a state's own memory as a tensor, which keeps the session alive."""
        address = self.library.st3_state(self.handle, number)
        memory = (ctypes.c_uint8 * (like.dtype.itemsize * math.prod(like.shape))).from_address(address)
        memory.session = self  # type: ignore[attr-defined]
        return torch.frombuffer(memory, dtype=like.dtype).view(like.shape)

    def reset(self) -> None:
        self.library.st3_reset(self.handle)

    def __del__(self) -> None:
        if getattr(self, "handle", None):
            self.library.st3_stop(self.handle)
            self.handle = None


class Loaded:
    """A model from a file. It takes the file's inputs, by position or by name, and returns a tensor or a tuple of them.

    Several threads may call it at once. The outputs of a model that returned a structure are a flat tuple, in the order
    of `outputs`, whose names tell where each one was. A model with states takes one call at a time; see `Compiled`.
    """

    def __init__(self, path: Path, threads: int | None, isa: str | None) -> None:
        check_threads(threads)
        self._asked = (path, threads, isa)
        self._model = _Model(path, isa)
        self.inputs, self.outputs = self._model.tensors("st3_inputs"), self._model.tensors("st3_outputs")
        self._states = self._model.tensors("st3_states")
        self._lock = Lock()  # for the states
        self.threads = threads or int(self._model.library.st3_threads(self._model.handle))
        self.isa: str = self._model.library.st3_isa(self._model.handle).decode()
        self._expected = [torch.empty(each.shape, dtype=each.dtype, device="meta") for each in self.inputs]
        self._sessions = [_Session(self._model, self.threads)]  # those that no call uses now

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Return what the model returns, without gradients."""
        leaves = self._arrange(args, kwargs)
        check_input(leaves, self._expected)
        for leaf, like, given in zip(leaves, self._expected, self.inputs, strict=True):
            if leaf.shape != like.shape:
                raise ValueError(
                    f"input {given.name!r} has shape {shape_text(leaf)}; {self._asked[0].name} was made for "
                    f"{shape_text(like)}: save a file for this shape"
                )
        with plain_torch():
            inputs = [each.detach().resolve_conj().resolve_neg().contiguous() for each in leaves]
            outputs = [torch.empty(each.shape, dtype=torch.float32, device="cpu") for each in self.outputs]
        if self._states:
            with self._lock:
                self._sessions[0].run(inputs, outputs)
            return outputs[0] if len(outputs) == 1 else tuple(outputs)
        try:
            session = self._sessions.pop()  # one step of the interpreter, so no lock is needed
        except IndexError:
            session = _Session(self._model, self.threads)
        try:
            session.run(inputs, outputs)
        finally:
            self._sessions.append(session)
        return outputs[0] if len(outputs) == 1 else tuple(outputs)

    @property
    def state(self) -> dict[str, torch.Tensor]:
        """The buffers that calls change: the tensors themselves, to read or write."""
        return {each.name: self._sessions[0].state(number, each) for number, each in enumerate(self._states)}

    def reset(self) -> None:
        """Give every buffer that calls change the contents that it had when the model was compiled."""
        if self._states:
            with self._lock:
                self._sessions[0].reset()

    def _arrange(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
        """Return the arguments in the order of the inputs."""
        names = [each.name for each in self.inputs]
        if len(args) + len(kwargs) != len(names) or not kwargs.keys() <= {*names[len(args) :]}:
            given = [*("..." for _ in args), *(f"{name}=..." for name in kwargs)]
            raise ValueError(
                f"{self._asked[0].name} was made for the inputs ({', '.join(names)}), got ({', '.join(given)})"
            )
        return [*args, *(kwargs[name] for name in names[len(args) :])]

    def __reduce__(self) -> Any:
        return Loaded, self._asked

    def __repr__(self) -> str:
        shapes = ", ".join(shape_text(each) for each in self._expected)
        return f"Loaded({self._asked[0].name}, {shapes}, threads={self.threads}, {self.isa})"


def text(error: "ctypes.Array[ctypes.c_char]") -> str:
    return error.value.decode(errors="replace")
