"""The model as ONNX files for other engines: in float32, and quantised to int8."""

import contextlib
import logging
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ...processor import instruction_sets

__all__ = ["write_int8", "write_onnx"]


def write_onnx(model: nn.Module, inputs: Sequence[Tensor], folder: Path) -> Path:
    """Write the model as an ONNX file for inputs of exactly these shapes."""
    path = folder / "model.onnx"
    with _silence("torch.onnx"), torch.no_grad():
        torch.onnx.export(model, tuple(inputs), str(path), dynamo=True, verbose=False)
    return path


def write_int8(path: Path, inputs: Sequence[Tensor]) -> Path:
    """Quantise an ONNX file, calibrated on the inputs, and return the path of the new file.

    Activations are unsigned and weights signed with a scale per channel. Signed activations are
    much slower in ONNX Runtime on x86. OpenVINO reads the same file.
    """
    import onnx  # type: ignore[import-not-found, import-untyped, unused-ignore]
    from onnxruntime import quantization  # type: ignore[import-not-found, import-untyped, unused-ignore]
    from onnxruntime.quantization.shape_inference import (  # type: ignore[import-not-found, import-untyped, unused-ignore]
        quant_pre_process,
    )

    whole, prepared, quantised = (path.with_name(f"{name}.onnx") for name in ("whole", "prepared", "int8"))
    model = onnx.load(str(path))
    onnx.save(model, str(whole))  # with its weights, which the exporter writes into a file beside
    names = [each.name for each in model.graph.input]
    given = iter([dict(zip(names, (tensor.numpy() for tensor in inputs), strict=True))])

    class Calibration(quantization.CalibrationDataReader):  # type: ignore[misc, unused-ignore]
        def get_next(self) -> dict[str, Any] | None:
            return next(given, None)

    with _silence(None):
        quant_pre_process(str(whole), str(prepared), skip_symbolic_shape=True)  # all shapes are known
        quantization.quantize_static(
            str(prepared),
            str(quantised),
            Calibration(),
            quant_format=quantization.QuantFormat.QDQ,
            activation_type=quantization.QuantType.QUInt8,
            weight_type=quantization.QuantType.QInt8,
            per_channel=True,
            reduce_range=saturates(instruction_sets()),
        )
    nodes = onnx.load(str(quantised), load_external_data=False).graph.node
    if not any(node.op_type == "QuantizeLinear" for node in nodes):
        raise ValueError("it has no layer that can be quantised")
    return quantised


def saturates(sets: Sequence[str]) -> bool:
    """Whether sums of two products of 8 bits may overflow, so that weights need 7: x86 processors without VNNI.

    >>> saturates(["avx2", "fma"]), saturates(["avx2", "avx512_vnni"]), saturates(["asimd"])
    (True, False, False)
    """
    return "avx2" in sets and not any("vnni" in name for name in sets)


@contextlib.contextmanager
def _silence(logger: str | None) -> Iterator[None]:
    """Hide what exporters say about themselves."""
    talker = logging.getLogger(logger)
    level = talker.level
    talker.setLevel(logging.CRITICAL)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        talker.setLevel(level)
