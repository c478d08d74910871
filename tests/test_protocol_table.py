"""The commands in the table of protocols mean what it says."""

import re
from pathlib import Path

from st3.cli.spec_options import SpecOptions, keep_given
from st3.experiments.spec import compose

PAGE = Path(__file__).parents[1] / "docs" / "cycles.md"


def test_the_commands_in_the_table_of_protocols_mean_what_it_says():
    table = PAGE.read_text(encoding="utf-8").split("tried by the tests -->\n")[1].split("\n<!-- end -->")[0]
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
