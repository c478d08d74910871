"""Save a compiled model's program as an .st3run file, which `load` and C run without the model.

The file has a plan for each instruction set; c/plan.h states what is in it.
"""

import ctypes
import hashlib
import importlib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch.utils._pytree import TreeSpec, tree_flatten_with_path, tree_unflatten

from ..atomic import write_file
from . import native, schema
from .frontend import Read, Translation
from .plan.assemble import Plan
from .plan.make import Planned, TorchStep, make_plan
from .program import InTorch, Program, Shape

__all__ = ["Tensor", "save_program", "write_run_file"]

LONGEST_NAME = 96  # bytes


DTYPES = (torch.float32, torch.int64)  # of a file's tensors, in the order of their numbers in c/st3.h


class Tensor(NamedTuple):
    """An input, an output or a state of a file; `contents` are those of a state at the start."""

    name: str
    shape: Shape
    dtype: torch.dtype = torch.float32
    contents: torch.Tensor | None = None


def save_program(
    path: Path,
    name: str,
    leaves: Sequence[Any],
    translation: Translation,
    program: Program,
    states: dict[str, torch.Tensor],
    threads: int,
    planned: Planned | None,
    instruction_sets: Sequence[str] | None,
) -> None:
    """Write the program of the model `name` to a file; `planned` is its tuned plan, if there is one.

    `states` are the buffers that calls change, in the program's order.
    """
    names = _order(name, instruction_sets)
    inputs = _inputs(name, leaves, program)
    for buffer, contents in states.items():
        if contents.dtype not in DTYPES:
            raise ValueError(
                f"cannot save {name}: its buffer {buffer!r}, which calls change, is {contents.dtype}; {TYPES}"
            )
    read = _outputs(name, translation)
    if read != program.results:  # the model returns a value twice, or in another order
        program, planned = replace(program, outputs=(*read, *program.states.values())), None
    plans = [
        planned
        if planned is not None and planned.kernels.name == isa
        else make_plan(program, threads, isa=isa)
        for isa in names
    ]
    _check_whole(name, plans[0], program)
    shapes = program.shapes
    write_run_file(
        path,
        inputs,
        [
            Tensor(label, shapes[each])
            for label, each in zip(_labels(translation.out_spec), read, strict=True)
        ],
        [Tensor(buffer, tuple(each.shape), each.dtype, each) for buffer, each in states.items()],
        plans,
    )


def _order(name: str, asked: Sequence[str] | None) -> list[str]:
    """Return the instruction sets, best first; raise for one that cannot be planned for here."""
    usable = native.usable_instruction_sets()
    if asked is None:
        return usable
    if isinstance(asked, str):
        raise TypeError(f"instruction_sets must be a list of names, such as [{asked!r}], got a string")
    unknown = [each for each in asked if each not in usable]
    if unknown or not asked:
        raise ValueError(
            f"cannot save {name} for {', '.join(map(repr, unknown)) or 'no instruction set'}: the instruction sets of "
            f"this processor and library are {', '.join(usable)}"
        )
    return [each for each in usable if each in asked]


TYPES = "a file holds float32 and int64 tensors only"


def _inputs(name: str, leaves: Sequence[Any], program: Program) -> list[Tensor]:
    for number, leaf in enumerate(leaves):
        if not isinstance(leaf, torch.Tensor) or leaf.dtype not in DTYPES:
            what = f"a {leaf.dtype} tensor" if isinstance(leaf, torch.Tensor) else repr(leaf)
            raise ValueError(f"cannot save {name}: argument {number} is {what}; {TYPES}")
    return [
        Tensor(each, tuple(leaf.shape), leaf.dtype)
        for each, leaf in zip(program.arguments, leaves, strict=True)
    ]


def _outputs(name: str, translation: Translation) -> tuple[str, ...]:
    """Return the values that the model returns, in its order."""
    for number, leaf in enumerate(translation.leaves):
        if not isinstance(leaf, Read):
            raise ValueError(
                f"cannot save {name}: output {number} is not a float32 tensor that kernels compute; a file returns "
                "only such tensors"
            )
    return tuple(leaf.name for leaf in translation.leaves)


def _check_whole(name: str, planned: Planned, program: Program) -> None:
    if planned.is_whole:
        return
    steps = {step.name: step for step in program}
    named = []
    for segment in planned.segments:
        if isinstance(segment, TorchStep):
            step = steps.get(segment.operation.name)
            why = step.why if isinstance(step, InTorch) else "no kernel computes it here"
            named.append(f"{segment.operation.name} ({why})")
    raise ValueError(
        f"cannot save {name}: a file holds kernels only, and {len(named)} of its {len(program.steps)} steps run in "
        f"torch: {'; '.join(named)}"
    )


