"""`st3 plot`."""

from pathlib import Path
from typing import Annotated

import typer

from .faults import Debug

__all__ = ["plot"]


def plot(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN...", help="Folders of runs.")],
    out: Annotated[Path, typer.Option(help="The figure: .png, .svg or .pdf.", metavar="FILE")] = Path(
        "runs.png"
    ),
    debug: Annotated[bool, Debug] = False,
) -> None:
    """Draw runs into one figure, to compare them. Needs matplotlib.

    For example: st3 plot runs/* --out compared.png
    """
    from ..experiments.plots import plot_runs

    plot_runs(runs, out)
    print(out)
