"""Networks of the user's own: what can go wrong with them is said in a sentence, before the first batch."""

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
def told(st3, tmp_path, monkeypatch):
    """Return what a run with that model says as its error."""
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
def test_the_name_must_be_of_module_and_function(told, name):
    form = "is not of the form package.module:function, such as my_networks:tiny"
    assert told(name) == f"the spec has faults: model {name!r} {form}\n"


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("builtins:dict", "'builtins:dict' returned a dict, not an nn.Module"),
        ("my_own_nets:number", "'my_own_nets:number' is a int, not a function that makes a network"),
        ("my_own_nets:none", "'my_own_nets:none': module 'my_own_nets' has no 'none'"),
        ("my_other_nets:f", "'my_other_nets:f': no module 'my_other_nets' here or on Python's path"),
        ("my_own_nets:wide", "'my_own_nets:wide' needs 'width': --set model.arguments.width=..."),
        ("my_own_nets:broken", "'my_own_nets:broken' cannot be built; it raised ValueError: no such depth"),
        ("my_own_nets:untrained", "'my_own_nets:untrained' has no parameters that can be trained"),
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
            "'my_own_nets:seven' answers 2 pictures with (2, 7), but 'digits' has 10 classes: (2, 10); "
            "it took no 'classes' or 'num_classes': give the function such an argument, or say "
            "--set model.arguments.NAME=10 if it has another name for it",
        ),
    ],
)
def test_it_is_one_sentence(told, name, said):
    answer = told(name)
    assert answer.startswith(f"model: {said}")
    assert answer.count("\n") == 1


def test_a_failing_import_inside_the_module_is_not_taken_for_a_missing_function(told):
    assert told("from_another:f").startswith(
        "model: 'from_another:f': its module cannot be imported: ImportError: cannot import name 'nothing'"
    )


def test_other_names_for_classes_and_channels_are_known(told):
    assert told("my_own_nets:others") == ""


def test_an_argument_that_it_does_not_take_is_refused(told):
    fault = "'my_own_nets:plain' takes no argument 'ou'; did you mean 'out'? (known: out)"
    assert told("my_own_nets:plain", "--set", "model.arguments.ou=10") == f"model: {fault}\n"


def test_what_keyword_arguments_hide_has_to_be_said(told):
    assert told("my_own_nets:hidden", "--set", "model.arguments.out=10") == ""
