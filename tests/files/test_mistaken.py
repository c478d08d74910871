"""A sparse file that is taken for plain weights fails; it never leaves a model without its weights in silence."""

import pytest
import torch
from safetensors.torch import load_file, load_model
from torch import nn
from transformers import GPT2Config, GPT2LMHeadModel

import st3


def make_model():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(8, 32, 3), nn.BatchNorm2d(32), nn.Flatten(), nn.Linear(32, 50))
    with torch.no_grad():
        for layer in (model[0], model[3]):
            layer.weight *= torch.rand_like(layer.weight) < 0.1
        model[1].bias.zero_()
    return model


@pytest.fixture
def renamed(tmp_path):
    st3.save_sparse(make_model(), tmp_path / "m.sparse.safetensors")
    return (tmp_path / "m.sparse.safetensors").rename(tmp_path / "model.safetensors")


@pytest.mark.parametrize("strict", [True, False])
def test_load_state_dict_and_load_model_fail_even_if_not_strict(renamed, strict):
    for load in (
        lambda: make_model().load_state_dict(load_file(renamed), strict=strict),
        lambda: load_model(make_model(), renamed, strict=strict),
    ):
        with pytest.raises(RuntimeError) as error:
            load()
        assert "size mismatch for 0.weight" in str(error.value)
        assert "size mismatch for 3.weight" in str(error.value)


def test_no_sparse_tensor_is_stored_under_its_name_in_its_shape(tmp_path):
    weights = {
        "vector": torch.zeros(300),
        "row": torch.zeros(1, 300),
        "few": torch.zeros(40, 40).fill_diagonal_(1.0),
        "signs": torch.zeros(500).neg(),
    }
    st3.save_sparse(weights, tmp_path / "m.safetensors")
    stored = load_file(tmp_path / "m.safetensors")
    assert stored.keys() == {*weights, *(f"{name}:positions" for name in weights), "signs:signs"}
    assert not [name for name in weights if stored[name].shape == weights[name].shape]


def make_gpt2():
    torch.manual_seed(0)
    return GPT2LMHeadModel(
        GPT2Config(
            n_layer=1, n_head=2, n_embd=32, vocab_size=90, n_positions=16, bos_token_id=0, eos_token_id=0
        )
    )


@pytest.fixture
def pretrained(tmp_path):
    """A folder of save_pretrained, and its model, sparse."""
    model = make_gpt2().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter *= torch.rand_like(parameter) < 0.1
    model.save_pretrained(tmp_path)
    return tmp_path, model


def test_from_pretrained_refuses_a_sparse_file_in_place_of_the_plain_one(pretrained):
    folder, model = pretrained
    assert torch.equal(GPT2LMHeadModel.from_pretrained(folder).lm_head.weight, model.lm_head.weight)
    st3.save_sparse(model, folder / "model.safetensors")
    with pytest.raises(RuntimeError, match="ignore_mismatched_sizes"):
        GPT2LMHeadModel.from_pretrained(folder)


def test_a_tied_transformer_is_loaded_with_its_ties_from_save_sparse_and_save_pretrained(pretrained):
    folder, model = pretrained
    plain = load_file(folder / "model.safetensors")
    assert "lm_head.weight" not in plain  # save_pretrained drops the second name
    for weights in (model, plain):
        st3.save_sparse(weights, folder / "m.sparse.safetensors")
        loaded = st3.load_sparse(folder / "m.sparse.safetensors", make_gpt2())
        assert loaded.lm_head.weight is loaded.transformer.wte.weight
        found = loaded.state_dict()
        assert all(torch.equal(tensor, found[name]) for name, tensor in model.state_dict().items())
