"""`st3 eval`."""

import json
from pathlib import Path
from typing import Annotated

import typer

from .faults import Debug

__all__ = ["evaluate"]


def evaluate(
    path: Annotated[Path, typer.Argument(metavar="RUN|FILE", help="Folder of a run, or a file of weights.")],
    data: Annotated[
        str | None, typer.Option(help="Data set, if the file does not say.", metavar="NAME")
    ] = None,
    data_dir: Annotated[Path | None, typer.Option(help="Folder of its files.", metavar="FOLDER")] = None,
    model: Annotated[
        str | None, typer.Option(help="Network, if the file does not say.", metavar="NAME")
    ] = None,
    split: Annotated[str, typer.Option(help="test, validation or train.", metavar="NAME")] = "test",
    batch_size: Annotated[int, typer.Option(help="Batch size.", min=1, max=10**6, metavar="N")] = 500,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda, cuda:1.", metavar="NAME")] = "auto",
    as_json: Annotated[bool, typer.Option("--json", help="The result as JSON.", metavar="")] = False,
    debug: Annotated[bool, Debug] = False,
) -> None:
    """Measure the accuracy of a trained model, from its file.

    For example: st3 eval runs/first --split validation
    """
    from ..experiments.evaluation import evaluate_stored

    found = evaluate_stored(
        path, data=data, data_dir=data_dir, model=model, split=split, batch_size=batch_size, device=device
    )
    if as_json:
        print(json.dumps(found, indent=2))
        return
    print(f"{found['model']} from {found['file']}")
    print(f"on {found['pictures']:,} pictures of {found['data']} ({found['split']}):")
    print(f"  accuracy  {100 * found['accuracy']:.2f} %")
    print(f"  loss      {found['loss']:.4f}")
    print(f"  sparsity  {100 * found['sparsity']:.2f} %")
