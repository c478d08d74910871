"""Write the engine's table against other engines, in docs/engine.md and README.md.

    python docs/engine_page.py

It reads results/benchmarks/engine-rivals.json, which benchmarks/engine.py measures. A test fails while the pages say
something else than this program would write.
"""

import json
import sys
from pathlib import Path

from generated import fill_tables

ROOT = Path(__file__).parents[1]
PAGES = (ROOT / "docs" / "engine.md", ROOT / "README.md")
PROGRAM = "docs/engine_page.py"
RESULTS = ROOT / "results" / "benchmarks" / "engine-rivals.json"


def rivals() -> dict[str, str]:
    """Return the table and the remarks on it, by their name in the pages."""
    sys.path.insert(0, str(ROOT / "benchmarks"))
    from engine_table import remarks, rivals_table

    rows = json.loads(RESULTS.read_text(encoding="utf-8"))["rows"]
    return {"rivals": f"{rivals_table(rows)}\n\n{remarks(rows)}\n"}


if __name__ == "__main__":
    for page in PAGES:
        fill_tables(page, rivals(), PROGRAM)
