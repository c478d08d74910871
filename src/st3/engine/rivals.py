"""The engines that st3 is compared with: torch, ONNX Runtime and OpenVINO, with their usual settings."""

import logging
import warnings
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

__all__ = ["Run", "missing_packages", "onnx_runtime", "openvino", "torch_engine", "write_onnx"]

Run = Callable[[], list[Tensor]]  # runs the model once

NEEDED = {
    "ONNX Runtime": ("onnxruntime", "onnx", "onnxscript"),
    "OpenVINO": ("openvino", "onnx", "onnxscript"),
}


def missing_packages(rival: str) -> list[str]:
    """Return the packages of a rival that are not installed."""
    return [package for package in NEEDED[rival] if find_spec(package) is None]


def torch_engine(model: nn.Module, inputs: Sequence[Tensor]) -> Run:
    """Return a function that runs the model in torch."""

    def run() -> list[Tensor]:
        with torch.no_grad():
            return [leaf for leaf in tree_leaves(model(*inputs)) if isinstance(leaf, Tensor)]

    return run


def write_onnx(model: nn.Module, inputs: Sequence[Tensor], folder: Path) -> Path:
    """Write the model as an ONNX file for inputs of exactly these shapes."""
    path = folder / "model.onnx"
    logger = logging.getLogger("torch.onnx")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings(), torch.no_grad():
            warnings.simplefilter("ignore")  # the exporter's about itself
            torch.onnx.export(model, tuple(inputs), str(path), dynamo=True, verbose=False)
    finally:
        logger.setLevel(level)
    return path


def onnx_runtime(path: Path, inputs: Sequence[Tensor], threads: int) -> Run:
    """Return a function that runs the model in ONNX Runtime."""
    import onnxruntime  # type: ignore[import-not-found, import-untyped, unused-ignore]

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    names = [node.name for node in session.get_inputs()]
    given = dict(zip(names, (tensor.numpy() for tensor in inputs), strict=True))
    return lambda: [torch.from_numpy(array) for array in session.run(None, given)]


def openvino(path: Path, inputs: Sequence[Tensor], threads: int) -> Run:
    """Return a function that runs the model in OpenVINO, in float32 (its default is bfloat16 on some processors)."""
    from openvino import Core  # type: ignore[import-not-found, import-untyped, unused-ignore]

    settings: dict[str, Any] = {
        "PERFORMANCE_HINT": "LATENCY",
        "INFERENCE_NUM_THREADS": threads,
        "INFERENCE_PRECISION_HINT": "f32",
    }
    compiled = Core().compile_model(str(path), "CPU", settings)
    request = compiled.create_infer_request()
    given = [tensor.numpy() for tensor in inputs]

    def run() -> list[Tensor]:
        found = request.infer(given)
        return [torch.from_numpy(found[output]) for output in compiled.outputs]

    return run
