"""The README's table of methods is what the registry holds; the commands of its protocols mean what it says."""

import re
from pathlib import Path

import st3
from st3.cli.spec_options import SpecOptions, keep_given
from st3.core.method import METHODS
from st3.experiments.spec import compose

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


def test_the_commands_of_the_protocols_in_the_readme_mean_what_it_says():
    table = README.read_text().split("tried by the tests -->\n")[1].split("\n<!-- end -->")[0]
    rows = dict(re.findall(r"(?m)^\| ([^|]+?) \| `st3 train ([^`]+)` \|", table))
    found = {}
    for name, words in rows.items():
        options = dict(re.findall(r"--(\w+) (\S+)", words))
        epochs = options.get("epochs")
        given = SpecOptions(
            protocol=options.get("protocol"),
            sparse=keep_given(method=options.get("method")),
            epochs=epochs and int(epochs),
        )
        found[name] = given.spec()
    assert found == {
        "LRR": compose(protocol="lrr", sparse={"method": "gmp"}),
        "LRR+ST-3": compose(protocol="lrr", sparse={"method": "st3"}),
        "ST-3 long": compose(epochs=4 * compose().recipe.epochs),
    }
