"""Other engines run the model in float32, bfloat16 and int8; one that cannot is named with the reason."""

import importlib.util

import onnx
import pytest
import torch
from tests.tiny import TinyNet
from torch import nn

from st3.experiments.bench import rivals
from st3.experiments.bench.compare import ENGINE, ENGINE_INT8, TORCH, compare, difference
from st3.experiments.bench.masking import mask
from st3.experiments.bench.onnx_files import write_int8, write_onnx
from st3.experiments.bench.rivals import RIVALS, Rival, start_rivals
from st3.experiments.bench.runtimes import onnx_runtime, openvino

pytest.importorskip("onnxruntime")

ONNX_RUNTIME = [rival for rival in RIVALS if rival.engine == "ONNX Runtime"]


@pytest.fixture(scope="module")
def model():
    return TinyNet().eval()


@pytest.fixture(scope="module")
def picture():
    return torch.randn(1, 2, 8, 8, generator=torch.Generator().manual_seed(0))


@pytest.fixture(scope="module")
def files(model, picture, tmp_path_factory):
    """The model in float32 and in int8."""
    path = write_onnx(model, [picture], tmp_path_factory.mktemp("onnx"))
    return path, write_int8(path, [picture])


def test_every_engine_is_named_with_its_precision():
    assert [rival.name for rival in RIVALS] == [
        "ONNX Runtime float32",
        "ONNX Runtime int8",
        "OpenVINO float32",
        "OpenVINO bfloat16",
        "OpenVINO int8",
    ]


def test_int8_has_eight_bits_in_the_file_and_a_difference_of_its_own(model, picture, files):
    path, quantised = files
    kinds = {each.name: each.data_type for each in onnx.load(str(quantised)).graph.initializer}
    assert sum(kind == onnx.TensorProto.INT8 and "weight" in name for name, kind in kinds.items()) >= 3
    wanted = [model(picture).detach()]
    exact, rounded = (difference(onnx_runtime(file, [picture], 1)(), wanted) for file in (path, quantised))
    assert exact < 1e-5 < rounded < 0.1


@pytest.fixture
def vnni(monkeypatch):
    """A processor with instructions for int8: the engine's results are the same on others."""
    monkeypatch.setattr("st3.experiments.bench.compare.instruction_sets", lambda: ["avx512_vnni"])


@pytest.mark.usefixtures("vnni")
def test_the_engine_and_onnx_runtime_are_timed_in_both_precisions(model, picture, monkeypatch):
    monkeypatch.setattr(rivals, "RIVALS", ONNX_RUNTIME)
    [found] = compare([model], [picture], rounds=3, tune=False)
    assert [(timing.name, timing.precision) for timing in found.timings] == [
        (ENGINE, "float32"),
        (ENGINE_INT8, "int8"),
        (TORCH, "float32"),
        ("ONNX Runtime float32", "float32"),
        ("ONNX Runtime int8", "int8"),
    ]
    assert found.absent == {}
    assert found["ONNX Runtime float32"].difference < 1e-5 < found["ONNX Runtime int8"].difference < 0.1
    assert found[ENGINE].difference < 1e-5 < found[ENGINE_INT8].difference < 0.1


def test_without_instructions_for_int8_the_engine_is_timed_in_float32_only(model, picture, monkeypatch):
    monkeypatch.setattr(rivals, "RIVALS", ())
    monkeypatch.setattr("st3.experiments.bench.compare.instruction_sets", lambda: ["avx2"])
    [found] = compare([model], [picture], rounds=3, tune=False)
    assert [timing.name for timing in found.timings] == [ENGINE, TORCH]
    assert found.absent == {ENGINE_INT8: "this processor has no instructions for it (AVX-512 VNNI)"}


@pytest.mark.usefixtures("vnni")
def test_masks_of_one_network_are_timed_in_the_same_rounds_and_the_others_once(picture, monkeypatch):
    monkeypatch.setattr(rivals, "RIVALS", ONNX_RUNTIME[:1])
    models = [TinyNet().eval(), mask(TinyNet(), 0.5).eval()]
    first, second = compare(models, [picture], rounds=3, tune=False)
    assert first.timings[2:] == second.timings[2:]
    assert first[ENGINE] != second[ENGINE]
    assert first[ENGINE_INT8] != second[ENGINE_INT8]
    for model, found in zip(models, (first, second), strict=True):
        assert torch.allclose(found.compiled(picture), model(picture), atol=1e-5)


def test_openvino_reads_the_same_int8_file_and_emulates_no_bfloat16(model, picture, files):
    core = pytest.importorskip("openvino").Core()
    path, quantised = files
    wanted = [model(picture).detach()]
    rounded = openvino(quantised, [picture], 1, "int8")()
    assert 1e-5 < difference(rounded, wanted) < 0.1
    if "BF16" in core.get_property("CPU", "OPTIMIZATION_CAPABILITIES"):
        assert 1e-5 < difference(openvino(path, [picture], 1, "bfloat16")(), wanted) < 0.1
    else:
        with pytest.raises(RuntimeError) as caught:
            openvino(path, [picture], 1, "bfloat16")
        assert str(caught.value) == "this processor has no bfloat16 instructions that OpenVINO could use"


def test_a_model_without_layers_has_no_int8(picture, monkeypatch):
    monkeypatch.setattr(rivals, "RIVALS", ONNX_RUNTIME)
    found, absent = start_rivals(nn.Softplus(), [picture], 1)
    assert [*found] == ["ONNX Runtime float32"]
    reason = "ONNX Runtime cannot quantise the model: it has no layer that can be quantised"
    assert absent == {"ONNX Runtime int8": reason}


class Unexportable(nn.Module):
    """Asks torch for something that ONNX does not have."""

    def forward(self, x):
        return torch.linalg.eigvalsh(x @ x.mT)


@pytest.mark.usefixtures("vnni")
def test_a_model_that_cannot_be_exported_is_still_timed_in_torch(picture, monkeypatch):
    monkeypatch.setattr(rivals, "RIVALS", ONNX_RUNTIME)
    [found] = compare([Unexportable().eval()], [picture], rounds=3, tune=False)
    assert [timing.name for timing in found.timings] == [ENGINE, TORCH]
    reason = "it computes convolutions and linear layers in int8, and the model has none"
    assert found.absent.pop(ENGINE_INT8) == reason
    assert found.absent.keys() == {rival.name for rival in ONNX_RUNTIME}
    assert all(reason.startswith("torch.onnx cannot export the model: ") for reason in found.absent.values())


def test_a_package_that_is_missing_is_named_without_writing_a_file(picture, monkeypatch):
    real = importlib.util.find_spec
    monkeypatch.setattr(rivals, "find_spec", lambda name: None if name == "onnxscript" else real(name))
    found, absent = start_rivals(Unexportable(), [picture], 1)
    assert found == {}
    assert absent == {rival.name: "onnxscript is not installed: pip install 'st3[bench]'" for rival in RIVALS}


def test_an_engine_that_fails_is_named_with_the_first_words_of_its_error(model, picture, monkeypatch):
    def fails(*given):
        raise OSError(f"no\nspace {200 * '.'}")

    monkeypatch.setattr(rivals, "RIVALS", [Rival("Broken", "float32", fails, ())])
    assert start_rivals(model, [picture], 1) == ({}, {"Broken float32": f"no space {151 * '.'}"})
