"""`st3 train`."""

import contextlib
import json
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
    from .given import Given

__all__ = ["train"]


def train(
    data: options.Data = None,
    data_dir: options.DataDir = None,
    download: options.Download = False,
    model: options.Model = None,
    method: options.Method = None,
    sparsity: options.Sparsity = None,
    allocation: options.Allocation = None,
    dense_twin: options.DenseTwin = None,
    protocol: options.Protocol = None,
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
    """Train a network to be sparse, and write all evidence to the folder of the run.

    Without options it trains a small network on 8x8 digits, dense and 90 % sparse, in seconds. For example:

    st3 train --data cifar10 --download --model resnet20 --sparsity 0.95

    On several devices: torchrun --nproc-per-node 2 -m st3 -- train ...
    """
    from .given import Given, said

    given = Given(
        data=said(
            name=data, dir=data_dir and str(data_dir.expanduser().absolute()), download=download or None
        ),
        model=said(name=model),
        sparse=said(method=method, sparsity=sparsity, allocation=allocation),
        seeds=said(init=seed, data=seed if data_seed is None else data_seed),
        machine=said(
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
        dense_twin=dense_twin,
        protocol=protocol,
        cycles=said(count=cycles, reset_seed=reset_seed),
    )
    spec, resume = _spec(given, run, resume)
    _run(spec, run, resume, keep, tensorboard, quiet, as_json)


def _spec(given: "Given", run: Path | None, resume: bool) -> tuple["Spec", bool]:
    """Return what is to be trained, and whether a run is gone on with."""
    from ..experiments.spec import read_spec
    from .run_folder import no_run_to_resume

    if not resume:
        return given.spec(), False
    if run is None:
        raise typer.BadParameter("it needs --run FOLDER: which run is to be resumed?", param_hint="--resume")
    if (run / "spec.json").exists():
        return given.over(read_spec(run / "spec.json")), True
    if not given.names_a_run:
        raise no_run_to_resume(run)
    if is_first_process():
        print(f"there is no run in {run} yet: starting it", file=sys.stderr)
    return given.spec(), True


def _run(
    spec: "Spec", run: Path | None, resume: bool, keep: int, tensorboard: bool, quiet: bool, as_json: bool
) -> None:
    from ..experiments.folder import finished_summary
    from ..experiments.run import train as train_run
    from ..training.process import joined
    from ..training.stop import Stopped
    from .progress import progress_for
    from .run_folder import usual_folder
    from .spec_text import spec_text

    with joined(spec.machine.device) as process, contextlib.ExitStack() as stack:
        folder = process.share(usual_folder(spec) if run is None else run)
        listeners: list[Listener] = []
        if process.is_first and tensorboard:
            from ..training.tensorboard import TensorBoard

            listeners.append(stack.enter_context(TensorBoard(folder / "tensorboard")))
        if process.is_first and not quiet:
            print(spec_text(spec, folder, process), file=sys.stderr, flush=True)
            listeners.append(stack.enter_context(progress_for(spec)))
        was_finished = resume and finished_summary(folder) is not None
        try:
            summary = train_run(spec, folder, resume=resume, listeners=listeners, keep=keep)
        except (Stopped, KeyboardInterrupt) as stop:
            stack.close()
            _say_how_to_go_on(stop, folder)
            raise typer.Exit(128 + getattr(stop, "signal_number", 2)) from None
        stack.close()
        if was_finished and process.is_first and not quiet:
            print("this run was finished already: nothing was left to train", file=sys.stderr)
        if process.is_first:
            _close(summary, folder, quiet, as_json)


def _say_how_to_go_on(stop: BaseException, folder: Path) -> None:
    if not is_first_process():
        return
    if not (folder / "spec.json").exists():
        print("stopped before the run began: nothing was written", file=sys.stderr)
    else:
        text = str(stop) or "stopped at once; what was done since the last checkpoint is lost"
        print(f"{text}\ngo on with: st3 train --run {shlex.quote(str(folder))} --resume", file=sys.stderr)


def _close(summary: dict[str, Any], folder: Path, quiet: bool, as_json: bool) -> None:
    from ..experiments.folder import finished_summary
    from .comparison import closing_words, comparison_table, cycles_table

    dense = finished_summary(folder / "dense")
    if as_json:
        print(json.dumps({**summary, "run": str(folder), "dense": dense}, indent=2))
        if quiet:
            return
    out = sys.stderr if as_json else sys.stdout
    table = cycles_table(summary) if "cycles" in summary else comparison_table(summary, dense)
    print(table if quiet else f"\n{table}\n\n{closing_words(summary, folder, dense)}", file=out)
