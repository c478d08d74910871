"""What the engine is compared with: each engine in each precision that its users would pick."""

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from torch import Tensor, nn

from .onnx_files import write_int8, write_onnx
from .runtimes import Run, onnx_runtime, openvino

__all__ = ["RIVALS", "Rival", "first_words", "start_rivals"]

LONGEST = 160  # characters of another program's error


@dataclass(frozen=True)
class Rival:
    """An engine that reads ONNX files, in one precision."""

    engine: str
    precision: str
    start: Callable[[Path, Sequence[Tensor], int, str], Run]
    packages: tuple[str, ...]

    @property
    def name(self) -> str:
        return f"{self.engine} {self.precision}"

    @property
    def missing(self) -> list[str]:
        """The packages that are not installed."""
        return [package for package in ("onnx", "onnxscript", *self.packages) if find_spec(package) is None]


RIVALS = (
    Rival("ONNX Runtime", "float32", onnx_runtime, ("onnxruntime",)),
    Rival("ONNX Runtime", "int8", onnx_runtime, ("onnxruntime",)),
    Rival("OpenVINO", "float32", openvino, ("openvino",)),
    Rival("OpenVINO", "bfloat16", openvino, ("openvino",)),
    Rival("OpenVINO", "int8", openvino, ("openvino", "onnxruntime")),  # onnxruntime quantises
)


def start_rivals(
    model: nn.Module, inputs: Sequence[Tensor], threads: int
) -> tuple[dict[str, tuple[str, Run]], dict[str, str]]:
    """Return the precision and a function that runs the model for each rival, and why some are absent."""
    absent = {
        rival.name: f"{rival.missing[0]} is not installed: pip install 'st3[bench]'"
        for rival in RIVALS
        if rival.missing
    }
    found: dict[str, tuple[str, Run]] = {}
    wanted = [rival for rival in RIVALS if rival.name not in absent]
    with tempfile.TemporaryDirectory(prefix="st3-bench-") as folder:
        files, faults = _write_files(model, inputs, Path(folder), {rival.precision for rival in wanted})
        for rival in wanted:
            if rival.precision in faults:
                absent[rival.name] = faults[rival.precision]
                continue
            try:
                run = rival.start(files[rival.precision], inputs, threads, rival.precision)
                run()
            except Exception as error:  # another program's, of any type
                absent[rival.name] = first_words(error)
            else:
                found[rival.name] = rival.precision, run
    return found, absent


def _write_files(
    model: nn.Module, inputs: Sequence[Tensor], folder: Path, precisions: set[str]
) -> tuple[dict[str, Path], dict[str, str]]:
    """Return the file for each precision, and why there is none for some."""
    if not precisions:
        return {}, {}
    try:
        path = write_onnx(model, inputs, folder)
    except Exception as error:  # an exporter may fail in any way
        reason = f"torch.onnx cannot export the model: {first_words(error)}"
        return {}, dict.fromkeys(precisions, reason)
    files, faults = {"float32": path, "bfloat16": path}, {}
    if "int8" in precisions:
        try:
            files["int8"] = write_int8(path, inputs)
        except Exception as error:  # so may a quantiser
            faults["int8"] = f"ONNX Runtime cannot quantise the model: {first_words(error)}"
    return files, faults


def first_words(error: Exception) -> str:
    """Return the beginning of an error's text in one line.

    >>> first_words(ValueError("no such\\n  operator"))
    'no such operator'
    """
    return (" ".join(str(error).split()) or type(error).__name__)[:LONGEST]
