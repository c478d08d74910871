"""Studies with a drawing of their own, against what is known about them."""

import csv
import itertools
import json
from pathlib import Path

import pytest

from st3.experiments.conduct import draw_study
from st3.experiments.grid.budgets import BUDGETS
from st3.experiments.grid.index import FinishedRun
from st3.experiments.studies import STUDIES
from st3.experiments.studies.switches import COLUMNS
from st3.experiments.studies.tables import allocated_macs

DIGITS = BUDGETS["digits"]
ROOT = Path(__file__).parents[3]


def rows(path):
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_one_weight_jumps_under_hard_thresholding_and_not_under_soft(tmp_path):
    draw_study(STUDIES["operators"](), DIGITS, tmp_path)
    steps = [{k: float(v) for k, v in row.items()} for row in rows(tmp_path / "digits/operators/weights.csv")]
    pairs = list(itertools.pairwise(steps))
    longest = {name: max(abs(b[name] - a[name]) for a, b in pairs) for name in ("raw", "hard", "soft")}
    assert longest["hard"] > 0.5  # the whole threshold at once
    assert longest["soft"] <= longest["raw"] + 1e-9
    for row in steps:
        assert row["hard"] == pytest.approx(row["raw"] if row["raw"] > 0.5 else 0.0, abs=1e-4)
        assert row["soft"] == pytest.approx(max(row["raw"] - 0.5, 0.0), abs=1e-4)


@pytest.mark.parametrize(
    ("network", "sparsity", "allocation", "million"),
    [
        ("mobilenet_v1", 0.75, "uniform", 142.2),
        ("mobilenet_v1", 0.95, "erk", 83.7),
        ("resnet50", 0.8, "erk", 1692.1),
        ("resnet50", 0.9, "uniform", 408.9),
    ],
)
def test_multiply_adds_of_allocations_without_training(network, sparsity, allocation, million):
    assert allocated_macs(network, sparsity, allocation, ()) / 1e6 == pytest.approx(million, abs=0.06)


def test_the_tables_hold_every_published_row_and_what_our_counter_gives(tmp_path):
    draw_study(STUDIES["table-mobilenet"](), DIGITS, tmp_path)
    page = (tmp_path / "digits/table-mobilenet/README.md").read_text()
    assert len([line for line in page.splitlines() if line.startswith("| ") and " % |" in line]) == 18
    assert "| GMP | 74.11 % | 67.70 | 163 | 163.4 |" in page  # first layer and depthwise layers dense
    assert "| RigL + ERK | 90 % | 62.33 | 154 | 154.3 |" in page
    assert "| ST-3 | 80 % | 69.10 | 181 |  |" in page  # it depends on the trained weights


def test_what_the_paper_does_not_print_stays_empty(tmp_path):
    """It states the dense accuracy on ImageNet, and no multiply-adds."""
    draw_study(STUDIES["table-resnet50"](), DIGITS, tmp_path)
    page = (tmp_path / "digits/table-resnet50/README.md").read_text()
    assert "| dense | 0 % | 77.10 |  | 4089." in page


def switch_rows(cubic, fixed):
    """Return rows in which every weight switches so often: {seed: times in each window}."""
    return [
        (method, seed, window, 1, 2, "active", times, 10)
        for method, seeds in (("st3-cubic", cubic), ("st3-constant", fixed))
        for seed, windows in seeds.items()
        for window, times in enumerate(windows, start=1)
    ]


def write_switches(folder, cubic, fixed):
    folder.mkdir(parents=True)
    with (folder / "switches.csv").open("w", newline="") as file:
        csv.writer(file).writerows([COLUMNS, *switch_rows(cubic, fixed)])


def switch_verdicts(folder):
    """Return what the file of switches says; drawing it takes much longer."""
    study = STUDIES["switches"]()
    study.write_more(folder, [])
    return study.verdicts([], DIGITS, folder)


@pytest.mark.parametrize(
    ("cubic", "answers"),
    [
        ({0: [9, 2, 8, 9], 1: [9, 2, 8, 9]}, ["holds", "holds"]),
        ({0: [2, 9, 8, 9], 1: [2, 9, 8, 9]}, ["holds", "does not hold"]),
        ({0: [90, 20, 80, 90], 1: [90, 20, 80, 90]}, ["does not hold", "does not hold"]),
        ({0: [9, 2, 8, 9]}, ["cannot be told at this budget"] * 2),
    ],
)
def test_switches_with_the_ramp_are_compared_with_those_without(tmp_path, cubic, answers):
    write_switches(tmp_path / "study", cubic, {seed: [10, 10, 10, 10] for seed in cubic})
    assert [verdict.answer for verdict in switch_verdicts(tmp_path / "study")] == answers


def test_a_quarter_without_any_switch_cannot_be_compared(tmp_path):
    """A run of two epochs has two empty quarters."""
    write_switches(tmp_path / "study", {0: [5, 0, 5, 0]}, {0: [5, 0, 5, 0]})
    found = switch_verdicts(tmp_path / "study")
    assert {verdict.numbers for verdict in found} == {"no runs with switches in every quarter"}


def test_the_one_switch_that_the_ramp_makes_is_not_counted(tmp_path):
    folder = tmp_path / "digits/switches"
    write_switches(folder, {0: [3, 3, 3, 3], 1: [3, 3, 3, 3]}, {0: [6, 6, 6, 6], 1: [6, 6, 6, 6]})
    with (folder / "switches.csv").open("a", newline="") as file:
        for method, times in (("st3-cubic", 1), ("st3-constant", 0)):
            others = [
                (method, seed, window, 1, 2, "zeroed", times, 90) for seed in (0, 1) for window in range(1, 5)
            ]
            csv.writer(file).writerows(others)
    drawn = draw_study(STUDIES["switches"](), DIGITS, tmp_path)
    assert "0.50 in all; by quarter 0.50, 0.50, 0.50, 0.50" in drawn.verdicts[0].numbers


def test_histograms_whose_runs_are_gone_stay_in_their_file(tmp_path):
    write_switches(tmp_path / "study", {0: [1, 1, 1, 1], 1: [2, 2, 2, 2]}, {})
    window = {"first_epoch": 1, "last_epoch": 2, "active": {"7": 10}, "zeroed": {}}
    (tmp_path / "switches.json").write_text(json.dumps({"windows": [window] * 4}))
    study = STUDIES["switches"]()
    wanted = next(run for run in study.wanted(DIGITS) if (run.series, run.seed) == ("st3-cubic", 0))
    study.write_more(tmp_path / "study", [(wanted, FinishedRun(tmp_path, wanted.spec, {}))])
    shown = [(row["seed"], row["switches"]) for row in rows(tmp_path / "study/switches.csv")]
    assert shown == [("0", "7")] * 4 + [("1", "2")] * 4


def test_the_costs_are_those_of_the_benchmark(tmp_path):
    measured = json.loads((ROOT / "results/benchmarks/step-overhead-methods.json").read_text())
    draw_study(STUDIES["costs"](), DIGITS, tmp_path)
    shown = {row["method"]: row for row in rows(tmp_path / "digits/costs/costs.csv")}
    assert shown.keys() == {row["method"] for row in measured["rows"]}
    for row in measured["rows"]:
        ratio = row["sparse over dense step"]
        assert (float(shown[row["method"]]["min"]), float(shown[row["method"]]["median"])) == (
            ratio["min"],
            ratio["median"],
        )
