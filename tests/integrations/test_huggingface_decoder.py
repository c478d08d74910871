"""Models of transformers that read on from call to call: every step has the logits of the model's own forward pass."""

import warnings
from types import ModuleType

import pytest
import torch

import st3

LENGTH = 10
both = pytest.mark.parametrize("name", ["gpt2", "llama"])


@pytest.fixture(scope="module")
def hf() -> ModuleType:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the packages that transformers imports
        from tests.integrations import tiny_decoders

    return tiny_decoders


def compile_decoder(hf, model, length=LENGTH):
    example = (torch.zeros(1, 1, dtype=torch.int64), torch.zeros(1, dtype=torch.int64))
    return st3.engine.compile(hf.Decoder(model, length), example, threads=1, tune=False)


@both
@torch.no_grad()
def test_every_step_has_the_logits_of_the_whole_forward_pass(hf, name):
    model = getattr(hf, name)()
    tokens, places = torch.randint(model.config.vocab_size, (2, 1, LENGTH)), torch.arange(LENGTH)
    decoder, fast = hf.Decoder(model, LENGTH), compile_decoder(hf, model)
    for text in tokens:  # the second one begins at position 0 again, without a reset
        whole = model(input_ids=text, use_cache=False).logits
        for place in places:
            step = text[:, place : place + 1], places[place : place + 1]
            for found in (decoder(*step), fast(*step)):
                torch.testing.assert_close(found[:, 0], whole[:, place], rtol=1e-3, atol=1e-5)
        fast.reset()
        parts = [fast(text[:, part], places[part]) for part in (slice(0, 5), slice(5, LENGTH))]
        torch.testing.assert_close(torch.cat(parts, 1), whole, rtol=1e-3, atol=1e-5)


def test_gpt2_runs_in_kernels_alone_and_can_be_saved(hf, tmp_path):
    fast = compile_decoder(hf, hf.gpt2())
    assert "In torch" not in fast.report()
    step = torch.tensor([[3]]), torch.tensor([0])
    loaded = st3.engine.load(fast.save(tmp_path / "gpt2.st3run"))
    torch.testing.assert_close(loaded(*step), fast(*step))


def test_a_new_decoder_has_an_empty_cache_and_no_keys_of_its_own_in_a_state_dict(hf):
    model = hf.llama()
    decoder = hf.Decoder(model, LENGTH)
    assert not any(buffer.any() for buffer in decoder.buffers(recurse=False))
    assert decoder.keys_0.shape == (1, 2, LENGTH, 4)  # two heads of keys for four of queries
    assert decoder.state_dict().keys() == {f"model.{name}" for name in model.state_dict()}


def test_models_and_lengths_that_do_not_fit_are_refused(hf):
    model = hf.llama()
    with pytest.raises(
        ValueError,
        match=r"LlamaForCausalLM cannot be a Decoder: it has 32 positions only: length must be at most that, got 33",
    ):
        hf.Decoder(model, 33)
    model.set_attn_implementation("eager")
    with pytest.raises(
        ValueError,
        match=r"got 0; it is in training mode: call model.eval\(\) first; its attention is 'eager'",
    ):
        hf.Decoder(model.train(), 0)
    with pytest.raises(
        ValueError, match="its attention sees 6 tokens at a time: length must be at most that, got 7"
    ):
        hf.Decoder(hf.mistral(window=6), 7)
    with pytest.raises(ValueError, match="it has an encoder"):
        hf.Decoder(hf.t5(), 8)


def test_a_model_that_needs_more_than_keys_and_values_is_refused(hf):
    model = hf.gpt2()
    model.transformer.h[1].register_forward_pre_hook(hf.add_the_token_before)
    with pytest.raises(ValueError, match=r"token by token, its logits differ by .* of the largest"):
        hf.Decoder(model, 8)


@pytest.mark.slow
@both
@torch.no_grad()
def test_the_engine_writes_what_generate_writes(hf, name):
    model = getattr(hf, name)(scale=10)
    length = 32
    fast = compile_decoder(hf, model, length)
    prompt = torch.tensor([[5, 6, 7]])
    wanted = model.generate(prompt, max_length=length, do_sample=False, eos_token_id=-1, pad_token_id=0)[
        0
    ].tolist()
    scores = fast(prompt, torch.arange(3))
    found = prompt[0].tolist()
    while len(found) < length:
        found.append(int(scores[0, -1].argmax()))
        scores = fast(torch.tensor([found[-1:]]), torch.tensor([len(found) - 1]))
    assert found == wanted
    assert len({*found}) > 4
