"""What the reference says is made from the code, and leaves nothing out."""

import importlib
import re
from pathlib import Path

import pytest
import typer

import st3
from st3.cli.app import app

DOCS = Path(__file__).parents[1] / "docs"


@pytest.fixture
def reference(monkeypatch):
    monkeypatch.syspath_prepend(str(DOCS))
    return importlib.import_module("reference")


def test_every_command_is_there_with_all_its_options(reference):
    text = reference.commands()
    missing = []
    waiting = [("st3", typer.main.get_command(app))]
    while waiting:
        name, command = waiting.pop()
        waiting += [(f"{name} {part}", below) for part, below in getattr(command, "commands", {}).items()]
        section = text if name == "st3" else text.partition(f"# `{name}`\n")[2].partition("\n#")[0]
        missing += [
            (name, option)
            for item in command.params
            for option in item.opts
            if option.startswith("-") and option not in section
        ]
        missing += [name] if not section else []
    assert missing == []
    assert "[bold]" not in text


@pytest.mark.parametrize("keys", ["recipe_keys", "spec_keys"])
def test_every_key_has_a_type_and_a_meaning(reference, keys):
    rows = re.findall(r"(?m)^\| `(\S+)` \| (.*?) \| .* \| (.*) \|$", getattr(reference, keys)())
    assert len(rows) > 15
    assert [key for key, kind, meaning in rows if not kind or not meaning] == []


def test_every_error_says_what_to_do(reference):
    sections = reference.errors().split("### ")[1:]
    assert [section.split("`")[1] for section in sections] == st3.errors.__all__
    assert [section for section in sections if section.count("\n\n") < 2] == []
