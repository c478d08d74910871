"""Read the folder of a run."""

import dataclasses
import json
from pathlib import Path

import pytest

from st3.experiments.folder import read_summary
from st3.experiments.results import ResultsError, Run
from st3.experiments.spec import read_spec

from .made_up import write_run

RESULTS = Path(__file__).parents[2] / "results"


def test_a_finished_run_is_read_completely(tmp_path: Path) -> None:
    run = Run.open(write_run(tmp_path / "run", 8, layers=5, with_twin=True))
    assert run.is_finished
    assert [epoch["epoch"] for epoch in run.epochs] == list(range(1, 9))
    assert len(run.layers) == 8
    assert len(run.layers[0]["layers"]) == 5
    assert run.steps[-1]["step"] == run.epochs[-1]["step"]
    assert (run.model, run.data, run.method, run.target) == ("resnet20", "cifar10", "st3", 0.95)
    assert run.versions["torch"] == "2.13.0"
    assert run.best is not None
    assert run.best["epoch"] == 8


def test_the_dense_twin_is_another_run(tmp_path: Path) -> None:
    run = Run.open(write_run(tmp_path / "run", with_twin=True))
    assert run.twin is not None
    assert run.parts == (run.twin,)
    assert run.twin.path == tmp_path / "run" / "dense"
    assert (run.twin.method, run.twin.target, run.twin.layers, run.twin.twin) == (None, None, [], None)


def test_runs_in_other_folders_are_not_taken_for_parts(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", with_twin=True)
    write_run(run / "second", with_twin=True)
    assert [part.path.name for part in Run.open(run).parts] == ["dense"]
    assert Run.open(write_run(run / "dense" / "third")).parts == ()


def test_the_method_dense_means_no_method(tmp_path: Path) -> None:
    folder = write_run(tmp_path, method=None)
    spec = json.loads((folder / "spec.json").read_text()) | {"sparse": {"method": "dense", "sparsity": 0.0}}
    (folder / "spec.json").write_text(json.dumps(spec))
    assert (Run.open(folder).method, Run.open(folder).target) == (None, None)


def test_a_run_is_frozen(tmp_path: Path) -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        Run.open(write_run(tmp_path)).summary = {}  # type: ignore[misc]


def test_an_unfinished_run_has_no_summary(tmp_path: Path) -> None:
    run = Run.open(write_run(tmp_path, 3, planned=8))
    assert not run.is_finished
    assert len(run.epochs) == 3
    assert run.planned_epochs == 8


def test_a_run_that_has_just_begun_is_empty(tmp_path: Path) -> None:
    (tmp_path / "spec.json").write_text("{}")
    (tmp_path / "dense").mkdir()
    run = Run.open(tmp_path)
    assert (run.epochs, run.steps, run.layers, run.summary, run.versions, run.parts) == (
        [],
        [],
        [],
        None,
        {},
        (),
    )


@pytest.mark.parametrize("name", ["epochs", "steps", "layers"])
@pytest.mark.parametrize(
    "rest", [b'{"epoch": 9, "tra', b'{"epoch": 9, "name": "\xc3'], ids=["mid-word", "mid-letter"]
)
def test_an_incomplete_last_line_is_dropped(tmp_path: Path, name: str, rest: bytes) -> None:
    folder = write_run(tmp_path)
    before = getattr(Run.open(folder), name)
    with (folder / f"{name}.jsonl").open("ab") as file:
        file.write(rest)
    assert getattr(Run.open(folder), name) == before


def test_a_last_line_without_a_line_end_is_kept_if_complete(tmp_path: Path) -> None:
    folder = write_run(tmp_path)
    text = (folder / "epochs.jsonl").read_text()
    (folder / "epochs.jsonl").write_text(text.removesuffix("\n"))
    assert len(Run.open(folder).epochs) == 8


def test_nan_counts_as_missing(tmp_path: Path) -> None:
    folder = write_run(tmp_path)
    (folder / "steps.jsonl").write_text('{"epoch": 1, "loss": NaN}\n')
    assert Run.open(folder).steps == [{"epoch": 1, "loss": None}]


def test_a_path_that_is_not_a_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ResultsError) as caught:
        Run.open(tmp_path / "nowhere")
    assert str(caught.value) == (
        f"cannot read a run from {tmp_path / 'nowhere'}: there is no such folder; "
        "give the folder that the run was written to"
    )
    (tmp_path / "file").touch()
    with pytest.raises(ResultsError, match="it is a file"):
        Run.open(tmp_path / "file")


