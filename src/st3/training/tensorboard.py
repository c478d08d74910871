"""The metrics of a run for TensorBoard."""

from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from .listener import Listener

__all__ = ["TensorBoard"]


class TensorBoard(Listener):
    """Writes metrics below `folder`, for each part of a run into its own folder: `dense`, `sparse`, `cycle-03`."""

    def __init__(self, folder: Path) -> None:
        try:
            from tensorboardX import SummaryWriter  # type: ignore[import-untyped]
        except ImportError as error:
            raise ImportError("TensorBoard needs tensorboardX: pip install 'st3[tensorboard]'") from error
        self.folder, self._make = folder, SummaryWriter
        self._writers: list[Any] = []
        self._writer: Any = None  # of the current part
        self._part = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: object, trace: TracebackType | None) -> None:
        for writer in self._writers:
            writer.close()

    def on_part(self, title: str, folder: str, number: int, count: int, target: float | None) -> None:
        self._part = folder

    def on_begin(self, is_dense: bool, step: int, epoch: int) -> None:
        """Open a writer. TensorBoard hides what was written after the checkpoint: it will happen again."""
        name = self._part or ("dense" if is_dense else "sparse")
        self._writer = self._make(str(self.folder / name), **({"purge_step": step + 1} if step else {}))
        self._writers.append(self._writer)

    def on_step(self, metrics: Mapping[str, Any]) -> None:
        self._write(metrics, {"loss/step": metrics["loss"], "rate": metrics["rate"]})
        self._write(metrics, {key: metrics[key] for key in ("sparsity_asked", "threshold")})

    def on_epoch(self, metrics: Mapping[str, Any], layers: Mapping[str, Any]) -> None:
        for part in ("train", "validation"):
            self._write(metrics, {f"{name}/{part}": value for name, value in metrics[part].items()})
        self._write(metrics, {"sparsity": metrics["sparsity"], "gradient_norm": metrics["gradient_norm"]})
        self._write(metrics, {f"switches/{name}": n for name, n in (metrics["switches"] or {}).items()})
        self._write(
            metrics, {f"layers/{name}": row["zeros"] / row["weights"] for name, row in layers.items()}
        )

    def _write(self, metrics: Mapping[str, Any], values: Mapping[str, float | None]) -> None:
        for name, value in values.items():
            if value is not None:
                self._writer.add_scalar(name, value, metrics["step"])
