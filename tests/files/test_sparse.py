"""Sparse files: what is saved is loaded again, bit for bit."""

import math
import struct

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors import safe_open
from torch import nn

import st3
from st3.files.packing import entropy_bytes
from st3.files.sparse import sparse_size
from st3.files.weights import WeightsError


def sparse(*shape, share=0.1, seed=0, dtype=torch.float32):
    generator = torch.Generator().manual_seed(seed)
    return (
        torch.randn(shape, generator=generator) * (torch.rand(shape, generator=generator) < share) + 0.0
    ).to(dtype)


def bits(tensor):
    return tensor.detach().contiguous().reshape(-1).view(torch.uint8)


def same(left, right):
    return left.dtype == right.dtype and left.shape == right.shape and torch.equal(bits(left), bits(right))


def round_trip(weights, path, **settings):
    size = st3.save_sparse(weights, path / "m.safetensors", **settings)
    found = st3.load_sparse(path / "m.safetensors")
    assert found.keys() == weights.keys()
    return found, size


def network():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(8, 64, 3), nn.BatchNorm2d(64), nn.ReLU(), nn.Flatten(), nn.Linear(64, 50))
    with torch.no_grad():
        model[0].weight.copy_(sparse(64, 8, 3, 3))
        model[4].weight.copy_(sparse(50, 64, share=0.05))
    return model


def test_a_model_is_saved_in_a_smaller_file_and_loaded_again(tmp_path):
    model = network().train()
    size = st3.save_sparse(model, tmp_path / "m.safetensors")
    fresh = nn.Sequential(nn.Conv2d(8, 64, 3), nn.BatchNorm2d(64), nn.ReLU(), nn.Flatten(), nn.Linear(64, 50))
    before = [id(p) for p in fresh.parameters()]
    assert st3.load_sparse(tmp_path / "m.safetensors", fresh) is fresh
    assert all(
        same(a, b) for a, b in zip(model.state_dict().values(), fresh.state_dict().values(), strict=True)
    )
    assert [id(p) for p in fresh.parameters()] == before
    assert size.file_bytes == (tmp_path / "m.safetensors").stat().st_size < size.dense_bytes / 3
    assert [path.name for path in tmp_path.iterdir()] == ["m.safetensors"]


def test_any_safetensors_reader_sees_values_and_positions(tmp_path):
    weight = sparse(40, 50)
    st3.save_sparse({"w": weight, "b": torch.ones(3)}, tmp_path / "m.safetensors", metadata={"for": "a test"})
    with safe_open(tmp_path / "m.safetensors", framework="np") as file:
        assert sorted(file.keys()) == ["b", "w", "w:positions"]
        assert file.get_tensor("w").tolist() == weight[weight != 0].tolist()
        assert file.get_tensor("w:positions").dtype == "uint8"
        assert file.metadata()["st3"] == '{"for": "a test"}'


FLOATS = (torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.float8_e4m3fn, torch.float8_e5m2)
OTHERS = (torch.float8_e4m3fnuz, torch.complex64, torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32,
          torch.int64, torch.uint16, torch.uint32, torch.uint64)  # fmt: skip


@pytest.mark.parametrize("dtype", [*FLOATS, *OTHERS], ids=str)
def test_every_type_is_loaded_again(dtype, tmp_path):
    weight = (sparse(60, 70) * 100).round().abs().to(dtype)
    found, size = round_trip({"w": weight}, tmp_path)
    assert same(found["w"], weight)
    assert size.position_bytes > 0


def test_negative_zeros_and_nan_payloads_are_kept(tmp_path):
    payload = struct.unpack("<f", struct.pack("<I", 0x7FC12345))[0]
    weight = sparse(100, 100)
    weight.view(-1)[:6] = torch.tensor([math.nan, payload, -math.inf, math.inf, 1e-45, -1e-45])
    weight[5:50][weight[5:50] == 0] = -0.0
    found, size = round_trip({"w": weight}, tmp_path)
    assert same(found["w"], weight)
    assert 0x7FC12345 in found["w"].view(torch.int32)
    assert size.sign_bytes > 0
    assert size.file_bytes < 0.3 * size.dense_bytes


def test_a_negative_zero_costs_one_bit_not_a_value(tmp_path):
    weight = torch.randn(200, 200) * (torch.rand(200, 200) < 0.1)
    size = round_trip({"w": weight}, tmp_path)[1]
    assert size.sign_bytes < 1.02 * 36_000 / 8
    assert "signs of negative zeros: weight.add_(0.0) removes them" in str(size)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_negative_zeros_of_every_float_type_are_stored_as_signs(dtype, tmp_path):
    weight = torch.zeros(90, 90).to(dtype)
    weight.view(-1)[::3] = torch.tensor(-0.0).to(dtype)
    weight.view(-1)[7] = torch.tensor(2.0).to(dtype)
    found, size = round_trip({"w": weight}, tmp_path)
    assert same(found["w"], weight)
    assert size.sign_bytes > 900


