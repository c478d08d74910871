"""ONNX files and torch.export programs: they give the model's answers, and the model stays as it was."""

import importlib.metadata
import logging
import sys

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from torch import nn

import st3
from st3.files.onnx_file import OPSET


class Small(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.norm, self.drop = nn.Conv2d(1, 8, 3), nn.BatchNorm2d(8), nn.Dropout(0.5)
        self.fc = nn.Linear(8, 3)

    def forward(self, x):
        return self.fc(self.drop(self.norm(self.conv(x)).relu().mean((2, 3))))


def answer(model, x):
    was_training = model.training
    with torch.no_grad():
        found = model.eval()(x)
    model.train(was_training)
    return found


EXPORTS = [st3.export_onnx, st3.export_program]
every_export = pytest.mark.parametrize("export", EXPORTS, ids=lambda function: function.__name__)


def test_an_onnx_file_is_one_file_of_the_current_opset_for_any_batch(tmp_path):
    torch.manual_seed(0)
    model = Small()
    made = st3.export_onnx(model, torch.randn(1, 1, 8, 8), tmp_path / "m.onnx")
    assert [path.name for path in tmp_path.iterdir()] == ["m.onnx"]
    assert made.file_bytes == (tmp_path / "m.onnx").stat().st_size
    proto = onnx.load(tmp_path / "m.onnx")
    onnx.checker.check_model(proto, full_check=True)
    assert [(entry.domain, entry.version) for entry in proto.opset_import] == [("", OPSET)]
    session = onnxruntime.InferenceSession(tmp_path / "m.onnx", providers=["CPUExecutionProvider"])
    for batch in (1, 2, 7):
        x = torch.randn(batch, 1, 8, 8)
        np.testing.assert_allclose(
            session.run(None, {session.get_inputs()[0].name: x.numpy()})[0], answer(model, x), atol=1e-4
        )
    assert f"ONNX Runtime {importlib.metadata.version('onnxruntime')} gives the model's answers" in str(made)
    assert made.difference < 1e-4


def test_a_program_runs_without_the_code_of_the_model_for_any_batch(tmp_path):
    torch.manual_seed(0)
    model = Small()
    made = st3.export_program(model, torch.randn(1, 1, 8, 8), tmp_path / "m.pt2")
    program = torch.export.load(tmp_path / "m.pt2").module()
    for batch in (1, 2, 7):
        x = torch.randn(batch, 1, 8, 8)
        assert torch.allclose(program(x), answer(model, x), atol=1e-5)
    assert made.difference < 1e-4
    assert "any size of batch" in str(made)


@every_export
def test_exporting_during_training_changes_nothing(export, tmp_path):
    torch.manual_seed(0)
    model = Small().train()
    model.norm.eval()  # one layer in another mode than the rest
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    st3.sparsify(model, optimizer, sparsity=0.5, total_steps=10, ramp=st3.ramps.Cubic(0, 0.4))
    hook = model.fc.register_forward_hook(lambda *_: None)
    for _ in range(3):
        model(torch.randn(4, 1, 8, 8)).square().sum().backward()
        optimizer.step()

    def state():
        tensors = {name: tensor.clone() for name, tensor in model.state_dict().items()}
        grads = {f"{name}.grad": parameter.grad.clone() for name, parameter in model.named_parameters()}
        ids = [(id(p), p.requires_grad, p._version, len(p._backward_hooks or ())) for p in model.parameters()]
        hooks = [(len(m._forward_hooks), len(m._forward_pre_hooks), len(m.__dict__)) for m in model.modules()]
        return tensors | grads, (
            ids,
            hooks,
            [module.training for module in model.modules()],
            torch.random.get_rng_state().tolist(),
        )

    before = state()
    export(model, torch.randn(2, 1, 8, 8, generator=torch.Generator()), tmp_path / "m")
    after = state()
    assert before[1] == after[1]
    assert all(torch.equal(tensor, after[0][name]) for name, tensor in before[0].items())
    model(torch.randn(4, 1, 8, 8)).square().sum().backward()  # training can go on
    optimizer.step()
    hook.remove()


class OnlyPairs(nn.Module):
    def forward(self, x):
        return x + 1 if x.shape[0] == 2 else x


@every_export
def test_a_model_for_one_batch_size_needs_fixed_shapes_and_the_error_says_so(export, tmp_path):
    with pytest.raises(
        st3.errors.ExportError,
        match=r"^torch.export cannot trace OnlyPairs: .* or say dynamic=\{\} to fix all shapes$",
    ):
        export(OnlyPairs(), torch.ones(2, 3), tmp_path / "m")
    assert not list(tmp_path.iterdir())
    made = export(OnlyPairs(), torch.ones(2, 3), tmp_path / "m", dynamic={})
    assert "inputs of the example's shape" in str(made)


class TwoInputs(nn.Module):
    def forward(self, x, y):
        return {"sum": x + y, "both": (x, y.mean())}


@every_export
def test_several_inputs_and_nested_answers_are_exported(export, tmp_path):
    assert export(TwoInputs(), (torch.randn(2, 3), torch.randn(3)), tmp_path / "m").difference < 1e-4


@every_export
def test_bad_examples_are_refused(export, tmp_path):
    with pytest.raises(TypeError) as error:
        export(Small(), "x", tmp_path / "m")
    assert str(error.value) == (
        "example_input must be a tensor, a tuple of arguments or a dict of named arguments, got str"
    )
    with pytest.raises(ValueError, match=r"^example_input must hold at least one tensor$"):
        export(Small(), {"x": 1}, tmp_path / "m")
    with pytest.raises(
        ValueError, match=r"^example_input is empty: axis 0 of x must have a size of at least 1$"
    ):
        export(Small(), torch.ones(0, 1, 8, 8), tmp_path / "m")
    with pytest.raises(
        ValueError, match=r"^example_input has no batch: .*, or say dynamic=\{\} to fix all shapes$"
    ):
        export(Small(), torch.tensor(1.0), tmp_path / "m")
    with pytest.raises(
        st3.errors.ExportError, match=r"^Small cannot take an input of 2x3x8x8: Given groups=1"
    ):
        export(Small(), torch.ones(2, 3, 8, 8), tmp_path / "m")
    with pytest.raises(st3.errors.ExportError) as error:
        export(Small(), {"y": torch.ones(2, 1, 8, 8)}, tmp_path / "m")
    assert str(error.value) == "Small cannot be called with example_input: missing a required argument: 'x'"
    assert not list(tmp_path.iterdir())


class Counting(nn.Module):
    """Gives other answers once it has been called three times, so that the traced program is wrong."""

    calls = 0

    def forward(self, x):
        self.calls += 1
        return x + (1.0 if self.calls > 3 else 0.0)


class Deciding(nn.Module):
    def forward(self, x):
        return x if x.sum() > 0 else -x


class Broken(nn.Module):
    def forward(self, x):
        return x @ torch.zeros(9, 9) if torch.compiler.is_exporting() else x


@every_export
@pytest.mark.parametrize("kind", [Deciding, Broken])
def test_if_torch_cannot_trace_a_model_only_the_error_says_so(export, kind, tmp_path, capfd, monkeypatch):
    monkeypatch.setattr(logging.root.manager, "disable", logging.INFO)
    with pytest.raises(st3.errors.ExportError, match=f"^torch.export cannot trace {kind.__name__}: "):
        export(kind(), torch.randn(2, 4), tmp_path / "m")
    assert capfd.readouterr() == ("", "")
    assert logging.root.manager.disable == logging.INFO  # as before


@every_export
def test_an_export_with_other_answers_is_not_written(export, tmp_path):
    with pytest.raises(
        st3.errors.ExportError,
        match=r"gives other answers than the model: for an input of 2x3 they differ by 1 of",
    ):
        export(Counting(), torch.zeros(2, 3), tmp_path / "m")
    assert not list(tmp_path.iterdir())


def test_unchecked_exports_say_so(tmp_path, monkeypatch):
    made = st3.export_program(OnlyPairs(), torch.ones(2, 3), tmp_path / "m", dynamic={}, check=False)
    assert str(made).endswith("; not checked")
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    made = st3.export_onnx(OnlyPairs(), torch.ones(2, 3), tmp_path / "m", dynamic={})
    assert str(made).endswith("; not checked: ONNX Runtime is not installed (pip install 'st3[onnx]')")
    monkeypatch.setitem(sys.modules, "onnxscript", None)
    with pytest.raises(ImportError, match=r"^ONNX files need onnx and onnxscript: pip install 'st3\[onnx\]'"):
        st3.export_onnx(OnlyPairs(), torch.ones(2, 3), tmp_path / "m")


def test_a_model_beyond_2_gigabytes_is_refused_before_any_work(tmp_path):
    class Huge(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.empty(1).expand(600_000_000), requires_grad=False)

        def forward(self, x):
            return x

    with pytest.raises(
        st3.errors.ExportError, match=r"^an ONNX file holds less than 2 GB, but the weights .* take 2\.4 GB$"
    ):
        st3.export_onnx(Huge(), torch.ones(2, 3), tmp_path / "m.onnx")
