"""The README's table of methods is what the registry holds."""

from pathlib import Path

import st3
from st3.core.method import METHODS

README = Path(__file__).parents[1] / "README.md"


def test_the_table_of_methods_in_the_readme_lists_the_registry():
    rows = []
    for name in METHODS:
        method = METHODS[name]()
        kind = type(method).__name__
        assert getattr(st3, kind) is type(method), f"st3.{kind} is not public"
        summary = (type(method).__doc__ or "").strip().splitlines()[0]
        rows.append(f"| `{name}` | `st3.{kind}()` | {summary} |")
    table = "\n".join(["| method | object | what it does |", "| --- | --- | --- |", *rows])
    text = README.read_text()
    found = text.split("by the tests -->\n")[1].split("\n<!-- end -->")[0]
    assert found == table, f"the README's table should be:\n{table}"
