"""The names of a run's files are in one place."""

import ast
from pathlib import Path

import pytest

from st3.training import paths
from st3.training.paths import checkpoint_name, is_checkpoint, is_part_folder, part_folder

SOURCE = Path(__file__).parents[2] / "src" / "st3"
NAMES = [value for name, value in vars(paths).items() if name.isupper() and isinstance(value, str)]


def literals(path):
    """Yield the line and text of every string that is not a docstring."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Expr):
            node.value = ast.Constant(None)  # a docstring
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.lineno, node.value


def test_no_other_file_spells_out_a_name():
    found = [
        f"{path.relative_to(SOURCE)}:{line}: {text!r}"
        for room in ("training", "experiments", "cli")
        for path in sorted((SOURCE / room).rglob("*.py"))
        if path.name != "paths.py"
        for line, text in literals(path)
        if text in NAMES
        or any("." in name[1:] and f"/{name}" in f"/{text}" and " " not in text for name in NAMES)
    ]
    assert found == []


def test_the_names_are_those_of_existing_runs():
    assert sorted(NAMES) == [
        ".lock", "checkpoints", "epochs.jsonl", "figures", "layers.jsonl", "model.safetensors",
        "model.sparse.safetensors", "raw.safetensors", "report.html", "sessions.jsonl", "spec.json", "steps.jsonl",
        "summary.json", "switches.json", "tensorboard", "versions.json",
    ]  # fmt: skip


def test_checkpoints_are_named_by_step():
    assert checkpoint_name(19) == "step-000000019.pt"
    assert is_checkpoint(checkpoint_name(19))
    assert not any(map(is_checkpoint, ("step-19.pt", ".step-000000019.pt.7.part", "step-000000019.pt.part")))


@pytest.mark.parametrize(
    ("name", "kind", "is_part"),
    [
        (part_folder("dense"), "dense", True),
        (part_folder("cycle", 3), "cycle", True),
        (part_folder("cycle", 103), "cycle", True),
        ("cycle-3", "cycle", False),
        ("cycle-03-old", "cycle", False),
        ("dense", "cycle", False),
        ("anything", "", False),
    ],
)
def test_only_folders_of_that_kind_are_parts(name, kind, is_part):
    assert is_part_folder(name, kind) is is_part
