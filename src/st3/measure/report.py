"""A report on a sparse model, layer by layer: numbers that can be printed, drawn and saved."""

import json
import math
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..atomic import write_file, write_text
from .macs import CONVENTION
from .text import report_text

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["LayerRow", "Report"]

FIGURES = (".png", ".svg", ".pdf")


@dataclass(frozen=True)
class LayerRow:
    """One sparsified weight."""

    name: str
    shape: tuple[int, ...]
    numel: int  # elements, zero or not
    zeros: int
    target: float | None  # sparsity asked of this layer, if the allocation or the user fixes one
    threshold: float | None
    empty_filters: int  # number of filters without an active weight
    filters: int
    dense_macs: int | None  # None: not counted
    in_budget: bool = (
        True  # False: the user gave this layer its own sparsity, so the report's target leaves it out
    )

    @property
    def sparsity(self) -> float:
        return self.zeros / self.numel if self.numel else 0.0

    @property
    def sparse_macs(self) -> int | None:
        """The multiply-adds that remain if every zero is skipped."""
        if self.dense_macs is None or not self.numel:
            return self.dense_macs
        return round(self.dense_macs * (self.numel - self.zeros) / self.numel)

    def to_dict(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "shape": list(self.shape),
            "weights": self.numel,
            "zeros": self.zeros,
            "sparsity": self.sparsity,
            "target": self.target,
            "threshold": _finite(self.threshold),
            "empty_filters": self.empty_filters,
            "filters": self.filters,
            "dense_macs": self.dense_macs,
            "sparse_macs": self.sparse_macs,
        }


@dataclass(frozen=True)
class Report:
    """All sparsified weights of a model, one row each, and totals for everything else.

    `print(report)` shows a table, `report.save("report.png")` draws a figure.
    """

    rows: tuple[LayerRow, ...]
    target: float | None
    step: int | None
    other_parameters: int  # elements that are not in rows: biases, norms, excluded layers
    other_macs: int  # of parameters not in rows, and of products between activations
    uncounted: tuple[str, ...]  # operations that were not counted but may contain products
    skipped: tuple[tuple[str, str], ...]  # (name, reason) of each weight that is not sparsified
    input_shape: str | None  # of the input that the MACs were counted for; None: not counted

    @property
    def numel(self) -> int:
        """Elements of all weights in rows, zero or not."""
        return sum(row.numel for row in self.rows)

    @property
    def zeros(self) -> int:
        """Elements of the weights in rows that are exactly zero."""
        return sum(row.zeros for row in self.rows)

    @property
    def sparsity(self) -> float:
        """Zeros as a fraction of the elements in rows; other parameters do not count."""
        return self.zeros / self.numel if self.numel else 0.0

    @property
    def dense_macs(self) -> int | None:
        """Multiply-adds of the whole model, or None if none were counted."""
        return self._sum([row.dense_macs for row in self.rows])

    @property
    def sparse_macs(self) -> int | None:
        """Multiply-adds of the whole model if every zero in rows is skipped."""
        return self._sum([row.sparse_macs for row in self.rows])

    def _sum(self, macs: list[int | None]) -> int | None:
        known = [n for n in macs if n is not None]
        return sum(known) + self.other_macs if known or self.other_macs else None

    def __str__(self) -> str:
        return report_text(self)

    __repr__ = __str__

    def to_dict(self) -> dict[str, Any]:
        """Return everything as numbers, strings, lists and dictionaries, for JSON."""
        return {
            "step": self.step,
            "target": self.target,
            "sparsity": self.sparsity,
            "weights": self.numel,
            "zeros": self.zeros,
            "other_parameters": self.other_parameters,
            "dense_macs": self.dense_macs,
            "sparse_macs": self.sparse_macs,
            "other_macs": self.other_macs,
            "mac_convention": CONVENTION,
            "input_shape": self.input_shape,
            "uncounted": list(self.uncounted),
            "skipped": [{"name": name, "reason": reason} for name, reason in self.skipped],
            "layers": [row.to_dict() for row in self.rows],
        }

    def figure(self) -> "Figure":
        """Draw density and multiply-adds of every layer; needs matplotlib."""
        from .figure import draw

        return draw(self)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the report as .txt, .json, .png, .svg or .pdf; the file appears once it is complete."""
        path = Path(path)
        kind = path.suffix.lower()
        if kind == ".txt":
            write_text(path, f"{self}\n")
        elif kind == ".json":
            write_text(path, json.dumps(self.to_dict(), indent=2) + "\n")
        elif kind in FIGURES:
            figure = self.figure()
            write_file(path, lambda file: figure.savefig(file, format=kind[1:], dpi=150))
        else:
            known = ", ".join((".txt", ".json", *FIGURES))
            raise ValueError(f"cannot save a report as {path.name!r}: the name must end in {known}")


def _finite(number: float | None) -> float | None:
    """Return None for infinity, which JSON cannot express."""
    return number if number is not None and math.isfinite(number) else None
