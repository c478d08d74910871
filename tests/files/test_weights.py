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


def test_the_same_content_gives_the_same_bytes(tmp_path):
    weights = {"w": torch.eye(40), "b": torch.ones(3)}
    for number in range(8):
        write_weights(tmp_path / f"plain{number}", weights, {"é": 1})
        st3.save_sparse(weights, tmp_path / f"sparse{number}", metadata={"é": 1})
    for kind in ("plain", "sparse"):
        assert len({path.read_bytes() for path in tmp_path.glob(f"{kind}*")}) == 1


@pytest.mark.parametrize(
    "place", [b"resnet20", bytes(torch.tensor(0.7310).numpy())], ids=["metadata", "weights"]
)
def test_a_flipped_bit_is_noticed(tmp_path, place):
    path = tmp_path / "m.safetensors"
    write_weights(path, {"a": torch.tensor([0.7310]), "b": torch.ones(3)}, {"model": "resnet20"})
    content = path.read_bytes()
    assert content.count(place) == 1
    path.write_bytes(content.replace(place, bytes([place[0] ^ 1]) + place[1:]))
    with pytest.raises(WeightsError, match=r"m\.safetensors is damaged: its checksum does not match"):
        read_weights(path)


def test_damaged_metadata_of_a_sparse_file_are_noticed(tmp_path):
    path = tmp_path / "m.safetensors"
    st3.save_sparse({"w": torch.eye(40)}, path, metadata={"model": "resnet20"})
    path.write_bytes(path.read_bytes().replace(b"resnet20", b"resnet24"))
    with pytest.raises(
        st3.errors.SparseFileError, match="is damaged: its metadata: its checksum does not match"
    ):
        st3.load_sparse(path)


def test_our_files_from_before_there_were_checksums_are_read(tmp_path):
    from safetensors.torch import save_file

    save_file({"x": torch.ones(2)}, tmp_path / "old.safetensors", metadata={"st3": '{"model": 1}'})
    assert read_weights(tmp_path / "old.safetensors")[1] == {"model": 1}
