"""`st3 train`."""

import contextlib
import json
import os
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from . import options
from .faults import Debug, is_first_process

if TYPE_CHECKING:
    from ..experiments.spec import Spec
    from ..training.listener import Listener
    from .spec_options import SpecOptions

__all__ = ["train"]


def train(
    data: options.Data = None,
    data_dir: options.DataDir = None,
    download: options.Download = False,
    model: options.Model = None,
    method: options.Method = None,
    sparsity: options.Sparsity = None,
    allocation: options.Allocation = None,
    block: options.Block = None,
    protocol: options.Protocol = None,
    dense_twin: options.DenseTwin = None,
    cycles: options.Cycles = None,
    reset_seed: options.ResetSeed = None,
    recipe: options.RecipeName = None,
    epochs: options.Epochs = None,
    changes: options.Changes = None,
    seed: options.Seed = None,
    data_seed: options.DataSeed = None,
    run: options.RunFolder = None,
    resume: options.Resume = False,
    keep: options.Keep = 2,
    tensorboard: options.TensorBoard = False,
    device: options.Device = None,
    precision: options.Precision = None,
    workers: options.Workers = None,
    threads: options.Threads = None,
    compile: options.Compile = False,
    channels_last: options.ChannelsLast = None,
    deterministic: options.Deterministic = False,
    sharded: options.Sharded = False,
    quiet: options.Quiet = False,
    as_json: options.Json = False,
    debug: Annotated[bool, Debug] = False,
) -> None:
    """Train a sparse network, and write everything about the run into its folder.

    Without options it trains a small network on 8x8 digits, dense and 90 % sparse, in seconds. For example:

    st3 train --data cifar10 --download --model resnet20 --sparsity 0.95

    On several devices: torchrun --nproc-per-node 2 -m st3 -- train ...
    """
    from .spec_options import SpecOptions, keep_given

    given = SpecOptions(
        data=keep_given(
            name=data,
            dir=data_dir and os.path.abspath(os.path.expanduser(data_dir)),
            download=download or None,
        ),
        model=keep_given(name=model),
        sparse=keep_given(method=method, sparsity=sparsity, allocation=allocation, block=block),
        seeds=keep_given(init=seed, data=seed if data_seed is None else data_seed),
        machine=keep_given(
            device=device,
            precision=precision,
            workers=workers,
            threads=threads,
            compile=compile or None,
            channels_last=channels_last,
            deterministic=deterministic or None,
            sharded=sharded or None,
        ),
        recipe=recipe,
        epochs=epochs,
        changes=tuple(changes or ()),
        protocol=protocol,
        protocol_options=keep_given(dense_twin=dense_twin, cycles=cycles, reset_seed=reset_seed),
    )
    spec, resume = _spec(given, run, resume)
    _run(spec, run, resume, keep, tensorboard, quiet, as_json)


def _spec(given: "SpecOptions", run: Path | None, resume: bool) -> tuple["Spec", bool]:
    """Return the spec to train, and whether its folder may hold the run already."""
    from ..experiments.spec import read_spec
    from ..training.paths import SPEC
    from .run_folder import no_run_to_resume

    if not resume:
        return given.spec(), False
    if run is None:
        raise typer.BadParameter("it needs --run FOLDER, the run to resume", param_hint="--resume")
    if (run / SPEC).exists():
        return given.merge_into(read_spec(run / SPEC)), True
    if not given.describes_a_run:
        raise no_run_to_resume(run)
    if is_first_process():
        print(f"there is no run in {run} yet: starting it", file=sys.stderr)
    return given.spec(), True


def _run(
    spec: "Spec", run: Path | None, resume: bool, keep: int, tensorboard: bool, quiet: bool, as_json: bool
) -> None:
    from ..experiments.folder import read_summary
    from ..experiments.run import train as train_run
    from ..training.paths import TENSORBOARD
    from ..training.process import join_processes
    from ..training.stop import Stopped
    from .progress import progress_for
    from .run_folder import usual_folder
    from .spec_text import spec_text

    with join_processes(spec.machine.device) as process, contextlib.ExitStack() as stack:
        folder = process.share(usual_folder(spec) if run is None else run)
        listeners: list[Listener] = []
        if process.is_first and tensorboard:
            from ..training.tensorboard import TensorBoard

            listeners.append(stack.enter_context(TensorBoard(folder / TENSORBOARD)))
        if process.is_first and not quiet:
            print(spec_text(spec, folder, process), file=sys.stderr, flush=True)
            listeners.append(stack.enter_context(progress_for(spec)))
        was_finished = resume and read_summary(folder) is not None
        try:
            summary = train_run(spec, folder, resume=resume, listeners=listeners, keep=keep)
        except (Stopped, KeyboardInterrupt) as stop:
            stack.close()
            _print_how_to_continue(stop, folder)
            raise typer.Exit(128 + getattr(stop, "signal_number", 2)) from None
        stack.close()
        if was_finished and process.is_first and not quiet:
            print("this run is already finished: nothing was left to train", file=sys.stderr)
        if process.is_first:
            _print_result(summary, folder, quiet, as_json)


def _print_how_to_continue(stop: BaseException, folder: Path) -> None:
    from ..training.paths import SPEC

    if not is_first_process():
        return
    if not (folder / SPEC).exists():
        print("stopped before the run began: nothing was written", file=sys.stderr)
    else:
        text = str(stop) or "stopped at once; the work since the last checkpoint is lost"
        print(f"{text}\ncontinue with: st3 train --run {shlex.quote(str(folder))} --resume", file=sys.stderr)


def _print_result(summary: dict[str, Any], folder: Path, quiet: bool, as_json: bool) -> None:
    from ..experiments.results import Run
    from .comparison import closing_words, result_table

    run = Run.open(folder)
    if as_json:
        parts = {part.path.name: part.summary for part in run.parts}
        print(json.dumps({**summary, "run": str(folder), "parts": parts}, indent=2))
        if quiet:
            return
    out = sys.stderr if as_json else sys.stdout
    table, dense = result_table(run), run.twin.summary if run.twin else None
    print(table if quiet else f"\n{table}\n\n{closing_words(summary, folder, dense)}", file=out)
