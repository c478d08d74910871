"""Train without sparsity first, to compare.

RUN/dense/   the dense twin: the same initial weights, the same batches in the same order, no sparsity
RUN/         the sparse part
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, final

from ...training.paths import part_folder
from .protocol import PROTOCOLS, Part, Protocol

if TYPE_CHECKING:
    from ..spec import Spec

__all__ = ["Twin"]


@final
@PROTOCOLS.register("twin")
@dataclass(frozen=True)
class Twin(Protocol):
    """Train without sparsity first, then with it, to compare."""

    kind: ClassVar[str] = "dense"
    options: ClassVar[Mapping[str, str | None]] = {"dense_twin": None}

    def faults(self, spec: "Spec") -> list[str]:
        return ["method 'dense' needs no dense twin"] if spec.sparse.is_dense else []

    def parts(self, spec: "Spec") -> list[Part]:
        return [Part(spec.without_sparsity(), "dense twin", part_folder(self.kind)), Part(spec, "sparse")]

    def describe(self, spec: "Spec") -> str:
        return "first without sparsity, to compare"
