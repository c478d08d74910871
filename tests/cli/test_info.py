"""`st3 info`: inspect a model."""

import json

import pytest
import torch
from torch import nn

from st3.files.weights import read_weights, write_weights
from st3.models import MODELS


def test_a_run_is_shown_layer_by_layer(st3, finished):
    answer = st3("info", finished)
    assert answer.exit_code == 0, answer.output
    lines = answer.stdout.splitlines()
    assert lines[0] == f"{finished / 'model.safetensors'}: digits_cnn"
    assert [line.split()[0] for line in lines[3:7]] == [
        "conv1.weight",
        "conv2.weight",
        "conv3.weight",
        "fc.weight",
    ]
    assert "Sparsity: 90.00 % of 23,808 weights in 4 layers." in lines
    assert [line.split("  ")[0] for line in lines[-4:]] == [
        "all numbers, stored densely",
        "the file",
        "as a sparse file (st3 export)",
        "bound: values and entropy of positions",
    ]


def test_a_sparse_file_is_shown_like_the_plain_one(st3, finished):
    plain, sparse = (
        json.loads(st3("info", finished / name, "--json").stdout)
        for name in ("model.safetensors", "model.sparse.safetensors")
    )
    assert sparse["report"] == plain["report"]
    assert sorted(row["name"] for row in sparse["tensors"]) == sorted(row["name"] for row in plain["tensors"])
    assert (plain["is_sparse"], sparse["is_sparse"]) == (False, True)
    assert sparse["file_bytes"] == plain["sparse"]["file_bytes"]
    assert sparse["sparse"] is None
    assert "as a sparse file" not in st3("info", finished / "model.sparse.safetensors").stdout


def test_json_agrees_with_the_summary_of_the_run(st3, finished):
    found = json.loads(st3("info", finished, "--json").stdout)
    summary = json.loads((finished / "summary.json").read_text())
    assert found["report"] == summary["report"]
    assert (found["file_bytes"], found["sparse"]["file_bytes"], found["sparse"]["bound_bytes"]) == (
        summary["model_bytes"],
        summary["sparse_model_bytes"],
        summary["sparse_model_bound"],
    )
    assert (finished / summary["sparse_model"]).stat().st_size == summary["sparse_model_bytes"]


def test_without_a_model_the_zeros_of_each_tensor_are_counted(st3, tmp_path):
    weights = {"a": torch.tensor([[0.0, 1.0], [0.0, -0.0]]), "n": torch.tensor(3), "none": torch.zeros(0, 4)}
    write_weights(tmp_path / "w.safetensors", weights, {})
    answer = st3("info", "w.safetensors")
    rows = [line.split() for line in answer.stdout.splitlines()[3:6]]
    assert rows == [
        ["a", "2x2", "4", "3", "75.00"],
        ["n", "1", "0", "0.00"],
        ["none", "0x4", "0", "0", "-"],
    ]
    assert "--model NAME --input 3x32x32" in answer.stdout
    found = json.loads(st3("info", "w.safetensors", "--json").stdout)
    assert found["dense_bytes"] == 4 * 4 + 8
    assert found["file_bytes"] == (tmp_path / "w.safetensors").stat().st_size
    assert found["sparse"]["dense_bytes"] == found["dense_bytes"]
    assert (found["model"], found["report"]) == (None, None)


@pytest.mark.parametrize("classes", [10, 7])
def test_for_a_state_dict_with_its_network_macs_are_counted(st3, tmp_path, classes):
    torch.save(MODELS["digits_cnn"](classes=classes).state_dict(), tmp_path / "w.pt")
    found = json.loads(st3("info", "w.pt", "--model", "digits_cnn", "--input", "1x8x8", "--json").stdout)
    assert found["report"]["dense_macs"] == 829_920 - 480 + 48 * classes


def test_weights_inside_a_checkpoint_are_found(st3, tmp_path):
    torch.save({"epoch": 3, "state_dict": nn.Linear(2, 2).state_dict()}, tmp_path / "c.pt")
    found = json.loads(st3("info", "c.pt", "--json").stdout)
    assert [row["name"] for row in found["tensors"]] == ["weight", "bias"]


def test_a_pickle_that_would_run_code_is_refused(st3, tmp_path):
    torch.save(nn.Linear(2, 2), tmp_path / "module.pt")
    answer = st3("info", "module.pt")
    assert answer.exit_code == 1
    assert answer.stderr.startswith(
        "error: module.pt is neither a safetensors file nor a state_dict saved by torch"
    )
    assert len(answer.stderr.splitlines()) == 1


def test_a_file_without_weights_is_refused(st3, tmp_path):
    (tmp_path / "notes.txt").write_text("no weights")
    assert "notes.txt is neither a safetensors file nor" in st3("info", "notes.txt").stderr
    torch.save({"epoch": 3}, tmp_path / "c.pt")
    assert (
        st3("info", "c.pt").stderr
        == "error: c.pt holds a dict with 'epoch' that is not a state_dict, a name for every tensor: "
        "save model.state_dict(), alone or under the key 'model'\n"
    )
    (tmp_path / "bad.safetensors").write_bytes(b"\0" * 40)
    assert (
        "bad.safetensors is not a safetensors file, or it is damaged" in st3("info", "bad.safetensors").stderr
    )


