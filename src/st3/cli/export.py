"""`st3 export`."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..tables import size_text, text_table
from .faults import Debug
from .shapes import picture_shape

if TYPE_CHECKING:
    from ..experiments.exporting import Export

__all__ = ["export"]


def export(
    path: Annotated[Path, typer.Argument(metavar="RUN|FILE", help="Folder of a run, or a file of weights.")],
    to: Annotated[str, typer.Option(help="sparse, onnx or pt2 (torch.export).", metavar="FORM")] = "sparse",
    output: Annotated[
        Path | None, typer.Option(help="The file (usual: beside the model).", metavar="FILE")
    ] = None,
    values: Annotated[
        str, typer.Option(help="Of a sparse file: same (lossless), fp16 or bf16.", metavar="TYPE")
    ] = "same",
    model: Annotated[
        str | None, typer.Option(help="Network, if the file does not say.", metavar="NAME")
    ] = None,
    input: Annotated[
        str | None, typer.Option(help="Shape of a picture, if the file does not say.", metavar="3x32x32")
    ] = None,
    debug: Annotated[bool, Debug] = False,
) -> None:
    """Write a trained model in another form: a small sparse file, ONNX, a program of torch.export.

    For example: st3 export runs/first --to sparse --values fp16
    """
    from ..experiments.exporting import export_stored

    shape = None if input is None else picture_shape(input)
    made = export_stored(path, to, output=output, values=values, model=model, input_shape=shape)
    print(f"{made.path}\n\n{_text(made)}")


def _text(made: "Export") -> str:
    if made.program is None:
        return str(made.sparse)
    rows = [
        ["all numbers, stored densely", size_text(made.sparse.dense_bytes)],
        ["this file", size_text(made.file_bytes)],
        ["as a sparse file (--to sparse)", size_text(made.sparse.file_bytes)],
        ["bound: values and entropy of positions", size_text(round(made.sparse.bound_bytes))],
    ]
    return "\n".join(
        [
            text_table(["size", ""], rows),
            str(made.program).partition(": ")[2],
            "No gain from zeros: this form stores them, and runtimes multiply by them, like any other number.",
        ]
    )
