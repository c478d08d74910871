"""`st3 export`."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..tables import size_text, text_table
from .faults import Debug
from .shapes import input_shape

if TYPE_CHECKING:
    from ..experiments.exporting import Export

__all__ = ["export"]


def export(
    path: Annotated[Path, typer.Argument(metavar="RUN|FILE", help="Folder of a run, or a file of weights.")],
    to: Annotated[
        str, typer.Option(help="sparse, onnx, pt2 (torch.export) or engine.", metavar="FORMAT")
    ] = "sparse",
    output: Annotated[
        Path | None, typer.Option(help="The file to write (default: beside the model).", metavar="FILE")
    ] = None,
    values: Annotated[
        str,
        typer.Option(
            help="Of a sparse file: same (lossless), float16 or bfloat16 (in a file named after it).",
            metavar="TYPE",
        ),
    ] = "same",
    model: Annotated[
        str | None, typer.Option(help="Network, if the file does not name it.", metavar="NAME")
    ] = None,
    input: Annotated[
        str | None, typer.Option(help="Shape of one input, if the file does not give it.", metavar="3x32x32")
    ] = None,
    batch: Annotated[
        int | None,
        typer.Option(help="Of an engine file: pictures per call (default: 1).", min=1, metavar="N"),
    ] = None,
    threads: Annotated[
        int | None, typer.Option(help="Of an engine file (default: 1).", min=1, max=1024, metavar="N")
    ] = None,
    int8: Annotated[
        bool,
        typer.Option("--int8", help="Of an engine file: layers in int8, calibrated on training examples."),
    ] = False,
    data_dir: Annotated[
        Path | None,
        typer.Option(help="With --int8: folder of the data, if they have moved.", metavar="FOLDER"),
    ] = None,
    debug: Annotated[bool, Debug] = False,
) -> None:
    """Write a trained model in another format: a small sparse file, ONNX, torch.export, or for the engine.

    For example: st3 export runs/first --to sparse --values float16
    """
    from ..experiments.exporting import export_stored

    shape = None if input is None else input_shape(input)
    made = export_stored(
        path,
        to,
        output=output,
        values=values,
        model=model,
        input_shape=shape,
        batch=batch,
        threads=threads,
        int8=int8,
        data_dir=data_dir,
    )
    print(f"{made.path}\n\n{_describe(made)}")


def _describe(made: "Export") -> str:
    if made.program is None:
        return str(made.sparse)
    rows = [
        ["all numbers, stored densely", size_text(made.sparse.dense_bytes)],
        ["this file", size_text(made.file_bytes)],
        ["as a sparse file (--to sparse)", size_text(made.sparse.file_bytes)],
        ["bound: values and entropy of positions", size_text(round(made.sparse.bound_bytes))],
    ]
    lines = [text_table(["size", ""], rows), str(made.program).partition(": ")[2]]
    if not made.skips_zeros:
        lines += [
            "No gain from zeros: this format stores them, and runtimes multiply by them, like any other number."
        ]
    return "\n".join(lines)