@pytest.mark.parametrize("shape", ["3x32x0", "axbxc", "3x", "-8"])
def test_a_malformed_shape_is_refused(st3, finished, shape):
    answer = st3("info", finished, "--input", shape)
    assert answer.exit_code == 2
    assert f"'{shape}' is not channels x height x width, such as 3x32x32" in answer.stderr


@pytest.mark.parametrize("shape", ["32", "3x32"])
def test_a_shape_that_no_picture_has_is_refused(st3, finished, shape):
    answer = st3("info", finished, "--input", shape)
    assert answer.exit_code == 1
    assert answer.stderr == f"error: --input: {shape} is not the shape of a picture, such as 3x32x32\n"


def test_the_file_is_not_changed(st3, finished):
    before = read_weights(finished / "model.safetensors")[0]
    st3("info", finished)
    after = read_weights(finished / "model.safetensors")[0]
    assert all(torch.equal(before[name], after[name]) for name in before)


def test_another_input_must_have_the_channels_of_the_run(st3, finished):
    file = finished / "model.safetensors"
    answer = st3("info", finished, "--input", "3x32x32")
    message = f"error: --input: 3x32x32 has 3 channels, but the model in {file} takes pictures of 1\n"
    assert (answer.exit_code, answer.stderr) == (1, message)
    macs = [
        json.loads(st3("info", finished, "--input", shape, "--json").stdout)["report"]["dense_macs"]
        for shape in ("1x8x8", "1x16x16")
    ]
    assert macs[1] > 3 * macs[0]


def test_an_input_too_small_for_the_network_is_refused(st3, tmp_path):
    torch.save(MODELS["vgg11"]().state_dict(), tmp_path / "w.pt")
    answer = st3("info", "w.pt", "--model", "vgg11", "--input", "3x2x2")
    assert answer.exit_code == 1
    assert answer.stderr.startswith("error: --input: 'vgg11' cannot take a picture of 3x2x2: ")
    assert len(answer.stderr.splitlines()) == 1


@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize(
    ("metadata", "faults"),
    [
        ("1.0", "a str instead of a table"),
        ([1], "a list instead of a table"),
        ({"model": {"arguments": {}}}, "model has no name"),
        ({"model": "resnet20", "data": {"name": 3}}, "model has no name; data has no name"),
        ({"model": {"name": "resnet20", "arguments": 3}}, "model has arguments that are not a table"),
        (
            {"data": {"name": "digits", "shape": [8, 8]}},
            "data has a shape that neither pictures nor sequences have",
        ),
        ({"data": {"name": "digits", "classes": 10}}, "data has classes that are not a list of names"),
        ({"layers": {"a": 1}}, "layers is not a list of names"),
    ],
)
def test_metadata_that_cannot_come_from_st3_are_ignored(st3, tmp_path, metadata, faults):
    write_weights(tmp_path / "w.safetensors", {"a": torch.ones(2)}, metadata)
    answer = st3("info", "w.safetensors")
    assert answer.exit_code == 0
    assert answer.stdout.startswith("w.safetensors: unknown network\n")
    message = f"some of the metadata in w.safetensors cannot come from st3 and are ignored: {faults}"
    assert answer.stderr == f"warning: {message}\n"


def test_metadata_may_be_incomplete(st3, tmp_path):
    weights = MODELS["digits_cnn"]().state_dict()
    write_weights(tmp_path / "w.safetensors", weights, {"model": {"name": "digits_cnn"}, "layers": None})
    answer = st3("info", "w.safetensors", "--input", "1x8x8")
    assert (answer.exit_code, answer.stderr) == (0, "")
    assert answer.stdout.startswith("w.safetensors: digits_cnn\n")


@pytest.mark.filterwarnings("ignore:Sparse:UserWarning")
def test_zeros_are_counted_in_tensors_of_any_layout_and_type(st3, tmp_path):
    dense = torch.tensor([[0.0, 1.0], [0.0, 2.0]])
    kinds = {"coo": dense.to_sparse(), "csr": dense.to_sparse_csr(), "float8": dense.to(torch.float8_e4m3fn)}
    torch.save(kinds, tmp_path / "w.pt")
    answer = st3("info", "w.pt", "--json")
    assert answer.exit_code == 0, answer.output
    assert [row["zeros"] for row in json.loads(answer.stdout)["tensors"]] == [2, 2, 2]


def test_torchs_reason_for_refusing_a_pickle_is_quoted_without_its_advice(st3, tmp_path):
    torch.save(nn.Linear(2, 2), tmp_path / "module.pt")
    assert st3("info", "module.pt").stderr == (
        "error: module.pt is neither a safetensors file nor a state_dict saved by torch, or it is damaged "
        "(Unsupported global: GLOBAL torch.nn.modules.linear.Linear was not an allowed global by default.)\n"
    )
    (tmp_path / "notes.txt").write_text("no weights")
    assert st3("info", "notes.txt").stderr.endswith("or it is damaged (Unsupported operand 110)\n")


def test_for_weights_of_another_network_a_few_names_are_listed(st3, finished):
    assert st3("info", finished, "--model", "resnet20").stderr.partition("'resnet20': ")[2] == (
        "missing: layer1.0.conv1.weight, layer1.0.bn1.weight, layer1.0.bn1.bias and 117 more; "
        "unexpected: bn2.bias, bn2.num_batches_tracked, bn2.running_mean and 9 more; "
        "wrong shape: conv1.weight (32x1x3x3, not 16x1x3x3), bn1.weight (32, not 16), bn1.bias (32, not 16) "
        "and 3 more\n"
    )
