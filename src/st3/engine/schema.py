"""The structures of a plan, as the compiled library states them.

Every structure is stated once, in c/plan.h; the library gives the list as text, and this module makes the ctypes
classes from it: `schema.Sparse(...)`. A pointer is an unsigned number: a reference in a plan, an address in what C is
handed.
"""

import ctypes
from functools import cache
from typing import Any, NamedTuple

TYPES: dict[str, Any] = {
    "p": ctypes.c_uint64,
    "l": ctypes.c_int64,
    "i": ctypes.c_int32,
    "u": ctypes.c_uint32,
    "f": ctypes.c_float,
}
KEYWORDS = {"in": "in_"}  # names of fields that Python reserves


class Fields(ctypes.Structure):
    """A structure whose pointers may be given as None, for NULL."""

    def __init__(self, *values: Any, **fields: Any) -> None:
        super().__init__(*values, **{name: value for name, value in fields.items() if value is not None})


class Schema(NamedTuple):
    """What the library states: structures by name, kinds of steps by number, activations, and other numbers."""

    structures: dict[str, type[ctypes.Structure]]
    kinds: tuple[str, ...]
    functions: tuple[str, ...]
    numbers: dict[str, int]


def parse(text: str) -> Schema:
    """Return the schema that a library's text states.

    >>> made = parse("Pair:i in,f weight,\\nkinds:Pair,\\nfunctions:none,\\nnumbers:LIMIT=3,\\n")
    >>> [name for name, _ in made.structures["Pair"]._fields_], made.numbers
    (['in_', 'weight'], {'LIMIT': 3})
    """
    lines = {
        name: rest.split(",")[:-1] for name, _, rest in (line.partition(":") for line in text.splitlines())
    }
    lists = {name: tuple(lines.pop(name)) for name in ("kinds", "functions", "numbers")}
    made: dict[str, type[ctypes.Structure]] = {}
    for name, fields in lines.items():
        pairs = (field.split() for field in fields)
        members = [(KEYWORDS.get(field, field), TYPES.get(kind) or made[kind]) for kind, field in pairs]
        made[name] = type(name, (Fields,), {"_fields_": members})
    numbers = dict(each.split("=") for each in lists["numbers"])
    return Schema(
        made, lists["kinds"], lists["functions"], {key: int(value, 0) for key, value in numbers.items()}
    )


@cache
def schema() -> Schema:
    """Return the schema of the library in use."""
    from .native import library

    return parse(library().st3_schema().decode())


def kind_of(structure: ctypes.Structure) -> int:
    """Return the number of the kind of step that is called with such a structure."""
    return schema().kinds.index(type(structure).__name__)


def number(name: str) -> int:
    """Return a number that C and Python share."""
    return schema().numbers[name]


def __getattr__(name: str) -> Any:
    """Return the class of a structure."""
    if name.startswith("_") or name not in schema().structures:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return schema().structures[name]
