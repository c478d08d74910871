"""`st3 generate`: the text on stdout, its speed on stderr, faults in one message."""

import re

import pytest
import torch

from st3.files.weights import write_weights
from st3.models import MODELS


@pytest.fixture
def model(tmp_path):
    torch.manual_seed(0)
    weights = MODELS["gpt"](vocabulary=3, context=4, layers=1, heads=1, width=4).state_dict()
    sizes = {"name": "gpt", "arguments": {"layers": 1, "heads": 1, "width": 4}, "vocabulary": 3, "context": 4}
    data = {"name": "text", "shape": [4], "classes": ["a", "b", "\n"]}
    write_weights(tmp_path / "m.safetensors", weights, {"task": "language", "model": sizes, "data": data})
    return tmp_path / "m.safetensors"


def test_prompt_and_continuation_go_to_stdout_and_the_speed_to_stderr(st3, model):
    words = ["generate", model, "--prompt", "abba", "--length", "9", "--seed", "3", "--temperature", "1"]
    answer = st3(*words)
    assert answer.exit_code == 0, answer.output
    assert re.fullmatch(r"abba[ab\n]{9}\n", answer.stdout)
    line = answer.stderr.splitlines()[-1]
    assert re.fullmatch(r"[\d,]+ characters per second; gpt with 0\.00 % zeros", line)
    assert st3(*words).stdout == answer.stdout


def test_faults_are_one_message(st3, model):
    answer = st3("generate", model, "--prompt", "abc", "--length", "0")
    assert (answer.exit_code, answer.stdout) == (1, "")
    assert answer.stderr == (
        "error: generate:\n  --length must be at least 1, got 0\n"
        "  --prompt has 'c', not among the 3 characters of the text that the model was trained on: 'ab\\n'\n"
    )


def test_a_run_on_pictures_cannot_write(st3, finished):
    answer = st3("generate", finished, "--prompt", "abc")
    assert answer.exit_code == 1
    assert answer.stderr == (
        f"error: generate: 'digits_cnn' in {finished / 'model.safetensors'} takes pictures and has no decoder(), so it "
        "cannot write: st3 train --data text trains a network that can\n"
    )
