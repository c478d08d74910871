"""Compares the tensors in a file with those of a model, by name and shape."""

from collections.abc import Mapping, Sequence

__all__ = ["disagreements", "shape_text"]

MOST_NAMES = 3  # of each kind in a message

Shapes = Mapping[str, Sequence[int]]


def disagreements(wanted: Shapes, found: Shapes) -> list[str]:
    """Return one phrase for each kind of disagreement, with the names it concerns.

    >>> disagreements({"a": (2, 3), "b": ()}, {"a": (3, 2), "c": (1,)})
    ['missing: b', 'unexpected: c', 'wrong shape: a (3x2, not 2x3)']
    """
    kinds = {
        "missing": [name for name in wanted if name not in found],
        "unexpected": [name for name in found if name not in wanted],
        "wrong shape": [
            f"{name} ({shape_text(found[name])}, not {shape_text(shape)})"
            for name, shape in wanted.items()
            if name in found and tuple(found[name]) != tuple(shape)
        ],
    }
    return [f"{kind}: {_list_some(names)}" for kind, names in kinds.items() if names]


def shape_text(shape: Sequence[int]) -> str:
    """Return the shape as text.

    >>> shape_text((16, 3, 3, 3)), shape_text(())
    ('16x3x3x3', 'a single number')
    """
    return "x".join(map(str, shape)) or "a single number"


def _list_some(names: Sequence[str]) -> str:
    more = f" and {len(names) - MOST_NAMES:,} more" if len(names) > MOST_NAMES else ""
    return ", ".join(names[:MOST_NAMES]) + more
