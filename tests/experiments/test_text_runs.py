"""Runs on text: everything that holds for pictures holds for them, with bits per character as the score."""

import json
import random
import re
import signal

import pytest
import torch
from typer.testing import CliRunner

from st3.cli.app import app
from st3.experiments.evaluation import evaluate_stored
from st3.experiments.plots import plot_runs
from st3.experiments.results import ResultsError, Run
from st3.experiments.run import train
from st3.experiments.spec import compose
from st3.files.weights import read_weights
from st3.training.listener import Listener
from st3.training.sealed import parse_lines
from st3.training.sections import SettingsError
from st3.training.stop import Stopped

SIZES = {"model.arguments.width": 16, "model.arguments.layers": 1, "model.arguments.heads": 2}


@pytest.fixture(scope="module")
def tale(tmp_path_factory):
    path = tmp_path_factory.mktemp("text") / "tale.txt"
    words = random.Random(0).choices(["alice", "saw", "the", "white", "hare", "run", "late"], k=700)
    path.write_text(" ".join(words), encoding="utf-8")
    return path


def spec(tale, **more):
    changes = {**SIZES, "batch_size": 16, "data.options.context": 16, **more.pop("changes", {})}
    machine = {"device": "cpu", "threads": 1}
    data = {"name": "text", "dir": str(tale)}
    given = {"data": data, "sparse": {"sparsity": 0.6}, "epochs": 4, "changes": changes, "machine": machine}
    return compose(**{**given, **more})


@pytest.fixture(scope="module")
def whole(tale, tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "whole"
    train(spec(tale), folder)
    return folder


def epochs(folder):
    return [line.content for line in parse_lines((folder / "epochs.jsonl").read_bytes())]


class StopAt(Listener):
    """Asks for a stop after that batch of the run, as Ctrl-C does."""

    def __init__(self, batch):
        self.batch = batch

    def on_batch(self, epoch, batch, batches, rate):
        if (epoch - 1) * batches + batch == self.batch:
            signal.raise_signal(signal.SIGINT)


def test_it_learns_and_counts_bits_in_place_of_accuracy(whole):
    summary = json.loads((whole / "summary.json").read_text())
    found = [line["validation"]["bits"] for line in epochs(whole)]
    assert "accuracy" not in summary["test"]
    assert 1 < found[-1] < found[0] < 3.7  # 13 letters at random cost 3.7 bits
    assert summary["test"]["bits"] == pytest.approx(summary["test"]["loss"] / 0.693147, rel=1e-4)
    assert summary["sparsity"] == pytest.approx(0.6, abs=0.001)
    assert summary["sequences"].keys() == {"train", "validation", "test"}


def test_the_best_epoch_has_the_fewest_bits_among_those_at_the_target(whole):
    every = epochs(whole)
    at_target = [line for line in every if line["at_target"]]
    assert 0 < len(at_target) < len(every)
    best = min(at_target, key=lambda line: line["validation"]["bits"])
    assert json.loads((whole / "summary.json").read_text())["best_epoch"] == best["epoch"]


@pytest.mark.parametrize("batch", [5, 30])
def test_a_run_that_was_stopped_goes_on_bit_for_bit(batch, whole, tale, tmp_path):
    with pytest.raises(Stopped):
        train(spec(tale), tmp_path / "run", listeners=[StopAt(batch)])
    train(spec(tale), tmp_path / "run", resume=True)
    ours, theirs = (read_weights(folder / "model.safetensors")[0] for folder in (tmp_path / "run", whole))
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)
    found, expected = ([line | {"seconds": 0} for line in epochs(f)] for f in (tmp_path / "run", whole))
    assert found == expected


def test_another_text_cannot_continue_a_run(tale, tmp_path):
    with pytest.raises(Stopped):
        train(spec(tale), tmp_path / "run", listeners=[StopAt(5)])
    other = tmp_path / "tale.txt"
    other.write_text(tale.read_text()[::-1])  # as long, with the same letters
    with pytest.raises(ValueError, match=r"belongs to another spec or other data"):
        train(spec(other), tmp_path / "run", resume=True)


