"""`st3 info`: what is in a model."""

import json
import zlib

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
    assert lines[-1].startswith("the file, compressed (zlib)")


def test_json_agrees_with_the_summary_of_the_run(st3, finished):
    found = json.loads(st3("info", finished, "--json").stdout)
    summary = json.loads((finished / "summary.json").read_text())
    assert found["report"] == summary["report"]
    assert (found["file_bytes"], found["compressed_bytes"]) == (
        summary["model_bytes"],
        summary["compressed_bytes"],
    )


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
    content = (tmp_path / "w.safetensors").read_bytes()
    found = json.loads(st3("info", "w.safetensors", "--json").stdout)
    assert found["dense_bytes"] == 4 * 4 + 8
    assert (found["file_bytes"], found["compressed_bytes"]) == (len(content), len(zlib.compress(content, 6)))
    assert (found["model"], found["report"]) == (None, None)


@pytest.mark.parametrize("classes", [10, 7])
def test_a_state_dict_with_its_network_has_macs(st3, tmp_path, classes):
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


def test_a_file_of_something_else_is_refused(st3, tmp_path):
    (tmp_path / "notes.txt").write_text("no weights")
    assert "notes.txt is neither a safetensors file nor" in st3("info", "notes.txt").stderr
    torch.save({"epoch": 3}, tmp_path / "c.pt")
    assert (
        st3("info", "c.pt").stderr == "error: c.pt holds a dict, but no state_dict: a name for every tensor\n"
    )
    (tmp_path / "bad.safetensors").write_bytes(b"\0" * 40)
    assert "bad.safetensors is no safetensors file, or a damaged one" in st3("info", "bad.safetensors").stderr


@pytest.mark.parametrize("shape", ["32", "3x32", "3x32x0", "axbxc"])
def test_a_shape_must_be_one(st3, finished, shape):
    answer = st3("info", finished, "--input", shape)
    assert answer.exit_code == 2
    assert f"'{shape}' is not channels x height x width, such as 3x32x32" in answer.stderr


def test_tensors_are_told_by_name_and_nothing_is_changed(st3, finished):
    before = read_weights(finished / "model.safetensors")[0]
    st3("info", finished)
    after = read_weights(finished / "model.safetensors")[0]
    assert all(torch.equal(before[name], after[name]) for name in before)
