"""`st3 plot`."""

from pathlib import Path
from typing import Annotated, get_args

import typer

from .faults import Debug

__all__ = ["plot"]


def plot(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN...", help="Folders of runs.")],
    out: Annotated[Path, typer.Option(help="The figure: .png, .svg or .pdf.", metavar="FILE")] = Path(
        "runs.png"
    ),
    over: Annotated[
        str, typer.Option(help="epochs; or the results over sparsity or macs.", metavar="AXIS")
    ] = "epochs",
    debug: Annotated[bool, Debug] = False,
) -> None:
    """Draw runs into one figure, to compare them. Needs matplotlib.

    For example: st3 plot runs/* --out compared.png, or st3 plot runs/* --over sparsity
    """
    from ..experiments.plots import Over, plot_runs

    if over not in get_args(Over):
        raise typer.BadParameter(
            f"must be one of {', '.join(get_args(Over))}, got {over!r}", param_hint="--over"
        )
    plot_runs(runs, out, over)  # type: ignore[arg-type]  # checked above
    print(out)