def test_the_page_shows_bits_per_character(whole):
    page = re.sub(r"\s+", " ", (whole / "report.html").read_text())
    assert "gpt on text, st3 at 60" in page
    assert re.search(r"Test bits per character \d\.\d{3} with the weights of epoch", page)
    assert "val. bits/char." in page
    assert "accuracy" not in page.lower()
    assert "picture" not in page.lower()
    assert {path.stem for path in (whole / "figures").iterdir()} >= {"bits", "loss", "layer-density"}


def test_cycles_and_a_dense_twin_are_trained_like_those_of_pictures(tale, tmp_path):
    cycles = spec(tale, epochs=1, sparse={}, protocol={"name": "lrr", "arguments": {"count": 3}})
    summary = train(cycles, tmp_path / "cycles")
    assert [cycle["sparsity"] for cycle in summary["cycles"]] == pytest.approx([0, 0.2, 0.36], abs=0.001)
    assert "Bits per character of the cycles" in (tmp_path / "cycles" / "report.html").read_text()
    train(spec(tale, epochs=2, protocol="twin"), tmp_path / "twin")
    page = (tmp_path / "twin" / "report.html").read_text()
    assert re.search(
        r"the dense twin reaches \d\.\d{3}, a difference of [+−]\d\.\d{3}.bits per character", page
    )


def call(*words):
    answer = CliRunner().invoke(app, [str(word) for word in words], prog_name="st3")
    assert answer.exit_code == 0, answer.output
    return answer.stdout


def test_the_commands_work_on_its_model(whole, tmp_path):
    summary = json.loads((whole / "summary.json").read_text())
    assert f"bits per character  {summary['test']['bits']:.3f}" in call("eval", whole)
    assert "blocks.0.attend" in call("info", whole)
    call("export", whole, "--to", "sparse", "--output", tmp_path / "small.safetensors")
    call("export", whole, "--to", "pt2", "--output", tmp_path / "model.pt2")
    call("export", whole, "--to", "engine", "--output", tmp_path / "model.st3run")
    assert call("generate", whole, "--prompt", "alice saw", "--length", "40").startswith("alice saw")
    call("report", whole)
    call("plot", whole, "--out", tmp_path / "runs.png")


def test_evaluation_of_the_file_alone_repeats_the_test(whole, tale):
    found = evaluate_stored(whole / "model.safetensors", data_dir=tale)
    assert found["bits"] == json.loads((whole / "summary.json").read_text())["test"]["bits"]


def test_a_text_with_other_characters_cannot_be_scored(whole, tmp_path):
    (tmp_path / "other.txt").write_text("0123456789 " * 100)
    with pytest.raises(SettingsError, match="was trained for 13 different characters, but 'text' has 11"):
        evaluate_stored(whole, data_dir=tmp_path / "other.txt")


def test_runs_of_different_tasks_share_no_figure(whole, tmp_path):
    train(compose(epochs=1, protocol="single"), tmp_path / "digits")
    for over in ("epochs", "sparsity"):
        with pytest.raises(ResultsError, match=r"has bits per character, .* accuracy: runs in one figure"):
            plot_runs([whole, tmp_path / "digits"], tmp_path / "both.png", over)
    assert Run.open(tmp_path / "digits").task.example == "picture"


@pytest.mark.parametrize(
    ("given", "fault"),
    [
        (
            {"model": {"name": "digits_cnn"}, "changes": {}},
            r"'digits_cnn' cannot take sequences of 'text' \(64\)",
        ),
        (
            {"data": {"name": "digits"}, "model": {"name": "gpt"}},
            r"'gpt' cannot take pictures of 'digits' \(1x8x8\)",
        ),
    ],
)
def test_a_network_for_another_task_is_refused_before_the_first_batch(given, fault, tmp_path):
    with pytest.raises(SettingsError, match=fault):
        train(compose(**{"data": {"name": "text"}, "epochs": 1, **given}), tmp_path / "run")
    assert not (tmp_path / "run").exists()
