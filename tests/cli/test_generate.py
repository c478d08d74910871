"""`st3 generate`: the text on stdout, its speed on stderr, faults in one message."""

import re

import pytest
import torch

from st3.data.alphabet import BYTES
from st3.files.weights import write_weights
from st3.models import MODELS


def write_model(path, classes):
    torch.manual_seed(0)
    arguments, count = {"layers": 1, "heads": 1, "width": 4}, len(classes)
    weights = MODELS["gpt"](vocabulary=count, context=4, **arguments).state_dict()
    sizes = {"name": "gpt", "arguments": arguments, "vocabulary": count, "context": 4}
    data = {"name": "text", "shape": [4], "classes": classes}
    write_weights(path, weights, {"task": "language", "model": sizes, "data": data})
    return path


@pytest.fixture
def model(tmp_path):
    return write_model(tmp_path / "m.safetensors", ["a", "b", "\n"])


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


def test_a_prompt_of_any_bytes_is_continued_by_a_model_of_bytes(st3, tmp_path):
    prompt = "a\udcff"  # how Python gives a byte of the command line that is not UTF-8
    answer = st3("generate", write_model(tmp_path / "b.safetensors", [*BYTES]), "--prompt", prompt)
    assert answer.exit_code == 0, answer.output
    assert answer.stdout.startswith("a?")
    assert " bytes per second" in answer.stderr


def test_an_exported_program_is_no_file_of_weights(st3, tmp_path):
    (tmp_path / "m.st3run").write_bytes(b"a program")
    answer = st3("generate", "m.st3run", "--prompt", "a")
    assert (answer.exit_code, answer.stderr) == (
        1,
        "error: m.st3run is an exported program; give the run or the file of weights that it was exported from\n",
    )


def test_a_run_on_pictures_cannot_write(st3, finished):
    answer = st3("generate", finished, "--prompt", "abc")
    assert answer.exit_code == 1
    assert answer.stderr == (
        f"error: generate: 'digits_cnn' in {finished / 'model.safetensors'} takes pictures and has no decoder(), so it "
        "cannot write: st3 train --data text trains a network that can\n"
    )
