"""`st3 info`."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..tables import size_text, text_table
from .faults import Debug
from .shapes import input_shape

if TYPE_CHECKING:
    from ..experiments.inspection import Inspection, TensorRow

__all__ = ["info"]


def info(
    path: Annotated[
        Path,
        typer.Argument(
            metavar="FILE|RUN", help="A .safetensors file, plain or sparse, a state_dict, or a run's folder."
        ),
    ],
    model: Annotated[
        str | None, typer.Option(help="Network, if the file does not say.", metavar="NAME")
    ] = None,
    input: Annotated[
        str | None, typer.Option(help="Shape of one input, to count MACs for.", metavar="3x32x32")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Everything as JSON.", metavar="")] = False,
    debug: Annotated[bool, Debug] = False,
) -> None:
    """Show what is in a model: zeros, multiply-adds and bytes, layer by layer.

    For example: st3 info weights.pt --model resnet20 --input 3x32x32
    """
    from ..experiments.inspection import inspect_stored

    shape = None if input is None else input_shape(input)
    found = inspect_stored(path, model=model, input_shape=shape)
    print(json.dumps(found.to_dict(), indent=2) if as_json else _text(found))


def _text(found: "Inspection") -> str:
    lines = [f"{found.path}: {found.model or 'unknown network'}", ""]
    if found.report is None:
        rows = [_cells(row) for row in found.tensors]
        lines += [text_table(["tensor", "shape", "numbers", "zeros", "zeros %"], rows, left=(0, 1)), ""]
        lines += ["For MACs and layers, name the network: --model NAME --input 3x32x32"]
    else:
        lines += [str(found.report)]
    sizes = [
        ["all numbers, stored densely", size_text(found.dense_bytes)],
        ["the file", size_text(found.file_bytes)],
    ]
    if found.sparse is not None:
        sizes.append(["as a sparse file (st3 export)", size_text(found.sparse.file_bytes)])
        sizes.append(["bound: values and entropy of positions", size_text(round(found.sparse.bound_bytes))])
    return "\n".join([*lines, "", text_table(["size", ""], sizes)])


def _cells(row: "TensorRow") -> list[str]:
    share = f"{100 * row.zeros / row.numbers:.2f}" if row.numbers else "-"
    return [row.name, "x".join(map(str, row.shape)), f"{row.numbers:,}", f"{row.zeros:,}", share]
