"""`st3 bench` times a model and says so if there is no gain."""

import json

import pytest
import torch

from st3.engine.compare import ENGINE, TORCH
from st3.engine.rivals import NEEDED, missing_packages
from st3.experiments.benchmark import Bench
from st3.models import MODELS


def test_an_untrained_network_is_made_sparse_and_timed_in_every_installed_engine(st3):
    answer = st3("bench", "digits_cnn", "--sparsity", 0.5, "--rounds", 3, "--layers")
    assert answer.exit_code == 0, answer.output
    lines = answer.stdout.splitlines()
    assert (
        lines[0] == "digits_cnn, input 1x1x8x8, 49.4 % zeros, 1 thread, float32"
    )  # the first layer is dense
    assert lines[2].split() == ["engine", "min", "ms", "median", "ms", "difference"]
    for name in (ENGINE, TORCH, *(rival for rival in NEEDED if not missing_packages(rival))):
        row = next(line for line in lines if line.startswith(f"{name} "))
        least, middle, difference = map(float, row.removeprefix(name).split())
        assert 0 < least <= middle
        assert difference < 1e-4
    for rival in NEEDED:
        if lacking := missing_packages(rival):
            why = f"{lacking[0]} is not installed: pip install 'st3[bench]'"
            assert f"{rival} was not measured: {why}" in lines
    assert any("49.4 % zeros the st3 engine is" in line for line in lines)
    assert any(line.startswith("DigitsCNN for an input of 1x1x8x8: ") for line in lines)


def test_the_model_of_a_run_is_timed_with_its_own_weights(st3, finished):
    answer = st3("bench", finished, "--batch", 3, "--threads", 2, "--rounds", 3, "--json")
    assert answer.exit_code == 0, answer.output
    found = json.loads(answer.stdout)
    assert (found["shape"], found["threads"], found["rounds"]) == ([3, 1, 8, 8], 2, 3)
    assert found["sparsity"] == pytest.approx(0.9, abs=1e-3)
    times = {each["name"]: each for each in found["engines"]}
    ratio = times[found["rival"]]["min_ms"] / times[ENGINE]["min_ms"]
    assert found["speed_up"]["min"] == pytest.approx(ratio, abs=1e-3)


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


class GivenRatios:
    """A comparison with given ratios."""

    def __init__(self, least, middle):
        self.speed_up = (least, middle)
        self.rival = type("Rival", (), {"name": "OpenVINO"})


def test_the_verdict_claims_a_gain_only_if_minimum_and_median_agree():
    ratios = [(2.0, 1.9), (1.5, 1.04), (0.8, 0.8)]
    verdicts = [Bench("m", (1,), 0.3, GivenRatios(*pair)).verdict for pair in ratios]
    assert verdicts[0] == (
        "With 30.0 % zeros the st3 engine is 2.00 times as fast as OpenVINO, the fastest of the others."
    )
    assert all(text.startswith("No gain: with 30.0 % zeros the st3 engine is") for text in verdicts[1:])
