"""`st3 bench`."""

import json
from typing import TYPE_CHECKING, Annotated

import typer

from ..processor import processor
from ..tables import text_table
from .faults import Debug
from .shapes import input_shape

if TYPE_CHECKING:
    from ..experiments.bench.benchmark import Bench

__all__ = ["bench"]


def bench(
    model: Annotated[
        str,
        typer.Argument(
            metavar="RUN|FILE|NAME", help="A run's folder, a file of weights, or a network's name."
        ),
    ],
    network: Annotated[
        str | None, typer.Option("--model", help="Network, if the file does not name it.", metavar="NAME")
    ] = None,
    input: Annotated[
        str | None, typer.Option(help="Shape of one input, if not the usual one.", metavar="3x32x32")
    ] = None,
    sparsity: Annotated[
        float | None, typer.Option(help="Of an untrained network (default: 0.9).", metavar="FRACTION")
    ] = None,
    allocation: Annotated[
        str, typer.Option(help="Of an untrained network: uniform, erk, global, ...", metavar="NAME")
    ] = "uniform",
    block: Annotated[
        int | None,
        typer.Option(
            help="Of an untrained network: zero so many input channels together.", min=1, metavar="N"
        ),
    ] = None,
    batch: Annotated[int, typer.Option(help="Batch size.", min=1, max=10**6, metavar="N")] = 1,
    threads: Annotated[int, typer.Option(help="Threads of each engine.", min=1, metavar="N")] = 1,
    rounds: Annotated[
        int, typer.Option(help="Timed calls of each engine.", min=1, max=10**6, metavar="N")
    ] = 10,
    layers: Annotated[bool, typer.Option("--layers", help="Also show every layer.", metavar="")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.", metavar="")] = False,
    debug: Annotated[bool, Debug] = False,
) -> None:
    """Time a sparse model in st3's engine, torch, ONNX Runtime and OpenVINO (float32, bfloat16, int8).

    For example: st3 bench runs/first --batch 16; or an untrained network: st3 bench resnet50 --sparsity 0.95
    """
    from ..experiments.bench.benchmark import bench as run

    found = run(
        model,
        network=network,
        input_shape=None if input is None else input_shape(input),
        sparsity=sparsity,
        allocation=allocation,
        block=block,
        batch=batch,
        threads=threads,
        rounds=rounds,
    )
    print(json.dumps(found.to_dict(), indent=2) if as_json else _text(found, layers))


def _text(found: "Bench", layers: bool) -> str:
    of, shape = found.comparison, "x".join(map(str, found.shape))
    threads = f"{of.threads} thread{'s' if of.threads > 1 else ''}"
    rows = [
        [timing.name, f"{timing.min_ms:.3f}", f"{timing.median_ms:.3f}", f"{timing.difference:.1e}"]
        for timing in sorted(of.timings, key=lambda timing: timing.min_ms)
    ]
    lines = [f"{found.model}, input {shape}, {100 * found.sparsity:.1f} % zeros, {threads}", processor(), ""]
    lines += [text_table(["engine", "min ms", "median ms", "difference"], rows)]
    lines += [f"{name} was not measured: {reason}" for name, reason in of.absent.items()]
    lines += ["", found.verdict]
    if layers:
        lines += ["", of.compiled.report()]
    return "\n".join(lines)
