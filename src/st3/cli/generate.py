"""`st3 generate`."""

import io
import sys
from pathlib import Path
from typing import Annotated

import typer

from .faults import Debug

__all__ = ["generate"]


def generate(
    path: Annotated[Path, typer.Argument(metavar="RUN|FILE", help="Folder of a run, or a file of weights.")],
    prompt: Annotated[str, typer.Option(help="The text to continue.", metavar="TEXT")],
    length: Annotated[
        int, typer.Option(help="Characters to add (bytes, if it reads bytes).", metavar="N")
    ] = 500,
    temperature: Annotated[
        float, typer.Option(help="0: always the most probable; 1: as probable as in the model.", metavar="T")
    ] = 0.8,
    seed: Annotated[
        int, typer.Option(help="Of the characters drawn.", min=0, max=2**63 - 1, metavar="N")
    ] = 0,
    threads: Annotated[int, typer.Option(help="Of the engine.", min=1, max=1024, metavar="N")] = 1,
    model: Annotated[
        str | None, typer.Option(help="Network, if the file does not name it.", metavar="NAME")
    ] = None,
    debug: Annotated[bool, Debug] = False,
) -> None:
    """Continue a text with a network that was trained on text, in the engine.

    The text goes to stdout, its speed to stderr. For example: st3 generate runs/book --prompt "Alice was"
    """
    from ..experiments.generation import continue_text

    continuation = continue_text(
        path, prompt, length=length, temperature=temperature, seed=seed, threads=threads, model=model
    )
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # models of bytes take and write what is not UTF-8
    print(prompt, end="", flush=True)
    for piece in continuation:
        print(piece, end="", flush=True)
    print(flush=True)
    print(
        f"{continuation.length / continuation.seconds:,.0f} {continuation.alphabet.units} per second; "
        f"{continuation.model} with {100 * continuation.sparsity:.2f} % zeros",
        file=sys.stderr,
    )
