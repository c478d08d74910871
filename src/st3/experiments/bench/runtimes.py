"""Other engines that run a model, with their usual settings: torch, ONNX Runtime and OpenVINO."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

__all__ = ["Run", "onnx_runtime", "openvino", "torch_engine"]

Run = Callable[[], list[Tensor]]  # runs the model once

CAPABILITIES = {"float32": "FP32", "bfloat16": "BF16", "int8": "INT8"}  # in OpenVINO's words


def torch_engine(model: nn.Module, inputs: Sequence[Tensor]) -> Run:
    """Return a function that runs the model in torch."""

    def run() -> list[Tensor]:
        with torch.no_grad():
            return [leaf for leaf in tree_leaves(model(*inputs)) if isinstance(leaf, Tensor)]

    return run


def onnx_runtime(path: Path, inputs: Sequence[Tensor], threads: int, precision: str = "float32") -> Run:
    """Return a function that runs the file in ONNX Runtime, in the precision of the file."""
    import onnxruntime  # type: ignore[import-not-found, import-untyped, unused-ignore]

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    names = [node.name for node in session.get_inputs()]
    given = dict(zip(names, (tensor.numpy() for tensor in inputs), strict=True))
    return lambda: [torch.from_numpy(array) for array in session.run(None, given)]


def openvino(path: Path, inputs: Sequence[Tensor], threads: int, precision: str = "float32") -> Run:
    """Return a function that runs the file in OpenVINO; raise if the processor lacks the precision's instructions.

    OpenVINO would emulate bfloat16, several times slower than float32. The layers that an int8 file leaves in float32
    are computed in bfloat16 where the processor can, which is OpenVINO's own choice.
    """
    from openvino import Core  # type: ignore[import-not-found, import-untyped, unused-ignore]

    core = Core()
    capabilities = core.get_property("CPU", "OPTIMIZATION_CAPABILITIES")
    if CAPABILITIES[precision] not in capabilities:
        raise RuntimeError(f"this processor has no {precision} instructions that OpenVINO could use")
    with_bfloat16 = precision != "float32" and CAPABILITIES["bfloat16"] in capabilities
    settings: dict[str, Any] = {
        "PERFORMANCE_HINT": "LATENCY",
        "INFERENCE_NUM_THREADS": threads,
        "INFERENCE_PRECISION_HINT": "bf16" if with_bfloat16 else "f32",
    }
    compiled = core.compile_model(str(path), "CPU", settings)
    request = compiled.create_infer_request()
    given = [tensor.numpy() for tensor in inputs]

    def run() -> list[Tensor]:
        found = request.infer(given)
        return [torch.from_numpy(found[output]) for output in compiled.outputs]

    return run
