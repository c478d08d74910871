"""What determines the result of a run, and what is only a circumstance of computing it."""

import hashlib
import json
from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Any

from ..core.budget.allocation import ALLOCATIONS
from ..core.method import METHODS
from ..data import DATASETS
from ..models import MODELS
from ..training.sections import Section, flatten
from .arguments import default_arguments
from .protocols import PROTOCOLS

if TYPE_CHECKING:
    from .spec import Spec

__all__ = ["differences", "essence", "identity", "is_circumstance"]

# Settings by dotted key (or its beginning) that say where and on what a run is computed, or are mere names. Devices,
# threads and precision do change the rounding, but a run may be resumed under others.
CIRCUMSTANCES = ("machine.", "record.", "data.dir", "data.download", "recipe.name", "part.title")


@cache
def is_circumstance(key: str) -> bool:
    """Return whether a setting, by its dotted key, may change without making it another run.

    >>> is_circumstance("machine.threads"), is_circumstance("seeds.init")
    (True, False)
    """
    return f"{key}.".startswith(tuple(part if part.endswith(".") else f"{part}." for part in CIRCUMSTANCES))


def essence(spec: "Spec") -> dict[str, Any]:
    """Return everything that determines the result, by dotted key, without what has its usual value.

    Two specs have the same essence if and only if they describe the same run, so it can serve as the identity of a run.
    Usual values are left out, so that a setting which is added later, and whose usual value changes nothing, leaves the
    identity of every older run as it was. The price is that usual values must not change; tests pin those of the spec.
    """
    usual = _usual_values(spec)
    # Empty tables say nothing; a `kind` is always kept, because all other settings of its table depend on it.
    return {
        key: value
        for key, value in _settings(spec).items()
        if value != {} and (key.endswith(".kind") or key not in usual or usual[key] != value)
    }


def identity(spec: "Spec") -> str:
    """Return a short name for the essence of a spec: the same for the same run, wherever it is computed."""
    text = json.dumps(essence(spec), sort_keys=True, default=str)
    return hashlib.blake2b(text.encode(), digest_size=6).hexdigest()


def differences(spec: "Spec", other: "Spec") -> list[str]:
    """Return `key: value, not other value` for everything in which the essence of two specs differs."""
    mine, theirs = essence(spec), essence(other)
    keys = [key for key in mine | theirs if mine.get(key) != theirs.get(key)]
    ours, others = _settings(spec), _settings(other)
    return [f"{key}: {ours.get(key)!r}, not {others.get(key)!r}" for key in keys]


def _settings(spec: "Spec") -> dict[str, Any]:
    flat = flatten(spec.model_dump(mode="json"))
    return {key: value for key, value in flat.items() if not is_circumstance(key)}


def _usual_values(spec: "Spec") -> dict[str, Any]:
    """Return the usual value of every setting that has one: of the sections, and of arguments by their functions."""
    usual = _section_defaults(spec)
    for key, registry, name in (
        ("data.options", DATASETS, spec.data.name),
        ("model.arguments", MODELS, spec.model.name),
        ("sparse.method.arguments", METHODS, spec.sparse.method.name),
        ("sparse.allocation.arguments", ALLOCATIONS, spec.sparse.allocation.name),
        ("protocol.arguments", PROTOCOLS, spec.protocol.name),
    ):
        if name in registry:
            make: Callable[..., Any] = registry[name]
            usual |= {f"{key}.{argument}": value for argument, value in default_arguments(make).items()}
    return usual


def _section_defaults(section: Section, prefix: str = "") -> dict[str, Any]:
    defaults: dict[str, Any] = {}
    for name, usual in _field_defaults(type(section)).items():
        value = getattr(section, name)
        if isinstance(value, Section):
            defaults |= _section_defaults(value, f"{prefix}{name}.")
        defaults |= {prefix + key: default for key, default in usual.items()}
    return defaults


@cache  # a thousand runs are compared in a second
def _field_defaults(kind: type[Section]) -> dict[str, dict[str, Any]]:
    """Return the usual value of each field of a kind of section, by key; of a section in it, several."""
    found: dict[str, dict[str, Any]] = {}
    for name, field in kind.model_fields.items():
        if field.is_required():
            found[name] = {}
            continue
        default = field.get_default(call_default_factory=True)
        if isinstance(default, Section):
            found[name] = flatten(default.model_dump(mode="json"), f"{name}.")
        else:
            as_in_json = list(default) if isinstance(default, tuple) else default
            found[name] = {name: as_in_json}
    return found
