"""Train once, and nothing else."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, final

from .protocol import PROTOCOLS, Part, Protocol

if TYPE_CHECKING:
    from ..spec import Spec

__all__ = ["Single"]


@final
@PROTOCOLS.register("single")
@dataclass(frozen=True)
class Single(Protocol):
    """Train once, while the ramp raises the sparsity."""

    def parts(self, spec: "Spec") -> list[Part]:
        return [Part(spec, "dense" if spec.sparse.is_dense else "sparse")]
