"""Every number of the command line has a bound, and no text of it ends in a traceback."""

import json
import os
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from st3.cli.app import app
from st3.data.listing import FILE, list_pictures
from st3.data.places import cache_folder

HUGE = "9" * 20
LIMIT = 8 * (os.cpu_count() or 1)


def call(*words: object) -> str:
    """Return what the command says on stderr; it must refuse with one sentence for each fault."""
    answer = CliRunner().invoke(app, [str(word) for word in words], prog_name="st3")
    assert answer.exit_code in (1, 2), answer.output
    assert answer.exception is None or isinstance(answer.exception, SystemExit), answer.exception
    assert "Traceback" not in answer.output
    return answer.stderr


@pytest.fixture(autouse=True)
def elsewhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.delenv("ST3_DEBUG", raising=False)


@pytest.mark.parametrize("name", ["workers", "threads"])
@pytest.mark.parametrize("number", [LIMIT + 1, 10**6])
def test_workers_and_threads_are_a_small_multiple_of_the_processors(name, number):
    said = (
        f"machine.{name} is {number}, but this machine has {os.cpu_count()} processors: take at most {LIMIT}"
    )
    assert said in call("train", f"--{name}", number)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--workers", HUGE), "machine.workers: input should be less than or equal to 1000000000"),
        (("--threads", HUGE), "machine.threads: input should be less than or equal to 1000000000"),
        (("--seed", HUGE), "seeds.init: input should be less than or equal to 9223372036854775807"),
        (("--data-seed", HUGE), "seeds.data: input should be less than or equal to 9223372036854775807"),
        (("--epochs", "9" * 400), "epochs must be from 1 to 1,000,000,000"),
        (("--cycles", "9" * 400), "cycles must be a whole number from 2 (the first one is dense) to 1,000"),
        (("--keep", HUGE), "should be less than or equal to 1000"),
        (
            ("--set", f"recipe.batch_size={HUGE}"),
            "batch_size: input should be less than or equal to 1000000000",
        ),
        (("--set", f"sparse.min_weights={HUGE}"), "min_weights: input should be less than or equal to"),
        (
            ("--protocol", "lrr", "--set", "protocol.arguments.prune=1e-15"),
            "pruning 1e-15 of the remaining weights at a time does not reach sparsity 0.9 in 1,000 cycles",
        ),
    ],
    ids=lambda value: " ".join(value)[:30] if isinstance(value, tuple) else "",
)
def test_numbers_of_a_run_are_bounded(words, said):
    assert said in call("train", *words)
    assert not Path("runs").exists()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--threads", 10**6), "--threads is 1000000, but this machine has"),
        (("--rounds", HUGE), "should be less than or equal to 1000000"),
        (("--batch", HUGE), "should be less than or equal to 1000000"),
        (("--batch", 10**6, "--input", "1x99x99"), "1000000x1x99x99 is over 268,435,456 numbers"),
        (("--input", "1x999999x999999"), "1x999999x999999 is over 268,435,456 numbers: take a smaller input"),
    ],
)
def test_numbers_of_a_benchmark_are_bounded(words, said):
    assert said in call("bench", "digits_cnn", *words)


def test_a_shape_beyond_all_memory_is_refused_by_info_and_export():
    torch.save({"weight": torch.zeros(2, 2)}, "weights.pt")
    model = ("--model", "digits_cnn", "--input", "1x999999x999999")
    for command in (("info", "weights.pt"), ("export", "weights.pt", "--to", "onnx")):
        assert "1x999999x999999 is over 268,435,456 numbers" in call(*command, *model)


def test_tensors_without_numbers_and_tensors_larger_than_their_file_are_refused():
    torch.save({"weight": torch.zeros(2, 2, device="meta")}, "meta.pt")
    assert "weight in meta.pt is a meta tensor, with a shape but no numbers" in call("info", "meta.pt")
    torch.save({"weight": torch.zeros(1).expand(10**6, 10**6)}, "huge.pt")
    assert "weight in huge.pt claims 1,000,000,000,000 numbers" in call("info", "huge.pt")
    places, values = torch.zeros(2, 1, dtype=torch.int64), torch.ones(1)
    torch.save(
        {"weight": torch.sparse_coo_tensor(places, values, (10**6, 10**6), check_invariants=True)}, "coo.pt"
    )
    assert "weight in coo.pt claims 1,000,000,000,000 numbers" in call("info", "coo.pt")


@pytest.fixture
def homeless(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process whose user has no home: containers are started so."""
    for name in ("HOME", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("os.path.expanduser", lambda path: os.fspath(path))


@pytest.mark.usefixtures("homeless")
def test_without_a_home_a_data_folder_must_be_named(tmp_path):
    said = call("train", "--data", "cifar10", "--run", "run")
    assert (
        "there is no home folder to keep data sets in: set HOME or XDG_CACHE_HOME, or give --data-dir" in said
    )
    assert "cifar10 was not found in" in call(
        "train", "--data", "cifar10", "--data-dir", "~nobody-here/x", "--run", "r"
    )
    (tmp_path / "pictures" / "cat").mkdir(parents=True)
    (tmp_path / "pictures" / "cat" / "1.png").touch()
    assert list_pictures(tmp_path / "pictures", ("",)) == {"": {"cat": ["1.png"]}}


@pytest.mark.parametrize(
    "damage", ["[" * 100_000, '["a"]', '{"": 3}', '{"": {"cat": ["../../x.png"]}}', '{"": {}}']
)
def test_a_damaged_list_of_pictures_is_made_again(tmp_path, damage):
    (tmp_path / "cat").mkdir()
    (tmp_path / "cat" / "1.png").touch()
    right = list_pictures(tmp_path, ("",))
    text = (tmp_path / FILE).read_text()
    pictures = json.dumps(json.loads(text)["pictures"])
    (tmp_path / FILE).write_text(text.replace(pictures, damage))
    assert list_pictures(tmp_path, ("",)) == right


def test_the_cache_is_below_the_home(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    assert cache_folder() == tmp_path / ".cache" / "st3"
