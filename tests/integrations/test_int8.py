"""int8 after sparse training: every zero of the sparse model is a zero of the quantised one."""

import copy
import logging

import numpy as np
import onnx
import pytest
import torch
from onnx import numpy_helper
from tests.tiny import STEPS, TinyNet, sgd, sparsify, train
from torch import nn

import st3

ort = pytest.importorskip("onnxruntime")


@pytest.fixture(scope="module")
def sparse():
    model = TinyNet()
    optimizer = sgd(model.parameters())
    sparsifier = sparsify(model, optimizer)
    train(model, optimizer, STEPS)
    return sparsifier.finalize().eval()


# ---------------------------------------------------------------- torchao: linear layers


@pytest.mark.parametrize("config", ["Int8WeightOnlyConfig", "Int8DynamicActivationInt8WeightConfig"])
def test_torchao_keeps_the_zeros_of_linear_layers(config):
    quantization = pytest.importorskip("torchao.quantization")
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(32, 48), nn.ReLU(), nn.Linear(48, 8))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    sparsifier = st3.sparsify(model, optimizer, sparsity=0.9, total_steps=1, ramp="constant")
    sparsifier.finalize()
    quantised = copy.deepcopy(model)
    quantization.quantize_(quantised, getattr(quantization, config)())
    for before, after in ((model[0], quantised[0]), (model[2], quantised[2])):
        zero = before.weight == 0
        assert zero.any()
        assert after.weight.qdata.dtype == torch.int8
        assert not after.weight.qdata[zero].any()
        assert not after.weight.dequantize()[zero].any()
    inputs = torch.randn(16, 32)
    torch.testing.assert_close(quantised(inputs), model(inputs), rtol=0, atol=0.01)


# ---------------------------------------------------------------- ONNX Runtime: linear layers and convolutions


class Pictures:
    """Batches for calibration, as ONNX Runtime asks for them."""

    def __init__(self, name):
        generator = torch.Generator().manual_seed(0)
        self.batches = iter([{name: torch.randn(4, 2, 4, 4, generator=generator).numpy()} for _ in range(3)])

    def get_next(self):
        return next(self.batches, None)


@pytest.fixture(scope="module")
def prepared(sparse, tmp_path_factory):
    """The exported model, prepared for quantisation: without this step ONNX Runtime refuses linear layers."""
    from onnxruntime.quantization.shape_inference import quant_pre_process

    folder = tmp_path_factory.mktemp("int8")
    st3.export_onnx(sparse, torch.randn(1, 2, 4, 4), folder / "model.onnx")
    quant_pre_process(folder / "model.onnx", folder / "prepared.onnx")
    return folder / "prepared.onnx"


def quantise(prepared, kind):
    from onnxruntime.quantization import QuantType, quantize_dynamic, quantize_static

    path = prepared.with_name(f"{kind}.onnx")
    if kind == "dynamic":
        quantize_dynamic(prepared, path, weight_type=QuantType.QInt8)
    else:
        unsigned = {"activation_type": QuantType.QUInt8, "weight_type": QuantType.QUInt8}
        choices = {"static": {}, "per channel": {"per_channel": True}, "unsigned": unsigned}[kind]
        name = ort.InferenceSession(prepared).get_inputs()[0].name
        quantize_static(prepared, path, Pictures(name), **choices)
    return path


@pytest.mark.parametrize("kind", ["dynamic", "static", "per channel", "unsigned"])
def test_onnx_runtime_keeps_the_zeros_of_every_layer(sparse, prepared, kind, caplog):
    caplog.set_level(logging.ERROR)
    path = quantise(prepared, kind)
    stored = {tensor.name: numpy_helper.to_array(tensor) for tensor in onnx.load(path).graph.initializer}
    for name in ("conv.weight", "deep.weight", "head.weight"):
        weight = sparse.get_parameter(name).detach().numpy()
        codes, zero_point = stored[f"{name}_quantized"], stored[f"{name}_zero_point"]
        assert codes.dtype in (np.int8, np.uint8)
        zeros = codes == zero_point.reshape(-1, *[1] * (codes.ndim - 1))
        zeros = zeros if zeros.shape == weight.shape else zeros.T  # linear layers may be stored transposed
        assert zeros[weight == 0].all()
        assert not zeros[np.abs(weight) > np.abs(weight).max() / 100].any()
        assert (zero_point == 0).all() or kind == "unsigned"
    inputs = torch.randn(8, 2, 4, 4, generator=torch.Generator().manual_seed(1))
    session = ort.InferenceSession(path)
    (found,) = session.run(None, {session.get_inputs()[0].name: inputs.numpy()})
    with torch.no_grad():
        np.testing.assert_allclose(found, sparse(inputs).numpy(), atol=0.05)
