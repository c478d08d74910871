"""Dense int8 in ONNX Runtime and OpenVINO: the same quantised layers as an ONNX file with QDQ nodes.

Inputs and outputs are bytes, all zero points are 0, and quantising to bytes is the ReLU.
"""

from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import numpy as np
from int8_layers import Layer

Run = Callable[[], np.ndarray]


def write_qdq(layers: list[Layer], picture: np.ndarray, path: Path) -> None:
    """Write the layers as an ONNX file; activations have a scale of 1, so a layer's scale is that of its weights."""
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    nodes, constants = [], []

    def constant(name: str, array: np.ndarray) -> str:
        constants.append(numpy_helper.from_array(np.ascontiguousarray(array), name))
        return name

    constant("one", np.float32(1)), constant("zero", np.uint8(0))
    nodes.append(helper.make_node("DequantizeLinear", ["bytes0", "one", "zero"], ["x0"]))
    for i, layer in enumerate(layers):
        scale = constant(f"scale{i}", np.float32(layer.scale))
        weight = [constant(f"weight{i}", layer.weight), scale, constant(f"weight_zero{i}", np.int8(0))]
        bias = [constant(f"bias{i}", layer.bias), scale, constant(f"bias_zero{i}", np.int32(0))]
        nodes.append(helper.make_node("DequantizeLinear", weight, [f"w{i}"]))
        nodes.append(helper.make_node("DequantizeLinear", bias, [f"b{i}"]))
        pads = [layer.weight.shape[-1] // 2] * 4
        nodes.append(helper.make_node("Conv", [f"x{i}", f"w{i}", f"b{i}"], [f"y{i}"], pads=pads))
        nodes.append(helper.make_node("QuantizeLinear", [f"y{i}", "one", "zero"], [f"bytes{i + 1}"]))
        if i + 1 < len(layers):
            nodes.append(
                helper.make_node("DequantizeLinear", [f"bytes{i + 1}", "one", "zero"], [f"x{i + 1}"])
            )
    shapes = [(1, *picture.shape), (1, len(layers[-1].weight), *picture.shape[1:])]
    ends = [
        helper.make_tensor_value_info(name, TensorProto.UINT8, shape)
        for name, shape in zip(("bytes0", f"bytes{len(layers)}"), shapes, strict=True)
    ]
    graph = helper.make_graph(nodes, "layers", ends[:1], ends[1:], constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    onnx.checker.check_model(model)
    onnx.save(model, str(path))


def onnx_runtime(path: Path, picture: np.ndarray) -> Run:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    given = {session.get_inputs()[0].name: picture[None]}
    return lambda: session.run(None, given)[0][0]


def openvino(path: Path, picture: np.ndarray) -> Run:
    from openvino import Core

    settings = {"PERFORMANCE_HINT": "LATENCY", "INFERENCE_NUM_THREADS": 1, "INFERENCE_PRECISION_HINT": "f32"}
    request = Core().compile_model(str(path), "CPU", settings).create_infer_request()
    given = [picture[None]]
    return lambda: next(iter(request.infer(given).values()))[0]


def dense_rivals(layers: list[Layer], picture: np.ndarray, folder: Path) -> dict[str, Run]:
    """Return the rivals that are installed."""
    write_qdq(layers, picture, folder / "layers.onnx")
    known = {"ONNX Runtime": ("onnxruntime", onnx_runtime), "OpenVINO": ("openvino", openvino)}
    return {
        name: make(folder / "layers.onnx", picture)
        for name, (package, make) in known.items()
        if find_spec(package)
    }
