"""The figures of a run for TensorBoard."""

from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from .listener import Listener

__all__ = ["TensorBoard"]


class TensorBoard(Listener):
    """Writes what the listeners are told below `folder`: into `dense`, `sparse` or `cycle-NN`, to be compared."""

    def __init__(self, folder: Path) -> None:
        try:
            from tensorboardX import SummaryWriter  # type: ignore[import-untyped]
        except ImportError as error:
            raise ImportError(
                "figures for TensorBoard need tensorboardX: pip install 'st3[tensorboard]'"
            ) from error
        self.folder, self._make = folder, SummaryWriter
        self._writers: list[Any] = []
        self._writer: Any = None  # of the run under way
        self._cycle = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: object, trace: TracebackType | None) -> None:
        for writer in self._writers:
            writer.close()

    def on_cycle(self, number: int, count: int, sparsity: float) -> None:
        self._cycle = f"cycle-{number:02}"

    def on_begin(self, is_dense: bool, step: int, epoch: int) -> None:
        """Open the writer; TensorBoard hides what was written after the checkpoint: it will happen again."""
        kind = self._cycle or ("dense" if is_dense else "sparse")
        self._writer = self._make(str(self.folder / kind), **({"purge_step": step + 1} if step else {}))
        self._writers.append(self._writer)

    def on_step(self, figures: Mapping[str, Any]) -> None:
        self._write(figures, {"loss/step": figures["loss"], "rate": figures["rate"]})
        self._write(figures, {key: figures[key] for key in ("sparsity_asked", "threshold")})

    def on_epoch(self, figures: Mapping[str, Any], layers: Mapping[str, Any]) -> None:
        for part in ("train", "validation"):
            self._write(figures, {f"{name}/{part}": value for name, value in figures[part].items()})
        self._write(figures, {"sparsity": figures["sparsity"], "gradient_norm": figures["gradient_norm"]})
        self._write(figures, {f"switches/{name}": n for name, n in (figures["switches"] or {}).items()})
        self._write(
            figures, {f"layers/{name}": row["zeros"] / row["weights"] for name, row in layers.items()}
        )

    def _write(self, figures: Mapping[str, Any], values: Mapping[str, float | None]) -> None:
        for name, value in values.items():
            if value is not None:
                self._writer.add_scalar(name, value, figures["step"])
