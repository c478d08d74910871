"""Save a compiled model's program as a file: what can be saved, and the plans for each instruction set."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch.utils._pytree import TreeSpec, tree_flatten_with_path, tree_unflatten

from . import native
from .frontend import Read, Translation
from .plan.make import Planned, TorchStep, make_plan
from .program import InTorch, Program
from .runfile import Tensor, write_run_file

__all__ = ["save_program"]


def save_program(
    path: Path,
    name: str,
    leaves: Sequence[Any],
    translation: Translation,
    program: Program,
    threads: int,
    planned: Planned | None,
    instruction_sets: Sequence[str] | None,
) -> None:
    """Write the program of the model `name` to a file; `planned` is its tuned plan, if there is one."""
    names = _order(name, instruction_sets)
    _check_inputs(name, leaves)
    read = _outputs(name, translation)
    if read != program.outputs:  # the model returns a value twice, or in another order
        program, planned = replace(program, outputs=read), None
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
        [Tensor(each, shapes[each]) for each in program.inputs],
        [
            Tensor(label, shapes[each])
            for label, each in zip(_labels(translation.out_spec), read, strict=True)
        ],
        plans,
    )


def _order(name: str, asked: Sequence[str] | None) -> list[str]:
    """Return the instruction sets, best first; raise for one that cannot be planned for here."""
    usable = native.usable_instruction_sets()
    if asked is None:
        return usable
    unknown = [each for each in asked if each not in usable]
    if unknown or not asked:
        raise ValueError(
            f"cannot save {name} for {', '.join(map(repr, unknown)) or 'no instruction set'}: the instruction sets of "
            f"this processor and library are {', '.join(usable)}"
        )
    return [each for each in usable if each in asked]


def _check_inputs(name: str, leaves: Sequence[Any]) -> None:
    for number, leaf in enumerate(leaves):
        if not isinstance(leaf, torch.Tensor) or leaf.dtype is not torch.float32:
            what = f"a {leaf.dtype} tensor" if isinstance(leaf, torch.Tensor) else repr(leaf)
            raise ValueError(
                f"cannot save {name}: argument {number} is {what}; a file takes float32 tensors only"
            )


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
