"""Write the engine's tables against other engines: in docs/engine.md all of them, in README.md the first.

    python docs/engine_page.py

It reads what benchmarks/engine.py measures, one file per table and processor. A test fails while the pages say
something else than this program would write.
"""

import json
import sys
from pathlib import Path

from generated import fill_tables

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "results" / "benchmarks"
PROGRAM = "docs/engine_page.py"
TABLES = ("rivals", "rivals-avx2", "networks")  # results/benchmarks/engine-NAME.json
PAGES = {ROOT / "docs" / "engine.md": TABLES, ROOT / "README.md": TABLES[:1]}


def tables(names: tuple[str, ...]) -> dict[str, str]:
    """Return tables and the remarks on them, by their name in the pages."""
    sys.path.insert(0, str(ROOT / "benchmarks"))
    from engine_table import remarks, rivals_table

    files = {name: RESULTS / f"engine-{name}.json" for name in names}
    rows = {
        name: json.loads(file.read_text(encoding="utf-8"))["rows"]
        for name, file in files.items()
        if file.exists()  # else its table stays empty
    }
    return {name: f"{rivals_table(found)}\n\n{remarks(found)}\n" for name, found in rows.items()}


if __name__ == "__main__":
    for page, names in PAGES.items():
        fill_tables(page, tables(names), PROGRAM)
