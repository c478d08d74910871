"""Write the engine's tables against other engines: in docs/engine.md all of them, in README.md some rows of the first.

    python docs/engine_page.py

It reads what benchmarks/engine.py and benchmarks/generation.py measure, one file per table and processor. A test fails
while the pages say something else than this program would write.
"""

import json
import sys
from pathlib import Path
from typing import Any

from generated import fill_tables

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "results" / "benchmarks"
PROGRAM = "docs/engine_page.py"
TABLES = ("rivals", "rivals-avx2", "networks", "networks-vnni")  # results/benchmarks/engine-NAME.json
GENERATION = ("generation", "generation-small")  # results/benchmarks/NAME.json
SHORT = "rivals-short"  # some rows of the first table
PAGES = {ROOT / "docs" / "engine.md": (*TABLES, *GENERATION), ROOT / "README.md": (SHORT,)}


def tables(names: tuple[str, ...]) -> dict[str, str]:
    """Return tables and the remarks on them, by their name in the pages."""
    sys.path.insert(0, str(ROOT / "benchmarks"))
    import engine_table

    made = {}
    for name in names:
        file = (
            RESULTS
            / f"{name if name in GENERATION else f'engine-{TABLES[0] if name == SHORT else name}'}.json"
        )
        if not file.exists():
            continue  # its table stays empty
        found = json.loads(file.read_text(encoding="utf-8"))
        if name in GENERATION:
            made[name] = generation_table(found)
        else:
            shown = engine_table.SHORT if name == SHORT else ()
            table = engine_table.rivals_table(found["rows"], shown)
            made[name] = f"{table}\n\n{engine_table.remarks(found['rows'])}\n"
    return made


def generation_table(found: dict[str, Any]) -> str:
    """Return the speed, file and memory of every way to generate text."""
    timed = [row for row in found["rows"] if "ways" in row]
    files = next((row["files"] for row in found["rows"] if "files" in row), {})
    heads = ["", *(f"speed, {row['threads']} thread{'s' * (row['threads'] > 1)}" for row in timed)]
    lines = [[*heads, "tokens per second", *(("file, MB", "memory, MB") if files else ())]]
    lines.append(["---"] * len(lines[0]))
    for name, first in timed[0]["ways"].items():
        speeds = [
            f"{row['ways'][name]['speed']['min']:.2f} / {row['ways'][name]['speed']['median']:.2f}"
            for row in timed
        ]
        rate = f"{first['tokens per second']:,.0f}"
        held = [f"{files[name][key]:,.1f}" for key in ("file MB", "memory MB")] if files else []
        lines.append([name, *speeds, rate, *held])
    rivals = ", ".join(f"{row['fastest float32 rival']} ({row['threads']})" for row in timed)
    shape = ", ".join(f"{key} {value}" for key, value in found["spec"]["shape"].items())
    table = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    spec = found["spec"]
    return (
        f"{table}\n\nShape: {shape}; {spec['tokens']} tokens a turn, {spec['rounds']} rounds. Fastest float32 rival "
        f"(threads): {rivals}.\nThe processor: {found['environment']['processor']}.\n"
    )


if __name__ == "__main__":
    for page, names in PAGES.items():
        fill_tables(page, tables(names), PROGRAM)
