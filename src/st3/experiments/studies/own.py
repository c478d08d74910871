"""A study of one's own: a TOML file with data, network, methods, sparsities and seeds."""

import re
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, NonNegativeInt, PositiveInt

from ...training.sections import Section, SettingsError, validate
from ..grid.budgets import Budget, Setting
from .series import Series
from .study import Panel, Study

__all__ = ["OwnStudy", "read_study"]

NETWORK = "own"


class MethodEntry(Section):
    """One curve: a method with arguments, allocation, ramp and blocks."""

    method: str
    name: str | None = None  # of the curve; None: the method's
    label: str | None = None
    arguments: dict[str, Any] = Field(default_factory=dict)
    allocation: str | dict[str, Any] | None = None
    ramp: str | dict[str, Any] | None = None
    block: PositiveInt | None = None
    protocol: str | dict[str, Any] | None = None


def _as_table(entry: Any) -> Any:
    return {"method": entry} if isinstance(entry, str) else entry


class StudyFile(Section):
    """The keys of the file."""

    data: str
    model: str
    recipe: str | None = None
    epochs: PositiveInt | None = None
    methods: Annotated[tuple[Annotated[MethodEntry, BeforeValidator(_as_table)], ...], Field(min_length=1)]
    sparsities: Annotated[tuple[Annotated[float, Field(gt=0, lt=1)], ...], Field(min_length=1)]
    seeds: Annotated[tuple[NonNegativeInt, ...], Field(min_length=1)] = (0, 1, 2)
    x: Literal["sparsity", "macs"] = "sparsity"
    title: str | None = None
    dense: bool = True  # a dense run per seed, drawn as a line


class OwnStudy(Study):
    """A comparison that a TOML file describes."""

    def __init__(self, name: str, file: StudyFile) -> None:
        self.name = name
        self.title = file.title or f"{file.model} on {file.data}"
        self._file = file

    def panels(self) -> Sequence[Panel]:
        series = [_series(entry) for entry in self._file.methods]
        return [Panel(self.title, series, NETWORK, self._file.x, has_dense=self._file.dense)]


def read_study(path: Path) -> tuple[OwnStudy, Budget]:
    """Return the study that a TOML file describes, and its budget; raises with everything that is wrong."""
    try:
        values = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise SettingsError(str(path), [f"cannot be read: {error.strerror}"]) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SettingsError(str(path), [f"is not TOML: {error}"]) from None
    file = validate(StudyFile, values, str(path))
    names = [_series(entry).name for entry in file.methods]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise SettingsError(
            str(path), [f"methods: {name!r} is there twice: give each a name" for name in twice]
        )
    name = re.sub(r"[^\w.-]+", "-", path.stem)
    setting = Setting(file.data, file.model, file.recipe, file.sparsities, file.epochs)
    return OwnStudy(name, file), Budget("own", f"as {path.name} says", {NETWORK: setting}, file.seeds)


def _series(entry: MethodEntry) -> Series:
    more = {
        key: value for key in ("allocation", "ramp", "block") if (value := getattr(entry, key)) is not None
    }
    protocol: Mapping[str, Any] = {"name": "single"}
    if entry.protocol is not None:
        protocol = {"name": entry.protocol} if isinstance(entry.protocol, str) else entry.protocol
    name = entry.name or entry.method
    return Series(
        name,
        entry.label or name,
        {"name": entry.method, "arguments": entry.arguments} if entry.arguments else entry.method,
        more,
        protocol,
    )
