"""`st3 study`: the paper's figures and tables, and comparisons of one's own."""

import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .faults import Debug

if TYPE_CHECKING:
    from ..experiments.conduct import Plan
    from ..experiments.grid.budgets import Budget
    from ..experiments.grid.schedule import Job, Workers
    from ..experiments.studies import Study

__all__ = ["study_app"]

study_app = typer.Typer(
    no_args_is_help=True, help="Train and draw the paper's figures and tables, or a comparison of your own."
)

Name = Annotated[str, typer.Argument(metavar="STUDY", help="See st3 study list; or a TOML file of your own.")]
BudgetName = Annotated[
    str | None,
    typer.Option("--budget", metavar="NAME", help="digits, text, cifar-short or paper."),
]
Out = Annotated[Path, typer.Option("--out", metavar="DIR", help="Where everything is written.")]
Epochs = Annotated[
    int | None, typer.Option("--epochs", min=1, metavar="N", help="Other epochs than the budget's.")
]
Seeds = Annotated[int | None, typer.Option("--seeds", min=1, metavar="N", help="The first N seeds.")]
Sparsities = Annotated[str | None, typer.Option("--sparsities", metavar="S,S", help="Such as 0.9,0.98.")]
Methods = Annotated[str | None, typer.Option("--methods", metavar="NAME,NAME", help="Only these curves.")]


@study_app.command("list")
def list_studies(out: Out = Path("studies"), debug: Annotated[bool, Debug] = False) -> None:
    """Show every study with its runs at each budget, and how many are there already."""
    from ..experiments.conduct import RUNS, plan_study
    from ..experiments.grid.budgets import BUDGETS
    from ..experiments.grid.index import Index
    from ..experiments.studies import STUDIES
    from ..tables import text_table

    head = ["study", "in the paper", "what it shows", *(f"{budget}: runs, epochs" for budget in BUDGETS)]
    rows, index = [], Index(out / RUNS)
    for name in STUDIES:
        study, cells = STUDIES[name](), []
        for budget in BUDGETS:
            plan = plan_study(study, BUDGETS[budget], index)
            count = len(plan.finished) + len(plan.jobs)
            there = f", {len(plan.finished)} there" if plan.finished else ""
            cells.append(f"{count}, {plan.all_epochs}{there}" if count else "-")
        rows.append([name, study.shown_in or "-", study.title, *cells])
    print(text_table(head, rows, left=(0, 1, 2)))


@study_app.command("run")
def run(
    study: Name,
    budget: BudgetName = None,
    out: Out = Path("studies"),
    epochs: Epochs = None,
    seeds: Seeds = None,
    sparsities: Sparsities = None,
    methods: Methods = None,
    data_dir: Annotated[
        Path | None, typer.Option("--data-dir", metavar="DIR", help="Folder of the data.")
    ] = None,
    download: Annotated[
        bool, typer.Option("--download", help="Download the data if they are missing.")
    ] = False,
    device: Annotated[str | None, typer.Option("--device", metavar="NAME", help="auto, cpu, cuda.")] = None,
    workers: Annotated[
        int | None,
        typer.Option("--workers", min=1, metavar="N", help="Runs at once on this machine (usual: 1)."),
    ] = None,
    threads: Annotated[
        int | None,
        typer.Option(
            "--threads",
            min=1,
            metavar="N",
            help="Of each run (usual: the workers share all; on a cluster 1).",
        ),
    ] = None,
    ray: Annotated[
        str | None,
        typer.Option("--ray", metavar="ADDRESS", help="Train on a Ray cluster: its address, or auto."),
    ] = None,
    dry_run: Annotated[
        bool,
        typer.Option("--dry-run", help="Print one st3 train command per missing run, and train nothing."),
    ] = False,
    debug: Annotated[bool, Debug] = False,
) -> None:
    """Train what is missing, then draw."""
    from ..experiments.conduct import RUNS, plan_study
    from ..experiments.grid.index import Index
    from .spec_options import keep_given

    if ray is not None and workers is not None:
        raise typer.BadParameter("--workers is for this machine, --ray for a cluster: leave out one of them")
    chosen, size = _choose(study, budget, epochs, seeds, sparsities, methods)
    directory = None if data_dir is None else str(data_dir.expanduser().absolute())
    data = keep_given(dir=directory, download=download or None)
    machine = keep_given(device=device, threads=threads)
    plan = plan_study(chosen, size, Index(out.absolute() / RUNS), data=data, machine=machine)
    _warn(plan.faults)
    if dry_run:
        for job in plan.jobs:
            print(job.wanted.command(job.folder, data=data, machine=machine))
        return
    failed = _train(plan, out, workers or 1, threads, ray) if plan.jobs else 0
    _draw(chosen, size, out)
    if failed:
        raise typer.Exit(1)


