"""Every method has its page, and the page is what its docstring says today."""

import importlib.util
import re
from pathlib import Path

import pytest

from st3.core.method import METHODS

ROOT = Path(__file__).parents[1]
every_method = pytest.mark.parametrize("name", list(METHODS))


@pytest.fixture(scope="module")
def pages():
    spec = importlib.util.spec_from_file_location("method_pages", ROOT / "docs" / "method_pages.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@every_method
def test_the_page_is_what_the_program_writes(name, pages):
    path = ROOT / "docs" / "methods" / f"{name}.md"
    advice = f"run: python docs/method_pages.py (for {path.relative_to(ROOT)})"
    assert path.exists(), advice
    assert path.read_text(encoding="utf-8") == pages.page(name), advice


def test_no_page_is_left_of_a_method_that_is_gone():
    assert {path.stem for path in (ROOT / "docs" / "methods").glob("*.md")} == {*METHODS}


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


@every_method
def test_the_overview_leads_to_the_page(name):
    assert f"](methods/{name}.md)" in (ROOT / "docs" / "methods.md").read_text(encoding="utf-8")
