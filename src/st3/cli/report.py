"""`st3 report`."""

from pathlib import Path
from typing import Annotated

import typer

from .faults import Debug

__all__ = ["report"]


def report(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="Folder of a run, finished or not.")],
    out: Annotated[
        Path | None, typer.Option(help="The page (usual: RUN/report.html).", metavar="FILE")
    ] = None,
    debug: Annotated[bool, Debug] = False,
) -> None:
    """Write the page of a run: curves, layers, settings.

    For example: st3 report runs/first
    """
    from ..experiments.page import write_page

    print(write_page(run) if out is None else write_page(run, out))
