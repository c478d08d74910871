"""A package outside the library, written by a test to register a plug-in."""

import importlib
import itertools
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from st3.registry import Registry

__all__ = ["import_scratch_module"]

_numbers = itertools.count()


def import_scratch_module(
    source: str, registry: Registry[Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Write `source` as a module of a new package and import it; after the test, `registry` is as it was before."""
    for attribute, value in vars(registry).items():
        if isinstance(value, dict):
            monkeypatch.setattr(registry, attribute, dict(value))
    package = tmp_path / f"scratch_{next(_numbers)}"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "plugin.py").write_text(dedent(source), encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    importlib.import_module(f"{package.name}.plugin")
