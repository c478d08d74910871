"""Damaged files of a run: the result is the same, an older checkpoint is used, or the error is one sentence."""

import random
from pathlib import Path

import pytest
from tests.faults.runs import BATCHES, DAMAGES, command, copy_run, files_of, run_until, small_spec

from st3.training.paths import MODEL, REPORT, SPARSE_MODEL

QUESTIONS = {
    "info": ("info", "{run}", "--json"),
    "sparse": ("info", f"{{run}}/{SPARSE_MODEL}", "--json"),
    "eval": ("eval", "{run}", "--json"),
    "train": ("train", "--run", "{run}", "--resume", "--quiet", "--json"),
}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("faults")


@pytest.fixture(scope="module")
def finished(place: Path) -> Path:
    return run_until(None, place / "finished", small_spec())


@pytest.fixture(scope="module")
def interrupted(place: Path) -> Path:
    """Return a run with two checkpoints: after its first epoch, and within its second."""
    return run_until(BATCHES + 5, place / "interrupted", small_spec())


def cycles_spec():
    return small_spec(epochs=1, protocol="lrr", sparse={"sparsity": 0.36})


@pytest.fixture(scope="module")
def finished_cycles(place: Path) -> Path:
    return run_until(None, place / "finished-cycles", cycles_spec())


@pytest.fixture(scope="module")
def interrupted_cycles(place: Path) -> Path:
    """Return a run that was stopped in its second cycle, which began with what the first one handed over."""
    return run_until(BATCHES + 5, place / "interrupted-cycles", cycles_spec())


def damage(run: Path, name: str, kind: str, seed: int) -> None:
    path = run / name
    path.write_bytes(DAMAGES[kind](path.read_bytes(), random.Random(f"{name}{kind}{seed}")))


def ask(run: Path) -> dict[str, tuple[str, str]]:
    """Return what the commands answer about a finished run, and the page that they write."""
    answers = {name: command(*(word.format(run=run) for word in words)) for name, words in QUESTIONS.items()}
    (run / REPORT).unlink(missing_ok=True)
    _, error = command("report", run)
    answers["page"] = ("" if error else (run / REPORT).read_text(), error)
    return answers


def check_finished(finished: Path, place: Path, name: str, kind: str, seed: int, intact: dict) -> int:
    run = copy_run(finished, place / "run")
    damage(run, name, kind, seed)
    answers = ask(run)
    for question, (answer, error) in answers.items():
        if question == "page" and name == MODEL and "is damaged" in answer:
            continue  # in place of the program that loads the model
        assert error or answer == intact[question][0], f"{name}, {kind} {seed}: {question} has another answer"
        assert not error or str(run) in error, error
    return sum(bool(error) for _, error in answers.values())


def check_interrupted(interrupted: Path, whole: Path, place: Path, name: str, kind: str, seed: int) -> str:
    run = copy_run(interrupted, place / "run")
    damage(run, name, kind, seed)
    _, error = command("train", "--run", run, "--resume", "--quiet")
    if error:
        assert str(run) in error, error
    else:
        model = next(path.relative_to(whole) for path in sorted(whole.rglob(MODEL), reverse=True))
        assert (run / model).read_bytes() == (whole / model).read_bytes(), (
            f"{name}, {kind} {seed}: another model"
        )
    return error


@pytest.fixture(scope="module")
def intact(finished: Path, place: Path) -> dict[str, tuple[str, str]]:
    answers = ask(copy_run(finished, place / "run"))
    assert not any(error for _, error in answers.values())
    return answers


def test_a_damaged_file_of_a_finished_run_changes_no_answer(finished, place, intact):
    refused = 0
    for number, name in enumerate(files_of(finished)):
        refused += check_finished(finished, place, name, [*DAMAGES][number % 3], 0, intact)
    assert refused > 5


def test_a_damaged_file_of_an_interrupted_run_leads_to_no_other_model(interrupted, finished, place):
    for number, name in enumerate(files_of(interrupted)):
        check_interrupted(interrupted, finished, place, name, [*DAMAGES][number % 3], 0)


def test_damaged_raw_weights_between_cycles_are_refused(interrupted_cycles, finished_cycles, place):
    raw = "cycle-00/raw.safetensors"
    error = check_interrupted(interrupted_cycles, finished_cycles, place, raw, "flip", 0)
    assert f"{raw} is damaged: its checksum does not match" in error


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("kind", DAMAGES)
def test_much_damage_to_a_finished_run_changes_no_answer(finished, place, intact, kind):
    for name in files_of(finished):
        for seed in range(1, 21):
            check_finished(finished, place, name, kind, seed, intact)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("kind", DAMAGES)
def test_much_damage_to_interrupted_runs_leads_to_no_other_model(
    interrupted, finished, interrupted_cycles, finished_cycles, place, kind
):
    for run, whole in ((interrupted, finished), (interrupted_cycles, finished_cycles)):
        for name in files_of(run):
            for seed in range(1, 11):
                check_interrupted(run, whole, place, name, kind, seed)