def test_for_a_folder_without_a_run_those_one_level_below_are_named(tmp_path: Path) -> None:
    with pytest.raises(ResultsError) as caught:
        Run.open(tmp_path)
    assert str(caught.value) == f"no run in {tmp_path}: it holds no spec.json"
    for name in ("b", "a"):
        write_run(tmp_path / name, 1)
    (tmp_path / "c").mkdir()
    with pytest.raises(ResultsError) as caught:
        Run.open(tmp_path)
    assert str(caught.value) == f"no run in {tmp_path}: it holds no spec.json; runs one level below: a, b"


def test_damage_is_reported_with_file_and_line(tmp_path: Path) -> None:
    folder = write_run(tmp_path)
    lines = (folder / "epochs.jsonl").read_text().splitlines()
    (folder / "epochs.jsonl").write_text("\n".join([*lines[:2], lines[2][:30], *lines[3:]]) + "\n")
    with pytest.raises(ResultsError, match=r"^damaged JSON: .*epochs\.jsonl, line 3: .+ \(column \d+\)$"):
        Run.open(folder)


@pytest.mark.parametrize(
    ("name", "content", "complaint"),
    [
        ("spec.json", b'{"data": {},\n"model": }', r"damaged JSON: .*spec\.json, line 2: .+"),
        ("summary.json", b"", r"damaged JSON: .*summary\.json, line 1: .+"),
        ("versions.json", b'{"cpu": "\n\xff"}', r"damaged JSON: .*versions\.json, line 2: not UTF-8"),
        ("spec.json", b"[]", r"damaged JSON: .*spec\.json, line 1: expected a JSON object, found a list"),
        (
            "layers.jsonl",
            b'{"layers": {}}\n',
            r"damaged run: .*layers\.jsonl, line 1: epoch is missing",
        ),
        ("spec.json", b'{"a":' * 99_999, r"damaged JSON: .*spec\.json, line 1: nested too deeply, or .*"),
        ("steps.jsonl", b"7\n", r"damaged JSON: .*steps\.jsonl, line 1: expected a JSON object, found a int"),
    ],
)
def test_other_damage_is_reported(tmp_path: Path, name: str, content: bytes, complaint: str) -> None:
    folder = write_run(tmp_path)
    (folder / name).write_bytes(content)
    with pytest.raises(ResultsError, match=f"^{complaint}$"):
        Run.open(folder)


def test_damage_in_the_twin_is_reported_with_its_file(tmp_path: Path) -> None:
    folder = write_run(tmp_path, with_twin=True)
    (folder / "dense" / "epochs.jsonl").write_text("{\n{}\n")
    with pytest.raises(ResultsError, match=r"dense/epochs\.jsonl, line 1"):
        Run.open(folder)


def test_runs_of_earlier_versions_stay_readable() -> None:
    folders = [path.parent for path in RESULTS.rglob("spec.json")]
    assert folders
    for folder in folders:
        assert len(Run.open(folder).epochs) == read_spec(folder / "spec.json").recipe.total_epochs
        assert read_summary(folder)


def test_lines_that_a_finished_run_must_have_are_missed(tmp_path: Path) -> None:
    folder = write_run(tmp_path)
    for name, lost in (("epochs", 2), ("layers", 2), ("steps", 93)):
        lines = (folder / f"{name}.jsonl").read_text().splitlines(keepends=True)
        (folder / f"{name}.jsonl").write_text("".join(lines[: -2 if name != "steps" else -100]))
        message = rf"{name}\.jsonl lacks {lost} lines: restore it, or delete it to go on without$"
        with pytest.raises(ResultsError, match=message):
            Run.open(folder)
        (folder / f"{name}.jsonl").unlink()
    assert Run.open(folder).is_finished
