"""Write the engine's tables: in docs/engine.md all of them, in README.md some rows of the first.

    python docs/engine_page.py

It reads what benchmarks/engine.py, engine_threads.py and generation.py measure. A test fails while the pages say
something else than this program would write.
"""

import json
import sys
from collections.abc import Callable, Collection
from functools import partial
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "benchmarks"))

import engine_table  # noqa: E402
from generated import fill_tables  # noqa: E402

RESULTS = ROOT / "results" / "benchmarks"
PROGRAM = "docs/engine_page.py"


def tables(names: tuple[str, ...]) -> dict[str, str]:
    """Return tables and the remarks on them, by their name in the pages."""
    made = {}
    for name in names:
        files, write = TABLES[name]
        found = [json.loads((RESULTS / f"{file}.json").read_text(encoding="utf-8")) for file in files]
        made[name] = write(*found)
    return made


def rivals(found: dict[str, Any], shown: Collection[tuple[str, str]] = ()) -> str:
    """Return the engine's speed beside that of dense engines, with remarks; `shown` as in `rivals_table`."""
    table = engine_table.rivals_table(found["rows"], shown)
    return f"{table}\n\n{engine_table.remarks(found['rows'])}\n"


def threads(*processors: dict[str, Any]) -> str:
    """Return what a second thread gains on each processor, in the engine and in ONNX Runtime."""
    heads = ["network, 90 % zeros", "pictures"]
    lines: dict[str, list[str]] = {}
    for found in processors:
        note = " (AMX)" if "amx_tile" in found["environment"]["instruction sets"] else ""
        heads += [f"engine{note}", f"ONNX Runtime{note}"]
        for row in found["rows"]:
            network, _, batch = row["row"].split(":")
            name = engine_table.NETWORKS[network]
            cells = lines.setdefault(row["row"], [name, batch.removeprefix("b")])
            for engine in ("engine", "ONNX Runtime"):
                cells.append(f"{row[engine]['gain']['min']:.2f} / {row[engine]['gain']['median']:.2f}")
    return (
        "\n".join(f"| {' | '.join(line)} |" for line in [heads, ["---"] * len(heads), *lines.values()]) + "\n"
    )


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


# The files under results/benchmarks, and what writes them as a table.
TABLES: dict[str, tuple[tuple[str, ...], Callable[..., str]]] = {
    "rivals-short": (("engine-rivals",), partial(rivals, shown=engine_table.SHORT)),
    "rivals": (("engine-rivals",), rivals),
    "rivals-amx": (("engine-rivals-amx",), rivals),
    "rivals-avx2": (("engine-rivals-avx2",), rivals),
    "networks": (("engine-networks",), rivals),
    "networks-vnni": (("engine-networks-vnni",), rivals),
    "threads": (("engine-threads", "engine-threads-amx"), threads),
    "generation": (("generation",), generation_table),
    "generation-small": (("generation-small",), generation_table),
}
PAGES = {
    ROOT / "docs" / "engine.md": tuple(TABLES)[1:],
    ROOT / "README.md": tuple(TABLES)[:1],
}

if __name__ == "__main__":
    for page, names in PAGES.items():
        fill_tables(page, tables(names), PROGRAM)
