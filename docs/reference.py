"""The parts of the reference that are made from the code whenever the site is built, as Markdown."""

import importlib
import inspect
import json
import re
from typing import Any, get_args

import typer
from method_pages import fence_blocks, remark
from sphinx.ext.autodoc.mock import mock
from typer.cli import get_docs_for_click

import st3
from st3.cli.app import app
from st3.experiments.spec import Spec
from st3.training.recipe import Recipe
from st3.training.sections import MOST, Section

FRAMEWORKS = ["lightning", "pytorch_lightning", "transformers"]


def commands() -> str:
    """Return every command with its arguments and options."""
    command = typer.main.get_command(app)
    text = get_docs_for_click(obj=command, ctx=typer.Context(command), name="st3", title="Commands")
    text = re.sub(r"\[/?bold\]", "", text)
    return re.sub(r"(?m)^(#+) ", r"#\1 ", text)


def spec_keys() -> str:
    """Return the keys of a spec without its recipe, which --set takes too."""
    sections = {name: field.annotation for name, field in Spec.model_fields.items()}
    own = {name: kind for name, kind in sections.items() if name not in ("recipe", "part")}
    return _tables({name: _fields(kind, f"{name}.") for name, kind in own.items()})


def recipe_keys() -> str:
    """Return the keys of a recipe's file."""
    top, tables = [], {}
    for name, field in Recipe.model_fields.items():
        kinds = [kind for kind in (get_args(field.annotation) or (field.annotation,)) if _is_section(kind)]
        if not kinds:
            top += _fields(Recipe, "", only=name)
        for kind in kinds:
            title = f'{name}, kind = "{kind.model_fields["kind"].default}"' if len(kinds) > 1 else name
            tables[title] = _fields(kind, f"{name}.")
    return _tables({"the recipe": top, **tables})


def errors() -> str:
    """Return every error and warning of the library with its docstring."""
    found = []
    for name in st3.errors.__all__:
        kind = getattr(st3.errors, name)
        base = next(base for base in kind.__mro__ if base.__module__ == "builtins").__name__
        found.append(f"### `{name}`\n\nA `{base}`. {inspect.getdoc(kind)}\n")
    return "\n".join(found)


def callback(module: str, name: str) -> str:
    """Return signature and docstring of a callback; its framework need not be installed, nor is it imported."""
    with mock(FRAMEWORKS):
        kind = getattr(importlib.import_module(module), name)
    signature = str(inspect.signature(kind.__init__)).replace("(self, ", "(").removesuffix(" -> None")
    return f"```text\nfrom {module} import {name}\n\n{name}{signature}\n```\n\n{fence_blocks(inspect.getdoc(kind))}"


def docstring(module: str) -> str:
    """Return the docstring of a module."""
    return fence_blocks(inspect.getdoc(importlib.import_module(module)) or "")


def _tables(sections: dict[str, list[str]]) -> str:
    head = "| key | type | default | meaning |\n| --- | --- | --- | --- |\n"
    return "\n\n".join(f"**{title}**\n\n{head}" + "\n".join(rows) for title, rows in sections.items())


def _is_section(kind: object) -> bool:
    return isinstance(kind, type) and issubclass(kind, Section)


def _fields(kind: type[Section], prefix: str, only: str = "") -> list[str]:
    rows = []
    for name, schema in kind.model_json_schema()["properties"].items():
        if only in ("", name):
            default = "" if kind.model_fields[name].is_required() else _value(schema.get("default", {}))
            cells = [f"`{prefix}{name}`", _type(schema), default, remark(kind, name)]
            rows.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return rows


def _value(value: object) -> str:
    if isinstance(value, dict):  # a method, ramp or allocation; or no arguments
        value = value.get("name", value)
    return "none" if value is None else f"`{json.dumps(value)}`"


BOUNDS = {
    "minimum": "from {:g}",
    "exclusiveMinimum": "above {:g}",
    "maximum": "to {:g}",
    "exclusiveMaximum": "below {:g}",
}
WORDS = {"null": "none", "object": "table", "array": "list"}  # of JSON, in TOML's


def _type(schema: dict[str, Any]) -> str:
    """Return the type that a JSON schema describes, in words."""
    if "anyOf" in schema:
        return ", or ".join(_type(part) for part in schema["anyOf"])
    if "const" in schema or "enum" in schema:
        return " or ".join(f"`{json.dumps(name)}`" for name in schema.get("enum", [schema.get("const")]))
    if "$ref" in schema:
        return "name, or table of `name` and `arguments`"
    limits = [text.format(schema[key]) for key, text in BOUNDS.items() if schema.get(key, MOST) < MOST]
    return " ".join([WORDS.get(schema["type"], schema["type"]), *limits])
