"""What every study of the catalogue must do: tested the moment its file exists."""

import csv
import shlex

import pytest
from typer.testing import CliRunner

import st3.cli.train
from st3.cli.app import app
from st3.experiments.conduct import RUNS, draw_study, plan_study, usable_runs
from st3.experiments.essence import identity
from st3.experiments.grid.budgets import BUDGETS
from st3.experiments.grid.index import Index
from st3.experiments.studies import STUDIES


@pytest.fixture(params=[*STUDIES])
def study(request):
    return STUDIES[request.param]()


def test_it_is_known_by_its_own_name_and_says_what_it_shows(study):
    assert STUDIES[study.name] is type(study)
    assert study.title
    assert not study.shown_in or study.shown_in.split()[0] in ("figure", "table", "section")


@pytest.mark.parametrize("budget", [*BUDGETS])
def test_every_run_that_it_wants_is_possible(study, budget):
    wanted = study.wanted(BUDGETS[budget])
    usable, faults = usable_runs(wanted)
    assert not faults
    assert len({run.folder for run in usable}) == len(usable)


def test_every_claim_is_about_curves_that_it_draws(study):
    drawn = {(panel.network, series.name) for panel in study.panels() for series in panel.series}
    for claim in study.claims:
        for comparison in claim.comparisons:
            assert {(claim.network, comparison.one), (claim.network, comparison.other)} <= drawn


def test_without_any_run_it_draws_the_published_points_and_the_same_bytes_each_time(study, tmp_path):
    drawn = draw_study(study, BUDGETS["digits"], tmp_path)
    assert drawn.runs == 0
    assert [path.name for path in drawn.paths] == [
        "points.csv",
        f"{study.name}.svg",
        f"{study.name}.png",
        "README.md",
    ]
    with drawn.paths[0].open(newline="") as file:
        assert len(list(csv.DictReader(file))) == len(set(study.published()))
    assert (
        all(verdict.answer == "cannot be told at this budget" for verdict in drawn.verdicts)
        or not study.panels()
    )
    first = [path.read_bytes() for path in drawn.paths]
    assert all(first)
    assert [path.read_bytes() for path in draw_study(study, BUDGETS["digits"], tmp_path).paths] == first


def test_its_commands_describe_the_same_runs(study, tmp_path, monkeypatch):
    """The words of `--dry-run`, read by `st3 train`, lead to the spec that the study wants."""
    seen = []
    monkeypatch.setattr(st3.cli.train, "_run", lambda spec, *rest: seen.append(spec))
    every = [
        run for budget in BUDGETS for run in usable_runs(study.wanted(BUDGETS[budget]))[0] if run.seed == 1
    ]
    by_method = {(run.series, run.model): run for run in every}  # one of each curve will do
    for run in by_method.values():
        words = shlex.split(run.command(tmp_path / run.folder))
        assert words[:2] == ["st3", "train"]
        answer = CliRunner().invoke(app, words[1:])
        assert answer.exit_code == 0, answer.output
        assert identity(seen[-1]) == run.identity
        assert seen[-1].record.switch_windows == run.windows


@pytest.mark.slow
def test_it_runs_on_digits_with_one_seed_and_two_epochs(study, tmp_path):
    words = [
        "study",
        "run",
        study.name,
        "--budget",
        "digits",
        "--epochs",
        "2",
        "--seeds",
        "1",
        "--out",
        str(tmp_path),
    ]
    answer = CliRunner().invoke(app, [*words, "--workers", "2"])
    assert answer.exit_code == 0, answer.output
    budget = BUDGETS["digits"].narrow(epochs=2, seeds=1)
    assert not plan_study(study, budget, Index(tmp_path / RUNS)).jobs
