"""`st3 list`."""

import inspect
import json
from itertools import takewhile
from pathlib import Path
from typing import Annotated, Any

import typer

from ..registry import Registry, suggest
from ..tables import text_table
from .faults import Debug

__all__ = ["list_names"]

KINDS = ("methods", "models", "data", "recipes", "protocols", "allocations", "ramps")


def list_names(
    kind: Annotated[
        str | None, typer.Argument(metavar="KIND", help=f"One of {', '.join(KINDS)}; without it, all.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="The names as JSON.", metavar="")] = False,
    debug: Annotated[bool, Debug] = False,
) -> None:
    """List the names that options take: methods, models, data, recipes, protocols, allocations, ramps.

    For example: st3 list models
    """
    if kind is not None and kind not in KINDS:
        raise typer.BadParameter(
            f"unknown kind {kind!r}{suggest(kind, KINDS)} (known: {', '.join(KINDS)})", param_hint="KIND"
        )
    found = {name: _names(name) for name in ([kind] if kind else KINDS)}
    if as_json:
        print(json.dumps(found[kind] if kind else found, indent=2))
        return
    for name, entries in found.items():
        print(text_table([name, ""], list(entries.items()), left=(0, 1)))
        print()


def _names(kind: str) -> dict[str, str]:
    """Return the names with a description in one line."""
    from ..core.budget.allocation import ALLOCATIONS
    from ..core.budget.ramp import RAMPS
    from ..core.method import METHODS
    from ..data import DATASETS
    from ..experiments.protocols import PROTOCOLS
    from ..models import MODELS
    from ..training.recipe import built_in_recipes

    if kind == "recipes":
        return {name: _first_comment(path) for name, path in built_in_recipes().items()}
    registries: dict[str, Registry[Any]] = {
        "methods": METHODS,
        "models": MODELS,
        "data": DATASETS,
        "protocols": PROTOCOLS,
        "allocations": ALLOCATIONS,
        "ramps": RAMPS,
    }
    registry = registries[kind]
    names = {name: _first_line(registry[name]) for name in registry}
    return {"dense": "No sparsity: train without a method.", **names} if kind == "methods" else names


def _first_line(thing: object) -> str:
    return (inspect.getdoc(thing) or "").partition("\n")[0]


def _first_comment(path: Path) -> str:
    """Return the first sentence of the comment at the beginning of the file."""
    lines = path.read_text(encoding="utf-8").splitlines()
    comment = " ".join(
        line.removeprefix("#").strip() for line in takewhile(lambda line: line.startswith("#"), lines)
    )
    return comment.partition(". ")[0].removesuffix(".") + "." if comment else ""
