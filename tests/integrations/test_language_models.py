"""GPT-2 and Llama from their configs, in the Hugging Face Trainer: what is covered, and what is saved."""

import warnings
from types import ModuleType

import pytest
import torch

import st3

# Weights that are sparsified: Conv1D layers of GPT-2 without its tied head; all of Llama's linear layers.
WEIGHTS = {"gpt2": 3072, "llama": 3104}
DENSE = {
    "gpt2": "Weights left dense: 2 (1 x tied to an embedding; 1 x an embedding).",
    "llama": "Weights left dense: 1 (1 x an embedding).",
}
both = pytest.mark.parametrize("name", ["gpt2", "llama"])


@pytest.fixture(scope="module")
def hf() -> ModuleType:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the packages that transformers imports
        from tests.integrations import tiny_trainer

    return tiny_trainer


@both
def test_a_saved_model_keeps_its_zeros_and_is_equal_when_reloaded(hf, name, tmp_path, capsys):
    callback, model = hf.sparse(), getattr(hf, name)()
    trainer = hf.trainer(tmp_path / "run", callback, model=model, data=hf.Continuations(16))
    trainer.train()
    shown = capsys.readouterr().out
    assert f"of {WEIGHTS[name]:,} weights in " in shown
    assert DENSE[name] in shown
    model.save_pretrained(tmp_path / "saved")
    again = type(model).from_pretrained(tmp_path / "saved")
    assert again.state_dict().keys() == model.state_dict().keys()
    assert all(torch.equal(again.state_dict()[key], tensor) for key, tensor in model.state_dict().items())
    zeros = sum(int((again.get_parameter(layer.name) == 0).sum()) for layer in callback.sparsifier.layers)
    assert zeros == st3.report(again).zeros == int((WEIGHTS[name] - 1) * 0.9) + 1


@both
def test_a_tied_head_is_one_weight_and_all_parameters_are_counted_once(hf, name):
    model = getattr(hf, name)()
    report = st3.report(model)
    named = sum(row.numel for row in report.rows)
    assert named == WEIGHTS[name]
    assert named + report.other_parameters == sum(p.numel() for p in model.parameters())
    is_tied = model.get_output_embeddings().weight is model.get_input_embeddings().weight
    assert is_tied == (name == "gpt2")
    assert any(row.name == "lm_head.weight" for row in report.rows) != is_tied


def test_filters_of_conv1d_are_its_columns_and_are_rescaled_as_those_of_the_linear_layer_that_it_is(hf):
    """The same map as nn.Linear has the transposed weight, and must become the transposed sparse weight."""
    conv = hf.gpt2().transformer.h[0].attn.c_attn
    linear = torch.nn.Linear(16, 48)
    with torch.no_grad():
        conv.weight.copy_(torch.randn(16, 48) * torch.rand(48))  # outputs of different size
        linear.weight.copy_(conv.weight.T)
    for module in (conv, linear):
        optimizer = torch.optim.SGD(module.parameters(), lr=0.0)
        st3.sparsify(module, optimizer, sparsity=0.7, total_steps=1, ramp="constant")
    assert int((conv.weight == 0).sum()) == 537
    torch.testing.assert_close(conv.weight.T, linear.weight, rtol=1e-6, atol=0.0)
