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
    int8: Annotated[
        bool, typer.Option("--int8", help="In the engine in int8, calibrated on training examples.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="The result as JSON.", metavar="")] = False,
    debug: Annotated[bool, Debug] = False,
) -> None:
    """Measure a trained model, from its file: accuracy, or bits per character of a text.

    For example: st3 eval runs/first --split validation
    """
    from ..experiments.evaluation import evaluate_stored
    from ..training.tasks import task_of

    found = evaluate_stored(
        path,
        data=data,
        data_dir=data_dir,
        model=model,
        split=split,
        batch_size=batch_size,
        device=device,
        int8=int8,
    )
    if as_json:
        print(json.dumps(found, indent=2))
        return
    print(f"{found['model']} from {found['file']}")
    task = task_of(found)
    print(f"on {found[task.examples]:,} {task.examples} of {found['data']} ({found['split']}):")
    rows = {
        task.score.title: task.score.show(found[task.score.name]),
        "loss": f"{found['loss']:.4f}",
        "sparsity": f"{100 * found['sparsity']:.2f} %",
    }
    if int8:
        rows["in int8"] = f"{found['layers_in_int8']} layers"
    width = max(map(len, rows))
    print("\n".join(f"  {name.ljust(width)}  {value}" for name, value in rows.items()))
