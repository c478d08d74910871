"""Weights as safetensors files."""

import pytest
import torch

from st3.files.weights import WeightsError, read_weights, write_weights


def test_weights_and_metadata_come_back(tmp_path):
    weights = {"a": torch.randn(3, 2), "b": torch.tensor(4)}
    about = {"model": {"name": "resnet20", "arguments": {}}, "classes": ["cat", "dog"]}
    write_weights(tmp_path / "m.safetensors", weights, about)
    found, metadata = read_weights(tmp_path / "m.safetensors")
    assert metadata == about
    assert found.keys() == weights.keys()
    assert all(torch.equal(found[name], weights[name]) for name in weights)
    assert [path.name for path in tmp_path.iterdir()] == ["m.safetensors"]


def test_tied_and_channels_last_weights_are_written_whole(tmp_path):
    conv = torch.randn(4, 3, 2, 2).to(memory_format=torch.channels_last)
    write_weights(tmp_path / "m.safetensors", {"a": conv, "b": conv, "row": conv[0]}, {})
    found, _ = read_weights(tmp_path / "m.safetensors")
    assert torch.equal(found["a"], conv)
    assert torch.equal(found["b"], conv)
    assert torch.equal(found["row"], conv[0])


def test_a_file_of_somebody_else_has_no_metadata(tmp_path):
    from safetensors.torch import save_file

    save_file({"x": torch.ones(2)}, tmp_path / "other.safetensors", metadata={"format": "pt"})
    assert read_weights(tmp_path / "other.safetensors")[1] == {}


def test_a_missing_or_damaged_file_is_named(tmp_path):
    path = tmp_path / "m.safetensors"
    with pytest.raises(WeightsError, match=r"there is no file .*m\.safetensors"):
        read_weights(path)
    write_weights(path, {"x": torch.ones(100)}, {})
    path.write_bytes(path.read_bytes()[:-50])
    with pytest.raises(WeightsError, match=r"m\.safetensors is no safetensors file, or a damaged one"):
        read_weights(path)
