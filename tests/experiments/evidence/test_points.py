"""Points: what a run shows, and the csv file."""

from dataclasses import replace

import pytest

from st3.experiments.evidence.points import Point, PointsError, points_of_run, read_points, write_points
from st3.experiments.evidence.published import published_points
from st3.experiments.grid.index import FinishedRun
from st3.experiments.spec import compose

POINT = Point("ours", "st3", "resnet20", "cifar10", 0.9, 0.91, 1234, 0, 8, "abc", "0123")


def run(tmp_path, **summary):
    return FinishedRun(tmp_path, compose(seeds={"init": 3, "data": 3}), summary)


def test_points_come_back_from_the_file_as_they_were(tmp_path):
    published = Point("paper", "gmp", "resnet50", "imagenet", 0.8, 0.756)
    write_points(tmp_path / "points.csv", [published, POINT, POINT])
    assert read_points(tmp_path / "points.csv") == [POINT, published]


def test_the_file_does_not_depend_on_the_order_of_the_points(tmp_path):
    others = [Point("ours", "gmp", "resnet20", "cifar10", 0.9, 0.9, seed=seed) for seed in range(3)]
    write_points(tmp_path / "a.csv", [POINT, *others])
    write_points(tmp_path / "b.csv", [*reversed(others), POINT])
    assert (tmp_path / "a.csv").read_bytes() == (tmp_path / "b.csv").read_bytes()


def test_a_run_is_one_point_with_its_target_as_sparsity(tmp_path):
    summary = {"epochs": 8, "target": 0.9, "sparsity": 0.89998, "sparse_macs": 77, "test": {"accuracy": 0.8}}
    (point,) = points_of_run(run(tmp_path, **summary), "st3", "id")
    assert (point.sparsity, point.score, point.macs, point.seed, point.epochs) == (0.9, 0.8, 77, 3, 8)


def test_a_method_without_a_target_has_the_sparsity_that_it_reached(tmp_path):
    summary = {"epochs": 8, "target": None, "sparsity": 0.87, "sparse_macs": 77, "test": {"accuracy": 0.8}}
    (point,) = points_of_run(run(tmp_path, **summary), "str", "id")
    assert point.sparsity == 0.87


def test_cycles_are_a_point_each_with_the_epochs_of_all_before(tmp_path):
    cycles = [
        {
            "folder": f"cycle-0{n}",
            "epochs": 8,
            "target": t,
            "sparsity": 0.0,
            "sparse_macs": 1,
            "test": {"accuracy": 0.5},
        }
        for n, t in enumerate((None, 0.2, 0.36))
    ]
    points = list(points_of_run(run(tmp_path, cycles=cycles, epochs=24), "lrr", "id"))
    assert [(p.sparsity, p.epochs, p.run) for p in points] == [
        (0.0, 8, "id/cycle-00"),
        (0.2, 16, "id/cycle-01"),
        (0.36, 24, "id/cycle-02"),
    ]


def test_a_csv_file_without_a_column_is_refused_with_its_name(tmp_path):
    path = tmp_path / "points.csv"
    path.write_text("source,method\nours,st3\n")
    with pytest.raises(PointsError) as error:
        read_points(path)
    assert str(error.value).startswith(f"{path} lacks the columns network, data, sparsity, accuracy, macs")


@pytest.mark.parametrize(
    ("column", "text", "reason"),
    [
        ("accuracy", "ninety", "accuracy must be a number, got 'ninety'"),
        ("accuracy", "91.2", "accuracy must be between 0 and 1, got 91.2"),
        ("seed", "1.5", "seed must be a number, got '1.5'"),
        ("sparsity", "", "sparsity must be a number, got ''"),
        ("accuracy", "nan", "accuracy must be between 0 and 1, got nan"),
    ],
)
def test_a_csv_file_edited_by_hand_is_refused_with_its_line(tmp_path, column, text, reason):
    path = tmp_path / "points.csv"
    write_points(path, [POINT])
    head, row = path.read_text().splitlines()
    cells = dict(zip(head.split(","), row.split(","), strict=True)) | {column: text}
    path.write_text(f"{head}\n{','.join(cells.values())}\n")
    with pytest.raises(PointsError) as error:
        read_points(path)
    assert str(error.value) == f"{path}, line 2: {reason}; correct the line or delete it"


def test_the_published_points_are_those_of_the_two_tables_and_the_long_run():
    points = published_points()
    count = {network: sum(p.network == network for p in points) for network in ("resnet50", "mobilenet_v1")}
    assert count == {"resnet50": 52, "mobilenet_v1": 18}
    best = [p for p in points if p.network == "resnet50" and p.sparsity == 0.9]
    top = max(best, key=lambda point: point.score)
    assert (top.method, top.score, top.macs) == ("st3", 0.7603, 764_000_000)


def test_bits_stand_in_a_column_of_their_own_name(tmp_path):
    summary = {"epochs": 8, "target": 0.9, "sparsity": 0.9, "sparse_macs": 77, "test": {"bits": 2.5}}
    (point,) = points_of_run(run(tmp_path, **summary), "st3", "id")
    assert (point.score, point.task) == (2.5, "language")
    write_points(tmp_path / "points.csv", [point])
    assert (tmp_path / "points.csv").read_text().splitlines()[0].split(",")[5] == "bits"
    assert read_points(tmp_path / "points.csv") == [point]


def test_points_of_two_tasks_are_not_mixed(tmp_path):
    with pytest.raises(PointsError, match="scores of classification and language cannot be compared"):
        write_points(tmp_path / "points.csv", [POINT, replace(POINT, score=2.5, task="language")])
