"""Conduct a study: find the runs that are there, plan those that are missing, write what they show."""

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from ..data import Splits
from ..training.optimizer import build_optimizer
from ..training.scores import class_scores
from ..training.sections import SettingsError
from ..training.tasks import TASKS
from .build import build_model_for, build_splits
from .evidence.outputs import POINTS, collect_points, count_runs, write_outputs
from .evidence.verdicts import Verdict
from .grid.budgets import Budget
from .grid.index import FinishedRun, Index
from .grid.schedule import Job
from .grid.wanted import Wanted
from .run import rehearse
from .spec import DataSpec, ModelSpec, Spec
from .studies.study import Study

__all__ = ["RUNS", "Drawn", "Plan", "Rehearsal", "draw_study", "plan_study", "usable_runs"]

RUNS = "runs"  # the folder of all runs, in that of the studies
TIMED_BATCHES, TIMED_SECONDS = 4, 5.0  # of each network; whichever comes first


@dataclass(frozen=True)
class Plan:
    """The runs of a study: those that are there, and those to be trained."""

    finished: Sequence[FinishedRun]
    jobs: Sequence[Job]
    faults: Sequence[str]  # of runs and points that are left out

    @property
    def epochs(self) -> int:
        """How many epochs are still to be trained."""
        return sum(job.epochs_left for job in self.jobs)

    @property
    def all_epochs(self) -> int:
        """How many epochs all runs have, those that are there included."""
        done = sum(int(run.summary["epochs"]) for run in self.finished)
        return done + sum(job.wanted.epochs_in_all for job in self.jobs)


def plan_study(
    study: Study,
    budget: Budget,
    index: Index,
    *,
    data: Mapping[str, Any] = {},
    machine: Mapping[str, Any] = {},
) -> Plan:
    """Return what the study needs at this budget. Nothing is trained, nothing is written.

    Points that cannot be trained, such as a sparsity that a method cannot reach, are left out with the reason.
    """
    usable, faults = usable_runs(study.wanted(budget))
    by_run = {(wanted.identity, wanted.windows): wanted for wanted in usable}  # curves may share runs
    finished, jobs = [], []
    for wanted in by_run.values():
        run = index.find(wanted)
        if run is not None:
            finished.append(run)
        else:
            jobs.append(Job(wanted, index.place(wanted), dict(data), dict(machine)))
    return Plan(finished, jobs, [*faults, *index.faults])


def usable_runs(every: Iterable[Wanted]) -> tuple[list[Wanted], list[str]]:
    """Return each run of a curve once, and a sentence for each that is no possible run."""
    found: dict[tuple[str, str, int], Wanted] = {}
    faults = []
    for wanted in every:
        try:
            found.setdefault((wanted.series, wanted.identity, wanted.windows), wanted)
        except (SettingsError, ValueError) as error:
            faults.append(f"{wanted.title} is left out: {error}")
    return list(found.values()), faults


@dataclass(frozen=True)
class Drawn:
    """What was drawn."""

    runs: int  # that the picture rests on
    verdicts: Sequence[Verdict]
    paths: Sequence[Path]
    faults: Sequence[str]  # of runs and points that were left out


def draw_study(study: Study, budget: Budget, out: Path) -> Drawn:
    """Write csv, picture and page of a study from the runs that are there, and from its csv file."""
    folder, index = out / budget.name / study.name, Index(out / RUNS)
    usable, faults = usable_runs(study.wanted(budget))
    runs = [(wanted, index.find(wanted)) for wanted in usable]
    finished = [(wanted, run) for wanted, run in runs if run is not None]
    points = collect_points(study, finished, folder / POINTS)
    paths, verdicts = write_outputs(study, budget, folder, points, finished)
    return Drawn(count_runs(points), verdicts, paths, [*faults, *index.faults])


class Rehearsal:
    """Reads the data and builds every network once, to find before the first run what would stop it."""

    def __init__(self, threads: int) -> None:
        self._threads = threads
        self._splits: dict[str, Splits] = {}
        self._models: dict[tuple[str, str], nn.Module] = {}
        self._paces: dict[tuple[str, str, int], float] = {}

    def faults(self, jobs: Iterable[Job]) -> list[tuple[Job, str]]:
        """Return the jobs that cannot be trained, with the reason. Raises if the data cannot be read."""
        found = []
        known: dict[str, str] = {}  # by everything but the seed
        for job in jobs:
            spec = job.spec(self._threads)
            key = repr((spec.data, spec.model, spec.sparse, spec.recipe, spec.protocol))
            if key not in known:
                splits, model = self._build(spec)
                try:
                    rehearse(spec, model, splits)
                    known[key] = ""
                except (SettingsError, ValueError, LookupError, RuntimeError) as error:
                    known[key] = str(error)
            if known[key]:
                found.append((job, known[key]))
        return found

    def seconds(self, jobs: Iterable[Job]) -> float:
        """Return about how long the jobs take, one after the other, from a few batches of each network."""
        total = 0.0
        for job in jobs:
            spec = job.spec(self._threads)
            key = (spec.data.name, spec.model.name, spec.recipe.batch_size)
            if key not in self._paces:
                splits, model = self._build(spec)
                self._paces[key] = _seconds_per_epoch(spec, model, splits, self._threads)
            total += self._paces[key] * job.epochs_left
        return total

    def _build(self, spec: Spec) -> tuple[Splits, nn.Module]:
        splits = self._splits.get(spec.data.name)
        if splits is None:
            splits = self._splits[spec.data.name] = build_splits(DataSpec.model_validate(spec.data))
        key = (spec.data.name, spec.model.name)
        if key not in self._models:
            model = ModelSpec.model_validate(spec.model)
            self._models[key] = build_model_for(model, splits)
        return splits, self._models[key]


def _seconds_per_epoch(spec: Spec, model: nn.Module, splits: Splits, threads: int) -> float:
    """Return the time of an epoch of dense training, from a few batches of noise."""
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    optimizer = build_optimizer(model, spec.recipe.optimizer, 0.0)
    size = min(spec.recipe.batch_size, len(splits.train))
    task, classes, generator = TASKS[splits.task], len(splits.classes), torch.Generator().manual_seed(0)
    inputs = task.make_inputs(size, splits.shape, classes, generator)
    targets = torch.randint(classes, task.output_shape(size, splits.shape, classes)[:-1], generator=generator)
    times: list[float] = []
    while len(times) < TIMED_BATCHES and sum(times) < TIMED_SECONDS:
        began = time.perf_counter()
        task.summed_loss(class_scores(model(inputs)), targets).div(targets.numel()).backward()
        optimizer.step()
        optimizer.zero_grad()
        times.append(time.perf_counter() - began)
    torch.set_num_threads(before)
    return min(times) * -(-len(splits.train) // size)
