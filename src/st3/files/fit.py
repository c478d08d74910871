"""Whether tensors fit a model, by name and shape; what does not, in a few words."""

from collections.abc import Mapping, Sequence

__all__ = ["disagreements", "shape_text"]

MOST = 3  # names of a kind in one sentence

Shapes = Mapping[str, Sequence[int]]


def disagreements(wanted: Shapes, found: Shapes) -> list[str]:
    """Return every kind of disagreement with the names it is about.

    >>> disagreements({"a": (2, 3), "b": ()}, {"a": (3, 2), "c": (1,)})
    ['missing: b', 'not of the model: c', 'of another shape: a (3x2, not 2x3)']
    """
    kinds = {
        "missing": [name for name in wanted if name not in found],
        "not of the model": [name for name in found if name not in wanted],
        "of another shape": [
            f"{name} ({shape_text(found[name])}, not {shape_text(shape)})"
            for name, shape in wanted.items()
            if name in found and tuple(found[name]) != tuple(shape)
        ],
    }
    return [f"{kind}: {_some(names)}" for kind, names in kinds.items() if names]


def shape_text(shape: Sequence[int]) -> str:
    """Return the shape as text.

    >>> shape_text((16, 3, 3, 3)), shape_text(())
    ('16x3x3x3', 'one number')
    """
    return "x".join(map(str, shape)) or "one number"


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - MOST:,} more" if len(names) > MOST else ""
    return ", ".join(names[:MOST]) + more
