"""The `st3` command with all its subcommands."""

from typing import Annotated

import typer
from typer.core import TyperGroup

from .bench import bench
from .catalogue import list_names
from .evaluate import evaluate
from .export import export
from .faults import explain_errors
from .generate import generate
from .info import info
from .plot import plot
from .report import report
from .study import study_app
from .train import train

__all__ = ["app"]


class _Group(TyperGroup):
    """The commands, with errors in plain words."""

    def invoke(self, ctx: typer.Context) -> object:  # type: ignore[override]
        with explain_errors(ctx):
            return super().invoke(ctx)


app = typer.Typer(
    cls=_Group,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,  # unexpected errors show Python's own traceback
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="The first run takes seconds and needs no download:  [bold]st3 train[/bold]",
)


def _show_version(wanted: bool) -> None:
    if wanted:
        import platform

        import torch

        import st3

        from ..engine.native import describe_library

        typer.echo(f"st3 {st3.__version__}")
        typer.echo(f"torch {torch.__version__}")
        typer.echo(f"Python {platform.python_version()}")
        typer.echo(f"engine: {describe_library()}")
        raise typer.Exit


@app.callback()
def st3(
    version: Annotated[
        bool,
        typer.Option(
            "--version",
            callback=_show_version,
            is_eager=True,
            metavar="",
            help="Print the versions of st3, torch and Python, and what the engine was built for.",
        ),
    ] = False,
) -> None:
    """Train networks to 80-99 % zeros."""


app.command("train")(train)
app.command("eval")(evaluate)
app.command("generate")(generate)
app.command("bench")(bench)
app.command("report")(report)
app.command("plot")(plot)
app.command("info")(info)
app.command("export")(export)
app.command("list")(list_names)
app.add_typer(study_app, name="study")
