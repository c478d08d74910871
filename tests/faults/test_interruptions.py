"""Runs that are killed at a file operation, that find the disk full, or whose folder is moved: nothing is lost."""

import subprocess
from pathlib import Path

import pytest
from tests.faults.runs import StopAt, command, run_until, small_spec
from tests.processes import run_python

from st3.experiments.folder import RunFolderError
from st3.experiments.run import train
from st3.training.paths import FIGURES, MODEL


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return run_until(None, tmp_path_factory.mktemp("whole") / "run", small_spec(epochs=1))


def begin(folder: Path, *words: object) -> list[str]:
    done = run_python("from tests.faults.process import begin; begin()", folder, *words)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def require_same(run: Path, whole: Path) -> None:
    """Require the model of the uninterrupted run, and exactly its files."""
    assert (run / MODEL).read_bytes() == (whole / MODEL).read_bytes()
    files = [{path.relative_to(folder) for path in folder.rglob("*")} for folder in (run, whole)]
    assert files[0] == files[1]
    assert list((run / FIGURES).iterdir())


def check_kills(folder: Path, whole: Path, numbers: list[int]) -> int:
    """Kill a run at each of these file operations, resume it, and return how many were killed."""
    killed = 0
    for number, answer in zip(numbers, begin(folder, "kill", *numbers), strict=True):
        killed += answer == f"{number} 9"
        train(small_spec(epochs=1), folder / str(number), resume=True)
        require_same(folder / str(number), whole)
    return killed


def test_a_run_that_was_killed_at_a_file_operation_is_completed(whole, tmp_path):
    assert check_kills(tmp_path, whole, [5, 20, 33, 60]) == 4


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_a_run_that_was_killed_at_any_file_operation_is_completed(whole, tmp_path):
    assert (
        60 < check_kills(tmp_path, whole, [*range(1, 121)]) < 120
    )  # some numbers are beyond the last operation


def test_a_run_that_may_write_only_small_files_ends_with_one_sentence_and_is_resumed(whole, tmp_path):
    (answer,) = begin(tmp_path, "limit", 20_000)
    run = tmp_path / "20000"
    assert answer.strip() == f"error: cannot write {run}/checkpoints/step-000000019.pt: File too large"
    assert not list(run.rglob(".*.part"))
    train(small_spec(epochs=1), run, resume=True)
    require_same(run, whole)


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("kilobytes", [4, 16, 64, 200, 400, 600])
def test_a_full_disk_ends_with_one_sentence_and_the_run_is_resumed(whole, tmp_path, kilobytes):
    def mount(options: str) -> bool:
        return not subprocess.run(
            ["mount", "-t", "tmpfs", "-o", options, "tmpfs", tmp_path], capture_output=True
        ).returncode

    if not mount(f"size={kilobytes}k"):
        pytest.skip("this user may not mount a small disk")
    run = tmp_path / "run"
    try:
        options = ("--epochs", 1, "--protocol", "single", "--device", "cpu", "--threads", 1)
        _, error = command("train", "--run", run, *options, "--quiet")
        assert "No space left on device" in error
        assert not list(run.rglob(".*.part"))
        assert mount("remount,size=64m")
        train(small_spec(epochs=1), run, resume=True)
        require_same(run, whole)
    finally:
        subprocess.run(["umount", tmp_path], check=True)


def test_a_run_that_is_moved_while_training_ends_with_one_sentence_and_continues_there(whole, tmp_path):
    old, new = tmp_path / "old", tmp_path / "new"
    with pytest.raises(
        RunFolderError, match=r"the run in .*old was moved or deleted while it was training: cont"
    ):
        train(small_spec(epochs=1), old, listeners=[StopAt(5, lambda: old.rename(new))])
    assert not old.exists()
    train(small_spec(epochs=1), new, resume=True)
    require_same(new, whole)


def test_missing_figures_are_written_when_a_finished_run_is_resumed(tmp_path):
    run = run_until(None, tmp_path / "run", small_spec(epochs=1))
    figures = {path: path.read_text() for path in (run / FIGURES).iterdir()}
    for path in [*figures][::2]:
        path.unlink()
    train(small_spec(epochs=1), run, resume=True)
    assert {path: path.read_text() for path in (run / FIGURES).iterdir()} == figures
