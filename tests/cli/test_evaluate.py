"""`st3 eval`: measure the accuracy of a model from its file."""

import json

import pytest
import torch

from st3.data import DATASETS
from st3.files.weights import read_weights, write_weights


def summary(finished):
    return json.loads((finished / "summary.json").read_text())


def test_it_measures_the_same_as_the_run(st3, finished):
    for split in ("test", "validation"):
        found = json.loads(st3("eval", finished, "--split", split, "--json").stdout)
        assert found["accuracy"] == summary(finished)[split]["accuracy"]
        assert abs(found["loss"] - summary(finished)[split]["loss"]) < 1e-4
        assert found["sparsity"] == summary(finished)["sparsity"]


def test_the_file_alone_is_enough(st3, finished):
    answer = st3("eval", finished / "model.safetensors", "--batch-size", 7)
    assert answer.exit_code == 0, answer.output
    accuracy = f"{100 * summary(finished)['test']['accuracy']:.2f} %"
    assert answer.stdout.splitlines()[1:] == [
        "on 400 pictures of digits (test):",
        f"  accuracy  {accuracy}",
        answer.stdout.splitlines()[3],
        "  sparsity  90.00 %",
    ]


def test_int8_is_computed_by_the_engine_and_nearly_as_accurate(st3, finished):
    found, wanted = (json.loads(st3("eval", finished, *words, "--json").stdout) for words in (["--int8"], []))
    assert found.pop("layers_in_int8") == 4
    assert found.keys() == wanted.keys()
    assert abs(found["accuracy"] - wanted["accuracy"]) <= 0.05
    assert 0 < abs(found["loss"] - wanted["loss"]) < 0.1
    assert st3("eval", finished, "--int8").stdout.splitlines()[-1] == "  in int8   4 layers"


def test_int8_is_computed_on_the_cpu_only(st3, finished):
    answer = st3("eval", finished, "--int8", "--device", "cuda")
    assert (answer.exit_code, answer.stderr.splitlines()[-1]) == (
        1,
        "error: --int8: the engine computes on the CPU: leave out --device cuda",
    )


def test_a_file_without_metadata_needs_model_and_data(st3, finished, tmp_path):
    write_weights(tmp_path / "plain.safetensors", read_weights(finished / "model.safetensors")[0], {})
    answer = st3("eval", "plain.safetensors")
    assert answer.exit_code == 1
    assert answer.stderr.splitlines() == [
        "error: plain.safetensors:",
        "  it does not say which model it is for: add --model NAME",
        "  it does not say which data it is for: add --data NAME",
    ]
    answer = st3("eval", "plain.safetensors", "--model", "digits_cnn", "--data", "digits", "--json")
    assert json.loads(answer.stdout)["accuracy"] == summary(finished)["test"]["accuracy"]


def test_weights_of_another_network_are_refused(st3, finished):
    answer = st3("eval", finished, "--model", "resnet20")
    assert answer.exit_code == 1
    assert "do not fit model 'resnet20': " in answer.stderr
    assert len(answer.stderr.splitlines()) == 1


def test_an_unfinished_run_is_refused(st3, finished, tmp_path):
    (tmp_path / "half").mkdir()
    (tmp_path / "half" / "spec.json").write_text((finished / "spec.json").read_text())
    answer = st3("eval", "half")
    assert answer.stderr == (
        "error: the run in half is not finished: it has no model.safetensors yet; continue it: "
        "st3 train --run half --resume\n"
    )


def test_an_unknown_split_is_refused(st3, finished):
    answer = st3("eval", finished, "--split", "tset")
    assert answer.stderr == "error: --split: must be one of test, validation, train, got 'tset'\n"


def test_a_missing_file_is_named(st3):
    assert st3("eval", "nothing.safetensors").stderr == "error: there is no file or run nothing.safetensors\n"


def test_a_saved_state_dict_is_accepted(st3, finished, tmp_path):
    torch.save(read_weights(finished / "model.safetensors")[0], tmp_path / "weights.pt")
    answer = st3("eval", "weights.pt", "--model", "digits_cnn", "--data", "digits", "--json")
    assert json.loads(answer.stdout)["accuracy"] == summary(finished)["test"]["accuracy"]


def test_an_unknown_device_is_refused(st3, finished):
    answer = st3("eval", finished, "--device", "meta")
    assert answer.stderr == "error: unknown device 'meta'; try auto, cpu, cuda or cuda:1\n"


def test_the_data_have_the_options_of_the_run(st3, tmp_path, monkeypatch):
    seen = []
    make = DATASETS["digits"]

    def watched(*, augment=True):
        seen.append(augment)
        return make(augment=augment)

    monkeypatch.setitem(DATASETS._things, "digits", watched)
    words = ("--epochs", 1, "--no-dense-twin", "--set", "data.options.augment=false", "--run", "a", "--quiet")
    assert st3("train", *words).exit_code == 0
    for path in ("a", "a/model.safetensors"):
        answer = st3("eval", path)
        assert answer.exit_code == 0, answer.output
    assert seen == [False] * 3


@pytest.mark.parametrize(
    ("classes", "difference"),
    [
        ([*"012345678x"], "other classes: number 9 is 'x', in 'digits' '9'"),
        ([*"01234567"], "8 classes, but 'digits' has 10"),
    ],
)
def test_data_with_other_classes_are_refused(st3, finished, tmp_path, classes, difference):
    weights, about = read_weights(finished / "model.safetensors")
    about["data"]["classes"] = classes
    write_weights(tmp_path / "m.safetensors", weights, about)
    answer = st3("eval", "m.safetensors")
    message = f"error: m.safetensors: the model was trained for {difference}\n"
    assert (answer.exit_code, answer.stderr) == (1, message)
