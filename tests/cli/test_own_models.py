"""The user's own networks: whatever is wrong with one is reported in a sentence, before the first batch."""

import sys

import pytest

MODULE = """
from torch import nn

def plain(out):
    return nn.Sequential(nn.Flatten(), nn.Linear(64, out))

def others(num_classes, in_chans):
    return nn.Sequential(nn.Conv2d(in_chans, 4, 8), nn.Flatten(), nn.Linear(4, num_classes))

def wide(classes, width):
    return plain(classes)

def broken(classes):
    raise ValueError("no such\\n  depth")

def untrained():
    return nn.Flatten(2)

def seven():
    return plain(7)

def hidden(**more):
    return plain(more["out"])

number = 3
"""


@pytest.fixture
def error_of(st3, tmp_path, monkeypatch):
    """Return a function that trains a model and returns the error message."""
    (tmp_path / "my_own_nets.py").write_text(MODULE)
    (tmp_path / "fails_inside.py").write_text("import torch\ntorch.nothing_of_that_name\n")
    (tmp_path / "lacks_another.py").write_text("import nowhere_to_be_found\n")
    (tmp_path / "from_another.py").write_text("from my_own_nets import nothing\n")
    monkeypatch.setattr(sys, "path", [*sys.path])
    for name in ("my_own_nets", "fails_inside", "lacks_another", "from_another"):
        monkeypatch.delitem(sys.modules, name, raising=False)

    def run(name, *words):
        answer = st3("train", "--epochs", 1, "--quiet", "--run", "a", "--model", name, *words)
        assert "Traceback" not in answer.output
        assert (tmp_path / "a").exists() == (answer.exit_code == 0)
        return answer.stderr.removeprefix("error: ")

    yield run
    for name in ("my_own_nets", "fails_inside", "lacks_another", "from_another"):
        sys.modules.pop(name, None)


@pytest.mark.parametrize("name", [":", ":b", "a:", ".a:b", "a..b:c"])
def test_the_name_must_have_a_module_and_a_function(error_of, name):
    form = "is not of the form package.module:function, such as my_networks:tiny"
    assert error_of(name) == f"the spec has faults: model {name!r} {form}\n"


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("builtins:dict", "'builtins:dict' returned a dict, not an nn.Module"),
        ("my_own_nets:number", "'my_own_nets:number' is of type int, not a function that builds a network"),
        ("my_own_nets:none", "'my_own_nets:none': module 'my_own_nets' has no 'none'"),
        ("my_other_nets:f", "'my_other_nets:f': no module 'my_other_nets' here or on Python's path"),
        ("my_own_nets:wide", "'my_own_nets:wide' needs 'width': --set model.arguments.width=..."),
        ("my_own_nets:broken", "'my_own_nets:broken' cannot be built; it raised ValueError: no such depth"),
        ("my_own_nets:untrained", "'my_own_nets:untrained' has no trainable parameters"),
        (
            "fails_inside:f",
            "'fails_inside:f': its module cannot be imported: AttributeError: "
            "module 'torch' has no attribute 'nothing_of_that_name'",
        ),
        (
            "lacks_another:f",
            "'lacks_another:f': its module cannot be imported: ModuleNotFoundError: "
            "No module named 'nowhere_to_be_found'",
        ),
        (
            "my_own_nets:seven",
            "'my_own_nets:seven' returns (2, 7) for 2 pictures, but 'digits' has 10 classes: (2, 10); "
            "it has no argument 'classes' or 'num_classes': add one, or give "
            "--set model.arguments.NAME=10 if it is called otherwise",
        ),
    ],
)
def test_the_error_is_one_sentence(error_of, name, message):
    answer = error_of(name)
    assert answer.startswith(f"model: {message}")
    assert answer.count("\n") == 1


def test_a_failing_import_inside_the_module_is_not_reported_as_a_missing_function(error_of):
    assert error_of("from_another:f").startswith(
        "model: 'from_another:f': its module cannot be imported: ImportError: cannot import name 'nothing'"
    )


def test_other_names_for_classes_and_channels_are_known(error_of):
    assert error_of("my_own_nets:others") == ""


def test_an_unknown_argument_is_refused(error_of):
    fault = "'my_own_nets:plain' takes no argument 'ou'; did you mean 'out'? (known: out)"
    assert error_of("my_own_nets:plain", "--set", "model.arguments.ou=10") == f"model: {fault}\n"


def test_arguments_hidden_in_kwargs_can_be_given(error_of):
    assert error_of("my_own_nets:hidden", "--set", "model.arguments.out=10") == ""