def test_empty_single_full_and_zero_tensors_are_loaded_again(tmp_path):
    weights = {
        "empty": torch.zeros(0, 4), "one": torch.tensor(3), "none": torch.tensor(0.0), "full": torch.randn(50, 50),
        "zero": torch.zeros(300, 20), "single": torch.zeros(1000).index_fill(0, torch.tensor(999), 1.5),
    }  # fmt: skip
    found, _ = round_trip(weights, tmp_path)
    assert all(same(found[name], weights[name]) for name in weights)
    with safe_open(tmp_path / "m.safetensors", framework="pt") as file:
        sparse_ones = {name.partition(":")[0] for name in file.keys() if ":" in name}  # noqa: SIM118
    assert sparse_ones == {"zero", "single"}


def test_tensors_of_any_memory_layout_are_loaded_again(tmp_path):
    conv = sparse(16, 16, 3, 3).to(memory_format=torch.channels_last)
    base = sparse(90, 80)
    weights = {"conv": conv, "turned": base.t(), "part": base[10:60, ::2], "row": base[3]}
    found, _ = round_trip(weights, tmp_path)
    assert all(same(found[name], weights[name]) for name in weights)


def test_complex_conjugates_are_resolved(tmp_path):
    weight = torch.randn(3, 4, dtype=torch.complex64)
    found, _ = round_trip({"a": weight, "b": weight.conj()}, tmp_path)
    assert torch.equal(found["b"], weight.conj())


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.head = nn.Embedding(80, 30), nn.Linear(30, 80, bias=False)
        self.head.weight = self.embed.weight


def test_tied_weights_are_stored_once_and_stay_tied(tmp_path):
    model = Tied()
    with torch.no_grad():
        model.embed.weight.copy_(sparse(80, 30))
    found, size = round_trip(model.state_dict(), tmp_path)
    assert found["embed.weight"] is found["head.weight"]
    assert size.dense_bytes == 80 * 30 * 4
    loaded = st3.load_sparse(tmp_path / "m.safetensors", Tied())
    assert loaded.head.weight is loaded.embed.weight
    assert same(loaded.head.weight, model.head.weight)


def test_a_state_dict_without_the_second_name_of_a_tied_weight_fills_the_tied_model(tmp_path):
    model = Tied()
    with torch.no_grad():
        model.embed.weight.copy_(sparse(80, 30))
    for name in (
        "embed.weight",
        "head.weight",
    ):  # Module.named_parameters and save_pretrained drop one of them
        st3.save_sparse({name: model.embed.weight}, tmp_path / "m.safetensors")
        loaded = st3.load_sparse(tmp_path / "m.safetensors", Tied())
        assert loaded.head.weight is loaded.embed.weight
        assert same(loaded.head.weight, model.head.weight)
    untied = Tied()
    untied.head.weight = nn.Parameter(untied.head.weight.detach().clone())
    with pytest.raises(st3.errors.SparseFileError, match=r"do not fit the model: missing: embed\.weight$"):
        st3.load_sparse(tmp_path / "m.safetensors", untied)


def test_tensors_may_be_named_like_the_parts_of_others(tmp_path):
    weights = {"w": sparse(40, 40), "w:signs": torch.ones(3), "w:positions": sparse(50, 50, seed=1)}
    found, _ = round_trip(weights, tmp_path)
    assert all(same(found[name], weights[name]) for name in weights)


@pytest.mark.parametrize(("values", "dtype"), [("float16", torch.float16), ("bfloat16", torch.bfloat16)])
def test_weights_rounded_to_16_bits_are_loaded_in_their_own_type(values, dtype, tmp_path):
    weights = {
        "w": sparse(60, 60),
        "full": torch.randn(9, 9),
        "running_var": torch.full((5,), 1e6),
        "half": sparse(50, 50).half(),
    }
    found, size = round_trip(weights, tmp_path, values=values)
    assert same(found["w"], weights["w"].to(dtype).float())
    assert same(found["full"], weights["full"].to(dtype).float())
    assert same(found["running_var"], weights["running_var"])
    assert same(found["half"], weights["half"])
    assert size.file_bytes < sparse_size(weights).file_bytes


def test_a_value_beyond_float16_is_refused(tmp_path):
    with pytest.raises(ValueError) as error:
        st3.save_sparse({"w": torch.full((2, 2), 1e5)}, tmp_path / "m.safetensors", values="float16")
    assert (
        str(error.value)
        == "w holds a value of magnitude 100000, but float16 ends at 65504: use values='bfloat16'"
    )
    with pytest.raises(ValueError, match="values must be 'same', 'float16' or 'bfloat16', got 'int8'"):
        st3.save_sparse({}, tmp_path / "m.safetensors", values="int8")
    assert not list(tmp_path.iterdir())


def test_infinite_weights_may_be_rounded(tmp_path):
    weight = torch.tensor([[math.inf, math.nan, -math.inf, 1.0]])
    found = round_trip({"w": weight}, tmp_path, values="float16")[0]["w"]
    assert torch.equal(found.nan_to_num(7.0), weight.nan_to_num(7.0))


