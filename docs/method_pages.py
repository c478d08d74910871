"""Write one page per registered method into docs/methods/, from its docstring and its settings.

    python docs/method_pages.py

The page is the docstring of the class or, if that is a single line, of its file; settings and their remarks are read
from the class. A test fails while a page says something else than the program would write.
"""

import inspect
import re
from dataclasses import MISSING, fields
from pathlib import Path
from textwrap import dedent, fill

from st3.core.method import METHODS, GroupMethod, Method

FOLDER = Path(__file__).parent / "methods"
STATE = {
    "raw": "the raw weight of every sparsified parameter `p`, `optimizer.state[p]['raw']`",
    "active": "the mask of every sparsified parameter `p`, `optimizer.state[p]['active']`",
}


def page(name: str) -> str:
    """Return the page of the method with that name."""
    method = METHODS[name]()
    kind = type(method)
    text = inspect.cleandoc(kind.__doc__ or "")
    summary, _, rest = text.partition("\n\n")
    rest = rest or inspect.cleandoc(inspect.getmodule(kind).__doc__ or "")
    parts = [
        f"<!-- written by docs/method_pages.py from the docstring: edit that -->\n\n# `{name}`: st3.{kind.__name__}",
        " ".join(summary.split()),
        _markdown(rest),
        f"## What it remembers\n\n{_state(method)}",
        f"## Settings\n\n{_settings(method)}",
        f"## Ramp and allocation\n\n{_usual(method)}",
        f"Source: [{_source(kind)}](../../{_source(kind)}). All methods: [docs/methods.md](../methods.md).",
    ]
    return "\n\n".join(parts) + "\n"


def _markdown(text: str) -> str:
    """Return the docstring with its indented blocks fenced."""

    def fence(block: re.Match[str]) -> str:
        return f"\n```text\n{dedent(block[0]).strip()}\n```\n"

    return re.sub(r"(?m)(?:^ {4}.*\n?|^\n(?= {4}))+", fence, text + "\n").strip()


def _state(method: Method) -> str:
    held = STATE.get(
        method.keeps, f"`optimizer.state[p]['{method.keeps}']` for every sparsified parameter `p`"
    )
    text = f"In the optimizer's state, saved and loaded with it: {held}; besides, the step count."
    if isinstance(method, GroupMethod) and method.has_scale:
        text += " The fixed factor of a weight lies beside its raw weight, under `'scale'`."
    return fill(text, 120)


def _settings(method: Method) -> str:
    rows = []
    for field in fields(method):  # type: ignore[arg-type]
        default = "" if field.default is MISSING else f"`{field.default!r}`"
        rows.append(f"| `{field.name}` | {default} | {_remark(type(method), field.name)} |")
    return "\n".join(["| setting | default | meaning |", "| --- | --- | --- |", *rows]) if rows else "None."


def _remark(kind: type, field: str) -> str:
    """Return the comment beside the field in the source of the class."""
    found = re.search(rf"(?m)^    {field}: .*?  # (.*)$", inspect.getsource(kind))
    return found[1].replace("|", "\\|") if found else ""


def _usual(method: Method) -> str:
    lines = [f"Usual: ramp `{method.usual_ramp}`, allocation `{method.usual_allocation}`."]
    for kind, only in (("ramp", method.only_ramps), ("allocation", method.only_allocations)):
        if only:
            lines.append(f"No {kind} but {' and '.join(f'`{name}`' for name in only)} means anything to it.")
    if method.own_sparsity is not None:
        lines.append(f"The sparsity follows from the settings: {method.own_sparsity:g} with the defaults.")
    return fill(" ".join(lines), 120)


def _source(kind: type) -> str:
    return f"src/{kind.__module__.replace('.', '/')}.py"


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    for old in FOLDER.glob("*.md"):
        if old.stem not in METHODS:
            old.unlink()
    for name in METHODS:
        (FOLDER / f"{name}.md").write_text(page(name), encoding="utf-8")


if __name__ == "__main__":
    main()
