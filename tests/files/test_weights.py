"""Plain safetensors files."""

import pytest
import torch

import st3
from st3.files.weights import WeightsError, read_weights, write_weights


def test_weights_and_metadata_are_read_back(tmp_path):
    weights = {"a": torch.randn(3, 2), "b": torch.tensor(4)}
    about = {"model": {"name": "resnet20", "arguments": {}}, "classes": ["cat", "dog"]}
    write_weights(tmp_path / "m.safetensors", weights, about)
    found, metadata = read_weights(tmp_path / "m.safetensors")
    assert metadata == about
    assert found.keys() == weights.keys()
    assert all(torch.equal(found[name], weights[name]) for name in weights)
    assert [path.name for path in tmp_path.iterdir()] == ["m.safetensors"]


def test_tied_overlapping_and_channels_last_weights_are_written_in_full(tmp_path):
    conv = torch.randn(4, 3, 2, 2).to(memory_format=torch.channels_last)
    plain = torch.randn(5, 6)
    write_weights(
        tmp_path / "m.safetensors", {"a": conv, "b": conv, "row": conv[0], "c": plain, "d": plain[:1]}, {}
    )
    found, _ = read_weights(tmp_path / "m.safetensors")
    assert torch.equal(found["a"], conv)
    assert torch.equal(found["b"], conv)
    assert torch.equal(found["row"], conv[0])
    assert torch.equal(found["c"], plain)
    assert torch.equal(found["d"], plain[:1])


def test_a_file_of_another_program_has_no_metadata(tmp_path):
    from safetensors.torch import save_file

    save_file({"x": torch.ones(2)}, tmp_path / "other.safetensors", metadata={"format": "pt"})
    assert read_weights(tmp_path / "other.safetensors")[1] == {}


def test_a_missing_or_damaged_file_is_named_in_the_error(tmp_path):
    path = tmp_path / "m.safetensors"
    with pytest.raises(WeightsError, match=r"there is no file .*m\.safetensors"):
        read_weights(path)
    write_weights(path, {"x": torch.ones(100)}, {})
    path.write_bytes(path.read_bytes()[:-50])
    with pytest.raises(WeightsError, match=r"m\.safetensors is not a safetensors file, or it is damaged"):
        read_weights(path)


def test_a_sparse_file_is_refused_with_the_name_of_the_function_that_reads_it(tmp_path):
    path = tmp_path / "model.safetensors"
    st3.save_sparse({"w": torch.zeros(50, 50), "b": torch.ones(3)}, path)
    with pytest.raises(WeightsError) as error:
        read_weights(path)
    assert str(error.value) == f"{path} is a sparse file, not plain weights: read it with st3.load_sparse"
