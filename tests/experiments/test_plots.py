"""Several runs in one figure."""

import re
import sys
from pathlib import Path

import pytest

from st3.experiments.plots import labels, plot_runs
from st3.experiments.results import Run

from .made_up import write_run

STARTS = {".png": b"\x89PNG", ".svg": b"<?xml", ".pdf": b"%PDF"}


@pytest.mark.parametrize("kind", STARTS)
def test_the_suffix_decides_the_format(tmp_path: Path, kind: str) -> None:
    run = write_run(tmp_path / "run", 4, with_twin=True)
    path = plot_runs([run, run / "dense"], tmp_path / "new" / f"picture{kind}")
    assert path.read_bytes().startswith(STARTS[kind])
    assert [p.name for p in path.parent.iterdir()] == [path.name]


def test_a_run_that_has_just_begun_can_be_drawn(tmp_path: Path) -> None:
    (tmp_path / "young").mkdir()
    (tmp_path / "young" / "spec.json").write_text("{}")
    plot_runs([tmp_path / "young", write_run(tmp_path / "going", 1, planned=8)], tmp_path / "runs.svg")


def test_runs_are_named_by_method_and_sparsity(tmp_path: Path) -> None:
    runs = [
        write_run(tmp_path / "a", 2, sparsity=0.95),
        write_run(tmp_path / "b", 2, sparsity=0.9),
        write_run(tmp_path / "c", 2, method=None),
    ]
    assert labels([Run.open(run) for run in runs]) == ["st3 0.95", "st3 0.9", "dense"]


def test_a_run_and_its_twin_are_named_by_method_alone(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", 2, with_twin=True)
    assert labels([Run.open(run), Run.open(run / "dense")]) == ["st3 0.95", "dense"]


def test_runs_are_named_by_the_settings_that_differ(tmp_path: Path) -> None:
    runs = [
        write_run(tmp_path / "a", 2),
        write_run(tmp_path / "b", 4),
        write_run(tmp_path / "c", 2, name="vgg11"),
    ]
    found = labels([Run.open(run) for run in runs])
    assert len(set(found)) == 3
    assert "vgg11" in found[2]
    assert "epochs 4" in found[1]


def test_runs_with_the_same_spec_are_named_by_their_folders(tmp_path: Path) -> None:
    runs = [write_run(tmp_path / name, 2) for name in ("first", "second")]
    assert labels([Run.open(run) for run in runs]) == ["first", "second"]


def test_names_with_a_special_meaning_for_matplotlib_are_escaped(tmp_path: Path) -> None:
    runs = [write_run(tmp_path / name, 2) for name in ("_hidden", "$formula_{")]
    plot_runs(runs, tmp_path / "runs.png")


def test_an_unknown_suffix_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError) as caught:
        plot_runs([write_run(tmp_path / "run", 2)], tmp_path / "picture.gif")
    assert str(caught.value) == "cannot draw into 'picture.gif': the name must end in .png, .svg, .pdf"


def test_drawing_no_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="nothing to draw: give at least one run's folder"):
        plot_runs([], tmp_path / "picture.png")


def test_without_matplotlib_the_error_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(ImportError, match=r"^drawing needs matplotlib: pip install 'st3\[plot\]'$"):
        plot_runs([write_run(tmp_path / "run", 2)], tmp_path / "picture.png")
    assert not (tmp_path / "picture.png").exists()


@pytest.mark.parametrize("over", ["sparsity", "macs"])
def test_finished_runs_are_points_over_sparsity_and_multiply_adds(tmp_path: Path, over: str) -> None:
    results = Path(__file__).parents[2] / "results" / "cifar10-resnet20-8-epochs"
    runs = [results / name for name in ("st3-0.95", "gmp-0.95", "hard-ste-0.95", "dense")]
    path = plot_runs(runs, tmp_path / "runs.svg", over)
    text = path.read_text()
    for label in ("gmp", "st3", "soft False", "dense"):  # beside the letters' outlines
        assert re.search(f"<!-- .*{label}.* -->", text)


def test_an_unfinished_run_cannot_be_drawn_over_sparsity(tmp_path: Path) -> None:
    run = write_run(tmp_path / "going", 1, planned=8)
    with pytest.raises(
        ValueError, match=r"going is not finished: only finished runs can be drawn over sparsity"
    ):
        plot_runs([run], tmp_path / "runs.svg", "sparsity")
