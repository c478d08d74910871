"""Files from strangers: code that they name is not run unless the user names it, too."""

import sys

import pytest
import torch

from st3.files.sparse import save_sparse
from st3.files.weights import write_weights
from st3.models import MODELS

MODULE = """
from pathlib import Path
from torch import nn

Path("was-imported").touch()

def tiny(classes, hidden):
    return nn.Sequential(nn.Flatten(), nn.Linear(64, hidden), nn.Linear(hidden, classes))
"""
ABOUT = {
    "model": {"name": "strange_nets:tiny", "arguments": {"hidden": 3}, "classes": 10, "channels": 1},
    "data": {"name": "digits", "shape": [1, 8, 8]},
}
COMMANDS = [
    ("info",), ("eval",), ("export", "--to", "pt2"), ("bench", "--rounds", "1"),
]  # fmt: skip


@pytest.fixture
def weights(tmp_path, monkeypatch):
    (tmp_path / "strange_nets.py").write_text(MODULE)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.delitem(sys.modules, "strange_nets", raising=False)
    yield {
        "1.weight": torch.zeros(3, 64),
        "1.bias": torch.zeros(3),
        "2.weight": torch.ones(10, 3),
        "2.bias": torch.ones(10),
    }
    sys.modules.pop("strange_nets", None)


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command[0])
@pytest.mark.parametrize("kind", ["plain", "sparse"])
def test_code_that_a_file_names_is_not_run(st3, tmp_path, weights, command, kind):
    if kind == "plain":
        write_weights(tmp_path / "w.safetensors", weights, ABOUT)
    else:
        save_sparse(weights, tmp_path / "w.safetensors", metadata=ABOUT)
    answer = st3(command[0], "w.safetensors", *command[1:])
    message = "it names code that builds its network: if you trust that code, add --model strange_nets:tiny"
    assert (answer.exit_code, answer.stderr) == (1, f"error: w.safetensors: {message}\n")
    assert not (tmp_path / "was-imported").exists()


def test_code_that_the_user_names_is_run_with_the_arguments_in_the_file(st3, tmp_path, weights):
    write_weights(tmp_path / "w.safetensors", weights, ABOUT)
    answer = st3("info", "w.safetensors", "--model", "strange_nets:tiny")
    assert answer.exit_code == 0, answer.output
    assert (tmp_path / "was-imported").exists()
    assert "w.safetensors: strange_nets:tiny" in answer.stdout


def test_a_network_of_the_catalogue_needs_no_trust(st3, tmp_path):
    about = ABOUT | {"model": {"name": "digits_cnn", "classes": 10, "channels": 1}}
    write_weights(tmp_path / "w.safetensors", MODELS["digits_cnn"](channels=1).state_dict(), about)
    assert st3("info", "w.safetensors").exit_code == 0
