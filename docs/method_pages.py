"""Write what the docs say about every registered method, allocation and ramp, from their docstrings and settings.

    python docs/method_pages.py

One page per method in docs/methods/, and the tables of README.md and docs/methods.md, between the marks `generated` and
`end`. A page is the docstring of the class or, if that is a single line, of its file. A test fails while a file says
something else than this program would write.
"""

import inspect
import re
from dataclasses import MISSING, fields
from pathlib import Path
from textwrap import dedent, fill
from typing import Any

from generated import fill_tables

from st3.allocations import ALLOCATIONS
from st3.core.budget.ramp import USUAL_TIMES
from st3.core.choices import fitting_allocations
from st3.methods import METHODS, Method
from st3.ramps import RAMPS

DOCS = Path(__file__).parent
PROGRAM = "docs/method_pages.py"
FOLDER = DOCS / "methods"


def page(name: str) -> str:
    """Return the page of the method with that name."""
    method = METHODS[name]()
    kind = type(method)
    text = inspect.cleandoc(kind.__doc__ or "")
    summary, _, rest = text.partition("\n\n")
    rest = rest or inspect.cleandoc(inspect.getmodule(kind).__doc__ or "")
    parts = [
        "<!-- written by docs/method_pages.py from the docstring: edit that -->",
        f"# `{name}`: st3.methods.{kind.__name__}",
        " ".join(summary.split()),
        fence_blocks(rest),
        f"## What it remembers\n\n{_state(method)}",
        f"## Settings\n\n{_settings(method)}",
        f"## Ramp and allocation\n\n{_usual(method)}",
        f"Source: [{_source(kind)}](../../{_source(kind)}). All methods: [docs/methods.md](../methods.md).",
    ]
    return "\n\n".join(parts) + "\n"


def fence_blocks(text: str) -> str:
    """Return the docstring as Markdown: its indented blocks fenced."""

    def fence(block: re.Match[str]) -> str:
        return f"\n```text\n{dedent(block[0]).strip()}\n```\n"

    return re.sub(r"(?m)(?:^ {4}.*\n?|^\n(?= {4}))+", fence, text + "\n").strip()


def _state(method: Method) -> str:
    text = (
        f"In the optimizer's state, saved and loaded with it: {method.family.keeps}; besides, the step count."
    )
    return fill(text, 120)


def _settings(method: Method) -> str:
    rows = []
    for field in fields(method):  # type: ignore[arg-type]
        default = "" if field.default is MISSING else f"`{field.default!r}`"
        meaning = remark(type(method), field.name).replace("|", "\\|")
        rows.append(f"| `{field.name}` | {default} | {meaning} |")
    return "\n".join(["| setting | default | meaning |", "| --- | --- | --- |", *rows]) if rows else "None."


def remark(kind: type, field: str) -> str:
    """Return the comment beside the field in the source of its class, or nothing."""
    owner = next((base for base in kind.__mro__ if field in inspect.get_annotations(base)), None)
    found = owner and re.search(rf"(?m)^    {field}: .*?  # (.*)$", inspect.getsource(owner))
    return found[1] if found else ""


def _usual(method: Method) -> str:
    if not method.has_target:
        return "None of either: the sparsity is found by training."
    lines = [f"Usual: {_usual_ramp(method)}, allocation `{method.usual_allocation}`."]
    if method.usual_times is not None:
        lines.append("`st3 train` keeps these times, whatever the recipe's ramp says.")
    elif _takes_usual_times(method):
        lines.append("`st3 train` takes the times of the recipe's ramp instead.")
    allocations = fitting_allocations(method)
    for kind, only in (
        ("ramp", method.only_ramps),
        ("allocation", allocations if len(allocations) < len(list(ALLOCATIONS)) else ()),
    ):
        if only:
            lines.append(f"No {kind} but {' and '.join(f'`{name}`' for name in only)} means anything to it.")
    if method.own_sparsity is not None:
        lines.append(f"The sparsity follows from the settings: {method.own_sparsity:g} with the defaults.")
    return fill(" ".join(lines), 120)


def _usual_ramp(method: Method) -> str:
    if method.own_ramp is not None:
        return f"ramp `{method.usual_ramp}`, by the settings of the method"
    if not _takes_usual_times(method):
        return f"ramp `{method.usual_ramp}`, from before the first step"
    start, end = method.usual_times or USUAL_TIMES
    return f"ramp `{method.usual_ramp}` from {start:g} to {end:g} of the run"


def _takes_usual_times(method: Method) -> bool:
    return getattr(RAMPS[method.usual_ramp], "takes_usual_times", False)


def tables() -> dict[Path, dict[str, str]]:
    """Return the generated tables of each file, by their names."""
    pages = [
        [f"[{name}](methods/{name}.md)", _summary(METHODS[name]), _course(METHODS[name]())]
        for name in METHODS
    ]
    return {
        DOCS.parent / "README.md": {
            "methods": _table(["method", "what it does"], _rows("methods", METHODS)),
        },
        DOCS / "methods.md": {
            "methods": _table(["page", "what it does", "sparsity over the run"], pages),
            "allocations": _table(
                ["allocation", "how sparsity is shared"], _rows("allocations", ALLOCATIONS)
            ),
            "ramps": _table(["ramp", "how sparsity rises"], _rows("ramps", RAMPS)),
        },
    }


def _rows(room: str, registry: Any) -> list[list[str]]:
    """Return name and summary of everything in a registry."""
    return [
        [f"`{name}` or `st3.{room}.{registry[name].__name__}()`", _summary(registry[name])]
        for name in registry
    ]


def _table(head: list[str], rows: list[list[str]]) -> str:
    return "\n".join("| " + " | ".join(row) + " |" for row in [head, ["---"] * len(head), *rows])


def _summary(kind: object) -> str:
    return inspect.cleandoc(kind.__doc__ or "").splitlines()[0]


def _course(method: Method) -> str:
    if not method.has_target:
        return "found by training"
    return "constant" if method.usual_ramp == "constant" else f"ramp `{method.usual_ramp}`"


def _source(kind: type) -> str:
    return f"src/{kind.__module__.replace('.', '/')}.py"


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    for old in FOLDER.glob("*.md"):
        if old.stem not in METHODS:
            old.unlink()
    for name in METHODS:
        (FOLDER / f"{name}.md").write_text(page(name), encoding="utf-8")
    for path, named in tables().items():
        fill_tables(path, named, PROGRAM)


if __name__ == "__main__":
    main()
