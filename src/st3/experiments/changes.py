"""Changes of single settings by dotted keys; those of the recipe need no prefix."""

from collections.abc import Iterable, Mapping
from typing import Any

from ..registry import suggest
from ..training.recipe import Recipe
from ..training.sections import SettingsError, change
from .sparse_choices import expand_choices

__all__ = ["full_keys", "make_changes"]


def full_keys(changes: Mapping[str, Any], sections: Iterable[str], faults: list[str]) -> dict[str, Any]:
    """Return the changes with the section in front of every key; unknown keys go to `faults` instead."""
    sections, made = list(sections), {}
    for key, value in changes.items():
        first = key.partition(".")[0]
        if first in sections:
            made[key] = value
        elif first in Recipe.model_fields:
            made[f"recipe.{key}"] = value
        else:
            faults.append(_unknown(key, [*sections, *Recipe.model_fields]))
    return made


def make_changes(values: dict[str, Any], changes: Mapping[str, Any], faults: list[str]) -> None:
    """Make the changes in nested `values`; add to `faults` what cannot be changed."""
    for key, value in changes.items():
        try:
            change(values, key, value)
        except SettingsError as error:
            faults += error.faults
        if isinstance(values.get("sparse"), dict):
            expand_choices(values["sparse"])  # a name may be followed by its arguments


def _unknown(key: str, known: list[str]) -> str:
    first, dot, rest = key.partition(".")
    advice = suggest(first, known, spell=lambda near: near + dot + rest)
    # Perhaps a setting inside a section of the recipe, such as lr of the optimizer.
    if not advice and not dot:
        sections = {
            setting: name
            for name, field in Recipe.model_fields.items()
            for setting in getattr(field.annotation, "model_fields", ())
        }
        advice = suggest(key, sections, spell=lambda near: f"{sections[near]}.{near}")
    return f"unknown key {key!r}{advice} (known: {', '.join(known)})"
