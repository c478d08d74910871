"""Settings in frozen, validated sections. What is wrong with them is reported in sentences, all at once."""

import tomllib
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, TypeAlias, TypeVar, get_args

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from ..registry import suggest

__all__ = [
    "MOST",
    "Count",
    "CountOrZero",
    "Section",
    "SettingsError",
    "change",
    "flatten",
    "parse_changes",
    "validate",
]

MOST = 10**9  # of anything that is counted: beyond it, floats and C integers give out
Count: TypeAlias = Annotated[int, Field(ge=1, le=MOST)]
CountOrZero: TypeAlias = Annotated[int, Field(ge=0, le=MOST)]

S = TypeVar("S", bound="Section")


class SettingsError(ValueError):
    """Settings that cannot be used; `faults` has one sentence for everything that is wrong."""

    def __init__(self, what: str, faults: Sequence[str]) -> None:
        self.faults = tuple(faults)
        super().__init__(f"{what}: {'; '.join(faults)}")


class Section(BaseModel):
    """Settings that belong together. Unknown names are refused, and values cannot change after validation."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False, validate_default=True)


def validate(kind: type[S], values: Mapping[str, Any], what: str) -> S:
    """Return `values` as a section of that `kind`, or raise with all faults at once."""
    try:
        return kind.model_validate(values)
    except ValidationError as error:
        faults = [_sentence(kind, fault) for fault in error.errors(include_url=False)]
        raise SettingsError(what, list(dict.fromkeys(faults))) from None


def parse_changes(changes: Sequence[str]) -> dict[str, Any]:
    """Return `key=value` texts as a dictionary; values are TOML, or plain strings if they are not.

    >>> parse_changes(["optimizer.lr=0.05", "rate.drops=[4, 6]", "model.name=resnet20"])
    {'optimizer.lr': 0.05, 'rate.drops': [4, 6], 'model.name': 'resnet20'}
    """
    parsed: dict[str, Any] = {}
    bad = []
    for change in changes:
        key, equals, value = change.partition("=")
        if not equals or not key.strip():
            bad.append(f"{change!r} is not of the form key=value, such as optimizer.lr=0.05")
            continue
        parsed[key.strip()] = _value(value.strip())
    if bad:
        raise SettingsError("--set", bad)
    return parsed


def change(values: dict[str, Any], key: str, value: Any) -> None:
    """Set the dotted `key` in nested `values`; a new `kind` clears its whole table.

    >>> settings = {"rate": {"kind": "step", "drops": [80, 120]}}
    >>> change(settings, "rate.kind", "cosine")
    >>> settings
    {'rate': {'kind': 'cosine'}}
    """
    *path, last = key.split(".")
    table = values
    for name in path:
        inner = table.setdefault(name, {})
        if not isinstance(inner, dict):
            raise SettingsError("--set", [f"{key}: {name} is a value ({inner!r}), not a table"])
        table = inner
    if last == "kind" and table.get("kind") != value:
        table.clear()  # settings of one kind mean nothing to another
    table[last] = value


def flatten(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return nested tables as one table with dotted keys; an empty table is a value.

    >>> flatten({"rate": {"kind": "step", "drops": [80]}, "data": {"options": {}}})
    {'rate.kind': 'step', 'rate.drops': [80], 'data.options': {}}
    """
    flat: dict[str, Any] = {}
    for key, value in values.items():
        flat |= (
            flatten(value, f"{prefix}{key}.")
            if isinstance(value, dict) and value
            else {f"{prefix}{key}": value}
        )
    return flat


def _value(text: str) -> Any:
    if text == "none":
        return None
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text


def _sentence(kind: type[Section], fault: Any) -> str:
    """Put one error of pydantic into a sentence: where it is, what was expected, what was found."""
    place = [str(part) for part in fault["loc"]]
    where = ".".join(part for part in place if part not in _tags(kind))
    if fault["type"] == "extra_forbidden":
        known = _names(kind, place[:-1])
        return f"unknown key {where!r}{suggest(place[-1], known)} (known: {', '.join(sorted(known))})"
    if fault["type"] == "missing":
        return f"{where} is missing"
    if fault["type"] == "value_error":
        return f"{where}: {fault['ctx']['error']}" if where else str(fault["ctx"]["error"])
    message = fault["msg"][0].lower() + fault["msg"][1:].replace("valid tuple", "list")
    return f"{where or 'as a whole'}: {message}, got {fault['input']!r}"


def _sections(annotation: Any) -> list[type[Section]]:
    """Return the kinds of section that an annotation allows."""
    if isinstance(annotation, type) and issubclass(annotation, Section):
        return [annotation]
    return [section for part in get_args(annotation) for section in _sections(part)]


def _tags(kind: type[Section]) -> set[str]:
    """Return the values of `kind` fields, which pydantic includes in the place of an error."""
    tags: set[str] = set()
    for field in kind.model_fields.values():
        for section in _sections(field.annotation):
            if "kind" in section.model_fields:
                tags |= set(get_args(section.model_fields["kind"].annotation))
            tags |= _tags(section)
    return tags


def _names(kind: type[Section], path: list[str]) -> list[str]:
    """Return the field names of the section at `path`, below `kind`."""
    sections = [kind]
    for part in path:
        if part.isdigit():  # the place in a list
            continue
        inner = [
            s for section in sections if part in section.model_fields
            for s in _sections(section.model_fields[part].annotation)
        ]  # fmt: skip
        if not inner:  # a tag, which selects one of the sections
            inner = [s for s in sections if part in get_args(s.model_fields["kind"].annotation)]
        sections = inner
    return sorted({name for section in sections for name in section.model_fields})