@study_app.command("draw")
def draw(
    study: Name,
    budget: BudgetName = None,
    out: Out = Path("studies"),
    epochs: Epochs = None,
    seeds: Seeds = None,
    sparsities: Sparsities = None,
    methods: Methods = None,
    debug: Annotated[bool, Debug] = False,
) -> None:
    """Draw from the runs and points that are there; train nothing."""
    _draw(*_choose(study, budget, epochs, seeds, sparsities, methods), out)


def _choose(
    name: str,
    budget: str | None,
    epochs: int | None,
    seeds: int | None,
    sparsities: str | None,
    methods: str | None,
) -> tuple["Study", "Budget"]:
    """Return the study and its budget, narrowed by the options."""
    from ..experiments.studies.choice import choose_study

    return choose_study(
        name,
        budget,
        epochs=epochs,
        seeds=seeds,
        sparsities=None if sparsities is None else _numbers(sparsities),
        methods=None if methods is None else [word.strip() for word in methods.split(",")],
    )


def _numbers(text: str) -> list[float]:
    try:
        numbers = [float(word) for word in text.split(",")]
    except ValueError:
        raise typer.BadParameter(
            f"must be numbers such as 0.9,0.98, got {text!r}", param_hint="--sparsities"
        ) from None
    if bad := [number for number in numbers if not 0 < number < 1]:
        raise typer.BadParameter(f"must be above 0 and below 1, got {bad[0]:g}", param_hint="--sparsities")
    return numbers


def _train(plan: "Plan", out: Path, workers: int, threads: int | None, ray: str | None) -> int:
    """Train the jobs of a plan; return how many failed."""
    from ..experiments.conduct import Rehearsal
    from ..experiments.grid.schedule import processor_count, train_all
    from .study_progress import progress_for

    threads = threads or (1 if ray else max(1, processor_count() // workers))
    jobs, rehearsal = list(plan.jobs), Rehearsal(threads)
    for job, reason in rehearsal.faults(jobs):
        jobs.remove(job)
        _warn([f"{job.wanted.title} is left out: {reason}"])
    if not jobs:
        return 0
    try:
        with _workers(jobs, workers, threads, out, ray) as pool:
            _say_cost(plan, jobs, rehearsal.seconds(jobs) / pool.slots)
            with progress_for(jobs) as progress:
                stopped = train_all(jobs, pool, progress.update)
    except KeyboardInterrupt:
        lost = "the work since the last checkpoints is lost"
        print(f"stopped at once; {lost}: the same command goes on", file=sys.stderr)
        raise typer.Exit(128 + signal.SIGINT) from None
    if stopped is not None:
        print("stopped; every run is saved: the same command goes on", file=sys.stderr)
        raise typer.Exit(128 + stopped)
    failed = [job for job in jobs if job.state == "failed"]
    for job in failed:
        print(f"{job.wanted.title} failed: {job.message} ({job.folder})", file=sys.stderr)
    return len(failed)


def _workers(jobs: "list[Job]", count: int, threads: int, out: Path, ray: str | None) -> "Workers":
    if ray is not None:
        from ..experiments.grid.cluster import RayWorkers

        return RayWorkers(ray, out.absolute(), jobs[0].spec(threads).machine)
    from ..experiments.grid.local import LocalWorkers

    return LocalWorkers(min(count, len(jobs)), threads, out / "workers.log")


def _say_cost(plan: "Plan", jobs: list[Any], seconds: float) -> None:
    epochs = sum(job.epochs_left for job in jobs)
    there = f" ({len(plan.finished)} are there already)" if plan.finished else ""
    minutes = max(1, round(seconds / 60))
    duration = f"{seconds / 3600:.1f} hours" if seconds > 5400 else f"{minutes} minute{'s' * (minutes > 1)}"
    runs = f"{len(jobs)} run{'s' * (len(jobs) > 1)}"
    print(f"{runs} to train{there}, {epochs:,} epochs: about {duration}", file=sys.stderr, flush=True)


def _draw(study: "Study", budget: "Budget", out: Path) -> None:
    from ..experiments.conduct import draw_study

    drawn = draw_study(study, budget, out.absolute())
    _warn(drawn.faults)
    if not drawn.runs and study.wanted(budget):
        _warn([f"no run of it is there yet: st3 study run {study.name} with the same options trains them"])
    print(f"{study.title} ({study.place}), budget {budget.name}: {drawn.runs} runs")
    for verdict in drawn.verdicts:
        print(f"  {verdict.sentence}\n    {verdict.answer}: {verdict.numbers}")
    print("\nWritten\n" + "\n".join(f"  {path}" for path in drawn.paths))


def _warn(faults: Any) -> None:
    for fault in faults:
        print(fault, file=sys.stderr)
