"""Every method has its page, every plug-in its row, and both are what the docstrings say today."""

import importlib
import re
from pathlib import Path

import pytest

import st3
from st3.allocations import ALLOCATIONS
from st3.methods import METHODS
from st3.ramps import RAMPS

ROOT = Path(__file__).parents[1]
every_method = pytest.mark.parametrize("name", list(METHODS))


@pytest.fixture
def pages(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "docs")
    return importlib.import_module("method_pages")


@every_method
def test_the_page_is_what_the_program_writes(name, pages):
    path = ROOT / "docs" / "methods" / f"{name}.md"
    advice = f"run: python docs/method_pages.py (for {path.relative_to(ROOT)})"
    assert path.exists(), advice
    assert path.read_text(encoding="utf-8") == pages.page(name), advice


def test_no_page_is_left_of_a_method_that_is_gone():
    assert {path.stem for path in (ROOT / "docs" / "methods").glob("*.md")} == {*METHODS}


def test_the_tables_are_what_the_program_writes(pages):
    from generated import filled

    for path, tables in pages.tables().items():
        text = path.read_text(encoding="utf-8")
        assert filled(text, tables, pages.PROGRAM) == text, (
            f"run: python docs/method_pages.py (for {path.name})"
        )


@pytest.mark.parametrize(
    ("room", "registry"),
    [(st3.methods, METHODS), (st3.allocations, ALLOCATIONS), (st3.ramps, RAMPS)],
    ids=["methods", "allocations", "ramps"],
)
def test_everything_registered_is_public_in_its_room(room, registry):
    for name in registry:
        kind = registry[name]
        assert getattr(room, kind.__name__) is kind
        assert kind.__name__ in room.__all__


def test_a_table_whose_marks_are_gone_is_noticed(pages):
    from generated import filled

    with pytest.raises(ValueError, match="the marks of the table 'methods' are missing"):
        filled("no marks", {"methods": "|"}, pages.PROGRAM)


@every_method
def test_the_page_says_who_what_and_where_it_differs(name, pages):
    text = pages.page(name)
    assert re.search(r"\b(19|20)\d\d\b", text), "no year: whose method is it?"
    equations = "".join(re.findall(r"(?s)```text\n(.*?)```", text))
    assert "forward" in equations
    assert "backward" in equations
    assert "Different from" in text
    meanings = re.findall(r"(?m)^\| `\w+` \| .* \| (.*) \|$", text)
    assert all(meanings), "a setting without a remark"
