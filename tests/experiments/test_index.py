"""Runs are found by what determines them."""

import json
import shutil
from pathlib import Path

import pytest

from st3.experiments.conduct import draw_study, plan_study
from st3.experiments.evidence.points import read_points
from st3.experiments.grid.budgets import BUDGETS
from st3.experiments.grid.index import Index
from st3.experiments.grid.wanted import Wanted
from st3.experiments.run import train
from st3.experiments.studies.own import read_study

WANTED = Wanted("st3", "digits", "digits_cnn", {"method": "st3", "sparsity": 0.9}, "digits", 2)
ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("index")
    train(WANTED.spec, folder / "trained-elsewhere")
    return folder


@pytest.fixture
def copied(runs, tmp_path):
    shutil.copytree(runs, tmp_path / "runs")
    return tmp_path / "runs"


def test_a_run_is_found_whatever_its_folder_is_called(copied):
    (copied / "trained-elsewhere").rename(copied / "x")
    found = Index(copied).find(WANTED)
    assert found is not None
    assert found.folder.name == "x"
    assert found.versions["st3"]


def test_another_seed_or_sparsity_is_another_run(runs):
    for sparse, seed in (({"method": "st3", "sparsity": 0.91}, 0), (WANTED.sparse, 1)):
        other = Wanted("st3", "digits", "digits_cnn", sparse, "digits", 2, seed=seed)
        assert Index(runs).find(other) is None


def test_a_run_that_did_not_count_switches_is_not_found_for_them(runs):
    counted = Wanted("st3", "digits", "digits_cnn", WANTED.sparse, "digits", 2, windows=2)
    assert counted.identity == WANTED.identity
    assert Index(runs).find(counted) is None
    assert Index(runs).place(counted).name == counted.folder


def test_an_unfinished_run_is_continued_where_it_was_begun(copied):
    (copied / "trained-elsewhere" / "summary.json").unlink()
    index = Index(copied)
    assert index.find(WANTED) is None
    assert index.place(WANTED).name == "trained-elsewhere"


@pytest.mark.parametrize("content", ["{", "[]", '{"epochs": "x"}'])
def test_a_damaged_summary_is_left_out_and_named(copied, content):
    path = copied / "trained-elsewhere" / "summary.json"
    path.write_text(content)
    index = Index(copied)
    assert index.find(WANTED) is None
    assert len(index.faults) == 1
    assert str(path) in index.faults[0]


def test_a_damaged_spec_is_left_out_and_named(copied):
    (copied / "trained-elsewhere" / "spec.json").write_text(json.dumps({"data": 1}))
    index = Index(copied)
    assert index.find(WANTED) is None
    assert "trained-elsewhere" in index.faults[0]


def test_runs_of_an_earlier_version_count():
    index = Index(ROOT / "results" / "cifar10-resnet20-8-epochs")
    setting = BUDGETS["cifar-short"].settings["resnet20"]
    for series, method in (("st3", "st3"), ("gmp", "gmp"), ("soft", "soft")):
        sparse = {"method": method, "sparsity": 0.95}
        wanted = Wanted(series, setting.data, setting.model, sparse, setting.recipe, setting.epochs)
        found = index.find(wanted)
        assert found is not None
        assert found.folder.name == f"{series}-0.95"


def test_two_curves_of_a_study_may_share_a_run(copied, tmp_path):
    file = tmp_path / "twice.toml"
    file.write_text(
        'data = "digits"\nmodel = "digits_cnn"\nrecipe = "digits"\nepochs = 2\nsparsities = [0.9]\nseeds = [0]\n'
        'dense = false\nmethods = ["st3", {method = "st3", name = "soft", arguments = {soft = true}}]\n'
    )
    study, budget = read_study(file)
    assert len(plan_study(study, budget, Index(tmp_path)).jobs) == 1
    assert len(plan_study(study, budget, Index(copied)).finished) == 1
    drawn = draw_study(study, budget, tmp_path)
    assert drawn.runs == 1
    assert {point.method for point in read_points(drawn.paths[0])} == {"st3", "soft"}
