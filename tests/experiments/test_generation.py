"""Text from a stored model: what is read again when the context is full, how characters are drawn, what is refused."""

import copy

import pytest
import torch

import st3
from st3.experiments.generation import Reader, choose, continue_text
from st3.files.weights import write_weights
from st3.models import MODELS
from st3.training.sections import SettingsError

LETTERS = " abcdefghij"
CONTEXT = 8
SIZES = {"layers": 2, "heads": 2, "width": 16}


@pytest.fixture(scope="module")
def network():
    torch.manual_seed(0)
    model = MODELS["gpt"](vocabulary=len(LETTERS), context=CONTEXT, **SIZES).eval()
    with (
        torch.no_grad()
    ):  # larger than those a model starts with, so that scores differ; and a quarter of them zero
        for layer in model.modules():
            if isinstance(layer, torch.nn.Linear | torch.nn.Embedding):
                layer.weight.mul_(8)
            if isinstance(layer, torch.nn.Linear):
                layer.weight.view(-1)[::4] = 0
    return model


def about(**changes):
    data = {"name": "text", "shape": [CONTEXT], "classes": [*LETTERS], "options": {}, **changes}
    model = {"name": "gpt", "arguments": SIZES, "vocabulary": len(LETTERS), "context": CONTEXT}
    return {"task": "language", "model": model, "data": data}


@pytest.fixture(scope="module")
def file(network, tmp_path_factory):
    path = tmp_path_factory.mktemp("model") / "model.safetensors"
    write_weights(path, network.state_dict(), about())
    return path


@torch.no_grad()
def continue_slowly(network, prompt, length):
    """Take the most probable character, from whole forward passes of the network over what the context holds."""
    text, seen = [LETTERS.index(each) for each in prompt], []
    for number in range(len(text) + length - 1):
        if len(seen) == CONTEXT:
            seen = seen[CONTEXT // 2 :]
        seen.append(text[number])
        if number == len(text) - 1:
            text.append(int(network(torch.tensor([seen]))[0, -1].argmax()))
    return "".join(LETTERS[number] for number in text[len(prompt) :])


@pytest.mark.parametrize("prompt", ["a", "bad cafe", "a bad decade had a big cafe"])
def test_the_most_probable_text_is_that_of_the_whole_network(prompt, network, file):
    found = continue_text(file, prompt, length=30, temperature=0)
    text = "".join(found)
    assert text == continue_slowly(network, prompt, 30)
    assert len({*text}) > 2
    assert "".join(found) == text  # again, from an empty cache


def test_what_it_was_written_with_is_known(network, file):
    found = continue_text(file, "a", length=3)
    assert "".join(found).strip(LETTERS) == ""
    assert (found.model, found.length, found.alphabet.units) == ("gpt", 3, "characters")
    assert found.sparsity == pytest.approx(st3.report(network).sparsity)
    assert found.seconds > 0


def test_the_seed_determines_what_is_drawn(file):
    texts = ["".join(continue_text(file, "a", length=40, temperature=1.0, seed=seed)) for seed in (1, 1, 2)]
    assert texts[0] == texts[1] != texts[2]


def test_a_full_context_is_continued_from_its_last_half(network):
    example = (torch.zeros(1, 1, dtype=torch.int64), torch.zeros(1, dtype=torch.int64))
    compiled = st3.engine.compile(copy.deepcopy(network).decoder().eval(), example, tune=False)
    reader = Reader(compiled, CONTEXT)
    numbers = torch.randint(len(LETTERS), (CONTEXT + 2,)).tolist()
    scores = [reader.read(number).clone() for number in numbers]
    with torch.no_grad():
        whole = network(torch.tensor([numbers[:CONTEXT]]))[0]
        later = network(torch.tensor([numbers[CONTEXT // 2 :]]))[0]
    torch.testing.assert_close(torch.stack(scores[:CONTEXT]), whole, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(torch.stack(scores[CONTEXT:]), later[-2:], rtol=1e-4, atol=1e-4)


def test_characters_are_drawn_as_often_as_they_are_probable():
    scores, generator = torch.tensor([0.0, 1.0, 3.0]), torch.Generator().manual_seed(0)
    for temperature in (0.5, 1.0, 4.0):
        drawn = torch.tensor([choose(scores, temperature, generator) for _ in range(4000)])
        found = drawn.bincount(minlength=3) / len(drawn)
        torch.testing.assert_close(found, torch.softmax(scores / temperature, 0), rtol=0, atol=0.03)


@pytest.mark.parametrize("temperature", [0, 5e-324, 1e-30])
def test_a_temperature_of_almost_zero_takes_the_largest_score(temperature):
    scores = torch.tensor([-1e30, 70.0, 70.1, 3e4, -5.0])
    assert choose(scores, temperature, torch.Generator().manual_seed(0)) == 3


def test_everything_wrong_with_a_request_is_said_at_once(file):
    with pytest.raises(SettingsError) as caught:
        continue_text(file, "", length=0, temperature=float("nan"))
    assert caught.value.faults == (
        "--prompt is empty: give at least one character to continue",
        "--length must be at least 1, got 0",
        "--temperature must be 0 or a positive number, got nan",
    )
    with pytest.raises(SettingsError) as caught:
        continue_text(file, "a Zebra", length=-1)
    assert caught.value.faults == (
        "--length must be at least 1, got -1",
        "--prompt has 'Z', 'r', not among the 11 characters of the text that the model was trained on: "
        "' abcdefghij'",
    )


@pytest.mark.parametrize("classes", [None, [*LETTERS[:-1]], ["cat", *LETTERS[1:]]])
def test_a_file_that_does_not_list_its_characters_is_refused(classes, network, tmp_path):
    given = about(classes=classes)
    if classes is None:
        del given["data"]["classes"]
    write_weights(tmp_path / "model.safetensors", network.state_dict(), given)
    with pytest.raises(
        SettingsError, match="does not say which characters its numbers stand for: give a run"
    ):
        continue_text(tmp_path / "model.safetensors", "a")


def test_a_network_that_cannot_write_is_refused(tmp_path):
    weights = MODELS["digits_cnn"]().state_dict()
    write_weights(tmp_path / "digits.safetensors", weights, {"model": {"name": "digits_cnn", "channels": 1}})
    fault = r"'digits_cnn' in .*digits.safetensors takes pictures and has no decoder\(\), so it cannot write: st3 train"
    with pytest.raises(SettingsError, match=fault):
        continue_text(tmp_path / "digits.safetensors", "a")
    write_weights(tmp_path / "nameless.safetensors", weights, {})
    with pytest.raises(SettingsError, match=r"--length .*; .*does not name its model: add --model NAME"):
        continue_text(tmp_path / "nameless.safetensors", "a", length=0)
