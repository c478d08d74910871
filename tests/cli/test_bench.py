"""`st3 bench` times a model and says so if there is no gain."""

import json

import pytest
import torch

from st3.experiments.bench.compare import ENGINE, TORCH
from st3.experiments.bench.rivals import RIVALS
from st3.models import MODELS
from st3.processor import instruction_sets, processor


def test_an_untrained_network_is_made_sparse_and_timed_in_every_installed_engine(st3):
    answer = st3("bench", "digits_cnn", "--sparsity", 0.5, "--rounds", 3, "--layers")
    assert answer.exit_code == 0, answer.output
    lines = answer.stdout.splitlines()
    assert lines[0] == "digits_cnn, input 1x1x8x8, 49.4 % zeros, 1 thread"  # the first layer is dense
    assert lines[1] == processor()
    assert lines[3].split() == ["engine", "min", "ms", "median", "ms", "difference"]
    precisions = {ENGINE: "float32", TORCH: "float32", **{rival.name: rival.precision for rival in RIVALS}}
    missing = {rival.name: rival.missing[0] for rival in RIVALS if rival.missing}
    for name, precision in precisions.items():
        row = next(line for line in lines if line.startswith(f"{name} "))
        if name in missing:
            why = f"{missing[name]} is not installed: pip install 'st3[bench]'"
            assert row == f"{name} was not measured: {why}"
        elif precision == "bfloat16" and "was not measured" in row:
            assert row.endswith("this processor has no bfloat16 instructions that OpenVINO could use")
        else:
            least, middle, difference = map(float, row.removeprefix(name).split())
            assert 0 < least <= middle
            assert difference < {"float32": 1e-4, "bfloat16": 0.1, "int8": 0.1}[precision]
    assert any("49.4 % zeros the st3 engine is" in line for line in lines)
    assert any(line.startswith("DigitsCNN for an input of 1x1x8x8: ") for line in lines)


def test_the_model_of_a_run_is_timed_with_its_own_weights(st3, finished):
    answer = st3("bench", finished, "--batch", 3, "--threads", 2, "--rounds", 3, "--json")
    assert answer.exit_code == 0, answer.output
    found = json.loads(answer.stdout)
    assert (found["shape"], found["threads"], found["rounds"]) == ([3, 1, 8, 8], 2, 3)
    assert found["sparsity"] == pytest.approx(0.9, abs=1e-3)
    times = {each["name"]: each for each in found["engines"]}
    for against in (found, found["any_precision"]):
        ratio = times[against["rival"]]["min_ms"] / times[ENGINE]["min_ms"]
        assert against["speed_up"]["min"] == pytest.approx(ratio, abs=1e-3)
    assert (found["processor"], found["instruction_sets"]) == (processor(), instruction_sets())


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["resnet21"], "error: there is no file, run or network resnet21; did you mean 'resnet20'?"),
        (["nothing.pt"], "error: there is no file or run nothing.pt"),
        (["digits_cnn", "--sparsity", 90], "error: sparsity must be at least 0 and below 1, got 90"),
        (
            ["digits_cnn", "--allocation", "unifrom"],
            "error: unknown allocation 'unifrom'; did you mean 'uniform'?",
        ),
        (["w.pt"], "error: w.pt: it does not say which model it is for: add --model NAME"),
        (
            ["w.pt", "--model", "digits_cnn"],
            "error: w.pt: it does not say its input shape: add --input",
        ),
        (
            ["w.pt", "--sparsity", 0.5],
            "error: --sparsity: is for untrained networks; the weights in w.pt have",
        ),
    ],
)
def test_bad_arguments_are_refused(st3, tmp_path, words, message):
    torch.save(MODELS["digits_cnn"]().state_dict(), tmp_path / "w.pt")
    answer = st3("bench", *words)
    assert answer.exit_code == 1
    assert answer.stderr.startswith(message)