def _labels(spec: TreeSpec) -> list[str]:
    """Return a name for every output: its keys and positions in what the model returns."""
    paths, _ = tree_flatten_with_path(tree_unflatten(list(range(spec.num_leaves)), spec))
    return [".".join(map(_key_text, path)) or "output" for path, _ in paths]


def _key_text(key: Any) -> str:
    for field in ("key", "name", "idx"):  # of a dict, of an object, of a tuple
        if hasattr(key, field):
            return str(getattr(key, field))
    return str(key)


# ---------------------------------------------------------------- the file


def write_run_file(
    path: Path,
    inputs: Sequence[Tensor],
    outputs: Sequence[Tensor],
    states: Sequence[Tensor],
    plans: Sequence[Planned],
) -> None:
    """Write plans of one program, in the order of preference; each is for another instruction set."""
    content = _Content()
    header = schema.FileHeader(
        magic=schema.number("FILE_MAGIC"),
        version=schema.number("FILE_VERSION"),
        schema=checksum(native.library().st3_schema()),
        inputs=len(inputs),
        outputs=len(outputs),
        states=len(states),
        plan_count=len(plans),
    )
    content.append(bytes(header))
    header.writer = content.text(f"st3 {_version()}")
    header.tensors = content.append(b"".join([content.tensor(each) for each in (*inputs, *outputs, *states)]))
    header.plans = content.append(b"".join([content.plan(each) for each in plans]))
    content.append_arrays()
    header.size = len(content.bytes)
    content.bytes[: ctypes.sizeof(header)] = bytes(header)
    header.checksum = checksum(bytes(content.bytes[schema.number("FILE_SEALED") :]))
    content.bytes[: ctypes.sizeof(header)] = bytes(header)
    write_file(path, lambda file: file.write(content.bytes))


def checksum(content: bytes) -> int:
    """Return the CRC-64/XZ of some bytes, as the signed number that a header holds."""
    found: int = native.library().st3_checksum(content, len(content))
    return ctypes.c_int64(found).value


def _version() -> str:
    version: str = importlib.import_module(__name__.partition(".")[0]).__version__
    return version


class _Content:
    """The bytes of a file; parts are appended and their offsets returned."""

    def __init__(self) -> None:
        self.bytes = bytearray()
        self.tables: list[tuple[int, Plan]] = []  # of constants, to be filled in when the arrays have offsets

    def append(self, part: bytes, alignment: int = 8) -> int:
        self.bytes += bytes(-len(self.bytes) % alignment)
        self.bytes += part
        return len(self.bytes) - len(part)

    def text(self, text: str) -> int:
        printable = "".join(letter if letter.isprintable() else "?" for letter in text)
        return self.append(printable.encode()[:LONGEST_NAME].decode(errors="ignore").encode() + b"\0", 1)

    def tensor(self, tensor: Tensor) -> bytes:
        shape = (ctypes.c_int64 * len(tensor.shape))(*tensor.shape)
        start = tensor.contents
        return bytes(
            schema.FileTensor(
                name=self.text(tensor.name),
                shape=self.append(bytes(shape)),
                contents=0
                if start is None or not start.any()
                else self.append(start.contiguous().numpy().tobytes()),
                dims=len(tensor.shape),
                type=DTYPES.index(tensor.dtype),
            )
        )

    def plan(self, planned: Planned) -> bytes:
        plan, kernels = planned.plan, planned.kernels
        stored = plan.structure()  # offsets replace its addresses
        stored.steps, stored.nested = self.append(plan.steps), self.append(plan.nested)
        stored.structures = self.append(plan.structures, schema.number("FILE_ALIGNMENT"))
        stored.slots = self.append(bytes((ctypes.c_int64 * len(plan.slots))(*plan.slots)))
        stored.constants = self.append(bytes(ctypes.sizeof(schema.Constant) * len(plan.constants)))
        self.tables.append((stored.constants, plan))
        return bytes(schema.FilePlan(isa=self.text(kernels.name), variants=_variants(kernels), plan=stored))

    def append_arrays(self) -> None:
        """Append the arrays of all plans, equal ones once, and fill in the tables of constants."""
        known: dict[bytes, int] = {}
        for table, plan in self.tables:
            found = []
            for array in plan.constants:
                content = ctypes.string_at(array.address, array.bytes)
                key = hashlib.sha256(content).digest()
                if key not in known:
                    known[key] = self.append(content, schema.number("FILE_ALIGNMENT"))
                found.append(schema.Constant(known[key], array.bytes))
            filled = b"".join(map(bytes, found))
            self.bytes[table : table + len(filled)] = filled


def _variants(kernels: native.Kernels) -> int:
    """Return the checksum of the kernels' tile sizes: a plan refers to them by number."""
    count = ctypes.c_int32()
    numbers: Any = kernels.library.st3_kernels_variants(kernels.address, ctypes.byref(count))
    return checksum(ctypes.string_at(numbers, 20 * count.value))