@settings(max_examples=40)
@given(
    st.integers(0, 99), st.sampled_from([0.0, 0.02, 0.3, 0.7, 1.0]), st.lists(st.integers(0, 40), max_size=3)
)
def test_tensors_of_any_shape_are_loaded_again(tmp_path_factory, seed, share, shape):
    weight = sparse(*shape, share=share, seed=seed) if shape else torch.tensor(float(seed))
    assert same(round_trip({"w": weight}, tmp_path_factory.mktemp("any"))[0]["w"], weight)


def test_wrapped_models_are_stored_under_their_plain_names(tmp_path):
    model = network()
    st3.save_sparse(nn.DataParallel(model), tmp_path / "m.safetensors")
    found = st3.load_sparse(tmp_path / "m.safetensors")
    assert found.keys() == model.state_dict().keys()
    loaded = nn.DataParallel(network())
    assert st3.load_sparse(tmp_path / "m.safetensors", loaded) is loaded


def test_saving_does_not_disturb_training(tmp_path):
    model = nn.Sequential(nn.Linear(40, 80), nn.ReLU(), nn.Linear(80, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    sparsifier = st3.sparsify(model, optimizer, sparsity=0.9, total_steps=4, ramp=st3.ramps.Cubic(0, 0.5))
    for _ in range(3):
        model(torch.randn(8, 40)).square().sum().backward()
        optimizer.step()
        st3.save_sparse(model, tmp_path / "m.safetensors")
    model(torch.randn(8, 40)).square().sum().backward()
    optimizer.step()
    assert sparsifier.finalize() is model
    st3.save_sparse(model, tmp_path / "m.safetensors")
    assert same(st3.load_sparse(tmp_path / "m.safetensors")["0.weight"], model[0].weight)


@pytest.mark.parametrize(
    ("tensor", "fault"),
    [
        (
            torch.zeros(2, 2).to_sparse(),
            r"w \(its layout is torch.sparse_coo: give tensor.to_dense\(\)\)",
        ),
        (torch.zeros(2, dtype=torch.complex128), r"w \(its type is torch.complex128\)"),
        (torch.zeros(2, device="meta"), r"w \(it has no data yet\)"),
        ({"extra": 1}, r"w \(a dict, not a tensor\)"),
    ],
)
def test_tensors_that_cannot_be_stored_are_named_in_the_error(tensor, fault, tmp_path):
    with pytest.raises(WeightsError, match=f"^a sparse file cannot hold {fault}$"):
        st3.save_sparse({"fine": torch.ones(1), "w": tensor}, tmp_path / "m.safetensors")
    with pytest.raises(WeightsError, match="save_sparse takes a model or a state_dict, got a list"):
        st3.save_sparse([1], tmp_path / "m.safetensors")


def test_a_file_of_another_model_is_refused_and_nothing_is_changed(tmp_path):
    st3.save_sparse(network(), tmp_path / "m.safetensors")
    other = nn.Sequential(nn.Conv2d(8, 32, 3), nn.BatchNorm2d(64), nn.ReLU(), nn.Linear(2, 2))
    before = {name: tensor.clone() for name, tensor in other.state_dict().items()}
    with pytest.raises(st3.errors.SparseFileError) as error:
        st3.load_sparse(tmp_path / "m.safetensors", other)
    assert str(error.value) == (
        f"the weights in {tmp_path / 'm.safetensors'} do not fit the model: missing: 3.weight, 3.bias; "
        "unexpected: 4.weight, 4.bias; wrong shape: 0.weight (64x8x3x3, not 32x8x3x3), 0.bias (64, not 32)"
    )
    assert all(torch.equal(before[name], tensor) for name, tensor in other.state_dict().items())


def test_the_size_is_reported_with_its_bound_and_no_gain_is_claimed_where_there_is_none(tmp_path):
    weight = sparse(300, 300)
    size = st3.save_sparse({"w": weight}, tmp_path / "m.safetensors")
    count = int(weight.count_nonzero())
    assert size.bound_bytes == pytest.approx(4 * count + entropy_bytes(90_000, count))
    assert 1 < size.over_bound < 1.04
    lines = str(size).splitlines()
    assert lines[1].split() == ["all", "numbers,", "stored", "densely", "360.0", "kB"]
    assert lines[-1].startswith("90.0 % of the numbers are zero; the file is ")
    full = sparse_size({"w": torch.randn(300, 300)})
    assert (
        full.verdict
        == "No gain: 0.0 % of the numbers are zero, and the file is as large as one that stores them all."
    )


def test_without_safetensors_the_error_says_what_to_install(monkeypatch, tmp_path):
    monkeypatch.setitem(__import__("sys").modules, "safetensors.torch", None)
    for call in (lambda: st3.save_sparse({}, tmp_path / "m"), lambda: st3.load_sparse(tmp_path / "m")):
        with pytest.raises(
            ImportError, match=r"^reading and writing weights needs safetensors: pip install safetensors"
        ):
            call()
